/** Views of pages over time and space: what they compute, against the plainest way to compute it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { initialState, load, packed, contained, request } from "./modules.mjs";

const { RunStore } = await load("record.js");
const { breaksIn, upTo } = await load("breaks.js");
const { evictionOrder, pushedOut, usesWords } = await load("eviction.js");
const { ghostPages, suspectsOf, brokenPages } = await load("ghosts.js");
const { LifePicture, livesOf, lifeAt, lifeWords, sharesOf, moved, zoomed } = await load("lives.js");
const { largestRuns } = await load("lifedraw.js");
const { entriesOf } = await load("pagetable.js");
const { momentOf, nodeMoves, nodeWords, pageMoves, requestMoves, requestWords } = await load("compare.js");
const { forStage } = await load("player.js");
const { asXml, pictureName, variablesIn } = await load("picture.js");

function dice(seed) {
  let x = seed;
  return (n) => {
    x = (Math.imul(x, 1664525) + 1013904223) >>> 0;
    return Math.floor((x / 2 ** 32) * n);
  };
}

/** Random changes of owners, and who had each page after each step. */
function randomLives(pages, steps, seed, first = 0) {
  const roll = dice(seed);
  const start = Int32Array.from({ length: pages }, () => roll(4) - 2);
  const owner = start.slice();
  const changes = { steps: [], pages: [], owners: [] };
  const after = { [first]: owner.slice() };
  for (let step = first + 1; step <= first + steps; step++) {
    for (let i = roll(5); i > 0; i--) {
      const page = roll(pages);
      owner[page] = roll(6) - 2;
      changes.steps.push(step);
      changes.pages.push(page);
      changes.owners.push(owner[page]);
    }
    after[step] = owner.slice();
  }
  return { lives: livesOf(start, changes, first, first + steps), after };
}

test("a page's life says who had it after every step", () => {
  for (let seed = 1; seed <= 20; seed++) {
    const { lives, after } = randomLives(7, 40, seed, seed % 3);
    for (let step = lives.first; step <= lives.last; step++) {
      for (let page = 0; page < 7; page++) {
        const { owner, from, to, next } = lifeAt(lives, page, step);
        assert.equal(owner, after[step][page], `page ${page} after step ${step}`);
        assert.ok(from <= step && step <= to);
        for (let s = from; s <= to; s++) assert.equal(after[s][page], owner);
        assert.equal(next, to === lives.last ? null : after[to + 1][page]);
        assert.notEqual(next, owner);
      }
    }
  }
});

test("a life in words", () => {
  const lives = livesOf(Int32Array.of(-1, -2), { steps: [3, 18, 30], pages: [0, 0, 0], owners: [4, -2, -1] }, 0, 40);
  assert.equal(lifeWords(lives, 0, 5), "page 0: request 4 from step 3 to 17, then cached");
  assert.equal(lifeWords(lives, 0, 1), "page 0: free from the start to 2, then request 4");
  assert.equal(lifeWords(lives, 0, 40), "page 0: free from step 30 to the end");
  assert.equal(lifeWords(lives, 1, 40), "page 1: cached from the start to the end");
});

test("what came and went within a step was never there", () => {
  const lives = livesOf(Int32Array.of(-1), { steps: [2, 2, 2, 3], pages: [0, 0, 0, 0], owners: [1, 2, -1, 5] }, 0, 9);
  assert.deepEqual([...lives.steps], [0, 3]);
  assert.deepEqual([...lives.owners], [-1, 5]);
});

test("a cell has the owner of most of its page-steps, whatever the size", () => {
  for (let seed = 1; seed <= 30; seed++) {
    const roll = dice(seed);
    const { lives, after } = randomLives(9, 50, seed);
    const x0 = 1 + roll(20);
    const y0 = roll(4);
    const part = { x0, x1: x0 + 1 + roll(50 - x0), y0, y1: y0 + 1 + roll(9 - y0) };
    const picture = new LifePicture(lives, part, 1 + roll(30), 1 + roll(6));
    while (picture.more());
    const { columns, rows, owners } = picture;
    assert.ok(columns <= part.x1 - part.x0 && rows <= part.y1 - part.y0);
    for (let r = 0; r < rows; r++) {
      for (let c = 0; c < columns; c++) {
        const sums = new Map();
        const edge = (from, to, n, of) => from + Math.floor((n * (to - from)) / of);
        for (let p = edge(part.y0, part.y1, r, rows); p < edge(part.y0, part.y1, r + 1, rows); p++) {
          for (let s = edge(part.x0, part.x1, c, columns); s < edge(part.x0, part.x1, c + 1, columns); s++) sums.set(after[s][p], (sums.get(after[s][p]) ?? 0) + 1);
        }
        assert.equal(sums.get(owners[r * columns + c]), Math.max(...sums.values()), `cell ${c}, ${r} of seed ${seed}`);
      }
    }
  }
});

