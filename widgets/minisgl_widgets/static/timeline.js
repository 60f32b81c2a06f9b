// @ts-check
import { uidOf } from "./selection.js";
import { h, say, count, chip, uidLook, WAITS } from "./look.js";
import { tick } from "./chart.js";
import { TimeScale } from "./timescale.js";

const ROW_HIGH = 24; // pixels a request
const TAG_WIDE = 40; // pixels for its name tag
const END_WIDE = 20; // pixels at the right, for the mark of an end in the last step
const ENDS = { stop: "●", length: "▮", abort: "✕", error: "!" };

/**
 * @typedef {import("./spans.js").Span} Span
 * @typedef {import("./spans.js").Refusal} Refusal
 * @typedef {{kind: "wait" | "prefill" | "decode", from: number, to: number, reason: string, behind: number[], cached: number}} Segment
 *   steps [from, to) of a request's life. wait: the reason, and whose refusals it was ("": nobody was tested); prefill: the
 *   share of the prompt that was found in the cache
 */

/** A wait, cut where its reason becomes another. @param {number} from @param {number} to @param {Refusal[]} refusals @returns {Segment[]} */
function waitsOf(from, to, refusals) {
  /** @type {Segment[]} */
  const found = [];
  const add = (/** @type {number} */ a, /** @type {number} */ b, /** @type {string} */ reason, /** @type {number} */ uid) => {
    if (a >= b) return;
    let last = found[found.length - 1];
    if (last?.reason === reason) last.to = b;
    else found.push((last = { kind: "wait", from: a, to: b, reason, behind: [], cached: 0 }));
    if (uid >= 0 && !last.behind.includes(uid)) last.behind.push(uid);
  };
  let low = 0; // the first refusal that lasts beyond `from`
  for (let high = refusals.length; low < high; ) {
    const mid = (low + high) >> 1;
    if (refusals[mid].until <= from) low = mid + 1;
    else high = mid;
  }
  let at = from;
  for (; low < refusals.length && refusals[low].from < to; low++) {
    const { from: since, until, uid, verdict } = refusals[low];
    if (since > at) add(at, since, "", -1);
    at = Math.max(at, since);
    add(at, Math.min(until, to), verdict, uid);
    at = Math.max(at, Math.min(until, to));
  }
  add(at, to, "", -1);
  return found;
}

/** A request's life up to the last step known. What a step did belongs to that step: the step that computes a prompt is
 * prefill, though the request runs after it. @param {Span} span @param {Refusal[]} refusals @param {number} last @returns {Segment[]} */
export function segmentsOf(span, refusals, last) {
  const ended = span.finished >= 0;
  const admissions = span.admitted < 0 ? [] : [span.admitted, ...span.readmitted];
  /** @type {Segment[]} */
  const segments = [];
  let at = span.arrived;
  for (const [n, admitted] of admissions.entries()) {
    segments.push(...waitsOf(at, admitted, refusals));
    const to = span.retracted[n] ?? (ended ? span.finished : last) + 1;
    const own = span.prefills.filter(([step]) => step >= admitted && step < to);
    const whole = own.length ? own[own.length - 1][2] >= span.prompt : span.first >= 0;
    const computed = !whole ? to : own.length ? own[own.length - 1][0] + 1 : admitted;
    const seen = own.length > 0 && !(span.before && admitted === span.arrived); // else part of it was computed before the record
    const cached = seen ? own[0][1] / own[own.length - 1][2] : 0;
    if (computed > admitted) segments.push({ kind: "prefill", from: admitted, to: computed, reason: "", behind: [], cached });
    if (to > computed) segments.push({ kind: "decode", from: computed, to, reason: "", behind: [], cached: 0 });
    at = to;
  }
  if (span.retracted.length >= admissions.length) segments.push(...waitsOf(at, ended ? span.finished : last + 1, refusals));
  return segments;
}

/** The same with waits that would be too narrow to tell apart put together; they have no reason then.
 * @param {Segment[]} segments @param {number} narrow in steps */
export function joinThin(segments, narrow) {
  /** @type {Segment[]} */
  const joined = [];
  let thins = 0; // of which the last is made
  for (const segment of segments) {
    const thin = segment.kind === "wait" && segment.to - segment.from < narrow;
    thins = thin ? thins + 1 : 0;
    if (thins > 1) joined.push({ .../** @type {Segment} */ (joined.pop()), to: segment.to, reason: "" });
    else joined.push(segment);
  }
  return joined;
}

/** What a request does in a step. @param {Span} span @param {Segment[]} segments @param {number} step */
export function statusAt(span, segments, step) {
  if (step < span.arrived) return "later";
  if (span.finished >= 0 && step >= span.finished) return "done";
  return segments.find(({ from, to }) => from <= step && step < to)?.kind ?? "later";
}

