// @ts-check
/** Breakpoints: the steps where something happened, and the way to the next one. Read off the index, which is there at once. */
import { h, say } from "./look.js";

const BREAKS = {
  refusal: "refusal", eviction: "eviction", split: "split", retract: "retraction", finish: "request ends", handoff: "handoff",
  arrival: "arrival", admission: "admission", drain: "drain", broken: "broken rule", free: "free pages <",
};

/** The steps where it happened, in order. "free": where the free pages fall below `n`.
 * @param {import("./record.js").RunStore} store @param {string} kind @param {number} n @returns {number[]} */
export function breaksIn(store, kind, n) {
  const { first, length, index } = store;
  const found = [];
  if (kind === "free") {
    let before = Number(store.keyframe.counters.free_pages);
    for (let i = 0; i < length; i++) {
      const free = index.free_pages[i];
      if (free < n && before >= n) found.push(first + 1 + i);
      before = free;
    }
  } else {
    const bit = store.flag(kind);
    for (let i = 0; i < length; i++) if (index.flags[i] & bit) found.push(first + 1 + i);
  }
  return found;
}

/** How many of some numbers, which grow, are at most `step`. @param {number[]} steps @param {number} step */
export function upTo(steps, step) {
  let low = 0;
  for (let high = steps.length; low < high; ) {
    const mid = (low + high) >> 1;
    if (steps[mid] <= step) low = mid + 1;
    else high = mid;
  }
  return low;
}

/** The player's control for them: what to look for, the one before, the next one, and how many there are. */
export class Breaks {
  /** @param {(step: number) => void} jump */
  constructor(jump) {
    this.jump = jump;
    /** @type {number[]} */
    this.steps = [];
    this.step = 0;
    this.key = "";
    /** @type {import("./record.js").RunStore | null} */
    this.store = null;
    const look = () => this._look();
    this.kind = h("select", { class: "msgl-breakkind", "aria-label": "go to the next ...", title: "what n and p go to", onchange: look },
      Object.entries(BREAKS).map(([id, name]) => h("option", { value: id }, name)));
    this.below = h("input", { type: "number", class: "msgl-breakbelow", min: 1, value: 1, "aria-label": "free pages", hidden: true, oninput: look });
    const button = (/** @type {string} */ name, /** @type {string} */ label, /** @type {string} */ sign, /** @type {1 | -1} */ way) =>
      h("button", { type: "button", class: `msgl-btn msgl-${name}`, "aria-label": label, title: label, onclick: () => this.go(way) }, sign);
    this.before = button("previous", "The one before (p)", "‹", -1);
    this.next = button("next", "The next one (n)", "›", 1);
    this.found = h("output", { class: "msgl-found" });
    this.el = h("div", { class: "msgl-breaks", role: "group", "aria-label": "breakpoints" }, this.kind, this.below, this.before, this.next, this.found);
  }

  /** Go to the next one, or the one before; false if there is none. @param {1 | -1} way */
  go(way) {
    const at = way > 0 ? upTo(this.steps, this.step) : upTo(this.steps, this.step - 1) - 1;
    const step = this.steps[at];
    if (step !== undefined) this.jump(step);
    return step !== undefined;
  }

  /** Find them again if the run or what is looked for is another. */
  _look() {
    if (!this.store) return;
    const kind = this.kind.value;
    this.below.hidden = kind !== "free";
    this.steps = breaksIn(this.store, kind, Number(this.below.value));
    this._say();
  }

  _say() {
    const n = this.steps.length;
    const at = upTo(this.steps, this.step);
    const here = at > 0 && this.steps[at - 1] === this.step;
    // a button that is disabled loses the focus, and the keys with it
    this.before.setAttribute("aria-disabled", String(at - (here ? 1 : 0) <= 0));
    this.next.setAttribute("aria-disabled", String(at >= n));
    Object.assign(this.el.dataset, { steps: n, at: here ? at : 0 });
    say(this.found, here ? `${at} of ${n}` : `${n} in all`);
  }

  /** @param {import("./stage.js").Frame} frame */
  draw({ store, step }) {
    this.step = step;
    this.store = store;
    const key = `${store.edition} ${store.length}`;
    if (key !== this.key) {
      this.key = key;
      this._look();
    } else this._say();
  }
}
