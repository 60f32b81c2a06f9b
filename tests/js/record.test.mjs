import assert from "node:assert/strict";
import { test } from "node:test";
import { contained, initialState, load, plain, recordOf, request, tailOf } from "./modules.mjs";

const R = Object.assign({}, ...(await Promise.all(["record.js", "change.js", "cursor.js", "state.js", "selection.js"].map(load))));

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
    const change = (...what) => {
      delta.push(R.fresh(what));
      R.applyDelta(state, [R.fresh(what)]);
    };
    const old = (path) => path.reduce((at, part) => at?.[part] ?? null, state);
    const set = (path, value) => change("set", path, old(path), value);
    const column = (path, keys, news) => change("column", path, keys, keys.map((k) => old(path.map((part) => part ?? k))), news);
    const splice = (path, from, length, inserted) => change("splice", path, from, old(path).slice(from, from + length), inserted);
    for (let i = roll(9); i > 0; i--) {
      const known = Object.keys(state.requests).map(Number).slice(-8);
      const some = known.filter(() => roll(2));
      const kind = roll(7);
      if (kind === 0) set(["requests", uid], request(uid++, { prompt: [1, 2, 3] }));
      else if (kind === 1) column(["pages", "owner", null], [roll(4), 4 + roll(pages - 4)], roll(2) ? roll(5) - 2 : [roll(5) - 2, roll(5) - 2]);
      else if (kind === 2) column(["requests", null, "cached_len"], some, some.map(() => roll(50)));
      else if (kind === 3) change("append", ["requests", null, "output"], [...some, ...some], [...some, ...some].map(() => roll(100)));
      else if (kind === 4 && known.length) {
        const who = known[roll(known.length)];
        splice(["requests", who, "pages"], roll(state.requests[who].pages.length + 1), roll(3), [roll(pages), roll(pages)]);
      } else if (kind === 5) set(["nodes", 1 + roll(5)], roll(3) ? { parent: 0, tokens: [roll(9)], pages: [roll(pages)], locks: roll(2), used: step } : null);
      else splice(["tests"], 0, roll(2) ? state.tests.length : 0, [{ step, uid: 0, need: roll(40), reserved: roll(40), verdict: "pages" }]);
    }
    set(["step"], step);
    deltas.push(delta);
    if (keep(step)) after[step] = R.fresh(state);
  }
  return { record: { keyframe, deltas }, after };
}

function storeOf(record, options) {
  const store = new R.RunStore();
  store.load(recordOf(record, options));
  return store;
}

test("each kind of change goes there and back", () => {
  const before = () => ({ list: [5, 6, 7], dict: { a: 1, b: 2 }, rows: [{ n: 3, has: [1] }, { n: 3, has: [] }] });
  const inner = { x: [1] };
  for (const [change, after] of [
    [["set", ["dict", "a"], 1, 0], { dict: { a: 0, b: 2 } }], // a zero is a value
    [["set", ["dict", "c"], null, inner], { dict: { a: 1, b: 2, c: { x: [1] } } }],
    [["set", ["dict", "b"], 2, null], { dict: { a: 1 } }],
    [["column", ["list", null], [2, 0], [7, 5], [70, 50]], { list: [50, 6, 70] }],
    [["column", ["dict", null], ["a", "b"], [1, 2], 9], { dict: { a: 9, b: 9 } }],
    [["column", ["rows", null, "n"], [0, 1], 3, [4, 5]], { rows: [{ n: 4, has: [1] }, { n: 5, has: [] }] }],
    [["append", ["rows", null, "has"], [1, 0, 1], [7, 8, 9]], { rows: [{ n: 3, has: [1, 8] }, { n: 3, has: [7, 9] }] }],
    [["splice", ["list"], 1, [6], [8, 9]], { list: [5, 8, 9, 7] }],
    [["splice", ["rows", 0, "has"], 1, [], [2]], { rows: [{ n: 3, has: [1, 2] }, { n: 3, has: [] }] }],
  ]) {
    const state = before();
    R.applyDelta(state, [change]);
    assert.deepEqual(state, { ...before(), ...after });
    R.undoDelta(state, [change]);
    assert.deepEqual(state, before());
  }
  const state = before();
  R.applyDelta(state, [["set", ["dict", "c"], null, inner]]);
  state.dict.c.x.push(2);
  assert.deepEqual(inner, { x: [1] }, "what is put in is a copy");
});

test("a spliced list is a new one, so that a view sees that it changed", () => {
  const state = { tests: [1] };
  const { tests } = state;
  R.applyDelta(state, [["splice", ["tests"], 1, [], [2]]]);
  assert.ok(state.tests !== tests);
  R.undoDelta(state, [["splice", ["tests"], 1, [], [2]]]);
  assert.ok(state.tests !== tests);
});

test("every step is reached forwards, backwards and by jumps, and is the same", () => {
  for (let seed = 1; seed <= 20; seed++) {
    const { record, after } = randomRecord(40, seed);
    const store = storeOf(record, { every: 7 });
    const cursor = new R.Cursor(store, 0);
    for (let s = 0; s <= 40; s++) assert.deepEqual(plain(cursor.moveTo(s)), after[s]);
    for (let s = 40; s >= 0; s--) assert.deepEqual(plain(cursor.moveTo(s)), after[s]);
    const roll = dice(seed);
    for (let i = 0; i < 60; i++) {
      const s = roll(41);
      assert.deepEqual(plain(cursor.moveTo(s)), after[s]);
    }
    assert.deepEqual(plain(store.keyframe), after[0], "a cursor must not touch the keyframe");
  }
});