/** "step 3" or "steps 3 to 8". @param {number} from @param {number} to behind the last */
function stepsOf(from, to) {
  return to - from > 1 ? `steps ${from} to ${to - 1}` : `step ${from}`;
}

/** @param {number} uid @param {Segment} segment */
function wordsOf(uid, { kind, from, to, reason, behind, cached }) {
  const when = stepsOf(from, to);
  if (kind === "decode") return `decodes in ${when}`;
  if (kind === "prefill") return `prefill in ${when}${cached ? `, ${Math.round(100 * cached)} % found in the cache` : ""}`;
  const others = behind.filter((other) => other !== uid);
  const who = others.length > 3 ? `${others.length} others` : others.join(", ");
  const first = others.length ? ` (${behind.includes(uid) ? "first " : ""}behind ${who})` : "";
  return `waits in ${when}: ${WAITS[reason] ?? "nobody was tested"}${first}`;
}

/** A request's life in words. @param {Span} span @param {Segment[]} segments */
export function lifeOf(span, segments) {
  const said = [span.before ? "there when the record began" : `arrives in step ${span.arrived}`];
  for (const segment of segments.slice(0, 12)) said.push(wordsOf(span.uid, segment));
  if (segments.length > 12) said.push(`${segments.length - 12} more stretches`);
  if (span.retracted.length) said.push(`retracted in step ${span.retracted.slice(0, 5).join(", ")}`);
  if (span.first > span.arrived || (span.first >= 0 && !span.before)) said.push(`first token in step ${span.first}`);
  if (span.finished >= 0) said.push(`ends (${span.reason}) in step ${span.finished}`);
  return `request ${span.uid}, ${count(span.prompt, "prompt token")}: ${said.join("; ")}`;
}

/** One line a request: waiting, prefill, decode, and how it ended, over the steps. */
export class Timeline {
  static id = "timeline";
  static title = "Timeline";
  static dock = "left";

  /** @param {import("./stage.js").Stage} stage */
  constructor(stage) {
    this.stage = stage;
    this.scale = new TimeScale(stage);
    this.width = this.high = this.top = 0;
    this.axisKey = "";
    this.shown = NaN; // the step that was last brought into sight
    this.held = -1; // the request that was last brought into sight
    /** @type {Map<number, {key: string, row: HTMLElement, segments: Segment[]}>} */
    this.built = new Map();
    this.from = this.to = 0;
    /** @type {{uid: number, step: number} | null} where the mouse is */
    this.hovered = null;
    const key = (/** @type {string} */ look, /** @type {string} */ words) => h("span", { class: "msgl-key" }, h("i", { class: `msgl-swatch ${look}` }), words);
    const mark = (/** @type {string} */ sign, /** @type {string} */ words) => h("span", { class: "msgl-key" }, h("i", { class: "msgl-tl-sign" }, sign), words);
    this.legend = h("div", { class: "msgl-tl-legend" }, key("msgl-tl-k-wait", "waits"), key("msgl-tl-k-prefill", "prefill (light: cached)"), key("msgl-tl-k-decode", "decode"),
      mark("▾", "first token"), mark("↩", "retracted"), Object.entries(ENDS).map(([reason, sign]) => mark(sign, reason)), this.scale.el);
    this.axis = h("div", { class: "msgl-tl-axis", "aria-hidden": "true" });
    this.future = h("div", { class: "msgl-tl-future" });
    this.here = h("div", { class: "msgl-tl-here", hidden: true });
    this.lines = h("div", { class: "msgl-tl-lines", role: "list" });
    this.rows = h("div", { class: "msgl-rows" }, this.lines, this.future, this.here);
    this.body = h("div", { class: "msgl-tl-body msgl-scroll" }, this.rows);
    this.told = h("p", { class: "msgl-tl-told", role: "status" });
    this.el = h("div", { class: "msgl-dockview msgl-timeline" }, this.legend, this.axis, this.body, this.told);
    this.body.addEventListener("scroll", () => stage.redraw());
    this.body.addEventListener("pointermove", (/** @type {PointerEvent} */ e) => this._hover(this._placeOf(e)));
    this.body.addEventListener("pointerleave", () => this._hover(null));
    this.body.addEventListener("click", (/** @type {MouseEvent} */ e) => {
      const place = this._placeOf(e);
      if (!place) return;
      e.stopPropagation(); // the stage would let go what is held already
      stage.goto(place.step);
      if (stage.pinned?.kind !== "uid" || stage.pinned.uid !== place.uid) stage.pin({ kind: "uid", uid: place.uid });
    });
  }

