// @ts-check
import { h, say, chip, count } from "./look.js";
import { Breaks } from "./breaks.js";
import { fitCanvas, penOf } from "./canvas.js";

/** Signs drawn as paths, since fonts differ in which of them they have. */
const SIGNS = {
  first: "M3 2h2v12H3zM14 2v12L6 8z",
  back: "M12 2v12L4 8z",
  play: "M4 2v12l9-6z",
  pause: "M4 2h3v12H4zM9 2h3v12H9z",
  forward: "M4 2v12l8-6z",
  last: "M11 2h2v12h-2zM2 2v12l8-6z",
};
const SPEEDS = [1, 2, 5, 10, 30, 60];

/** Is a key meant for the stage, and not for a field, for what is folded or for the browser? @param {KeyboardEvent} event */
export function forStage(event) {
  const field = /** @type {HTMLElement} */ (event.target).matches?.("select, textarea, summary, input:not([type=range])");
  return !field && !event.altKey && !event.ctrlKey && !event.metaKey;
}

/** The player: it owns the time, and tells `goto` where to go. Space, arrows, Home, End, n and p work wherever the focus is. */
export class Player {
  /** @param {{goto: (step: number) => void, live: boolean}} options */
  constructor({ goto, live }) {
    this.goto = goto;
    this.step = 0;
    this.first = 0;
    this.last = 0;
    this.timer = 0;
    this.dragging = false; // the scrub bar is held
    this.width = this.height = 0;
    this.trackKey = this.batchKey = "";
    this.widest = 0; // characters of the step's number
    const button = (/** @type {keyof typeof SIGNS} */ name, /** @type {string} */ label, /** @type {() => void} */ act) =>
      h("button", { type: "button", class: `msgl-btn msgl-${name}`, "aria-label": label, title: label, onclick: act },
        h("svg", { viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": "true" }, h("path", { d: SIGNS[name], fill: "currentColor" })));
    this.play = button("play", "Play (space)", () => this.toggle());
    this.range = h("input", { type: "range", class: "msgl-range", min: 0, max: 0, step: 1, "aria-label": "step" });
    this.range.addEventListener("input", () => {
      this.stop();
      this.goto(Number(this.range.value));
    });
    this.range.addEventListener("pointerdown", () => (this.dragging = true));
    for (const end of ["pointerup", "pointercancel", "change", "blur"]) this.range.addEventListener(end, () => (this.dragging = false));
    this.track = h("canvas", { class: "msgl-track", "aria-hidden": "true", title: "tall: prefill, low: decode, red: a broken rule" });
    this.speed = h("select", { class: "msgl-speed", "aria-label": "steps per second", title: "steps per second" },
      SPEEDS.map((s) => h("option", { value: s, selected: s === 5 }, `${s}/s`)));
    this.speed.addEventListener("change", () => this.timer && (this.stop(), this.start()));
    this.breaks = new Breaks((step) => this.jump(step));
    this.number = h("output", { class: "msgl-number", "aria-live": "off" });
    this.phase = h("span", { class: "msgl-phase" });
    this.batch = h("span", { class: "msgl-batch" });
    this.live = h("button", { type: "button", class: "msgl-btn msgl-live", title: "Follow the newest step (End)", hidden: !live,
      onclick: () => this.jump(this.last) });
    this.el = h("div", { class: "msgl-player", role: "group", "aria-label": "player" },
      h("div", { class: "msgl-keys" },
        button("first", "First step (Home)", () => this.jump(this.first)),
        button("back", "One step back (left arrow)", () => this.jump(this.step - 1)),
        this.play,
        button("forward", "One step forward (right arrow)", () => this.jump(this.step + 1)),
        button("last", "Last step (End)", () => this.jump(this.last)),
        this.speed),
      h("div", { class: "msgl-scrub" }, this.range, this.track), this.breaks.el,
      h("div", { class: "msgl-where" }, this.number, this.live, this.phase, this.batch));
  }

  /** @param {number} step */
  jump(step) {
    this.stop();
    this.goto(step);
  }

  toggle() {
    if (this.timer) this.stop();
    else this.start();
  }

  start() {
    if (this.step >= this.last) this.goto(this.first);
    this.timer = window.setInterval(() => {
      if (this.step >= this.last) this.stop();
      else this.goto(this.step + 1);
    }, 1000 / Number(this.speed.value));
    this._button();
  }

  stop() {
    if (!this.timer) return;
    clearInterval(this.timer);
    this.timer = 0;
    this._button();
  }

  _button() {
    this.play.querySelector("path").setAttribute("d", this.timer ? SIGNS.pause : SIGNS.play);
    this.play.setAttribute("aria-label", this.timer ? "Pause (space)" : "Play (space)");
    this.play.setAttribute("aria-pressed", this.timer ? "true" : "false");
  }

  /** @param {KeyboardEvent} event @returns {boolean} whether the key was the player's */
  key(event) {
    if (!forStage(event)) return false;
    const target = /** @type {HTMLElement} */ (event.target);
    const big = event.shiftKey ? 10 : 1;
    if (event.key === " " && target.tagName !== "BUTTON") this.toggle();
    else if (event.key === "ArrowLeft") this.jump(this.step - big);
    else if (event.key === "ArrowRight") this.jump(this.step + big);
    else if (event.key === "Home") this.jump(this.first);
    else if (event.key === "End") this.jump(this.last);
    else if (event.key === "n") this.breaks.go(1);
    else if (event.key === "p") this.breaks.go(-1);
    else return false;
    return true;
  }

  /** Sizes, read before anything is drawn. */
  measure() {
    this.width = this.track.clientWidth;
    this.height = this.track.clientHeight;
  }

  /** @param {import("./stage.js").Frame} frame */
  draw(frame) {
    const { store, step, entry, palette } = frame;
    this.breaks.draw(frame);
    this.step = step;
    this.first = store.first;
    this.last = store.last;
    this.range.min = String(this.first);
    this.range.max = String(this.last);
    this.range.value = String(step);
    const phase = entry ? entry.phase : "start";
    this.range.setAttribute("aria-valuetext", `step ${step} of ${this.last}, ${phase}`);
    const widest = `step ${this.last} of ${this.last}`;
    if (widest.length !== this.widest) this.number.style.minWidth = `max(150px, ${(this.widest = widest.length)}ch)`; // so that nothing moves
    say(this.number, `step ${step} of ${this.last}`);
    this.phase.dataset.phase = phase;
    say(this.phase, phase);
    this._drawBatch(entry?.uids ?? [], entry?.num_tokens ?? 0);
    const following = step === this.last;
    this.live.classList.toggle("msgl-on", following);
    say(this.live, following ? "● live" : "○ go live");
    this._drawTrack(store, palette);
  }

  /** Whom the step computed. @param {number[]} uids @param {number} tokens */
  _drawBatch(uids, tokens) {
    let room = 130; // pixels for name tags
    const shown = uids.filter((uid) => (room -= 15 + 8 * String(uid).length) > 0);
    const more = uids.length - shown.length;
    const key = `${tokens} ${shown} ${more}`;
    if (key === this.batchKey) return;
    this.batchKey = key;
    this.batch.replaceChildren(...(uids.length ? [`${count(tokens, "token")} of`, ...shown.map((u) => chip(u)), more ? `+${more}` : ""] : []));
  }

  /** One bar per step (or per pixel): what kind of batch it was. @param {any} store @param {any} palette */
  _drawTrack(store, palette) {
    const { width, height } = this;
    const key = `${width} ${store.length} ${store.record} ${palette.prefill}`;
    if (key === this.trackKey || !width || !store.length) return;
    this.trackKey = key;
    fitCanvas(this.track, width, height);
    const context = penOf(this.track);
    context.clearRect(0, 0, width, height);
    const room = width / store.length;
    const wide = Math.max(1, room - (room > 3 ? 1 : 0));
    const bars = new Map(["broken", "prefill", "decode"].map((kind) => [kind, new Set()])); // where; many steps may share a pixel
    for (let i = 0; i < store.length; i++) {
      const phase = store.phase(i);
      const kind = store.index.violations[i] ? "broken" : phase === "idle" ? "" : phase === "decode" ? "decode" : "prefill";
      bars.get(kind)?.add(Math.round((i + 1) * room - wide / 2 - room / 2));
    }
    const low = height * 0.6;
    for (const [kind, colour, top, least] of [["prefill", palette.prefill, 0, 1], ["decode", palette.decode, low, 1], ["broken", palette.bad, 0, 2]]) {
      context.fillStyle = colour;
      for (const x of bars.get(kind) ?? []) context.fillRect(/** @type {number} */ (x), top, Math.max(least, wide), height - top);
    }
  }
}
