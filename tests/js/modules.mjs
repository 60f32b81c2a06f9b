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

/** Packed JSON without any list taken out: what `pack` in packed.py writes, in its simplest form. */
export function packed(value) {
  const text = new TextEncoder().encode(JSON.stringify(["", [], [], value]));
  const data = new Uint8Array(20 + text.length);
  new DataView(data.buffer).setUint32(0, text.length, true);
  data.set(text, 20);
  return data;
}

/** The same of a packed list of entries: what `pack_each` writes. */
function packedEach(values) {
  const texts = values.map((value) => new TextEncoder().encode(JSON.stringify(value)));
  let end = 0;
  const head = packed(texts.map((text) => (end += text.length)));
  const data = new Uint8Array(head.length + end);
  let at = 0;
  for (const part of [head, ...texts]) {
    data.set(part, at);
    at += part.length;
  }
  return data;
}

const COLUMNS = ["phase", "num_tokens", "violations", "batch", "cost", "flags"];

/** What a head says of steps that nothing is known of. */
function headOf(steps, fields = {}) {
  const index = Object.fromEntries(COLUMNS.map((name) => [name, Array(steps).fill(name === "cost" ? 5 : 0)]));
  return { index, uids: [], violations: [], marks: [[], [], [], []], extent: { tests: 0, nodes: 1, asked: 0 }, texts: [[], []], ...fields };
}

/** A record of these deltas as it travels, in parts of so many steps. */
export function recordOf({ keyframe, deltas }, { title = "", every = deltas.length || 1 } = {}) {
  const head = { ...headOf(deltas.length), title, keyframe, phases: ["decode"], flags: ["broken"], types: [], emitters: [] };
  const parts = [["head", 0, deltas.length, packed(head)]];
  for (let at = 0; at < deltas.length; at += every) {
    const some = deltas.slice(at, at + every);
    parts.push(["steps", at, some.length, packedEach(some)]);
  }
  return contained(parts);
}

export function contained(parts, fields = {}) {
  const directory = new TextEncoder().encode(JSON.stringify({ version: 4, deflated: false, parts: parts.map(([name, first, n, body]) => [name, first, n, body.length]), ...fields }));
  const data = new Uint8Array(4 + directory.length + parts.reduce((sum, part) => sum + part[3].length, 0));
  new DataView(data.buffer).setUint32(0, directory.length, true);
  data.set(directory, 4);
  let at = 4 + directory.length;
  for (const [, , , body] of parts) {
    data.set(body, at);
    at += body.length;
  }
  return data;
}

/** The message and the buffers of a tail. */
export function tailOf(deltas, first, last, texts = {}) {
  const head = headOf(last - first, { texts: [Object.keys(texts).map(Number), Object.values(texts)] });
  const parts = [["head", first, last - first], ["steps", first, last - first]];
  return [{ kind: "tail", first, count: last - first, parts }, [packed(head), packedEach(deltas.slice(first, last))]];
}

/** A state as plain JSON has it. */
export function plain(state) {
  const pages = Object.fromEntries(Object.entries(state.pages).map(([name, values]) => [name, Array.from(values)]));
  return { ...state, pages };
}
