// @ts-check
/**
 * The record of a run, and a cursor that moves through it in both directions.
 *
 * `minisgl_widgets/record.py` says what a record holds: a first state, and for each step a delta, a list of changes. The
 * state's shape and the four kinds of change are described in `minisgl/events/state.py`; only the three lists in `pages`
 * are typed arrays here. Nothing is computed but the position: states come from applying deltas forwards and undoing
 * them backwards, and a leap is one delta for many steps.
 *
 * @typedef {(string|number|null)[]} Path
 * @typedef {["set", Path, any, any] | ["column", Path, any[], any, any] | ["append", Path, any[], any[]] |
 *   ["splice", Path, number, any[], any[]]} Change
 * @typedef {import("./decode.js").Part} Part
 * @typedef {{step: number, phase: string, uids: number[], num_tokens: number, violations: string[], flags: number}} StepEntry
 * @typedef {{type: string, uid: number, words: string, made: string}} Told an event: its type's name, its request (-1:
 *   none, or several), its sentence ("" if it has none), and the function that made it
 * @typedef {{uid: number, before: boolean, arrived: number, admitted: number, first: number, finished: number, reason: string,
 *   retracted: number[], readmitted: number[], verdicts: [number, string][], prompt: number,
 *   prefills: [number, number, number][]}} Span the steps of a request's life, -1 for
 *   what has not happened: admitted and first are the first time; `before`: it was there when the record began, so those
 *   that had happened by then say the record's first step. `verdicts`: when its admission verdict became another.
 *   `prompt`: its tokens; `prefills`: in which step which tokens [start, end) were computed, the first start after an
 *   admission being what was found in the cache
 * @typedef {{from: number, until: number, uid: number, verdict: string}} Refusal an admission test that ended its pass, and so
 *   why everybody waits after steps `from` to `until - 1`
 */
import { bytesOf, inflate, partsOf, unpack, unpackEach } from "./decode.js";

export const FREE = -1;
export const CACHE = -2;
/** What the numbers in `pageKinds` mean, as in Python's `Snapshot.pages.state`. */
export const KINDS = ["free", "owned", "evictable", "protected"];