  /** @param {MouseEvent} event */
  _placeOf(event) {
    const row = /** @type {Element} */ (event.target).closest(".msgl-tl-row");
    if (!row || !this.to) return null;
    const { first } = this.stage.store;
    const x = event.clientX - row.getBoundingClientRect().left - TAG_WIDE;
    const i = this.from + Math.floor((x / this._inner) * (this.to - this.from));
    return { uid: Number(row.getAttribute("data-uid")), step: first + 1 + Math.max(this.from, Math.min(this.to - 1, i)) };
  }

  /** @param {{uid: number, step: number} | null} place */
  _hover(place) {
    if (place?.uid === this.hovered?.uid && place?.step === this.hovered?.step) return;
    this.hovered = place;
    this.stage.redraw();
  }

  /** Pixels that the steps take. */
  get _inner() {
    return Math.max(1, this.width - TAG_WIDE - END_WIDE);
  }

  /** Sizes, read before anything is drawn. Scrolling is cheap only here, where nothing has changed yet. */
  measure() {
    this.width = this.body.clientWidth;
    this.high = this.body.clientHeight;
    this.top = this.body.scrollTop;
    const { store, cursor, pinned } = this.stage;
    if (cursor && this.high) this._bring(store, cursor.step, pinned);
  }

  /** @param {import("./stage.js").Frame} frame */
  draw({ store, step, held }) {
    const { from, to } = this.scale.stretch(store, step);
    this.from = from;
    this.to = to;
    const { uids } = store;
    this.el.dataset.requests = String(uids.length);
    this.rows.style.height = `${uids.length * ROW_HIGH}px`;
    if (!uids.length) say(this.told, "No request has come yet. Each gets a line: what it waits for, when its prompt is computed, when it decodes and how it ends.");
    if (this.width <= 0 || !store.length) return;
    this._axis(store);
    const a = Math.max(0, Math.floor(this.top / ROW_HIGH) - 2);
    const b = Math.min(uids.length, Math.ceil((this.top + this.high) / ROW_HIGH) + 2);
    const visible = uids.slice(a, b).map((uid, i) => this._rowOf(store, uid, (a + i) * ROW_HIGH));
    if (this.lines.childElementCount !== visible.length || visible.some(({ row }, i) => this.lines.children[i] !== row)) this.lines.replaceChildren(...visible.map(({ row }) => row));
    for (const [i, { row, segments }] of visible.entries()) {
      const span = /** @type {Span} */ (store.spans.get(uids[a + i]));
      row.dataset.status = statusAt(span, segments, step);
    }
    const x = TAG_WIDE + this._x(Math.max(0, step - store.first) - 0.5);
    this.here.style.left = `${x.toFixed(1)}px`;
    this.here.hidden = step === store.first;
    this.future.style.left = `${(TAG_WIDE + this._x(step - store.first)).toFixed(1)}px`;
    this._tell(store, step, held);
  }

  /** @param {number} i a place between steps, 0 before the first */
  _x(i) {
    return (this._inner * (Math.max(this.from, Math.min(this.to, i)) - this.from)) / (this.to - this.from);
  }

  /** Bring into sight whom somebody holds, or who is alive at the step. @param {import("./record.js").RunStore} store @param {number} step
   * @param {import("./selection.js").Pointer} held */
  _bring(store, step, held) {
    const { uids } = store;
    const uid = uidOf(held);
    const at = uid >= 0 && uid !== this.held ? uids.indexOf(uid) : this.shown === step ? -1 : this._alive(store, step);
    this.held = uid;
    this.shown = step;
    if (at < 0 || (at * ROW_HIGH >= this.top && (at + 1) * ROW_HIGH <= this.top + this.high)) return;
    this.body.scrollTop = this.top = Math.max(0, Math.min(uids.length * ROW_HIGH - this.high, at * ROW_HIGH - ROW_HIGH));
  }

  /** The first request that is alive at a step, unless one in sight is: -1. @param {import("./record.js").RunStore} store @param {number} step */
  _alive(store, step) {
    const { uids } = store;
    const lives = (/** @type {number} */ i) => {
      const span = /** @type {Span} */ (store.spans.get(uids[i]));
      return span.arrived <= step && (span.finished < 0 || span.finished >= step);
    };
    const a = Math.floor(this.top / ROW_HIGH);
    for (let i = a; i < Math.min(uids.length, a + this.high / ROW_HIGH); i++) if (lives(i)) return -1;
    return uids.findIndex((_, i) => lives(i));
  }

