// @ts-check
/**
 * What views draw.
 *
 * @typedef {{store: import("./record.js").RunStore, state: any, step: number, entry: import("./stepindex.js").StepEntry | null,
 *   delta: import("./change.js").Change[], kinds: Uint8Array, counts: Record<string, number>, pending: Set<number>,
 *   held: import("./selection.js").Pointer, selection: import("./selection.js").Selection | null, suspects: Map<number, string>, changed: Set<number>, palette: any,
 *   following: boolean}} Frame
 *   everything a view draws: `state` after `step`, the `delta` that led there, the kind of each page (an index into KINDS)
 *   and how many there are of each, pages that are pending or changed owner in this step, and `suspects`: what is wrong with
 *   which page
 */
import { countKinds, pageKinds, pendingPages } from "./state.js";
import { selectionOf } from "./selection.js";
import { suspectsOf } from "./ghosts.js";

/** Pages that got another owner. @param {import("./change.js").Change[]} delta @returns {Set<number>} */
function pagesChanged(delta) {
  const pages = new Set();
  for (const [, path, keys] of delta) if (path[0] === "pages" && path[1] === "owner") for (const page of keys) pages.add(page);
  return pages;
}

/** The frame where a cursor is. @param {import("./cursor.js").Cursor} cursor
 * @param {{pointer: import("./selection.js").Pointer, held: import("./selection.js").Pointer, palette: any, following: boolean}} look
 * @returns {Frame} */
export function frameOf({ store, state, step }, { pointer, held, palette, following }) {
  const entry = store.entry(step);
  const delta = store.delta(step);
  const kinds = pageKinds(state);
  return { store, state, step, entry, delta, kinds, counts: countKinds(kinds), pending: pendingPages(state), held, selection: selectionOf(state, pointer),
    suspects: suspectsOf(state, entry ? entry.violations : []), changed: pagesChanged(delta), palette, following };
}