test("the shares of a part are its page-steps", () => {
  const { lives, after } = randomLives(9, 50, 4);
  const sums = new Map();
  for (let p = 2; p < 7; p++) for (let s = 10; s < 31; s++) sums.set(after[s][p], (sums.get(after[s][p]) ?? 0) + 1);
  assert.deepEqual(new Map(sharesOf(lives, { x0: 10, x1: 31, y0: 2, y1: 7 })), sums);
});

test("zooming keeps what is under the mouse and stays within the run", () => {
  assert.deepEqual(zoomed(0, 100, 50, 0.5, 0, 100, 4), [25, 75]);
  assert.deepEqual(zoomed(0, 100, 0, 0.5, 0, 100, 4), [0, 50]);
  assert.deepEqual(zoomed(90, 100, 99, 2, 0, 100, 4), [80, 100]);
  assert.deepEqual(zoomed(40, 44, 42, 0.5, 0, 100, 4), [40, 44]);
  assert.deepEqual(zoomed(0, 3, 1, 0.5, 0, 3, 8), [0, 3]);
  assert.deepEqual(moved(-5, 10, 0, 100), [0, 10]);
  assert.deepEqual(moved(95, 10, 0, 100), [90, 100]);
});

test("a name stands where its owner has most room", () => {
  const owners = [1, 1, 1, 1, 1, 5, 5, 1, 1, 5, 5, 5, 1, 1, 1];
  const picture = { owners: Int32Array.from(owners), columns: 5, rows: 3 };
  assert.deepEqual([...largestRuns(picture, 1)], [{ owner: 1, row: 0, from: 0, to: 5 }, { owner: 5, row: 1, from: 0, to: 2 }]);
  assert.deepEqual([...largestRuns(picture, 3)], [{ owner: 1, row: 1, from: 2, to: 4 }]);
});

const leaf = (parent, used, pages, fields = {}) => ({ parent, tokens: [1], pages, locks: 0, used, ...fields });

test("leaves go in the policy's order, and whoever becomes a leaf then", () => {
  const nodes = { 0: leaf(-1, 0, []), 1: leaf(0, 9, [1]), 2: leaf(1, 9, [2]), 3: leaf(1, 4, [3]), 4: leaf(0, 4, [4], { locks: 1 }), 5: leaf(0, 2, [5]), 6: leaf(4, 3, [6]) };
  assert.deepEqual(evictionOrder(nodes, "lru"), [5, 6, 3, 2, 1]);
  assert.deepEqual(evictionOrder(nodes, "fifo"), [2, 3, 1, 5, 6]);
  for (const [id, uses] of [[1, 9], [2, 1], [3, 1], [4, 9], [5, 1], [6, 5]]) nodes[id].uses = uses;
  assert.deepEqual(evictionOrder(nodes, "lfu"), [2, 3, 5, 6, 1]);
  assert.deepEqual(["lru", "lfu", "fifo", undefined].map((policy) => usesWords(nodes[6], policy, 9)), ["6 uses ago", "5 uses", "6 uses ago", "6 uses ago"]);
  assert.equal(usesWords(nodes[1], "lru", 9), "used last");
  assert.deepEqual(evictionOrder({ 0: leaf(-1, 0, []) }, "lru"), []);
});

