// @ts-check
import { h } from "./look.js";

const WINDOWS = [Infinity, 5000, 2000, 1000, 500, 200, 100, 50, 20]; // steps in sight

/** The stretch of a run that is in sight when `size` steps are: [from, to), indices of steps. It depends on nothing but the
 * step looked at, which always has at least a quarter of the stretch on both sides (but at the run's ends).
 * @param {number} length @param {number} index @param {number} size @returns {[number, number]} */
export function stretchAround(length, index, size) {
  if (size >= length) return [0, length];
  const half = size / 2;
  const from = Math.max(0, Math.min(length - size, Math.floor(index / half) * half - half / 2));
  return [from, from + size];
}

/** Which steps a view over time shows: the whole run, or so many around the player's step. */
export class TimeScale {
  /** @param {import("./stage.js").Stage} stage */
  constructor(stage) {
    this.stage = stage;
    this.level = 0; // an index into WINDOWS
    this.length = 0;
    const button = (/** @type {string} */ sign, /** @type {string} */ title, /** @type {number} */ by) =>
      h("button", { type: "button", class: "msgl-btn msgl-zoom", title, "aria-label": title, onclick: () => this._turn(by) }, sign);
    this.out = button("−", "more steps", -1);
    this.into = button("+", "fewer steps, wider", 1);
    this.el = h("span", { class: "msgl-timescale", role: "group" }, this.out, this.into);
  }

  /** The windows that make a difference. */
  get _levels() {
    return WINDOWS.filter((size) => size === Infinity || size < this.length);
  }

  /** @param {number} by */
  _turn(by) {
    this.level = Math.max(0, Math.min(this._levels.length - 1, this.level + by));
    this.stage.redraw();
  }

  /** The steps in sight, as indices [from, to). @param {import("./record.js").RunStore} store @param {number} step */
  stretch(store, step) {
    this.length = store.length;
    const levels = this._levels;
    this.level = Math.min(this.level, levels.length - 1);
    const [from, to] = stretchAround(store.length, Math.max(0, step - store.first - 1), levels[this.level]);
    this.out.disabled = this.level === 0;
    this.into.disabled = this.level === levels.length - 1;
    this.el.setAttribute("aria-label", `steps ${store.first + from + 1} to ${store.first + to} are in sight`);
    return { from, to };
  }
}