test("few parts are kept decoded, and those that were dropped are read again", () => {
  const { record, after } = randomRecord(400, 7, (step) => step % 50 === 0);
  const store = storeOf(record, { every: 4 });
  const cursor = new R.Cursor(store);
  for (const s of [0, 400, 50, 250, 100]) assert.deepEqual(plain(cursor.moveTo(s)), after[s]);
  const decoded = store._parts.named.steps.filter((part) => part.value !== undefined).length;
  assert.ok(decoded <= 24, `${decoded} parts are decoded`);
  const other = new R.Cursor(store, 50);
  assert.deepEqual(plain(other.state), after[50]);
  assert.deepEqual(plain(cursor.state), after[100], "two cursors do not share a state");
});

test("a cursor stays within the record", () => {
  const { record } = randomRecord(3, 1);
  const cursor = new R.Cursor(storeOf(record));
  cursor.moveTo(99);
  assert.equal(cursor.step, 3);
  cursor.moveTo(-5);
  assert.equal(cursor.step, 0);
});

test("a tail continues the record; what is known is skipped, gaps are refused", () => {
  const { record, after } = randomRecord(10, 3);
  const store = new R.RunStore();
  const heard = [];
  store.listeners.add((what) => heard.push(what));
  const tail = (a, b) => store.append(...tailOf(record.deltas, a, b, { 5: "five", 6: "6" }));
  assert.equal(tail(0, 1), false, "nothing to continue yet");
  store.load(recordOf({ ...record, deltas: record.deltas.slice(0, 4) }));
  assert.deepEqual(heard.splice(0), ["load", "more"]);
  assert.equal(tail(6, 8), false);
  assert.equal(store.length, 4);
  assert.equal(tail(2, 4), true);
  assert.equal(tail(2, 6), false, "half known: not to be told apart, so the whole is asked for");
  assert.equal(tail(4, 6), true);
  assert.equal(tail(4, 6), true);
  assert.equal(tail(6, 10), true);
  assert.deepEqual([store.length, store.last, store.texts, store.index.cost.length], [10, 10, { 5: "five" }, 10]);
  assert.deepEqual(heard, ["tail", "tail"]);
  assert.deepEqual(plain(new R.Cursor(store).state), after[10]);
  assert.deepEqual(plain(new R.Cursor(store, 5).state), after[5]);
});

test("a record that starts later counts its steps from there", () => {
  const { record } = randomRecord(3, 1);
  record.keyframe.step = 100;
  const store = storeOf(record);
  assert.deepEqual([store.first, store.last, store.entry(100), store.entry(101).step, store.entry(104)], [100, 103, null, 101, null]);
  assert.deepEqual(store.delta(100), []);
  assert.deepEqual(store.delta(103), record.deltas[2]);
});

test("settings that change are known from their step on", () => {
  const store = new R.RunStore();
  store.config = { eviction: "lru", order: "fcfs" };
  store._mark("settings", -1, 3, '{"eviction": "fifo"}');
  store._mark("settings", -1, 7, '{"eviction": "lru", "order": "lpm"}');
  assert.deepEqual([2, 3, 7].map((step) => store.configAt(step)),
    [{ eviction: "lru", order: "fcfs" }, { eviction: "fifo", order: "fcfs" }, { eviction: "lru", order: "lpm" }]);
  assert.deepEqual(store.uids, [], "of no request");
});

test("another version is refused in words", async () => {
  await assert.rejects(new R.RunStore().load(contained([], { version: 2 })), /version 4, not 2/);
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
  state.requests[8] = request(8, { pages: [5, 4], pending: [2], node: 1 });
  assert.deepEqual([...R.pendingPages(state)], [2]);
  assert.deepEqual(R.selectionOf(state, { kind: "uid", uid: 8 }).pages, new Set([5, 4, 2]));
  const plain = (s) => s && { pages: [...s.pages].sort(), uids: [...s.uids].sort(), nodes: [...s.nodes].sort() };
  assert.equal(R.selectionOf(state, null), null);
  assert.deepEqual(plain(R.selectionOf(state, { kind: "page", page: 0 })), { pages: [0], uids: [7], nodes: [] });
  assert.deepEqual(plain(R.selectionOf(state, { kind: "page", page: 5 })), { pages: [5], uids: [7, 8], nodes: [1] });
  assert.deepEqual(plain(R.selectionOf(state, { kind: "uid", uid: 7 })), { pages: [0, 3, 5], uids: [7], nodes: [1, 2] });
  assert.deepEqual(plain(R.selectionOf(state, { kind: "node", node: 1 })), { pages: [5], uids: [7, 8], nodes: [1] });
  assert.deepEqual(plain(R.selectionOf(state, { kind: "pages", pages: [3], uid: 8 })), { pages: [3], uids: [8], nodes: [2] });
  assert.deepEqual(plain(R.selectionOf(state, { kind: "node", node: 99 })), { pages: [], uids: [], nodes: [] });
});