test("whole leaves go until there are enough", () => {
  const nodes = { 1: leaf(0, 1, [1, 2, 3]), 2: leaf(0, 2, [4]), 3: leaf(0, 3, [5, 6]) };
  const goes = (free, n) => pushedOut(nodes, [1, 2, 3], free, n);
  assert.deepEqual(goes(5, 5), { missing: 0, leaves: 0, pages: [], short: 0 });
  assert.deepEqual(goes(5, 6), { missing: 1, leaves: 1, pages: [1, 2, 3], short: 0 });
  assert.deepEqual(goes(1, 5), { missing: 4, leaves: 2, pages: [1, 2, 3, 4], short: 0 });
  assert.deepEqual(goes(0, 9), { missing: 9, leaves: 3, pages: [1, 2, 3, 4, 5, 6], short: 3 });
});

test("many leaves come out in order", () => {
  const roll = dice(3);
  const nodes = { 0: leaf(-1, 0, []) };
  for (let id = 1; id <= 500; id++) nodes[id] = leaf(0, roll(50), [id]);
  const order = evictionOrder(nodes, "lru");
  assert.deepEqual(order, Object.keys(nodes).map(Number).slice(1).sort((a, b) => nodes[a].used - nodes[b].used || a - b));
});

test("a row's entries: slots of tokens, or pages", () => {
  const row = request(3, { pages: [5, 2], matched: 4, cached_len: 6 });
  const shown = (...what) => entriesOf(row, 4, ...what).map(({ value, kind, filled, border }) => [value, kind, filled, border]);
  assert.deepEqual(shown(false, 3, 8), [[23, "cached", 1, false], [8, "computed", 1, true], [9, "computed", 1, false], [10, "ahead", 0, false], [11, "ahead", 0, false]]);
  assert.deepEqual(shown(true, 0, 9), [[5, "cached", 1, true], [2, "computed", 0.5, true]]);
  assert.deepEqual(entriesOf(request(1), 4, false, 0, 9), []);
});

test("what moved between two moments", () => {
  assert.deepEqual(pageMoves(Int32Array.of(-1, 3, 3, -2, -1), Int32Array.of(4, -1, -2, -2, -1)), { came: [0], went: [1], moved: [2] });
  const a = initialState();
  const b = initialState();
  a.requests = { 1: request(1, { status: "running", row: 2, pages: [1], cached_len: 3 }), 2: request(2), 3: request(3, { verdict: "pages" }) };
  b.requests = { 1: request(1, { status: "finished", reason: "stop", output: [5, 6] }), 2: request(2), 3: request(3, { status: "prefill", verdict: "admitted", row: 0, pages: [1, 2] }), 4: request(4) };
  a.pages.owner = b.pages.owner = new Int32Array(8);
  const [before, after] = [momentOf(a).requests, momentOf(b).requests];
  assert.deepEqual(requestMoves(before, b.requests), [3, 4, 1], "those that have not ended first");
  assert.deepEqual([1, 3, 4].map((uid) => requestWords(before.get(uid), after.get(uid))),
    ["running → ended: stop, −1 page, +2 tokens, KV 3 → 0, left row 2", "waits: pages → prefill, +2 pages, row 0", "new: waits"]);
  assert.deepEqual(requestMoves(after, a.requests), [1, 3, 4]);
  assert.equal(requestWords(after.get(4), undefined), "not there yet");
});

test("nodes that are new, gone, cut, whole again, locked", () => {
  const at = (tokens, fields = {}) => ({ parent: 0, tokens: Array(tokens).fill(1), pages: Array(tokens).fill(1), locks: 0, ...fields });
  const states = [{ 1: at(6), 2: at(2), 3: at(4), 5: at(1) }, { 1: at(2, { parent: 4 }), 3: at(4, { locks: 2 }), 4: at(4), 5: at(1) }];
  const said = (x, y) => nodeMoves(momentOf({ ...initialState(), pages: { owner: [] }, nodes: x }).nodes, y).map((move) => [move.id, move.what, nodeWords(move)]);
  assert.deepEqual(said(...states), [[4, "new", "4 tokens, 4 pages"], [2, "gone", "2 tokens, 2 pages"], [1, "split", "6 tokens, now 2 below node 4"], [3, "locks", "locks 0 → 2"]]);
  assert.deepEqual(said(...states.reverse())[2], [1, "joined", "was 2 tokens below node 4, 6 in one"]);
  assert.deepEqual(said(states[0], states[0]), []);
  const moment = momentOf({ ...initialState(), nodes: states[0] }); // a state that moves on cuts its lists where they are
  states[0][5].tokens.length = 0;
  assert.equal(moment.nodes.get(5).tokens.length, 1);
});