  /** @param {import("./record.js").RunStore} store */
  _axis(store) {
    const key = `${this.width} ${this.from} ${this.to} ${store.first}`;
    if (this.axisKey === key) return;
    this.axisKey = key;
    const every = tick((this.to - this.from) / 2);
    const marks = [];
    for (let n = Math.ceil((store.first + this.from + 1) / every) * every; n <= store.first + this.to; n += every) {
      marks.push(h("span", { style: `left:${(TAG_WIDE + this._x(n - store.first - 0.5)).toFixed(1)}px` }, n));
    }
    this.axis.replaceChildren(...marks);
  }

  /** A request's line, built anew only when something in it changed. @param {import("./record.js").RunStore} store @param {number} uid
   * @param {number} top */
  _rowOf(store, uid, top) {
    const span = /** @type {Span} */ (store.spans.get(uid));
    const key = `${this.width} ${this.from} ${this.to} ${store.edition} ${span.finished < 0 ? store.length : ""}`;
    const old = this.built.get(uid);
    if (old?.key === key) return old;
    if (this.built.size > 200) this.built.clear();
    const segments = segmentsOf(span, store.refusals, store.last);
    const row = h("div", { class: "msgl-tl-row", role: "listitem", tabindex: 0, style: `top:${top}px`, "data-key": `t${uid}`, "data-uid": uid, "data-arrived": span.arrived, "data-admitted": span.admitted,
      "data-first": span.first, "data-finished": span.finished, "data-reason": span.reason, "aria-label": lifeOf(span, segments) },
      chip(uid), joinThin(segments, (4 * (this.to - this.from)) / this._inner).map((segment) => this._segment(store, uid, segment)), this._marks(store, span));
    const made = { key, row, segments };
    this.built.set(uid, made);
    return made;
  }

  /** @param {import("./record.js").RunStore} store @param {number} uid @param {Segment} segment */
  _segment(store, uid, { kind, from, to, reason, cached }) {
    const [a, b] = [from, to].map((step) => this._x(step - store.first - 1));
    if (b <= a) return null;
    const { colour, pattern } = uidLook(uid);
    const wide = b - a;
    const look = kind !== "wait" ? ` msgl-c${colour} msgl-p${pattern}` : wide < 6 ? " msgl-tl-thin" : "";
    const label = kind !== "wait" || wide < 12 ? null : h("b", null, wide < 8 * reason.length + 8 ? reason.slice(0, 1) : reason);
    return h("i", { class: `msgl-tl-seg msgl-tl-${kind}${look}`, style: `left:${(TAG_WIDE + a).toFixed(1)}px;width:${Math.max(1.5, wide).toFixed(1)}px`, "data-kind": kind,
      "data-from": from, "data-to": to, "data-reason": reason || null, "data-cached": cached ? cached.toFixed(3) : null },
      label, cached ? h("u", { style: `height:${(100 * cached).toFixed(1)}%` }) : null);
  }

  /** @param {import("./record.js").RunStore} store @param {Span} span */
  _marks(store, span) {
    const mark = (/** @type {string} */ kind, /** @type {number} */ step, /** @type {number} */ place, /** @type {string} */ sign) => {
      const i = step - store.first - 1 + place;
      if (step <= store.first || i < this.from || i > this.to) return null;
      return h("i", { class: `msgl-tl-mark msgl-tl-m-${kind}`, style: `left:${(TAG_WIDE + this._x(i)).toFixed(1)}px`, "data-mark": kind, "data-at": step }, sign);
    };
    return [span.first >= 0 ? mark("first", span.first, 1, "▾") : null, span.retracted.map((step) => mark("retracted", step, 0, "↩")),
      span.finished >= 0 ? mark("end", span.finished, 1, ENDS[/** @type {"stop"} */ (span.reason)] ?? "?") : null];
  }

  /** The lowest line: what the mouse is on, or else who is held. @param {import("./record.js").RunStore} store @param {number} step
   * @param {import("./selection.js").Pointer} held */
  _tell(store, step, held) {
    const { pointer } = this.stage;
    const uid = this.hovered?.uid ?? (uidOf(pointer) >= 0 ? uidOf(pointer) : uidOf(held));
    const span = store.spans.get(uid);
    if (!span) return say(this.told, "Point at a line for its life in words; a click goes to that step and holds the request.");
    const segments = segmentsOf(span, store.refusals, store.last);
    const now = this.hovered && segments.find(({ from, to }) => from <= /** @type {any} */ (this.hovered).step && /** @type {any} */ (this.hovered).step < to);
    say(this.told, `${now ? `In step ${/** @type {any} */ (this.hovered).step}: ${wordsOf(uid, now)}. ` : ""}${lifeOf(span, segments).replace(/^r/, "R")}.`);
  }
}
