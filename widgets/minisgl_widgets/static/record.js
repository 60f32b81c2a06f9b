// @ts-check
/**
 * The record of a run, and a cursor that moves through it in both directions.
 *
 * A record is what `minisgl.events.History.record()` gives: one keyframe, and for each step a delta: a list of changes.
 * The state's shape and the four kinds of change are described in `minisgl/events/state.py`. Nothing is computed here
 * but the position: states come from applying deltas forwards and undoing them backwards.
 *
 * @typedef {(string|number|null)[]} Path
 * @typedef {["set", Path, any, any] | ["column", Path, any[], any, any] | ["append", Path, any[], any[]] |
 *   ["splice", Path, number, any[], any[]]} Change
 * @typedef {{step: number, phase: string, uids: number[], num_tokens: number, words: string[], violations: string[]}} StepEntry
 * @typedef {{version: number, title: string, texts: Record<string, string>, keyframe: any, deltas: Change[][], steps: StepEntry[]}} RunRecord
 */

export const FREE = -1;
export const CACHE = -2;
/** What the numbers in `pageKinds` mean, as in Python's `Snapshot.pages.state`. */
export const KINDS = ["free", "owned", "evictable", "protected"];

/** A deep copy, so that a delta does not change when the state moves on. @param {any} value @returns {any} */
export function fresh(value) {
  if (Array.isArray(value)) {
    return value.length && typeof value[0] === "object" && value[0] !== null ? value.map(fresh) : value.slice();
  }
  if (value !== null && typeof value === "object") {
    /** @type {any} */
    const copy = {};
    for (const key of Object.keys(value)) copy[key] = fresh(value[key]);
    return copy;
  }
  return value;
}

/** What is at a path. @param {any} state @param {Path} path */
function reach(state, path) {
  for (const part of path) state = state[/** @type {string} */ (part)];
  return state;
}

/** Set an entry; null removes it. @param {any} state @param {Path} path @param {any} value */
function put(state, path, value) {
  const table = reach(state, path.slice(0, -1));
  const key = /** @type {string} */ (path[path.length - 1]);
  if (value === null) delete table[key];
  else table[key] = fresh(value);
}

/** Set one entry for each key: the path's null is read as that key. @param {any} state @param {Path} path @param {any[]} keys
 * @param {any} values as many, or the one that all get */
function fill(state, path, keys, values) {
  const { table, field } = at(state, path);
  const many = Array.isArray(values);
  for (let i = 0; i < keys.length; i++) {
    const value = many ? values[i] : values;
    if (field === undefined) table[keys[i]] = value;
    else table[keys[i]][field] = value;
  }
}

/** What is at a path's null, and the one part behind it, if any. @param {any} state @param {Path} path */
function at(state, path) {
  const hole = path.indexOf(null);
  return { table: reach(state, path.slice(0, hole)), field: /** @type {string | undefined} */ (path[hole + 1]) };
}

/** Exchange part of a list, which becomes a new one: a view sees by that what it has drawn already.
 * @param {any} state @param {Path} path @param {number} from @param {any[]} removed @param {any[]} inserted */
function exchange(state, path, from, removed, inserted) {
  const table = reach(state, path.slice(0, -1));
  const key = /** @type {string} */ (path[path.length - 1]);
  table[key] = table[key].slice(0, from).concat(inserted, table[key].slice(from + removed.length));
}

/** The list that each key leads to. @param {any} state @param {Path} path @param {any[]} keys @returns {any[][]} */
function lists(state, path, keys) {
  const { table, field } = at(state, path);
  return keys.map((key) => (field === undefined ? table[key] : table[key][field]));
}

/** @param {any} state @param {Change} change */
function apply(state, [kind, path, ...what]) {
  if (kind === "set") put(state, path, what[1]);
  else if (kind === "column") fill(state, path, what[0], what[2]);
  else if (kind === "append") lists(state, path, what[0]).forEach((list, i) => list.push(what[1][i]));
  else exchange(state, path, what[0], what[1], what[2]);
}

