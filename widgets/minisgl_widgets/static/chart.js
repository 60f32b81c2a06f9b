// @ts-check
import { h, say, count, svgHatch } from "./look.js";

const LEFT = 46;
const RIGHT = 8;
const TOP = 18;
const BOTTOM = 22;

/** Lowest and highest value of each stretch of a column, so that at most `most` stretches are drawn and no peak is lost.
 * @param {ArrayLike<number>} values @param {number} most @returns {{from: number, low: number, high: number}[]} */
export function stretches(values, most) {
  const every = Math.max(1, Math.ceil(values.length / most));
  const found = [];
  for (let from = 0; from < values.length; from += every) {
    let low = values[from];
    let high = low;
    for (let i = from + 1; i < Math.min(from + every, values.length); i++) {
      if (values[i] < low) low = values[i];
      else if (values[i] > high) high = values[i];
    }
    found.push({ from, low, high });
  }
  return found;
}

/** A line through a column, as an SVG path: steps are as wide as they last, a stretch shows its lowest and highest.
 * @param {ArrayLike<number>} values @param {(i: number) => number} x @param {(value: number) => number} y @param {number} most */
export function pathThrough(values, x, y, most) {
  const found = stretches(values, most);
  const every = found.length > 1 ? found[1].from : values.length;
  let path = "";
  for (const { from, low, high } of found) {
    const end = Math.min(from + every, values.length);
    path += `${path ? "L" : "M"}${x(from).toFixed(1)} ${y(high).toFixed(1)}`;
    if (low !== high) path += `V${y(low).toFixed(1)}`;
    path += `H${x(end).toFixed(1)}`;
  }
  return path;
}

/** A round number of about a third of a range. @param {number} range */
export function tick(range) {
  const rough = Math.max(1, range / 3);
  const power = 10 ** Math.floor(Math.log10(rough));
  return Math.max(1, [1, 2, 5, 10].map((f) => f * power).find((n) => n >= rough) ?? rough);
}

/** Pages used, promised and free over all steps. The gap between the two lines is what promising the worst case costs. */
export class Chart {
  static id = "chart";
  static title = "Used, promised, free";
  static dock = "left";

  /** @param {import("./stage.js").Stage} stage */
  constructor(stage) {
    this.stage = stage;
    this.width = this.height = 0;
    this.key = "";
    this.counts = [h("b"), h("b"), h("b")];
    const key = (/** @type {string} */ look, /** @type {HTMLElement} */ n, /** @type {string} */ words) => h("span", { class: "msgl-key" }, h("i", { class: `msgl-swatch ${look}` }), n, words);
    this.note = h("div", { class: "msgl-chartnote" }, key("msgl-a-s-used", this.counts[0], " used (owned, or cached and locked)"),
      key("msgl-b-promised", this.counts[1], " promised, not taken yet"), key("msgl-k-free", this.counts[2], " left to promise (free, evictable or pending)"));
    this.used = h("path", { class: "msgl-a-used" });
    this.promised = h("path", { class: "msgl-a-promised" });
    this.line = h("path", { class: "msgl-a-line" });
    this.axes = h("g", { class: "msgl-axes" });
    this.here = h("line", { class: "msgl-a-here" });
    const id = `msgl-hatch-${Math.random().toString(36).slice(2)}`;
    this.promised.setAttribute("fill", `url(#${id})`);
    this.svg = h("svg", { class: "msgl-chart", role: "img" }, h("defs", null, svgHatch(id, "msgl-a-hatch")), this.axes, this.promised, this.used, this.line, this.here);
    this.box = h("div", { class: "msgl-chartbox" }, this.svg);
    this.el = h("div", { class: "msgl-dockview msgl-pool-chart" }, this.note, this.box);
    const drag = (/** @type {PointerEvent} */ e) => {
      if (!(e.buttons & 1)) return;
      if (e.type === "pointerdown") this.svg.setPointerCapture(e.pointerId);
      this.stage.goto(this._stepAt(e.clientX - this.svg.getBoundingClientRect().left));
    };
    for (const kind of ["pointerdown", "pointermove"]) this.svg.addEventListener(kind, drag);
  }

