// @ts-check
import { h, say, count, chip, svgHatch, uidLook } from "./look.js";
import { stretches, tick } from "./chart.js";
import { TimeScale } from "./timescale.js";

const EDGE = { left: 46, right: 8, top: 8, bottom: 20 };
const BROAD = 4; // pixels a step from which on each prompt gets a piece of its own
const FAR = 3; // a budget so many times higher than any batch is told, not drawn
const MOST_NAMED = 8; // requests named in words

/** The batch that a step launched in numbers: tokens of prompts, tokens of those that decode, and who those are.
 * @param {import("./record.js").RunStore} store @param {number} i the step's index
 * @returns {{prompts: {uid: number, start: number, end: number}[], prefill: number, decode: number, decoders: number[]}} */
export function batchOf(store, i) {
  if (!(store.index.flags[i] & store.flag("launch"))) return { prompts: [], prefill: 0, decode: 0, decoders: [] };
  const prompts = store.prefills(i);
  const prefill = prompts.reduce((sum, { start, end }) => sum + end - start, 0);
  const entering = new Set(prompts.map(({ uid }) => uid));
  return { prompts, prefill, decode: store.index.num_tokens[i] - prefill, decoders: store.batch(i).filter((uid) => !entering.has(uid)) };
}

/** What a batch computes of a prompt, in words up to its request. @param {{start: number, end: number}} piece @param {number} whole the prompt's tokens */
export function pieceOf({ start, end }, whole) {
  const n = end - start;
  if (end > whole) return `${count(n, "token")} computed again, of `;
  if (n === whole) return `${n === 1 ? "the one prompt token" : `all ${n} prompt tokens`} of `;
  return `${n} of ${count(whole, "prompt token")}${start ? ` (after the first ${start})` : ""} of `;
}

/** What each step computed: tokens of prompts, by request, and of those that decode; and the budget. */
export class BatchStrip {
  static id = "batch";
  static title = "Batches";
  static dock = "right";

  /** @param {import("./stage.js").Stage} stage */
  constructor(stage) {
    this.stage = stage;
    this.scale = new TimeScale(stage);
    this.width = this.height = 0;
    this.from = this.to = 0;
    this.key = this.said = "";
    this.words = h("p", { class: "msgl-batchwords", role: "status" });
    const key = (/** @type {string} */ look, /** @type {string} */ words) => h("span", { class: "msgl-key" }, h("i", { class: `msgl-swatch ${look}` }), words);
    this.budget = h("span", { class: "msgl-key" });
    this.legend = h("div", { class: "msgl-chartnote" }, key("msgl-k-owned", "prompt tokens, by request"), key("msgl-bt-k-decode", "decode tokens"), this.budget, this.scale.el);
    const id = `msgl-bt-${Math.random().toString(36).slice(2)}`;
    this.id = id;
    this.axes = h("g", { class: "msgl-axes" });
    this.bars = h("g");
    this.line = h("g");
    this.mark = h("rect", { class: "msgl-bt-here" });
    this.svg = h("svg", { class: "msgl-chart", role: "img", tabindex: 0 }, h("defs", null, [1, 2].map((n) => svgHatch(`${id}-${n}`, "msgl-bt-line", n))), this.axes, this.bars, this.line, this.mark);
    this.box = h("div", { class: "msgl-chartbox" }, this.svg);
    this.el = h("div", { class: "msgl-dockview msgl-batches" }, this.words, this.legend, this.box);
    const drag = (/** @type {PointerEvent} */ e) => {
      if (!(e.buttons & 1) || !this.to) return;
      if (e.type === "pointerdown") this.svg.setPointerCapture(e.pointerId);
      const i = Math.floor(((e.clientX - this.svg.getBoundingClientRect().left - EDGE.left) / this._inner) * (this.to - this.from));
      stage.goto(stage.store.first + 1 + this.from + Math.max(0, Math.min(this.to - this.from - 1, i)));
    };
    for (const kind of ["pointerdown", "pointermove"]) this.svg.addEventListener(kind, drag);
  }

  get _inner() {
    return Math.max(1, this.width - EDGE.left - EDGE.right);
  }

  /** Sizes, read before anything is drawn. */
  measure() {
    this.width = this.box.clientWidth;
    this.height = this.box.clientHeight;
  }

  /** @param {number} i a place between steps, 0 before the first of the run */
  _x(i) {
    return EDGE.left + (this._inner * (i - this.from)) / (this.to - this.from);
  }

  /** @param {import("./stage.js").Frame} frame */
  draw({ store, step }) {
    const i = step - store.first - 1;
    const batch = batchOf(store, i);
    const budget = Number(store.configAt(step).max_prefill_tokens ?? 0);
    Object.assign(this.el.dataset, { prefill: batch.prefill, decode: batch.decode, requests: batch.prompts.length + batch.decoders.length, budget });
    this._say(store, step, batch);
    const { from, to } = this.scale.stretch(store, step);
    Object.assign(this, { from, to });
    if (this.width <= 0 || !store.length) return;
    const key = `${this.width} ${this.height} ${from} ${to} ${store.length} ${store.edition} ${budget}`;
    if (key !== this.key) {
      this.key = key;
      this._draw(store, budget);
    }
    const wide = Math.max(3, this._inner / (to - from));
    const middle = (this._x(Math.max(from, i)) + this._x(Math.max(from, i) + 1)) / 2;
    for (const [name, value] of Object.entries({ x: middle - wide / 2, width: wide, y: EDGE.top - 4, height: this.height - EDGE.top - EDGE.bottom + 8 })) this.mark.setAttribute(name, value.toFixed(1));
    this.mark.style.display = i < 0 ? "none" : "";
    this.svg.setAttribute("aria-label", `Tokens that each batch computed, over ${count(store.length, "step")}. ${this.words.textContent}`);
  }