/** @param {any} state @param {Change} change */
function undo(state, [kind, path, ...what]) {
  if (kind === "set") put(state, path, what[0]);
  else if (kind === "column") fill(state, path, what[0], what[1]);
  else if (kind === "append") for (const list of lists(state, path, what[0])) list.pop();
  else exchange(state, path, what[0], what[2], what[1]);
}

/** @param {any} state @param {Change[]} delta */
export function applyDelta(state, delta) {
  for (const change of delta) apply(state, change);
}

/** @param {any} state @param {Change[]} delta */
export function undoDelta(state, delta) {
  for (let i = delta.length - 1; i >= 0; i--) undo(state, delta[i]);
}

/** How many values a change changes: what walking costs. @param {Change} change */
function size([kind, , ...what]) {
  return kind === "set" ? 1 : kind === "splice" ? 1 + what[1].length + what[2].length : what[0].length;
}

/** The steps a browser knows. One per model; every view of the model shares it and has its own `Cursor`. */
export class RunStore {
  /** @type {Set<(what: "load" | "tail") => void>} */
  listeners = new Set();
  ready = false;
  title = "";
  /** @type {Record<string, string>} */
  texts = {};
  /** Grows whenever texts change: what was written with them is then written anew. */
  edition = 0;
  /** @type {Change[][]} */
  deltas = [];
  /** @type {StepEntry[]} */
  steps = [];
  first = 0;
  numPages = 0;
  /** Values changed before delta i: what walking costs. */
  cost = [0];
  /** @type {{index: number, state: any}[]} */
  keyframes = [];
  // how much room the views must keep free, so that nothing moves while scrubbing
  /** Every uid that ever appears. @type {number[]} */
  uids = [];
  known = new Set();
  /** Most tests in a pass, nodes that ever were, and pages that a test asked for at most. */
  extent = { tests: 0, nodes: 1, asked: 0 };

  get length() {
    return this.deltas.length;
  }

  /** The last step known. */
  get last() {
    return this.first + this.deltas.length;
  }

  /** Replace everything. @param {RunRecord} record */
  load(record) {
    if (record.version !== 2) throw new Error(`this player reads records of version 2, not ${record.version}`);
    Object.assign(this, new RunStore(), { listeners: this.listeners, edition: this.edition + 1 });
    const state = record.keyframe;
    this.title = record.title;
    this.texts = { ...record.texts };
    this.first = state.step;
    this.numPages = state.num_pages;
    this.keyframes = [{ index: 0, state }];
    for (const uid of Object.keys(state.requests)) this._meet(Number(uid));
    this.extent.nodes = Object.keys(state.nodes).length;
    this._note(state.tests.length, state.tests);
    this._ingest(record.deltas, record.steps);
    this.ready = true;
    this._tell("load");
  }

  /** Add the steps that follow; false when some are missing between.
   * @param {{first: number, deltas: Change[][], steps: StepEntry[], texts?: Record<string, string>}} tail */
  append(tail) {
    if (!this.ready || tail.first > this.length) return false;
    const known = this.length - tail.first;
    if (tail.texts && Object.keys(tail.texts).length) {
      Object.assign(this.texts, tail.texts);
      this.edition++;
    }
    if (known < tail.deltas.length) {
      this._ingest(tail.deltas.slice(known), tail.steps.slice(known));
      this._tell("tail");
    }
    return true;
  }

  /** @param {Change[][]} deltas @param {StepEntry[]} steps */
  _ingest(deltas, steps) {
    for (let i = 0; i < deltas.length; i++) {
      this.deltas.push(deltas[i]);
      this.steps.push(steps[i]);
      let cost = this.cost[this.cost.length - 1] + 1;
      for (const change of deltas[i]) {
        cost += size(change);
        const [kind, path, ...what] = change;
        if (kind === "set" && path.length === 2 && path[0] === "requests" && what[0] === null) this._meet(Number(path[1]));
        else if (kind === "set" && path.length === 2 && path[0] === "nodes" && what[1] !== null) this.extent.nodes++;
        else if (kind === "splice" && path[0] === "tests") this._note(what[0] + what[2].length, what[2]);
      }
      this.cost.push(cost);
    }
  }

