// @ts-check
import { h, say, count, chip, middle } from "./look.js";

const EVENT_LINE = 24;
const SLICE = 5; // milliseconds of reading between two frames
const LONGEST_TOLD = 300; // characters of a sentence shown

/** The event log: every event of the run in words, one line each, with the function that made it. */
export class EventLog {
  static id = "events";
  static title = "Events";
  static dock = "right";

  /** @param {import("./stage.js").Stage} stage */
  constructor(stage) {
    this.stage = stage;
    /** @type {import("./record.js").Told[]} */
    this.told = [];
    /** The step of each. @type {number[]} */
    this.steps = [];
    /** Those that pass the filter, as numbers in `told`. @type {number[]} */
    this.passed = [];
    this.read = 0; // steps read
    this.sifted = 0; // events that the filter has seen
    this.record = -1;
    this.top = this.high = 0;
    this.shown = NaN; // the step that was last brought into sight
    this.types = new Set();
    this.key = ""; // what is drawn
    /** @type {EventLine[]} */
    this.lines = [];
    this.from = 0; // the place of the first of them
    this.type = h("select", { class: "msgl-types", "aria-label": "type of event", onchange: () => this._sift() }, h("option", { value: "" }, "with a sentence"), h("option", { value: "*" }, "every event"));
    this.text = h("input", { type: "search", class: "msgl-search", placeholder: "in its words", "aria-label": "words to look for", oninput: () => this._sift() });
    this.note = h("span", { class: "msgl-hint", role: "status" });
    this.rows = h("div", { class: "msgl-rows", role: "list" });
    this.body = h("div", { class: "msgl-log msgl-scroll", tabindex: 0, "aria-label": "events" }, this.rows);
    this.body.addEventListener("scroll", () => stage.redraw());
    this.el = h("div", { class: "msgl-dockview msgl-events" }, h("div", { class: "msgl-filter" }, this.type, this.text, this.note), this.body);
    this.el.addEventListener("click", (/** @type {MouseEvent} */ e) => {
      const row = /** @type {Element} */ (e.target).closest("[data-step]");
      if (row) stage.goto(Number(row.getAttribute("data-step")));
    });
    this.el.addEventListener("keydown", (/** @type {KeyboardEvent} */ e) => {
      const row = /** @type {Element} */ (e.target).closest("[data-step]");
      if (e.key !== "Enter" || !row) return;
      stage.goto(Number(row.getAttribute("data-step")));
      e.stopPropagation();
    });
  }

  /** The filter is another one: sift all again. */
  _sift() {
    this._forget();
    this.stage.redraw();
  }

  /** What passed the filter, and what is drawn of it, is no longer so. */
  _forget() {
    this.passed = [];
    this.sifted = 0;
    this.shown = NaN;
    this.key = "";
  }

  /** Read on for a moment, and sift what was read. @param {import("./record.js").RunStore} store */
  _readOn(store) {
    const until = performance.now() + SLICE;
    while (this.read < store.length && performance.now() < until) {
      const step = store.first + 1 + this.read;
      const events = store.events(step);
      if (events === null) break; // `more` will come
      for (const event of events) {
        this.told.push(event);
        this.steps.push(step);
        if (!this.types.has(event.type)) {
          this.types.add(event.type);
          this.type.append(h("option", null, event.type));
        }
      }
      this.read++;
    }
    const type = this.type.value;
    const words = this.text.value.trim().toLowerCase();
    for (; this.sifted < this.told.length; this.sifted++) {
      const event = this.told[this.sifted];
      const fits = type === "*" || (type === "" ? event.words !== "" : event.type === type);
      if (fits && (!words || event.words.toLowerCase().includes(words))) this.passed.push(this.sifted);
    }
    if (this.read < store.length && performance.now() >= until) this.stage.redraw();
  }