  /** @param {import("./record.js").RunStore} store @param {number} step @param {ReturnType<typeof batchOf>} batch */
  _say(store, step, { prompts, decoders }) {
    if (this.said === `${step} ${store.edition}`) return;
    this.said = `${step} ${store.edition}`;
    const i = step - store.first - 1;
    if (i < 0) return say(this.words, store.length ? "The start of the record: no batch yet." : "No step yet. Each batch gets a bar here: whose prompts it computed, and how many requests decoded.");
    const parts = [`step ${step}, ${store.phase(i)}: `];
    for (const [n, piece] of prompts.slice(0, MOST_NAMED).entries()) {
      parts.push(n ? ", " : "", pieceOf(piece, store.spans.get(piece.uid)?.prompt ?? 0), chip(piece.uid));
    }
    if (prompts.length > MOST_NAMED) parts.push(` and ${count(prompts.length - MOST_NAMED, "more prompt")}`);
    if (decoders.length) {
      parts.push(prompts.length ? "; " : "", decoders.length > 1 ? "one token each of " : "one token of ");
      for (const uid of decoders.slice(0, 2 * MOST_NAMED)) parts.push(chip(uid), " ");
      if (decoders.length > 2 * MOST_NAMED) parts.push(`and ${decoders.length - 2 * MOST_NAMED} more`);
    }
    if (!prompts.length && !decoders.length) parts.splice(0, 1, `step ${step}: no batch was launched`);
    this.words.replaceChildren(...parts);
  }

  /** @param {import("./record.js").RunStore} store @param {number} budget */
  _draw(store, budget) {
    const { width, height, from, to } = this;
    let most = 1;
    for (const n of store.index.num_tokens) most = Math.max(most, n);
    const near = budget > 0 && budget <= FAR * most;
    const scale = near ? Math.max(most, budget) : most;
    const y = (/** @type {number} */ n) => EDGE.top + (height - EDGE.top - EDGE.bottom) * (1 - n / scale);
    this.svg.setAttribute("width", String(width));
    this.svg.setAttribute("height", String(height));
    const wide = this._inner / (to - from);
    this.bars.replaceChildren(...(wide >= BROAD ? this._pieces(store, wide, y) : this._areas(store, y)));
    this.line.replaceChildren(...(near ? [h("line", { class: "msgl-bt-budget", x1: EDGE.left, x2: width - EDGE.right, y1: y(budget), y2: y(budget) })] : []));
    this.budget.replaceChildren(...(budget ? [h("i", { class: "msgl-swatch msgl-bt-k-budget" }), `budget ${budget}${near ? "" : ", above this scale"}`] : []));
    const marks = [];
    const each = tick(scale);
    for (let n = 0; n <= scale; n += each) marks.push(h("line", { x1: EDGE.left, x2: width - EDGE.right, y1: y(n), y2: y(n) }), h("text", { x: EDGE.left - 6, y: y(n) + 4, "text-anchor": "end" }, n));
    const steps = tick((to - from) / 2);
    for (let n = Math.ceil((store.first + from + 1) / steps) * steps; n <= store.first + to; n += steps) {
      if (this._x(n - store.first - 0.5) > width - 20) break; // it would be cut
      marks.push(h("text", { x: this._x(n - store.first - 0.5), y: height - 5, "text-anchor": "middle" }, n));
    }
    marks.push(h("rect", { class: "msgl-a-frame", x: EDGE.left, y: EDGE.top, width: this._inner, height: height - EDGE.top - EDGE.bottom }));
    this.axes.replaceChildren(...marks);
  }

  /** A bar a step: those that decode at the bottom, each prompt above. @param {import("./record.js").RunStore} store @param {number} wide
   * @param {(n: number) => number} y */
  _pieces(store, wide, y) {
    const pieces = [];
    for (let i = this.from; i < this.to; i++) {
      const { prompts, decode } = batchOf(store, i);
      const x = (this._x(i) + 0.5).toFixed(1);
      const w = (wide - 1).toFixed(1);
      let n = decode;
      const box = (/** @type {number} */ a, /** @type {number} */ b, /** @type {Record<string, any>} */ look) =>
        h("rect", { x, width: w, y: y(b).toFixed(1), height: Math.max(1.5, y(a) - y(b)).toFixed(1), ...look });
      if (decode) pieces.push(box(0, decode, { class: "msgl-bt-decode" }));
      for (const { uid, start, end } of prompts) {
        const { colour, pattern } = uidLook(uid);
        pieces.push(box(n, n + end - start, { class: `msgl-bt-prompt msgl-bt-u${colour}`, "data-piece": uid }));
        if (pattern) pieces.push(box(n, n + end - start, { fill: `url(#${this.id}-${pattern})` }));
        n += end - start;
      }
    }
    return pieces;
  }

  /** Too narrow for pieces: the most that any step of a stretch computed, and the most that any decoded. @param {import("./record.js").RunStore} store
   * @param {(n: number) => number} y */
  _areas(store, y) {
    const batches = Array.from({ length: this.to - this.from }, (_, k) => batchOf(store, this.from + k));
    const area = (/** @type {number[]} */ values) => {
      let path = `M${EDGE.left} ${y(0)}`;
      for (const { from, high } of stretches(values, this._inner / 2)) path += `H${this._x(this.from + from).toFixed(1)}V${y(high).toFixed(1)}`;
      return `${path}H${this._x(this.to)}V${y(0)}Z`;
    };
    return [h("path", { class: "msgl-bt-prefills", d: area(batches.map(({ prefill, decode }) => prefill + decode)) }),
      h("path", { class: "msgl-bt-decodes", d: area(batches.map(({ decode }) => decode)) })];
  }
}
