// @ts-check
/** Ghost pages: those that are free and in use at once, or have two owners; and every page that a broken rule names. */
import { FREE, CACHE } from "./state.js";
import { pagesNamed } from "./lamp.js";

const AGAIN = "broken since"; // how a later step repeats what an earlier one broke

/** @param {number} owner */
function belongs(owner) {
  return owner === FREE ? "is free" : owner === CACHE ? "is the prefix cache's" : `belongs to request ${owner}`;
}

/** Pages that a live row or the tree names although they are free or somebody else's, and what is wrong, in words.
 * @param {any} state @returns {Map<number, string>} */
export function ghostPages(state) {
  const { owner } = state.pages;
  /** @type {Map<number, string>} */
  const found = new Map();
  for (const uid in state.requests) {
    const request = state.requests[uid];
    if (request.status === "finished" && request.row < 0) continue;
    for (const page of request.pages) {
      const who = owner[page];
      if (who !== request.uid && who !== CACHE && !found.has(page)) found.set(page, `page ${page} ${belongs(who)}, but request ${uid}'s row names it`);
    }
  }
  for (const id in state.nodes) {
    for (const page of state.nodes[id].pages) {
      if (owner[page] !== CACHE && !found.has(page)) found.set(page, `page ${page} ${belongs(owner[page])}, but tree node ${id} holds it`);
    }
  }
  return found;
}

/** What is wrong with which page after a step: ghosts, and what the step's broken rules name. A sound step costs nothing.
 * @param {any} state @param {string[]} violations @returns {Map<number, string>} */
export function suspectsOf(state, violations) {
  if (!violations.length) return new Map();
  const found = ghostPages(state);
  for (const said of violations) for (const page of pagesNamed([said])) if (!found.has(page)) found.set(page, said);
  return found;
}

/** The pages that broken rules name, each at the step that broke it. @param {import("./record.js").RunStore} store
 * @returns {{step: number, page: number, said: string}[]} */
export function brokenPages(store) {
  const found = [];
  for (let i = 0; i < store.length; i++) {
    if (!store.index.violations[i]) continue;
    const step = store.first + 1 + i;
    for (const said of store.entry(step)?.violations ?? []) {
      if (!said.startsWith(AGAIN) || found.length === 0) for (const page of pagesNamed([said])) found.push({ step, page, said });
    }
  }
  return found;
}
