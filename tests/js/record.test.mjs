import assert from "node:assert/strict";
import { test } from "node:test";
import { initialState, load, request, stepEntry } from "./modules.mjs";

const R = await load("record.js");

/** Repeatable numbers. */
function dice(seed) {
  let x = seed;
  return (n) => {
    x = (Math.imul(x, 1664525) + 1013904223) >>> 0;
    return Math.floor((x / 2 ** 32) * n);
  };
}

/** A random record of every kind of change that the fold makes, and the state after each step that is kept. */
function randomRecord(steps, seed, keep = () => true) {
  const pages = 16;
  const roll = dice(seed);
  const keyframe = initialState(pages);
  const state = R.fresh(keyframe);
  const after = { 0: R.fresh(state) };
  const deltas = [];
  let uid = 0;
  for (let step = 1; step <= steps; step++) {
    const delta = [];
    const set = (path, value) => {
      let old = state;
      for (const part of path) old = old?.[part] ?? null;
      delta.push([path, R.fresh(old), R.fresh(value)]);
      R.assign(state, path, value);
    };
    for (let i = roll(9); i > 0; i--) {
      const known = Object.keys(state.requests);
      const kind = roll(6);
      if (kind === 0) set(["requests", uid, ], request(uid++, { prompt: [1, 2, 3] }));
      else if (kind === 1) set(["pages", "owner", roll(pages)], roll(5) - 2);
      else if (kind === 2 && known.length) {
        const who = known[roll(known.length)];
        set(["requests", Number(who), "output", state.requests[who].output.length], roll(100));
      } else if (kind === 3 && known.length) set(["requests", Number(known[roll(known.length)]), "pages"], [roll(pages), roll(pages)]);
      else if (kind === 4) set(["nodes", 1 + roll(5)], roll(3) ? { parent: 0, tokens: [roll(9)], pages: [roll(pages)], locks: roll(2), used: step } : null);
      else set(["tests"], [{ step, uid: 0, need: roll(40), reserved: roll(40), verdict: "pages" }]);
    }
    set(["step"], step);
    deltas.push(delta);
    if (keep(step)) after[step] = R.fresh(state);
  }
  return { record: { version: 1, title: "", texts: {}, keyframe, deltas, steps: deltas.map((_, i) => stepEntry(i + 1)) }, after };
}

test("assign follows the rule: grow at the end, pop the last, remove a key, copy what is put in", () => {
  const state = { list: [1], dict: { a: 1 } };
  const inner = { x: [1] };
  R.assign(state, ["list", 1], 2);
  R.assign(state, ["dict", "b"], inner);
  inner.x.push(2);
  assert.deepEqual(state, { list: [1, 2], dict: { a: 1, b: { x: [1] } } });
  R.assign(state, ["list", 1], null);
  R.assign(state, ["dict", "a"], null);
  R.assign(state, ["dict", "never"], null);
  assert.deepEqual(state, { list: [1], dict: { b: { x: [1] } } });
  R.assign(state, ["list", 0], 0); // a zero is a value
  assert.deepEqual(state.list, [0]);
  assert.throws(() => R.assign({ list: [1, 2] }, ["list", 0], null), /last entry/);
});

test("every step is reached forwards, backwards and by jumps, and is the same", () => {
  for (let seed = 1; seed <= 20; seed++) {
    const { record, after } = randomRecord(40, seed);
    const store = new R.RunStore();
    store.load(JSON.parse(JSON.stringify(record)));
    const cursor = new R.Cursor(store, 0);
    for (let s = 0; s <= 40; s++) assert.deepEqual(cursor.moveTo(s), after[s]);
    for (let s = 40; s >= 0; s--) assert.deepEqual(cursor.moveTo(s), after[s]);
    const roll = dice(seed);
    for (let i = 0; i < 60; i++) {
      const s = roll(41);
      assert.deepEqual(cursor.moveTo(s), after[s]);
    }
    assert.deepEqual(store.keyframes[0].state, after[0], "a cursor must not touch the keyframe");
  }
});

test("long records get keyframes, and jumps over them agree", () => {
  const places = [0, 4999, 17, 2500, 5000, 2499, 1];
  const { record, after } = randomRecord(5000, 7, (step) => places.includes(step) || step === 10);
  const store = new R.RunStore();
  store.load(record);
  const cursor = new R.Cursor(store);
  assert.ok(store.keyframes.length > 2, `${store.keyframes.length} keyframes`);
  for (const s of places) assert.deepEqual(cursor.moveTo(s), after[s]);
  const other = new R.Cursor(store, 10);
  assert.deepEqual(other.state, after[10]);
  assert.deepEqual(cursor.state, after[1], "two cursors do not share a state");
});

test("a cursor stays within the record", () => {
  const { record } = randomRecord(3, 1);
  const store = new R.RunStore();
  store.load(record);
  const cursor = new R.Cursor(store);
  cursor.moveTo(99);
  assert.equal(cursor.step, 3);
  cursor.moveTo(-5);
  assert.equal(cursor.step, 0);
});

