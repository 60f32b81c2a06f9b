import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./modules.mjs";

const { ranges, textOf, visible, middle, uidLook } = await load("look.js");
const { gridFor } = await load("pages.js");
const { verdictOf, availableOf } = await load("ledger.js");
const { layoutTree, treeChanges } = await load("tree.js");
const { fateOf, spanOf } = await load("handoff.js");
const { pagesNamed } = await load("lamp.js");

test("the grid shows every page, in cells of 2 to 40 pixels", () => {
  for (const pages of [2, 28, 64, 100, 1000, 4096, 10_000, 100_000]) {
    for (const width of [500, 700, 1200]) {
      const { columns, cell, rows } = gridFor(pages, width, 216);
      assert.ok(columns * rows >= pages && columns * (rows - 1) < pages);
      assert.ok(cell >= 2 && cell <= 40, `${pages} pages in ${width}: cells of ${cell}`);
      assert.ok(columns * cell <= width);
    }
  }
  assert.deepEqual(gridFor(64, 690, 216), { columns: 16, cell: 40, rows: 4 });
});

const base = { step: 1, uid: 4, verdict: "pages", need: 13, free: 64, evictable: 0, pending: 0, reserved: 61, evictable_locked: null, matched: 0 };

test("a verdict says its numbers, and since when", () => {
  assert.equal(verdictOf(base, 1), "waits: needs 13, 61 promised, 64 in all");
  assert.equal(verdictOf(base, 5), "waits: needs 13, 61 promised, 64 in all (tested in step 1)");
  assert.equal(verdictOf({ ...base, verdict: "admitted", evictable_locked: 0 }, 2), "admitted: needs 13, 61 promised, 64 in all (at step 1)");
  const locked = { ...base, need: 3, reserved: 8, free: 5, evictable: 7, evictable_locked: 2 };
  assert.deepEqual(availableOf(locked), { before: 12, after: 7 });
  assert.equal(verdictOf(locked, 1), "waits: needs 3, 8 promised, 7 in all once its prefix is locked");
  const none = { ...base, need: null, free: null, evictable: null, pending: null, reserved: null };
  assert.deepEqual(availableOf(none), { before: null, after: null });
  assert.equal(verdictOf({ ...none, verdict: "row" }, 3), "waits: no free row (tested in step 1)");
  assert.equal(verdictOf({ ...none, verdict: "chunk" }, 1), "waits: an unfinished prompt goes first");
  assert.equal(verdictOf({ ...none, verdict: "budget" }, 1), "waits: this batch's prefill budget is used up");
});

const node = (parent, fields = {}) => ({ parent, tokens: [1], pages: [], locks: 0, used: 0, ...fields });

test("the tree: one row a leaf, children in the order of the oldest below them", () => {
  const { places, rows, depths } = layoutTree({ 0: node(-1), 1: node(0), 2: node(0), 3: node(1), 4: node(1) });
  assert.equal(rows, 3);
  assert.equal(depths, 2);
  assert.deepEqual([1, 3, 4, 2].map((i) => places.get(i).row), [0, 0, 1, 2]);
});

test("a split moves nothing up or down", () => {
  const before = layoutTree({ 0: node(-1), 1: node(0), 2: node(0), 3: node(0) });
  const after = layoutTree({ 0: node(-1), 1: node(9), 9: node(0), 2: node(0), 3: node(0) }); // 9 is the new upper part of 1
  for (const id of [1, 2, 3]) assert.equal(after.places.get(id).row, before.places.get(id).row);
  assert.equal(after.places.get(9).row, before.places.get(1).row);
});

test("a tree as deep as a long conversation is laid out", () => {
  const nodes = { 0: node(-1) };
  for (let i = 1; i <= 20_000; i++) nodes[i] = node(i - 1);
  assert.equal(layoutTree(nodes).depths, 20_000);
  const flat = { 0: node(-1) };
  for (let i = 1; i <= 200_000; i++) flat[i] = node(0);
  assert.equal(layoutTree(flat).rows, 200_000);
});

test("what a step did to the tree is read off its delta", () => {
  const gone = node(0, { tokens: [7] });
  const { marks, gone: evicted } = treeChanges([
    ["set", ["nodes", 4], null, node(0)],
    ["column", ["pages", "node", null], [8], 1, 4],
    ["set", ["nodes", 1, "parent"], 0, 4],
    ["column", ["nodes", null, "used"], [4, 2], [0, 1], 3],
    ["set", ["nodes", 5], null, node(4)],
    ["column", ["nodes", null, "used"], [4, 5], [3, 0], 4],
    ["set", ["nodes", 3], gone, null],
    ["column", ["nodes", null, "locks"], [6], 0, 1],
    ["column", ["pages", "owner", null], [1], 0, -2],
  ]);
  assert.deepEqual([...marks], [[4, "split"], [2, "hit"], [5, "new"]]);
  assert.deepEqual([...evicted], [[3, gone]]);
});

test("what becomes of a segment", () => {
  const handoff = { finished: false, replaced: [3, 4] };
  assert.equal(fateOf(handoff, { name: "duplicate", pages: [9, 10] }), "freed for the cache's 3-4");
  assert.equal(fateOf(handoff, { name: "tail", pages: [1] }), "the request's own");
  assert.equal(fateOf({ ...handoff, finished: true }, { name: "tail", pages: [1] }), "freed");
  assert.equal(fateOf(handoff, { name: "locked", pages: [] }), "nothing");
  const flying = { finished: true, pending: true, replaced: [] };
  for (const name of ["duplicate", "tail"]) assert.equal(fateOf(flying, { name, pages: [1] }), "freed after the batch in flight");
});

test("a tail says how far it is filled", () => {
  assert.equal(spanOf({ n: 11 }, { start: 0, end: 8 }), "[0, 8)");
  assert.equal(spanOf({ n: 11 }, { start: 8, end: 12 }), "[8, 12), filled to 11");
  assert.equal(spanOf({ n: 8 }, { start: 8, end: 12 }), "[8, 12), not filled yet");
});

test("pages named in a broken rule", () => {
  assert.deepEqual([...pagesNamed(["page 3 is in 2 tree nodes", "request 1's row names page 12, which belongs to nobody (free)"])], [3, 12]);
});

test("texts", () => {
  assert.equal(ranges([3, 4, 5, 9]), "3-5, 9");
  assert.equal(ranges([]), "none");
  assert.equal(textOf({ 1: "a", 2: " b" }, [1, 2, 7, 8]), "a b\u00a0#7\u00a0#8");
  assert.equal(visible("a b\nc\td"), "a b⏎c⇥d");
  assert.equal(visible(" a", true), "␣a");
  assert.equal(middle("abcdefghij", 5), "ab…ij");
  assert.equal(middle("🙂🙂🙂🙂🙂🙂", 3), "🙂…🙂");
  assert.deepEqual([uidLook(0), uidLook(8)], [{ colour: 0, pattern: 0 }, { colour: 1, pattern: 1 }]);
});