/** A deep copy, so that a delta does not change when the state moves on. @param {any} value @returns {any} */
export function fresh(value) {
  if (ArrayBuffer.isView(value)) return /** @type {any} */ (value).slice();
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

// What follows runs for every change of every step that is walked, so it takes paths and changes apart by index: unpacking
// them into variables would make lists that live for a moment only.

/** What is at the first `depth` parts of a path. @param {any} state @param {Path} path @param {number} depth */
function reach(state, path, depth) {
  for (let i = 0; i < depth; i++) state = state[/** @type {string} */ (path[i])];
  return state;
}

/** Set an entry; null removes it. @param {any} state @param {Path} path @param {any} value */
function put(state, path, value) {
  const table = reach(state, path, path.length - 1);
  const key = /** @type {string} */ (path[path.length - 1]);
  if (value === null) delete table[key];
  else table[key] = fresh(value);
}

// Most of a long jump is pages that get another owner. A loop that meets one kind of array only is ten times as fast as one
// that meets all of them, so each kind has its own.

/** @param {Int32Array} table @param {number[]} keys @param {any} values */
function fillOwners(table, keys, values) {
  if (Array.isArray(values)) for (let i = 0; i < keys.length; i++) table[keys[i]] = values[i];
  else for (let i = 0; i < keys.length; i++) table[keys[i]] = values;
}

/** @param {Float64Array} table @param {number[]} keys @param {any} values */
function fillOrder(table, keys, values) {
  if (Array.isArray(values)) for (let i = 0; i < keys.length; i++) table[keys[i]] = values[i];
  else for (let i = 0; i < keys.length; i++) table[keys[i]] = values;
}

/** Set one entry for each key: the path's null is read as that key. @param {any} state @param {Path} path @param {any[]} keys
 * @param {any} values as many, or the one that all get */
function fill(state, path, keys, values) {
  const hole = path.indexOf(null);
  const table = reach(state, path, hole);
  const many = Array.isArray(values);
  if (table instanceof Int32Array) fillOwners(table, keys, values);
  else if (table instanceof Float64Array) fillOrder(table, keys, values);
  else if (hole + 1 === path.length) for (let i = 0; i < keys.length; i++) table[keys[i]] = many ? values[i] : values;
  else {
    const field = /** @type {string} */ (path[hole + 1]);
    for (let i = 0; i < keys.length; i++) table[keys[i]][field] = many ? values[i] : values;
  }
}

/** Put a value at the end of each key's list, or take one off: `values` null. @param {any} state @param {Path} path
 * @param {any[]} keys @param {any[] | null} values */
function extend(state, path, keys, values) {
  const hole = path.indexOf(null);
  const table = reach(state, path, hole);
  const field = /** @type {string | undefined} */ (path[hole + 1]);
  for (let i = 0; i < keys.length; i++) {
    const list = field === undefined ? table[keys[i]] : table[keys[i]][field];
    if (values) list.push(values[i]);
    else list.pop();
  }
}

/** Exchange part of a list. One of the state's own becomes a new list: a view sees by that what it has drawn already. The
 * others mostly grow by many numbers, which `concat` copies at once, or lose them again.
 * @param {any} state @param {Path} path @param {number} from @param {number} removed how many @param {any[]} inserted */
function exchange(state, path, from, removed, inserted) {
  const table = reach(state, path, path.length - 1);
  const key = /** @type {string} */ (path[path.length - 1]);
  const list = table[key];
  if (from + removed < list.length) table[key] = list.slice(0, from).concat(inserted, list.slice(from + removed));
  else if (inserted.length || path.length === 1) table[key] = (removed ? list.slice(0, from) : list).concat(inserted);
  else list.length = from;
}

/** @param {any} state @param {Change} change */
function apply(state, change) {
  const path = change[1];
  if (change[0] === "set") put(state, path, change[3]);
  else if (change[0] === "column") fill(state, path, change[2], change[4]);
  else if (change[0] === "append") extend(state, path, change[2], change[3]);
  else exchange(state, path, change[2], change[3].length, change[4]);
}

/** @param {any} state @param {Change} change */
function undo(state, change) {
  const path = change[1];
  if (change[0] === "set") put(state, path, change[2]);
  else if (change[0] === "column") fill(state, path, change[2], change[3]);
  else if (change[0] === "append") extend(state, path, change[2], null);
  else exchange(state, path, change[2], change[4].length, change[3]);
}

/** @param {any} state @param {Change[]} delta */
export function applyDelta(state, delta) {
  for (const change of delta) apply(state, change);
}

/** @param {any} state @param {Change[]} delta */
export function undoDelta(state, delta) {
  for (let i = delta.length - 1; i >= 0; i--) undo(state, delta[i]);
}

/** Whole numbers, one a step, that grow with the run. */
class Column {
  constructor() {
    this.room = new Int32Array(256);
    this.values = this.room.subarray(0, 0);
  }

  /** @param {ArrayLike<number>} more */
  push(more) {
    const { length } = this.values;
    const whole = length + more.length;
    if (whole > this.room.length) {
      const room = new Int32Array(Math.max(whole, 2 * this.room.length));
      room.set(this.values);
      this.room = room;
    }
    this.room.set(more, length);
    this.values = this.room.subarray(0, whole);
  }
}

const DECODED = 24; // parts that are kept decoded, of those that there are many of

/**
 * The steps a browser knows. One per model; every view of the model shares it and has its own `Cursor`. Steps have a
 * number from `first + 1` to `last`; an index counts them from 0, so index `i` is step `first + 1 + i`.
 */
export class RunStore {
  /** @type {Set<(what: "load" | "tail" | "more") => void>} more: parts that were there are readable now */
  listeners = new Set();
  ready = false;
  /** All parts are readable. */
  whole = false;
  title = "";
  /** The engine's settings (EngineConfig) when the record began, as far as they are known. @type {Record<string, any>} */
  config = {};
  /** Which of them changed from which step on, in order. @type {[number, Record<string, any>][]} */
  settings = [];
  /** What token ids say. @type {Record<string, string>} */
  texts = {};
  /** How many records were loaded: another number, another run. */
  record = 0;
  /** Grows whenever texts change: what was written with them is then written anew. */
  edition = 0;
  first = 0;
  numPages = 0;
  pageSize = 1;
  /** The state before the first step; nobody may change it. @type {any} */
  keyframe = null;
  /** Steps known. */
  length = 0;
  /** One number a step: phase (an index into `phases`), num_tokens, violations, batch (requests in it), cost, flags (bits,
   * see `flag`), and after the step waiting, running, free_pages, reserved_pages, owned_pages, evictable_pages,
   * protected_pages, pending_pages. @type {Record<string, Int32Array>} */
  index = {};
  /** @type {string[]} */
  phases = [];
  /** Names of the bits in index.flags. @type {string[]} */
  flags = [];
  /** Each request's life, by uid, in the order in which they came. @type {Map<number, Span>} */
  spans = new Map();
  /** Every uid that ever appears. @type {number[]} */
  uids = [];
  /** Why requests wait, in the order of steps. @type {Refusal[]} */
  refusals = [];
  /** What can be asked: see questions.py. @type {{id: string, title: string, each: boolean, dear: boolean, code: string}[]} */
  questions = [];
  /** Answers that the kernel gave. @type {Map<string, {html: string, last: number}>} */
  given = new Map();
  /** How much room the views must keep free, so that nothing moves while scrubbing: most tests in a pass, nodes that ever
   * were, and pages that a test asked for at most. */
  extent = { tests: 0, nodes: 1, asked: 0 };
  /** Values changed before delta i: what walking costs. */
  cost = [0];

  /** @type {Record<string, Column>} */
  _columns = {};
  _batches = new Column(); // the uids of all batches
  _batchAt = [0]; // where those of step i begin
  /** @type {Map<number, string[]>} */
  _violations = new Map();
  /** @type {string[]} */
  _types = [];
  /** @type {Map<number, {uid: number, start: number, end: number}[]>} by step index */
  _prefills = new Map();
  /** @type {string[]} */
  _emitters = [];
  /** Each in the order of its steps. @type {Record<string, Part[]>} */
  _parts = { steps: [], leap: [], events: [], changes: [], answers: [] };
  /** @type {Part[]} decoded, oldest first */
  _decoded = [];
  /** @type {any[]} tails that came before the record was readable */
  _early = [];
  _changes = { parts: 0, steps: new Column(), pages: new Column(), owners: new Column() };

  /** The last step known. */
  get last() {
    return this.first + this.length;
  }

  /** The engine's settings in a step, as far as they are known. @param {number} step @returns {Record<string, any>} */
  configAt(step) {
    const changes = this.settings.filter(([from]) => from <= step).map(([, values]) => values);
    return Object.assign({}, this.config, ...changes);
  }

  /** Replace everything. What is deflated is read in the background: first what the first steps need. Resolves when all
   * is readable. @param {ArrayBuffer | ArrayBufferView} bytes a record */
  async load(bytes) {
    const parts = partsOf(bytes);
    const load = ++this.record;
    const soon = parts.filter((p) => p.name === "head" || (p.first === 0 && (p.name === "steps" || p.name === "events")));
    const order = { leap: 0, steps: 1, events: 2, changes: 3, answers: 4 };
    const later = parts.filter((p) => !soon.includes(p));
    later.sort((a, b) => order[/** @type {"leap"} */ (a.name)] - order[/** @type {"leap"} */ (b.name)]);
    if (soon.some((p) => !p.bytes)) {
      this._early = [];
      this.ready = false;
      for (const part of soon) await inflate(part);
      if (load !== this.record) return; // another record came meanwhile
    }
    this._begin(parts);
    for (const [i, part] of later.entries()) {
      if (part.bytes) continue;
      await inflate(part);
      if (load !== this.record) return;
      if (part.name === "leap") this._read(part); // so that the first long jump need not
      if (i % 16 === 0) this._tell("more");
    }
    this.whole = true;
    this._tell("more");
  }

  /** @param {Part[]} parts */
  _begin(parts) {
    const { listeners, edition, record, _early } = this;
    Object.assign(this, new RunStore(), { listeners, edition: edition + 1, record });
    const head = unpack(/** @type {Uint8Array} */ (parts[0].bytes));
    const state = head.keyframe;
    const { owner, node, order } = state.pages;
    // free pages are numbered on and on, so their order may outgrow 32 bits
    state.pages = { owner: Int32Array.from(owner), node: Int32Array.from(node), order: Float64Array.from(order) };
    this.keyframe = state;
    this.title = head.title;
    this.config = head.config ?? {};
    this.first = state.step;
    this.numPages = state.num_pages;
    this.pageSize = state.page_size;
    this.phases = head.phases;
    this.flags = head.flags;
    this._types = head.types;
    this._emitters = head.emitters;
    this.questions = head.questions ?? [];
    for (const name of Object.keys(head.index)) this._columns[name] = new Column();
    for (const uid of Object.keys(state.requests)) this._meet(state.requests[uid]);
    for (const test of state.tests) if (test.verdict !== "admitted") this._refuse(test.uid, this.first, test.verdict);
    this._take(head, parts.slice(1));
    this.ready = true;
    this._tell("load");
    for (const [message, buffers] of _early) this.append(message, buffers);
  }

  /** Add the steps that follow; false when some are missing between.
   * @param {{first: number, count: number, parts: [string, number, number][]}} tail @param {(ArrayBuffer | ArrayBufferView)[]} buffers */
  append(tail, buffers) {
    if (!this.ready && this.record) {
      this._early.push([tail, buffers]);
      return true;
    }
    if (!this.ready || tail.first > this.length) return false;
    if (tail.first < this.length) return tail.first + tail.count <= this.length; // known already, or not to be told apart
    const parts = tail.parts.map(([name, first, count], i) => ({ name, first, count, bytes: bytesOf(buffers[i]), packed: null, value: undefined }));
    this._take(unpack(parts[0].bytes), parts.slice(1));
    this._tell("tail");
    return true;
  }

  /** @param {any} head @param {Part[]} parts */
  _take(head, parts) {
    for (const name of Object.keys(head.index)) {
      this._columns[name].push(head.index[name]);
      this.index[name] = this._columns[name].values;
    }
    this._batches.push(head.uids);
    for (const n of head.index.batch) this._batchAt.push(this._batchAt[this._batchAt.length - 1] + n);
    for (const cost of head.index.cost) this.cost.push(this.cost[this.cost.length - 1] + cost + 1);
    for (const [i, said] of head.violations) this._violations.set(i, said);
    for (let i = 0; i < head.marks[0].length; i++) this._mark(head.marks[0][i], head.marks[1][i], head.marks[2][i], head.marks[3][i]);
    const [ids, texts] = head.texts;
    for (let i = 0; i < ids.length; i++) this.texts[ids[i]] = texts[i];
    if (ids.length) this.edition++;
    this.extent = head.extent;
    for (const part of parts) this._parts[part.name].push(part);
    this.length = this.cost.length - 1;
  }

  /** A request that was there when the record began. @param {any} request */
  _meet(request) {
    const was = (/** @type {boolean} */ there) => (there ? this.first : -1);
    this.uids.push(request.uid);
    this.spans.set(request.uid, {
      uid: request.uid, before: true, arrived: this.first, admitted: was(request.status !== "waiting"), first: was(request.output.length > 0),
      finished: was(request.status === "finished"), reason: request.reason, retracted: [], readmitted: [],
      verdicts: request.verdict ? [[this.first, request.verdict]] : [], prompt: request.prompt.length, prefills: [] });
  }

  /** @param {string} what @param {number} uid @param {number} step @param {string} detail */
  _mark(what, uid, step, detail) {
    if (what === "settings") return void this.settings.push([step, JSON.parse(detail)]);
    let span = this.spans.get(uid);
    if (!span) {
      this.uids.push(uid);
      span = { uid, before: false, arrived: step, admitted: -1, first: -1, finished: -1, reason: "", retracted: [], readmitted: [], verdicts: [], prompt: 0, prefills: [] };
      this.spans.set(uid, span);
    }
    const known = span.verdicts[span.verdicts.length - 1];
    if (what === "tested" && detail !== "admitted") this._refuse(uid, step, detail);
    else if (what === "admitted" || what === "finished") this._unrefuse(uid, step);
    if (what === "arrived") span.prompt = Number(detail);
    else if (what === "admitted" && span.admitted < 0) span.admitted = step;
    else if (what === "admitted") span.readmitted.push(step);
    else if (what === "prefill") {
      const [start, end] = detail.split(" ").map(Number);
      span.prefills.push([step, start, end]);
      const i = step - this.first - 1;
      const others = this._prefills.get(i);
      if (others) others.push({ uid, start, end });
      else this._prefills.set(i, [{ uid, start, end }]);
    } else if (what === "first") span.first = step;
    else if (what === "retracted") span.retracted.push(step);
    else if (what === "finished" || what === "refused") Object.assign(span, { finished: step, reason: what === "refused" ? "error" : detail });
    else if (what === "tested" && (!known || known[1] !== detail)) span.verdicts.push([step, detail]);
  }

  /** @param {number} uid @param {number} step @param {string} verdict */
  _refuse(uid, step, verdict) {
    const last = this.refusals[this.refusals.length - 1];
    if (last && last.uid === uid && last.verdict === verdict && last.until === Infinity) return;
    if (last) last.until = Math.min(last.until, step);
    this.refusals.push({ from: step, until: Infinity, uid, verdict });
  }

  /** A request that had been refused has left the queue. @param {number} uid @param {number} step */
  _unrefuse(uid, step) {
    const last = this.refusals[this.refusals.length - 1];
    if (last?.uid === uid) last.until = Math.min(last.until, step);
  }

  /** @param {"load" | "tail" | "more"} what */
  _tell(what) {
    for (const fn of [...this.listeners]) fn(what);
  }

  // -- single steps

  /** The phase of a step. @param {number} i its index */
  phase(i) {
    return this.phases[this.index.phase[i]];
  }

  /** The bit of a flag in index.flags: refusal, eviction, split, retract, finish, handoff, drain, arrival, admission,
   * broken or launch (of a batch). @param {string} name */
  flag(name) {
    return 1 << this.flags.indexOf(name);
  }

  /** The requests in a step's batch. @param {number} i its index @returns {number[]} */
  batch(i) {
    return Array.from(this._batches.values.subarray(this._batchAt[i], this._batchAt[i + 1]));
  }

  /** Whose prompts a step's batch computes, and which tokens [start, end) of each; the others of the batch decode a token
   * each. @param {number} i its index */
  prefills(i) {
    return this._prefills.get(i) ?? [];
  }

  /** An answer by its key (`key_of` in questions.py), as HTML, and the last step it knew of; null if there is none.
   * @param {string} key @returns {{html: string, last: number} | null} */
  answer(key) {
    const part = this._parts.answers[0];
    const html = part?.bytes ? this._read(part)[key] : undefined;
    return this.given.get(key) ?? (html === undefined ? null : { html, last: this.last });
  }

  /** Take an answer of the kernel's. @param {{key: string, html: string, last: number}} message */
  answered({ key, html, last }) {
    this.given.set(key, { html, last });
    this._tell("more");
  }

  /** What is known of a step at once; null at the start. @param {number} step @returns {StepEntry | null} */
  entry(step) {
    const i = step - this.first - 1;
    if (i < 0 || i >= this.length) return null;
    const { num_tokens, flags } = this.index;
    return { step, phase: this.phase(i), uids: this.batch(i), num_tokens: num_tokens[i], violations: this._violations.get(i) ?? [], flags: flags[i] };
  }

  /** The changes that led to a step. @param {number} step @returns {Change[]} */
  delta(step) {
    const i = step - this.first - 1;
    const part = this._partOf("steps", i);
    return part ? this._read(part)(i - part.first) : [];
  }

  /** A step's events; null while they are not readable yet. @param {number} step @returns {Told[] | null} */
  events(step) {
    const i = step - this.first - 1;
    const part = this._partOf("events", i);
    if (!part) return [];
    if (!part.bytes) return null;
    const { counts, types, uids, words } = this._read(part);
    let from = 0;
    for (let k = 0; k < i - part.first; k++) from += counts[k];
    return Array.from({ length: counts[i - part.first] }, (_, k) => ({
      type: this._types[types[from + k]], uid: uids[from + k], words: words[from + k], made: this._emitters[types[from + k]] }));
  }

  /** Every change of a page's owner in the run, as columns: in `steps[i]`, `pages[i]` went to `owners[i]` (a uid, FREE or
   * CACHE); who had them at the start is in `keyframe.pages.owner`. Read when first asked for, so only then it costs;
   * null while not all of it is readable. */
  changes() {
    const known = this._changes;
    for (const part of this._parts.changes.slice(known.parts)) {
      if (!part.bytes) return null;
      const { steps, pages, owners } = unpack(part.bytes);
      known.steps.push(steps);
      known.pages.push(pages);
      known.owners.push(owners);
      known.parts++;
    }
    return { steps: known.steps.values, pages: known.pages.values, owners: known.owners.values };
  }

  // -- parts

  /** Can a cursor go there? Otherwise `more` is told when it can. @param {number} step */
  reaches(step) {
    const i = Math.max(0, Math.min(this.length, step - this.first));
    return this.whole || (this._parts.leap.every((p) => p.bytes) && [i - 1, i].every((at) => this._partOf("steps", at)?.bytes !== null));
  }

  /** The part that holds step index `i`. @param {string} name @param {number} i @returns {Part | undefined} */
  _partOf(name, i) {
    const parts = this._parts[name];
    let low = 0;
    for (let high = parts.length; high - low > 1; ) {
      const mid = (low + high) >> 1;
      if (parts[mid].first <= i) low = mid;
      else high = mid;
    }
    const part = parts[low];
    return part && part.first <= i && i < part.first + part.count ? part : undefined;
  }

  /** @param {Part} part */
  _read(part) {
    if (part.value === undefined) {
      const read = part.name === "steps" ? unpackEach : unpack;
      part.value = read(/** @type {Uint8Array} */ (part.bytes));
      if (part.name !== "leap") {
        this._decoded.push(part);
        if (this._decoded.length > DECODED) /** @type {Part} */ (this._decoded.shift()).value = undefined;
      }
    }
    return part.value;
  }

  /** Leap number `i`, a delta. @param {number} i @returns {Change[]} */
  leap(i) {
    return this._read(this._parts.leap[i]);
  }

  /** Steps that a leap takes, and how many leaps there are; the steps behind the last one have none. */
  get leaps() {
    const { leap } = this._parts;
    return { steps: leap.length ? leap[0].count : 1, count: leap.length };
  }
}

/** One reader's place in a run: `state` is the state after `step`. */
export class Cursor {
  /** @param {RunStore} store @param {number} [step] */
  constructor(store, step = store.last) {
    this.store = store;
    this.index = 0; // deltas that are applied
    /** @type {any} */
    this.state = fresh(store.keyframe);
    this.moveTo(step);
  }

  get step() {
    return this.store.first + this.index;
  }

  /** Go to a step: walk, or walk to where leaps begin, leap, and walk on. @param {number} step */
  moveTo(step) {
    const { store } = this;
    const target = Math.max(0, Math.min(store.length, Math.round(step) - store.first));
    const out = this._edge(this.index);
    const into = this._edge(target);
    if (out !== into) {
      const { steps } = store.leaps;
      this._walk(out * steps);
      for (let i = out; i < into; i++) applyDelta(this.state, store.leap(i));
      for (let i = out; i > into; i--) undoDelta(this.state, store.leap(i - 1));
      this.index = into * steps;
    }
    this._walk(target);
    return this.state;
  }

  /** The nearest place between two leaps, counted in leaps. @param {number} index */
  _edge(index) {
    const { cost, leaps } = this.store;
    const low = Math.min(leaps.count, Math.floor(index / leaps.steps));
    if (low === leaps.count) return low;
    return cost[index] - cost[low * leaps.steps] <= cost[(low + 1) * leaps.steps] - cost[index] ? low : low + 1;
  }

  /** @param {number} target */
  _walk(target) {
    const { store } = this;
    while (this.index > target) undoDelta(this.state, store.delta(store.first + this.index--));
    while (this.index < target) applyDelta(this.state, store.delta(store.first + ++this.index));
  }
}

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