test("a tail continues the record; overlaps are skipped, gaps refused", () => {
  const { record, after } = randomRecord(10, 3);
  const store = new R.RunStore();
  const heard = [];
  store.listeners.add((what) => heard.push(what));
  assert.equal(store.append({ first: 0, deltas: [], steps: [] }), false, "nothing to continue yet");
  store.load({ ...record, deltas: record.deltas.slice(0, 4), steps: record.steps.slice(0, 4) });
  const tail = (a, b) => ({ first: a, deltas: record.deltas.slice(a, b), steps: record.steps.slice(a, b), texts: { 5: "five" } });
  assert.equal(store.append(tail(6, 8)), false);
  assert.equal(store.length, 4);
  assert.equal(store.append(tail(2, 6)), true);
  assert.equal(store.append(tail(2, 6)), true);
  assert.equal(store.append(tail(6, 10)), true);
  assert.deepEqual([store.length, store.last, store.texts[5]], [10, 10, "five"]);
  assert.deepEqual(heard, ["load", "tail", "tail"]);
  assert.deepEqual(new R.Cursor(store).state, after[10]);
  assert.deepEqual(new R.Cursor(store, 5).state, after[5]);
});

test("a record that starts later counts its steps from there", () => {
  const { record } = randomRecord(3, 1);
  record.keyframe.step = 100;
  record.steps.forEach((s, i) => (s.step = 101 + i));
  const store = new R.RunStore();
  store.load(record);
  assert.deepEqual([store.first, store.last, store.entry(100), store.entry(101).step], [100, 103, null, 101]);
  assert.deepEqual(store.delta(100), []);
  assert.deepEqual(store.delta(103), record.deltas[2]);
});

test("another version is refused in words", () => {
  const { record } = randomRecord(1, 1);
  assert.throws(() => new R.RunStore().load({ ...record, version: 2 }), /version 1, not 2/);
});

test("a page is free, owned, evictable, or protected when its node is locked", () => {
  const state = initialState(6);
  state.pages.owner = [-1, 3, -2, -2, 0, -1];
  state.pages.node = [-1, -1, 1, 2, -1, -1];
  state.nodes[1] = { parent: 0, tokens: [1, 2, 3, 4], pages: [2], locks: 2, used: 1 };
  state.nodes[2] = { parent: 1, tokens: [5, 6, 7, 8], pages: [3], locks: 0, used: 1 };
  const kinds = R.pageKinds(state);
  assert.deepEqual(Array.from(kinds, (k) => R.KINDS[k]), ["free", "owned", "protected", "evictable", "owned", "free"]);
  assert.deepEqual(R.countKinds(kinds), { free: 2, owned: 2, evictable: 1, protected: 1 });
});

test("what a page holds is told in the request's and in the prefix's numbering", () => {
  const state = initialState(6);
  state.nodes[1] = { parent: 0, tokens: [1, 2, 3, 4], pages: [5], locks: 1, used: 1 };
  state.nodes[2] = { parent: 1, tokens: [5, 6, 7, 8], pages: [3], locks: 1, used: 1 };
  state.pages.node = [-1, -1, -1, 2, -1, 1];
  state.requests[7] = request(7, { prompt: [1, 2, 3, 4, 5, 6, 7, 8, 9], output: [10], pages: [5, 3, 0], cached_len: 10, node: 2 });
  assert.deepEqual(R.pageHolds(state, 3), [
    { node: 2, uid: -1, start: 4, end: 8, tokens: [5, 6, 7, 8] },
    { node: -1, uid: 7, start: 4, end: 8, tokens: [5, 6, 7, 8] },
  ]);
  assert.deepEqual(R.pageHolds(state, 0), [{ node: -1, uid: 7, start: 8, end: 10, tokens: [9, 10] }]);
  assert.deepEqual(R.pageHolds(state, 1), []);
});

test("pointing at one thing selects all that belongs to it", () => {
  const state = initialState(6);
  state.nodes[1] = { parent: 0, tokens: [1, 2, 3, 4], pages: [5], locks: 2, used: 1 };
  state.nodes[2] = { parent: 1, tokens: [5, 6, 7, 8], pages: [3], locks: 1, used: 1 };
  state.pages.owner = [7, -1, -1, -2, 8, -2];
  state.pages.node = [-1, -1, -1, 2, -1, 1];
  state.requests[7] = request(7, { pages: [5, 3, 0], node: 2 });
  state.requests[8] = request(8, { pages: [5, 4], node: 1 });
  const plain = (s) => s && { pages: [...s.pages].sort(), uids: [...s.uids].sort(), nodes: [...s.nodes].sort() };
  assert.equal(R.selectionOf(state, null), null);
  assert.deepEqual(plain(R.selectionOf(state, { kind: "page", page: 0 })), { pages: [0], uids: [7], nodes: [] });
  assert.deepEqual(plain(R.selectionOf(state, { kind: "page", page: 5 })), { pages: [5], uids: [7, 8], nodes: [1] });
  assert.deepEqual(plain(R.selectionOf(state, { kind: "uid", uid: 7 })), { pages: [0, 3, 5], uids: [7], nodes: [1, 2] });
  assert.deepEqual(plain(R.selectionOf(state, { kind: "node", node: 1 })), { pages: [5], uids: [7, 8], nodes: [1] });
  assert.deepEqual(plain(R.selectionOf(state, { kind: "pages", pages: [3], uid: 8 })), { pages: [3], uids: [8], nodes: [2] });
  assert.deepEqual(plain(R.selectionOf(state, { kind: "node", node: 99 })), { pages: [], uids: [], nodes: [] });
});