test("a page that is free and in a row, or has two owners, is a ghost", () => {
  const state = initialState(8);
  state.pages.owner = [-1, 1, 2, -2, -2, 1, -1, 7];
  state.requests = { 1: request(1, { status: "running", row: 0, pages: [3, 1, 0, 5] }), 2: request(2, { status: "running", row: 1, pages: [3, 2, 1] }), 9: request(9, { status: "finished", pages: [6] }) };
  state.nodes[1] = { parent: 0, tokens: [], pages: [3], locks: 2, used: 1 };
  state.nodes[2] = { parent: 0, tokens: [], pages: [7], locks: 0, used: 1 };
  assert.deepEqual([...ghostPages(state)], [
    [0, "page 0 is free, but request 1's row names it"], [1, "page 1 belongs to request 1, but request 2's row names it"], [7, "page 7 belongs to request 7, but tree node 2 holds it"]]);
  assert.deepEqual(suspectsOf(state, []).size, 0, "a sound step is not looked at");
  const suspects = suspectsOf(state, ["page 0 leaked", "pages [4, 5] are freed twice"]);
  assert.deepEqual([...suspects.keys()], [0, 1, 7, 4, 5]);
  assert.equal(suspects.get(5), "pages [4, 5] are freed twice");
});

/** A store of steps of which only these flags, free pages and broken rules are known. */
function storeOf(flags, free, violations = []) {
  const n = flags.length;
  const zeros = Array(n).fill(0);
  const index = { phase: zeros, num_tokens: zeros, violations: zeros.map((_, i) => violations.filter(([at]) => at === i).length), batch: zeros, cost: zeros, flags, free_pages: free };
  const head = { index, uids: [], violations, marks: [[], [], [], []], extent: {}, texts: [[], []], title: "", keyframe: { ...initialState(10), step: 5 }, phases: ["decode"],
    flags: ["refusal", "eviction"], types: [], emitters: [] };
  head.keyframe.counters.free_pages = 10;
  const store = new RunStore();
  store.load(contained([["head", 0, n, packed(head)]]));
  return store;
}

test("breakpoints: where something happened, where free pages fall below", () => {
  const store = storeOf([0, 1, 3, 0, 2, 0], [10, 6, 4, 3, 8, 2]);
  assert.deepEqual(breaksIn(store, "refusal", 0), [7, 8]);
  assert.deepEqual(breaksIn(store, "eviction", 0), [8, 10]);
  assert.deepEqual(breaksIn(store, "free", 5), [8, 11]);
  assert.deepEqual(breaksIn(store, "free", 11), [], "it was below from the start");
  assert.deepEqual([6, 7, 9, 99].map((step) => upTo([7, 9], step)), [0, 1, 2, 2]);
});

test("keys on a field, or on what is folded, are not the stage's", () => {
  const on = (name) => forStage({ target: { matches: (selector) => selector.split(", ").includes(name) } });
  assert.deepEqual(["select", "summary", "button"].map(on), [false, false, true]);
});

test("a broken page is marked where it was broken, not at every step after", () => {
  const said = "step 7, PagesFreed: page 3 is freed twice";
  const store = storeOf([0, 0, 0, 0], [1, 1, 1, 1], [[1, [said]], [2, [`broken since step 7: ${said}`]], [3, ["page 4 is lost"]]]);
  assert.deepEqual(brokenPages(store), [{ step: 7, page: 3, said }, { step: 9, page: 4, said: "page 4 is lost" }]);
});

test("a picture holds nothing that XML may not", () => {
  assert.equal(asXml("a\u0000\u001b\tb\n\ud83dc\ude00\uffff😀é"), "a\tb\nc😀é");
});

test("a picture's name and its variables", () => {
  assert.equal(pictureName("Shared prefixes: Größe 4!", 17, "png"), "shared-prefixes-größe-4-step-17.png");
  assert.equal(pictureName("", 0, "svg"), "minisgl-step-0.svg");
  assert.deepEqual(variablesIn(".msgl { --msgl-bg: #fff; } b { color: var(--msgl-ink); --msgl-bg: red }"), ["--msgl-bg"]);
});
