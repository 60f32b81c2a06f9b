/** Requests over time, batches, and questions: what is computed before anything is drawn. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./modules.mjs";

const { stretchAround } = await load("timescale.js");
const { segmentsOf, statusAt, lifeOf, joinThin } = await load("timeline.js");
const { pieceOf } = await load("batch.js");
const { longestWait } = await load("questions.js");

const span = (fields) => ({ uid: 4, before: false, arrived: 1, admitted: -1, first: -1, finished: -1, reason: "", retracted: [], readmitted: [], verdicts: [], prompt: 8, prefills: [], ...fields });
const refused = (from, until, uid, verdict) => ({ from, until, uid, verdict });
const short = (segments) => segments.map(({ kind, from, to, reason }) => [kind, from, to, reason].filter((x) => x !== ""));

test("the stretch in sight holds the step with room on both sides, and depends on nothing else", () => {
  assert.deepEqual(stretchAround(30, 7, Infinity), [0, 30]);
  assert.deepEqual(stretchAround(30, 7, 50), [0, 30]);
  assert.deepEqual(stretchAround(0, 0, 20), [0, 0]);
  for (let i = 0; i < 1000; i++) {
    const [from, to] = stretchAround(1000, i, 100);
    assert.equal(to - from, 100);
    assert.ok(from >= 0 && to <= 1000 && from <= i && i < to);
    assert.ok((i - from >= 25 || from === 0) && (to - i > 25 || to === 1000), `${i} in ${from} to ${to}`);
  }
});

test("a wait is cut where its reason changes, and says behind whom", () => {
  const refusals = [refused(1, 3, 2, "pages"), refused(3, 5, 4, "pages"), refused(5, 6, 4, "row"), refused(9, Infinity, 7, "budget")];
  const waiting = segmentsOf(span({ arrived: 2 }), refusals, 10);
  assert.deepEqual(short(waiting), [["wait", 2, 5, "pages"], ["wait", 5, 6, "row"], ["wait", 6, 9], ["wait", 9, 11, "budget"]]);
  assert.deepEqual(waiting.map(({ behind }) => behind), [[2, 4], [4], [], [7]]);
  const said = lifeOf(span({ arrived: 2 }), waiting);
  assert.match(said, /request 4, 8 prompt tokens: arrives in step 2; waits in steps 2 to 4: not enough pages \(first behind 2\); waits in step 5: no free row;/);
  assert.match(said, /waits in steps 6 to 8: nobody was tested; waits in steps 9 to 10: this batch's prefill budget is used up \(behind 7\)$/);
});

test("prefill ends with the step that computes the prompt's end, and its beginning was cached", () => {
  const whole = span({ admitted: 3, first: 5, finished: 9, reason: "stop", prefills: [[3, 2, 5], [4, 5, 8]] });
  const segments = segmentsOf(whole, [], 20);
  assert.deepEqual(short(segments), [["wait", 1, 3], ["prefill", 3, 5], ["decode", 5, 10]]);
  assert.equal(segments[1].cached, 0.25);
  assert.deepEqual([0, 1, 3, 4, 5, 8, 9, 15].map((step) => statusAt(whole, segments, step)), ["later", "wait", "prefill", "prefill", "decode", "decode", "done", "done"]);
  const chunked = span({ admitted: 1, prefills: [[1, 0, 3]] });
  assert.deepEqual(short(segmentsOf(chunked, [], 4)), [["prefill", 1, 5]], "the rest of its prompt is not computed yet");
});

test("who is retracted waits again, and who is aborted in the queue never runs", () => {
  const again = span({ admitted: 1, first: 1, retracted: [4], readmitted: [6], prefills: [[1, 0, 8], [6, 4, 11]] });
  assert.deepEqual(short(segmentsOf(again, [refused(4, 6, 4, "pages")], 7)), [["prefill", 1, 2], ["decode", 2, 4], ["wait", 4, 6, "pages"], ["prefill", 6, 7], ["decode", 7, 8]]);
  const gone = span({ finished: 4, reason: "abort" });
  const segments = segmentsOf(gone, [], 9);
  assert.deepEqual(short(segments), [["wait", 1, 4]]);
  assert.deepEqual([3, 4].map((step) => statusAt(gone, segments, step)), ["wait", "done"]);
  assert.deepEqual(segmentsOf(span({ finished: 1, reason: "error" }), [], 9), [], "refused at once");
});

test("who ran when the record began decodes from there", () => {
  const before = span({ before: true, arrived: 7, admitted: 7, first: 7, finished: 10, reason: "length" });
  assert.deepEqual(short(segmentsOf(before, [], 12)), [["decode", 7, 11]]);
  const halfway = segmentsOf(span({ before: true, arrived: 7, admitted: 7, first: 8, prefills: [[8, 4, 8]] }), [], 12);
  assert.deepEqual(short(halfway), [["prefill", 7, 9], ["decode", 9, 13]]);
  assert.equal(halfway[0].cached, 0, "its beginning was computed, not found in the cache");
  assert.match(lifeOf(before, segmentsOf(before, [], 12)), /: there when the record began; decodes in steps 7 to 10; ends \(length\) in step 10$/);
});

test("waits too narrow to tell apart become one", () => {
  const wait = (from, to, reason) => ({ kind: "wait", from, to, reason, behind: [], cached: 0 });
  const segments = [wait(0, 20, "row"), wait(20, 21, "pages"), wait(21, 22, "row"), wait(22, 23, "pages"), wait(23, 40, "row"), { ...wait(40, 41, ""), kind: "prefill" }];
  assert.deepEqual(short(joinThin(segments, 5)), [["wait", 0, 20, "row"], ["wait", 20, 23], ["wait", 23, 40, "row"], ["prefill", 40, 41]]);
  assert.deepEqual(joinThin(segments, 0), segments);
});

test("what a batch computes of a prompt", () => {
  assert.equal(pieceOf({ start: 0, end: 5 }, 5), "all 5 prompt tokens of ");
  assert.equal(pieceOf({ start: 0, end: 1 }, 1), "the one prompt token of ");
  assert.equal(pieceOf({ start: 0, end: 64 }, 128), "64 of 128 prompt tokens of ");
  assert.equal(pieceOf({ start: 64, end: 128 }, 128), "64 of 128 prompt tokens (after the first 64) of ");
  assert.equal(pieceOf({ start: 2, end: 9 }, 5), "7 tokens computed again, of ");
});

test("the request to begin with is the one that waited longest", () => {
  const store = (...spans) => ({ last: 20, spans: new Map(spans.map((s) => [s.uid, s])) });
  assert.equal(longestWait(store()), -1);
  assert.equal(longestWait(store(span({ uid: 0, admitted: 1 }), span({ uid: 1, admitted: 9 }), span({ uid: 2, finished: 5 }))), 1);
  assert.equal(longestWait(store(span({ uid: 0, admitted: 9 }), span({ uid: 1, arrived: 3 }))), 1, "it waits still");
});