  /** What it is as wide and as high as: the run, or the larger of two that stand side by side. */
  get _scale() {
    const { store, beside } = this.stage;
    return { steps: Math.max(store.length, beside?.length ?? 0), pages: Math.max(store.numPages, beside?.numPages ?? 0) };
  }

  /** The step at a place, in pixels from the left. @param {number} x */
  _stepAt(x) {
    const { first, length } = this.stage.store;
    const i = Math.floor(((x - LEFT) / Math.max(1, this.width - LEFT - RIGHT)) * this._scale.steps);
    return first + 1 + Math.max(0, Math.min(length - 1, i));
  }

  /** Sizes, read before anything is drawn. */
  measure() {
    this.width = this.box.clientWidth;
    this.height = this.box.clientHeight;
  }

  /** @param {import("./stage.js").Frame} frame */
  draw({ store, state, step }) {
    const { width, height } = this;
    const { owned_pages, pending_pages, protected_pages, reserved_pages: promised } = state.counters;
    const used = owned_pages - pending_pages + protected_pages;
    const rest = store.numPages - used - promised;
    Object.assign(this.el.dataset, { used, promised, rest });
    [used, promised, rest].forEach((n, i) => say(this.counts[i], String(n)));
    if (width <= 0 || !store.length) return;
    const inner = width - LEFT - RIGHT;
    const scale = this._scale;
    const x = (/** @type {number} */ at) => LEFT + (inner * at) / scale.steps;
    Object.assign(this.el.dataset, scale);
    const key = `${width} ${height} ${store.length} ${store.record} ${scale.steps} ${scale.pages}`;
    if (key !== this.key) {
      this.key = key;
      this._draw(store, x, inner, scale);
    }
    const middle = x(Math.max(0, step - store.first - 1) + 0.5).toFixed(1);
    for (const [name, value] of Object.entries({ x1: middle, x2: middle, y1: TOP - 4, y2: height - BOTTOM + 4 })) this.here.setAttribute(name, String(value));
    this.svg.setAttribute("aria-label", `Pages over ${count(store.length, "step")}, ${store.numPages} in all. At step ${step}: ${used} used, ${promised} promised, ${rest} left to promise.`);
  }

  /** @param {import("./record.js").RunStore} store @param {(at: number) => number} x @param {number} inner
   * @param {{steps: number, pages: number}} scale */
  _draw(store, x, inner, scale) {
    const { width, height } = this;
    const y = (/** @type {number} */ value) => TOP + (height - TOP - BOTTOM) * (1 - value / scale.pages);
    const { owned_pages, pending_pages, protected_pages, reserved_pages } = store.index;
    const used = new Int32Array(store.length);
    const both = new Int32Array(store.length);
    for (let i = 0; i < used.length; i++) {
      used[i] = owned_pages[i] - pending_pages[i] + protected_pages[i];
      both[i] = used[i] + reserved_pages[i];
    }
    this.svg.setAttribute("width", String(width));
    this.svg.setAttribute("height", String(height));
    const close = `V${y(0)}H${LEFT}Z`;
    const most = Math.max(2, Math.floor(inner));
    const through = pathThrough(both, x, y, most);
    this.used.setAttribute("d", pathThrough(used, x, y, most) + close);
    this.promised.setAttribute("d", through + close);
    this.line.setAttribute("d", through);
    const marks = [];
    const pages = tick(scale.pages);
    for (let n = 0; n <= scale.pages; n += pages) marks.push(h("line", { x1: LEFT, x2: width - RIGHT, y1: y(n), y2: y(n) }), h("text", { x: LEFT - 6, y: y(n) + 4, "text-anchor": "end" }, n));
    const steps = tick(scale.steps / 2);
    for (let n = steps; n <= scale.steps; n += steps) marks.push(h("text", { x: x(n - 0.5), y: height - 5, "text-anchor": "middle" }, store.first + n));
    marks.push(h("text", { x: 0, y: 11 }, "pages"), h("text", { x: LEFT - 6, y: height - 4, "text-anchor": "end" }, "step"));
    marks.push(h("rect", { class: "msgl-a-frame", x: LEFT, y: TOP, width: inner, height: height - TOP - BOTTOM }));
    this.axes.replaceChildren(...marks);
  }
}
