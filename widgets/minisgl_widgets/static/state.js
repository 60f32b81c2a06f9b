// @ts-check
/** What views read off a state: the kinds of pages, who holds what. Its shape is described in `minisgl/events/state.py`. */

export const FREE = -1;
export const CACHE = -2;
/** What the numbers in `pageKinds` mean, as in Python's `Snapshot.pages.state`. */
export const KINDS = ["free", "owned", "evictable", "protected"];

/** The kind of every page, an index into KINDS, read off its owner and its node's locks. @param {any} state */
export function pageKinds(state) {
  const { owner } = state.pages;
  const kinds = new Uint8Array(owner.length);
  for (let p = 0; p < owner.length; p++) kinds[p] = owner[p] >= 0 ? 1 : owner[p] === CACHE ? 2 : 0;
  for (const node of Object.values(state.nodes)) if (node.locks > 0) for (const p of node.pages) if (kinds[p] === 2) kinds[p] = 3;
  return kinds;
}

/** How many pages of each kind. @param {Uint8Array} kinds @returns {Record<string, number>} */
export function countKinds(kinds) {
  const n = [0, 0, 0, 0];
  for (let p = 0; p < kinds.length; p++) n[kinds[p]]++;
  return { free: n[0], owned: n[1], evictable: n[2], protected: n[3] };
}

/** Pages given up that a batch in flight may still name: they stay their request's until it is done. @param {any} state @returns {Set<number>} */
export function pendingPages(state) {
  const pages = new Set();
  for (const request of Object.values(state.requests)) for (const page of request.pending) pages.add(page);
  return pages;
}

/** A request's tokens as far as they are known. @param {any} request @returns {number[]} */
export function tokensOf(request) {
  return request.prompt.concat(request.output);
}

/** The nodes from the root's child down to `id`. @param {any} state @param {number} id @returns {number[]} */
export function pathTo(state, id) {
  const path = [];
  for (let node = id; node > 0 && state.nodes[node]; node = state.nodes[node].parent) path.unshift(node);
  return path;
}

/** Which tokens a page holds, in whose numbering. Each is a range `[start, end)` of `who`'s tokens.
 * @param {any} state @param {number} page
 * @returns {{node: number, uid: number, start: number, end: number, tokens: number[]}[]} */
export function pageHolds(state, page) {
  const ps = state.page_size;
  const held = [];
  const id = state.pages.node[page];
  const node = id >= 0 ? state.nodes[id] : null;
  if (node) {
    const at = node.pages.indexOf(page) * ps;
    let before = 0;
    for (const above of pathTo(state, id)) if (above !== id) before += state.nodes[above].tokens.length;
    held.push({ node: id, uid: -1, start: before + at, end: before + at + ps, tokens: node.tokens.slice(at, at + ps) });
  }
  for (const uid in state.requests) {
    const request = state.requests[uid];
    const at = request.pages.indexOf(page);
    if (at < 0) continue;
    const start = at * ps;
    const end = Math.max(start, Math.min(start + ps, request.cached_len));
    held.push({ node: -1, uid: request.uid, start, end, tokens: tokensOf(request).slice(start, end) });
  }
  return held;
}

/** Finds the pages in which the prefix cache has some tokens' KV, from their first on. It reads the tree once, when first
 * asked. @param {any} state @returns {(tokens: number[]) => number[]} */
export function cacheReader(state) {
  const { page_size: ps, nodes } = state;
  /** @type {Map<number, any[]> | null} */
  let below = null;
  return (tokens) => {
    if (!below) {
      below = new Map();
      for (const id in nodes) {
        const { parent } = nodes[id];
        const known = below.get(parent);
        if (known) known.push(id);
        else below.set(parent, [id]);
      }
    }
    /** @type {number[]} */
    const pages = [];
    const same = (/** @type {any} */ node, /** @type {number} */ page) => {
      const at = pages.length * ps;
      for (let i = 0; i < ps; i++) if (node.tokens[page * ps + i] !== tokens[at + i]) return false;
      return true;
    };
    for (let id = 0, part = false; !part; ) {
      const next = (below.get(id) ?? []).find((child) => same(nodes[child], 0));
      if (next === undefined) break;
      const node = nodes[next];
      for (let page = 0; page < node.pages.length && !part; page++) {
        if (same(node, page)) pages.push(node.pages[page]);
        else part = true;
      }
      id = Number(next);
    }
    return pages;
  };
}

/** Where a request's tokens are, page after page: its row says it; who has no row may have left its KV to the cache, or
 * find it there. @param {any} state @param {number} uid @param {(tokens: number[]) => number[]} [cached] a `cacheReader` */
export function pagesOf(state, uid, cached = cacheReader(state)) {
  const request = state.requests[uid];
  if (!request) return [];
  return request.row >= 0 || request.pages.length ? request.pages : cached(tokensOf(request));
}