  /** @param {number} uid */
  _meet(uid) {
    if (this.known.has(uid)) return;
    this.known.add(uid);
    this.uids.push(uid);
  }

  /** @param {number} length of the list now @param {any[]} tests that came */
  _note(length, tests) {
    this.extent.tests = Math.max(this.extent.tests, length);
    for (const t of tests) {
      if (t.need !== null) this.extent.asked = Math.max(this.extent.asked, t.need + t.reserved);
    }
  }

  /** @param {"load" | "tail"} what */
  _tell(what) {
    for (const fn of [...this.listeners]) fn(what);
  }

  /** What is known of a step; null at the start. @param {number} step @returns {StepEntry | null} */
  entry(step) {
    return this.steps[step - this.first - 1] ?? null;
  }

  /** The changes that led to a step. @param {number} step @returns {Change[]} */
  delta(step) {
    return this.deltas[step - this.first - 1] ?? [];
  }

  /** The last keyframe at or before delta `index`. @param {number} index */
  keyframe(index) {
    let low = 0;
    for (let high = this.keyframes.length; high - low > 1; ) {
      const mid = (low + high) >> 1;
      if (this.keyframes[mid].index <= index) low = mid;
      else high = mid;
    }
    return this.keyframes[low];
  }
}

/** One reader's place in a run: `state` is the state after `step`. */
export class Cursor {
  /** @param {RunStore} store @param {number} [step] */
  constructor(store, step = store.last) {
    this.store = store;
    this.index = 0;
    this.state = fresh(store.keyframes[0].state);
    this.moveTo(step);
  }

  get step() {
    return this.store.first + this.index;
  }

  /** Go to a step by the cheaper way: from here, or from a keyframe. @param {number} step */
  moveTo(step) {
    const { store } = this;
    const { cost, deltas } = store;
    const target = Math.max(0, Math.min(deltas.length, Math.round(step) - store.first));
    const copy = Math.max(4096, 3 * store.numPages); // what copying a state costs, in changes
    const from = store.keyframe(target);
    if (cost[target] - cost[from.index] + copy < Math.abs(cost[target] - cost[this.index])) {
      this.state = fresh(from.state);
      this.index = from.index;
    }
    while (this.index > target) undoDelta(this.state, deltas[--this.index]);
    while (this.index < target) {
      applyDelta(this.state, deltas[this.index++]);
      const newest = store.keyframes[store.keyframes.length - 1].index;
      if (this.index > newest && cost[this.index] - cost[newest] >= 2 * copy) {
        store.keyframes.push({ index: this.index, state: fresh(this.state) });
      }
    }
    return this.state;
  }
}

/** The kind of every page, an index into KINDS, read off its owner and its node's locks. @param {any} state */
export function pageKinds(state) {
  const { owner } = state.pages;
  const kinds = new Uint8Array(owner.length);
  for (let p = 0; p < owner.length; p++) kinds[p] = owner[p] >= 0 ? 1 : owner[p] === CACHE ? 2 : 0;
  for (const id in state.nodes) {
    const node = state.nodes[id];
    if (node.locks > 0) for (const p of node.pages) if (kinds[p] === 2) kinds[p] = 3;
  }
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
  for (const uid in state.requests) for (const page of state.requests[uid].pending) pages.add(page);
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

/**
 * @typedef {{kind: "page", page: number} | {kind: "uid", uid: number} | {kind: "node", node: number} |
 *   {kind: "pages", pages: number[], uid: number} | null} Pointer what is pointed at
 * @typedef {{pages: Set<number>, uids: Set<number>, nodes: Set<number>}} Selection all that belongs to it
 */

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
  if (pointer.kind === "page") {
    addPage(pointer.page);
    for (const uid in state.requests) if (state.requests[uid].pages.includes(pointer.page)) uids.add(Number(uid));
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
