// @ts-check
/**
 * What is pointed at, and all that belongs to it.
 *
 * @typedef {{kind: "page", page: number} | {kind: "uid", uid: number} | {kind: "node", node: number} | {kind: "token", uid: number, at: number} |
 *   {kind: "pages", pages: number[], uid: number} | null} Pointer what is pointed at; a token by its place among its request's
 * @typedef {{pages: Set<number>, uids: Set<number>, nodes: Set<number>}} Selection all that belongs to it
 */
import { pagesOf, pathTo } from "./state.js";

/** The request that is pointed at, be it by one of its tokens; -1: none. @param {Pointer} pointer */
export function uidOf(pointer) {
  return pointer?.kind === "uid" || pointer?.kind === "token" ? pointer.uid : -1;
}

/** Everything that belongs to what is pointed at. @param {any} state @param {Pointer} pointer @returns {Selection | null} */
export function selectionOf(state, pointer) {
  if (!pointer) return null;
  const pages = new Set();
  const uids = new Set();
  const nodes = new Set();
  const addPage = (/** @type {number} */ page) => {
    pages.add(page);
    if (state.pages.owner[page] >= 0) uids.add(state.pages.owner[page]);
    if (state.pages.node[page] > 0) nodes.add(state.pages.node[page]);
  };
  const addHolders = (/** @type {number} */ page) => {
    addPage(page);
    for (const uid in state.requests) if (state.requests[uid].pages.includes(page)) uids.add(Number(uid));
  };
  if (pointer.kind === "page") addHolders(pointer.page);
  else if (pointer.kind === "token") {
    uids.add(pointer.uid);
    const page = pagesOf(state, pointer.uid)[Math.floor(pointer.at / state.page_size)];
    if (page !== undefined) addHolders(page);
  } else if (pointer.kind === "pages") {
    pointer.pages.forEach(addPage);
    uids.add(pointer.uid);
  } else if (pointer.kind === "uid") {
    uids.add(pointer.uid);
    const request = state.requests[pointer.uid];
    if (request) {
      for (const page of request.pages.concat(request.pending)) pages.add(page);
      for (const node of pathTo(state, request.node)) nodes.add(node);
    }
  } else if (state.nodes[pointer.node]) {
    nodes.add(pointer.node);
    for (const page of state.nodes[pointer.node].pages) pages.add(page);
    for (const uid in state.requests) if (pathTo(state, state.requests[uid].node).includes(pointer.node)) uids.add(Number(uid));
  }
  return { pages, uids, nodes };
}
