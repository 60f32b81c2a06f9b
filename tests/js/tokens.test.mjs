/** Texts in pieces of a page each, and where a request's tokens are. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { initialState, load, request } from "./modules.mjs";

const { cacheReader, pagesOf } = await load("state.js");
const { selectionOf } = await load("selection.js");
const { lengthOf, piecesOf } = await load("tokens.js");
const { pathOf, fragmentOf, placeOf } = await load("path.js");
const { tokenWords } = await load("requests.js");

const texts = Object.fromEntries(Array.from({ length: 40 }, (_, i) => [i, ` w${i}`]));
const tokens = Array.from({ length: 30 }, (_, i) => i);

test("a short text is all there, a piece for each page", () => {
  const pieces = piecesOf(texts, tokens, 2, 9, 4, 100);
  assert.deepEqual(pieces.map(({ start, end, text, gap }) => [start, end, text, gap]), [[2, 4, " w2 w3", false], [4, 8, " w4 w5 w6 w7", false], [8, 9, " w8", false]]);
  assert.equal(lengthOf(texts, tokens, 2, 9, 100), 21);
  assert.equal(lengthOf(texts, tokens, 2, 9, 20), 20, "no further than asked");
  assert.deepEqual(piecesOf(texts, tokens, 3, 3, 4, 10), []);
});

test("a long text loses its middle, and never a token's place", () => {
  for (const pageSize of [1, 3, 16]) {
    for (let most = 4; most < 110; most++) {
      const pieces = piecesOf(texts, tokens, 0, 30, pageSize, most);
      const text = pieces.map((piece) => piece.text).join("");
      assert.ok(text.length <= most, `${text.length} of ${most}`);
      let at = 0;
      for (const { start, end, gap } of pieces) {
        if (!gap) assert.equal(Math.floor(start / pageSize), Math.floor((end - 1) / pageSize), "one page");
        assert.ok(start <= at && end >= at, "none is left out");
        at = Math.max(at, end);
      }
      assert.equal(at, 30);
      assert.equal(pieces.filter((piece) => piece.gap).length, lengthOf(texts, tokens, 0, 30, 1000) > most ? 1 : 0);
    }
  }
});

test("one long token is cut in its own middle; unknown ones are numbers", () => {
  assert.deepEqual(piecesOf({ 7: "abcdefghij" }, [7], 0, 1, 1, 5).map((piece) => piece.text), ["ab", "…", "ij"]);
  assert.equal(piecesOf({}, [7, 8], 0, 2, 4, 20)[0].text, "#7\u00a0#8");
});

/** Pages of two tokens: 1 2 | 3 4 | 5 6 in the cache, below it 7 8 and 9 9. */
function cached() {
  const state = initialState(8, 2);
  const node = (parent, tokens, pages) => ({ parent, tokens, pages, locks: 0, used: 1 });
  Object.assign(state.nodes, { 1: node(0, [1, 2, 3, 4, 5, 6], [5, 3, 4]), 2: node(1, [7, 8], [6]), 3: node(1, [9, 9], [7]) });
  for (const [page, id] of [[5, 1], [3, 1], [4, 1], [6, 2], [7, 3]]) [state.pages.owner[page], state.pages.node[page]] = [-2, id];
  return state;
}

test("the cache's pages for a text, as far as it goes", () => {
  const read = cacheReader(cached());
  assert.deepEqual(read([1, 2, 3, 4, 5, 6, 9, 9, 1]), [5, 3, 4, 7]);
  assert.deepEqual(read([1, 2, 3, 4, 5, 7, 8]), [5, 3]);
  assert.deepEqual([read([1]), read([2, 1]), read([])], [[], [], []]);
});

test("a token's page: of its row, or where the cache has it", () => {
  const state = cached();
  state.pages.owner[0] = 1;
  state.requests = { 1: request(1, { prompt: [1, 2, 3], output: [8], row: 0, pages: [5, 0], cached_len: 3 }), 2: request(2, { prompt: [1, 2, 3, 4], status: "finished" }), 4: request(4, { prompt: [9], status: "running", row: 1 }) };
  assert.deepEqual([1, 2, 4, 9].map((uid) => pagesOf(state, uid)), [[5, 0], [5, 3], [], []]);
  const selected = (pointer) => { const { pages, uids, nodes } = selectionOf(state, pointer); return [[...pages], [...uids], [...nodes]]; };
  assert.deepEqual(selected({ kind: "token", uid: 2, at: 1 }), [[5], [2, 1], [1]], "and who shares it");
  assert.deepEqual(selected({ kind: "token", uid: 1, at: 3 }), [[0], [1], []]);
  assert.deepEqual(selected({ kind: "token", uid: 4, at: 0 }), [[], [4], []]);
  assert.equal(tokenWords(state, 1, 2, texts), "tokens 2 to 3 of request 1, “␣w3␣w8”: page 0");
  assert.equal(tokenWords(state, 2, 0, texts), "tokens 0 to 1 of request 2, “␣w1␣w2”: page 5, in the cache's node 1");
  assert.equal(tokenWords(state, 4, 0, texts), "token 0 of request 4, “␣w9”: in no page yet");
  assert.deepEqual([[1, 9], [7, 0]].map(([uid, at]) => tokenWords(state, uid, at, texts)), ["request 1 has no token 9 yet", "request 7 is not here at this step"]);
});

test("a token's path and address", () => {
  const state = cached();
  state.requests = { 1: request(1, { prompt: [1, 2, 3], pages: [5, 0], row: 0 }) };
  const token = { kind: "token", uid: 1, at: 3 };
  assert.deepEqual([token, { ...token, at: 4 }, { ...token, uid: 5 }].map((pointer) => pathOf(state, pointer)), ["trace.at(0).requests[1].pages[1]", "trace.at(0).requests[1]", "trace.at(0)"]);
  assert.equal(fragmentOf(3, token, []), "step=3&req=1&token=3");
  assert.deepEqual(placeOf("#step=3&req=1&token=3").pointer, token);
});
