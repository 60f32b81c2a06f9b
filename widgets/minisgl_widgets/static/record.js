// @ts-check
/**
 * The record of a run: the steps a browser knows, and how it comes to know them.
 *
 * `minisgl_widgets/record.py` says what a record holds: a first state, and for each step a delta, a list of changes
 * (`change.js`). `cursor.js` moves through it.
 *
 * @typedef {import("./decode.js").Part} Part
 * @typedef {import("./change.js").Change} Change
 * @typedef {{type: string, uid: number, words: string, made: string}} Told an event: its type's name, its request (-1:
 *   none, or several), its sentence ("" if it has none), and the function that made it
 */
import { bytesOf, inflate, partsOf, unpack } from "./decode.js";
import { Column } from "./column.js";
import { Parts } from "./parts.js";
import { Spans } from "./spans.js";
import { StepIndex } from "./stepindex.js";

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
  /** What can be asked: see questions.py. @type {{id: string, title: string, each: boolean, dear: boolean, code: string}[]} */
  questions = [];
  /** What the capacity card computes with: see capacity.py.
   * @type {{models: import("./capacity.js").Model[], own: boolean, bytes: Record<string, number>}} */
  sizing = { models: [], own: false, bytes: {} };
  /** Answers that the kernel gave. @type {Map<string, {html: string, last: number}>} */
  given = new Map();
  /** How much room the views must keep free, so that nothing moves while scrubbing: most tests in a pass, nodes that ever
   * were, and pages that a test asked for at most. */
  extent = { tests: 0, nodes: 1, asked: 0 };

  _steps = new StepIndex();
  _spans = new Spans();
  _parts = new Parts();
  /** @type {string[]} */
  _types = [];
  /** @type {string[]} */
  _emitters = [];
  /** @type {any[]} tails that came before the record was readable */
  _early = [];
  _changes = { parts: 0, steps: new Column(), pages: new Column(), owners: new Column() };

  /** Steps known. */
  get length() {
    return this._steps.length;
  }

  /** The last step known. */
  get last() {
    return this.first + this.length;
  }

  /** The engine's settings in a step, as far as they are known. @param {number} step @returns {Record<string, any>} */
  configAt(step) {
    const changes = this.settings.filter(([from]) => from <= step).map(([, values]) => values);
    return Object.assign({}, this.config, ...changes);
  }

  // -- reading

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
      if (part.name === "leap") this._parts.read(part); // so that the first long jump need not
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
    this._types = head.types;
    this._emitters = head.emitters;
    this.questions = head.questions ?? [];
    this.sizing = head.sizing ?? this.sizing;
    this._steps = new StepIndex(head.phases, head.flags);
    this._spans = new Spans(state.step);
    for (const uid of Object.keys(state.requests)) this._spans.meet(state.requests[uid]);
    for (const test of state.tests) if (test.verdict !== "admitted") this._spans.refuse(test.uid, this.first, test.verdict);
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
    this._steps.take(head);
    const [whats, uids, steps, details] = head.marks;
    for (let i = 0; i < whats.length; i++) this._mark(whats[i], uids[i], steps[i], details[i]);
    const [ids, texts] = head.texts;
    // without a tokenizer a token's text is its id: that is no text, and many of them in a row would read as one number
    for (let i = 0; i < ids.length; i++) if (texts[i] !== String(ids[i])) this.texts[ids[i]] = texts[i];
    if (ids.length) this.edition++;
    this.extent = head.extent;
    for (const part of parts) this._parts.named[part.name].push(part);
  }

  /** @param {string} what @param {number} uid @param {number} step @param {string} detail */
  _mark(what, uid, step, detail) {
    if (what === "settings") this.settings.push([step, JSON.parse(detail)]);
    else this._spans.mark(what, uid, step, detail);
  }

  /** @param {"load" | "tail" | "more"} what */
  _tell(what) {
    for (const fn of [...this.listeners]) fn(what);
  }

  // -- requests; see spans.js

  /** Each request's life, by uid, in the order in which they came. */
  get spans() {
    return this._spans.of;
  }

  /** Every uid that ever appears. */
  get uids() {
    return this._spans.uids;
  }

  /** Why requests wait, in the order of steps. */
  get refusals() {
    return this._spans.refusals;
  }

  /** Whose prompts a step's batch computes, and which tokens [start, end) of each; the others of the batch decode a token
   * each. @param {number} i its index */
  prefills(i) {
    return this._spans.prefills.get(i) ?? [];
  }

  // -- single steps; see stepindex.js

  /** A column of numbers a step each, by name. */
  get index() {
    return this._steps.columns;
  }

  /** Values changed before delta i: what walking costs. */
  get cost() {
    return this._steps.cost;
  }

  /** Names of the bits in index.flags. */
  get flags() {
    return this._steps.flags;
  }

  /** @param {string} name @see StepIndex.flag */
  flag(name) {
    return this._steps.flag(name);
  }

  /** The phase of a step. @param {number} i its index */
  phase(i) {
    return this._steps.phase(i);
  }

  /** The requests in a step's batch. @param {number} i its index */
  batch(i) {
    return this._steps.batch(i);
  }

  /** What is known of a step at once; null at the start. @param {number} step */
  entry(step) {
    const i = step - this.first - 1;
    return i < 0 || i >= this.length ? null : this._steps.entry(i, step);
  }

  // -- what parts hold; see parts.js

  /** The changes that led to a step. @param {number} step @returns {Change[]} */
  delta(step) {
    const i = step - this.first - 1;
    const part = this._parts.at("steps", i);
    return part ? this._parts.read(part)(i - part.first) : [];
  }

  /** A step's events; null while they are not readable yet. @param {number} step @returns {Told[] | null} */
  events(step) {
    const i = step - this.first - 1;
    const part = this._parts.at("events", i);
    if (!part) return [];
    if (!part.bytes) return null;
    const { counts, types, uids, words } = this._parts.read(part);
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
    for (const part of this._parts.named.changes.slice(known.parts)) {
      if (!part.bytes) return null;
      const { steps, pages, owners } = unpack(part.bytes);
      known.steps.push(steps);
      known.pages.push(pages);
      known.owners.push(owners);
      known.parts++;
    }
    return { steps: known.steps.values, pages: known.pages.values, owners: known.owners.values };
  }

  /** An answer by its key (`key_of` in questions.py), as HTML, and the last step it knew of; null if there is none.
   * @param {string} key @returns {{html: string, last: number} | null} */
  answer(key) {
    const part = this._parts.named.answers[0];
    const html = part?.bytes ? this._parts.read(part)[key] : undefined;
    return this.given.get(key) ?? (html === undefined ? null : { html, last: this.last });
  }

  /** Take an answer of the kernel's. @param {{key: string, html: string, last: number}} message */
  answered({ key, html, last }) {
    this.given.set(key, { html, last });
    this._tell("more");
  }

  /** Can a cursor go there? Otherwise `more` is told when it can. @param {number} step */
  reaches(step) {
    return this.whole || this._parts.leadTo(Math.max(0, Math.min(this.length, step - this.first)));
  }

  /** Leap number `i`, a delta. @param {number} i @returns {Change[]} */
  leap(i) {
    return this._parts.read(this._parts.named.leap[i]);
  }

  /** Steps that a leap takes, and how many leaps there are; the steps behind the last one have none. */
  get leaps() {
    const { leap } = this._parts.named;
    return { steps: leap.length ? leap[0].count : 1, count: leap.length };
  }
}
