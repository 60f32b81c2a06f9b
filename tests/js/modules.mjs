/** The modules under test, imported as they are: a copy in a folder that says they are ES modules. */
import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const STATIC = fileURLToPath(new URL("../../widgets/minisgl_widgets/static", import.meta.url));

/** @param {string} name for example "record.js" */
export async function load(name) {
  const folder = mkdtempSync(join(tmpdir(), "minisgl-js-"));
  try {
    cpSync(STATIC, folder, { recursive: true });
    writeFileSync(join(folder, "package.json"), '{"type": "module"}');
    return await import(pathToFileURL(join(folder, name)).href);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** A state before step 1, as `minisgl.events.state.initial_state` makes it. */
export function initialState(pages = 8, pageSize = 4) {
  return {
    step: 0, t: 0, num_pages: pages, page_size: pageSize,
    pages: { owner: Array(pages).fill(-1), node: Array(pages).fill(-1), order: Array.from({ length: pages }, (_, i) => i) },
    queue: { taken: 0, added: pages },
    nodes: { 0: { parent: -1, tokens: [], pages: [], locks: 0, used: 0 } },
    rows: [{ uid: -1, generation: 0 }], requests: {}, waiting: [], running: [],
    counters: { free_pages: pages }, batch: {}, tests: [], handoffs: [],
  };
}

export function request(uid, fields = {}) {
  return { uid, status: "waiting", reason: "", error: "", prompt: [], output: [], max_tokens: 4, matched: 0, cached_len: 0, device_len: 0,
    row: -1, pages: [], pending: [], node: 0, reserved: 0, verdict: "", ...fields };
}

export function stepEntry(step, fields = {}) {
  return { step, phase: "decode", uids: [], num_tokens: 0, words: [], violations: [], ...fields };
}