  /** Sizes, read before anything is drawn; scrolling later would lay out the page once more. */
  measure() {
    this.top = this.body.scrollTop;
    this.high = this.body.clientHeight;
    const step = this.stage.cursor?.step ?? 0;
    if (this.shown === step || this.read < step - this.stage.store.first) return;
    this.shown = step;
    const from = this._place(step) * EVENT_LINE;
    const to = Math.min(this._place(step + 1) * EVENT_LINE, from + this.high);
    if (from < this.top || to > this.top + this.high) this.body.scrollTop = this.top = Math.max(0, from - EVENT_LINE);
  }

  /** The first event that passed at or after a step, as a place in `passed`. @param {number} step */
  _place(step) {
    let low = 0;
    for (let high = this.passed.length; low < high; ) {
      const mid = (low + high) >> 1;
      if (this.steps[this.passed[mid]] < step) low = mid + 1;
      else high = mid;
    }
    return low;
  }

  /** @param {import("./stage.js").Frame} frame */
  draw({ store, step }) {
    if (this.record !== store.record) { // another run
      this.record = store.record;
      this.told = [];
      this.steps = [];
      this.read = 0;
      this._forget();
    }
    this._readOn(store);
    this.rows.style.height = `${this.passed.length * EVENT_LINE}px`;
    const reading = this.read < store.length ? `, ${this.read} of ${store.length} steps read` : "";
    say(this.note, `${count(this.passed.length, "event")}${reading}`);
    if (this.shown !== step && this.read >= step - store.first) this.stage.redraw(); // its place is known only now
    const from = Math.max(0, Math.floor(this.top / EVENT_LINE) - 2);
    const to = Math.min(this.passed.length, from + Math.ceil(this.high / EVENT_LINE) + 4);
    const key = [from, to, this.passed.length, step].join(" ");
    if (this.key === key) return;
    this.key = key;
    this._lines(from, to - from);
    this.lines.forEach((line, i) => {
      const n = this.passed[from + i];
      line.show(this.told[n], this.steps[n], (from + i) * EVENT_LINE, this.steps[n] === step);
    });
  }

  /** As many lines as are in sight. Those that stay there stay as they are; of the others only the text changes.
   * @param {number} from the first one's place @param {number} n */
  _lines(from, n) {
    const { lines } = this;
    const by = from - this.from;
    this.from = from;
    if (by > 0 && by < lines.length) {
      for (const line of lines.splice(0, by)) lines.push(line), this.rows.append(line.el);
    } else if (by < 0 && -by < lines.length) {
      for (const line of lines.splice(by).reverse()) lines.unshift(line), this.rows.prepend(line.el);
    }
    while (lines.length > n) /** @type {EventLine} */ (lines.pop()).el.remove();
    while (lines.length < n) this.rows.append(lines[lines.push(new EventLine()) - 1].el);
  }
}

/** A line of the log. Another event in the same line costs a browser much less than another line. */
class EventLine {
  constructor() {
    /** @type {import("./record.js").Told | null} */
    this.event = null;
    this.at = h("span", { class: "msgl-num" });
    this.who = h("span");
    this.told = h("span", { class: "msgl-told" });
    this.made = h("code");
    this.el = h("div", { class: "msgl-event", role: "listitem", tabindex: 0 }, this.at, this.who, this.told, this.made);
  }

  /** @param {import("./record.js").Told} event @param {number} step @param {number} top @param {boolean} now */
  show(event, step, top, now) {
    this.el.style.top = `${top}px`;
    this.el.classList.toggle("msgl-now", now);
    if (this.event === event) return;
    this.event = event;
    const words = event.words || event.type;
    Object.assign(this.el.dataset, { step, type: event.type, made: event.made });
    say(this.at, String(step));
    const who = event.uid >= 0 ? chip(event.uid) : h("span");
    this.who.replaceWith(who);
    this.who = who;
    say(this.told, middle(words, LONGEST_TOLD));
    this.told.title = middle(words, 2000);
    say(this.made, event.made.split(" or ").map((name) => name.split(".").slice(-2).join(".")).join(" or "));
    this.made.title = `${event.type}, made by ${event.made}`;
  }
}
