// @ts-check
import { uidOf } from "./selection.js";
import { h, say } from "./look.js";
import { Player } from "./player.js";

/**
 * @typedef {{clock: string, times: [number[], number[]], differing: [number, number][], settings: [string, string, string][],
 *   first: [number, string | null, string | null] | null}} PairData times: microseconds at which a run's steps were over, its
 *   start first; differing: how many events differ in a step; first: where the runs part
 */

/** The places that a shared player goes to: for each, the index of the step at which each run stands there.
 * @param {[number[], number[]]} times @param {string} clock "step" or "time" @returns {[number, number][]} */
export function placesOf(times, clock) {
  const [a, b] = times;
  if (clock === "step") return Array.from({ length: Math.max(a.length, b.length) }, (_, i) => [Math.min(i, a.length - 1), Math.min(i, b.length - 1)]);
  /** @type {[number, number][]} */
  const places = [];
  for (let i = 0, j = 0; ; ) {
    places.push([i, j]);
    const next = Math.min(a[i + 1] ?? Infinity, b[j + 1] ?? Infinity);
    if (next === Infinity) return places;
    while (a[i + 1] <= next) i++;
    while (b[j + 1] <= next) j++;
  }
}

/** The first place at which a run stands at a step, or beyond it. @param {[number, number][]} places @param {0 | 1} which
 * @param {number} index */
export function placeAt(places, which, index) {
  const at = places.findIndex((place) => place[which] >= index);
  return at < 0 ? places.length - 1 : at;
}

/** The place that the end of an address means: `step` of the left run, or of the longer one; `beside`, the step of the
 * right run then. Undefined if it says no step.
 * @param {[number, number][]} places @param {URLSearchParams} said @param {[number, number]} first the runs' first steps */
export function placeIn(places, said, first) {
  const [step, beside] = ["step", "beside"].map((name) => (/^\d+$/.test(said.get(name) ?? "") ? Number(said.get(name)) : undefined));
  if (step === undefined) return undefined;
  const at = beside === undefined ? -1 : places.findIndex(([a, b]) => a + first[0] === step && b + first[1] === beside);
  if (at >= 0) return at;
  const which = (places.at(-1)?.[0] ?? 0) + first[0] >= step ? 0 : 1;
  return placeAt(places, which, step - first[which]);
}

/** Time for people. @param {number} us microseconds */
export function timeOf(us) {
  return us < 1e6 ? `${Math.round(us / 1e3)} ms` : `${(us / 1e6).toFixed(2)} s`;
}

/**
 * Two stages on one clock. Whatever moves one of them moves both; a request that is pointed at lights up in both.
 *
 *     .msgl-pair    data-place, data-places, data-clock (step | time), data-differing (events that differ up to here), data-here
 *     .msgl-side    one of the two; the .msgl in it is the stage
 */
export class Pair {
  /** @param {HTMLElement} el @param {import("./stage.js").Stage[]} stages @param {PairData} data */
  constructor(el, stages, data) {
    this.stages = stages;
    this.data = data;
    this.differing = new Map(data.differing);
    this.player = new Player({ goto: (place) => this.goto(place), live: false });
    this.clock = h("select", { class: "msgl-speed msgl-clock", "aria-label": "the clock that both share", onchange: () => this._clock(this.clock.value) },
      h("option", { value: "step", selected: data.clock === "step" }, "same step"), h("option", { value: "time", selected: data.clock === "time" }, "same time"));
    this.player.el.querySelector(".msgl-keys")?.append(this.clock);
    const { breaks } = stages[0].player; // where to stop is looked for in the left run
    this.player.breaks.el.replaceWith(breaks.el);
    this.player.breaks = breaks;
    breaks.jump = (step) => {
      this.player.stop();
      stages[0].goto(step);
    };
    this.note = h("p", { class: "msgl-pairnote", role: "status" });
    this.sides = stages.map((stage) => h("div", { class: "msgl-side" }, stage.root));
    this.top = h("div", { class: "msgl-top" }, this.player.el, this.note);
    this.el = h("section", { class: "msgl msgl-pair", tabindex: -1, "aria-label": "two runs side by side" }, this.top, h("div", { class: "msgl-sides" }, this.sides));
    el.append(this.el);
    this.address = ""; // to be followed as soon as both runs are there
    for (const { store } of stages) store.listeners.add(() => this.address && this.follow(this.address));
    /** @type {[number, number][]} */
    this.places = [];
    this.moves = stages.map((stage) => stage.goto.bind(stage));
    for (const [i, stage] of stages.entries()) {
      const other = stages[1 - i];
      stage.beside = other.store;
      other.store.listeners.add((what) => what === "load" && stage.redraw()); // what has one scale for both has another one now
    }
    for (const [i, stage] of stages.entries()) {
      this._join(stage, stages[1 - i], /** @type {0 | 1} */ (i));
      for (const part of stage.root.querySelectorAll("section")) part.setAttribute("aria-label", `${part.getAttribute("aria-label")}, ${i ? "right" : "left"} run`);
    }
    this.el.addEventListener("keydown", (/** @type {KeyboardEvent} */ e) => this._key(e), true);
    document.addEventListener("keydown", (e) => e.target === document.body && this._key(e));
    new ResizeObserver(() => this._draw()).observe(this.el);
    this.player.step = 1;
    this._clock(data.clock);
  }

  /** Let a stage move the pair, and point in the other one too.
   * @param {import("./stage.js").Stage} stage @param {import("./stage.js").Stage} other @param {0 | 1} which */
  _join(stage, other, which) {
    const move = this.moves[which];
    // a step that becomes readable only now was the pair's wish already
    stage.goto = (step) => (step === stage.wanted ? move(step) : this.goto(placeAt(this.places, which, step - stage.store.first)));
    const { point, pin } = stage;
    const shared = (/** @type {import("./selection.js").Pointer} */ pointer) => (uidOf(pointer) >= 0 ? pointer : null);
    stage.point = (pointer) => {
      point.call(stage, pointer);
      if (JSON.stringify(other.hovered) !== JSON.stringify(shared(pointer))) {
        other.hovered = shared(pointer);
        other.redraw();
      }
    };
    stage.pin = (pointer) => {
      pin.call(stage, pointer);
      other.pinned = shared(stage.pinned);
      other.redraw();
    };
  }

  /** @param {string} clock */
  _clock(clock) {
    const at = this.places[this.player.step]?.[0] ?? 1;
    this.clock.value = clock;
    this.places = placesOf(this.data.times, clock);
    this.player.trackKey = "";
    this.goto(this.places.length > 1 ? placeAt(this.places, 0, at) : 0);
  }

  /** The end of an address that leads here. */
  get fragment() {
    const { places, player, stages, clock } = this;
    const [a, b] = places[player.step].map((at, i) => at + stages[i].store.first);
    const [step, ...rest] = stages[0].fragment.split("&");
    const where = clock.value === "time" ? [`step=${a}`, `beside=${b}`] : [`step=${Math.max(a, b)}`];
    return [...where, `clock=${clock.value}`, ...rest].join("&");
  }

  /** Go where the end of an address leads, once both runs say where they begin. @param {string} fragment */
  follow(fragment) {
    this.address = "";
    if (!this.stages.every(({ store }) => store.ready)) {
      this.address = fragment;
      return;
    }
    const said = new URLSearchParams(fragment.replace(/^#/, ""));
    const clock = said.get("clock") ?? "";
    if (["step", "time"].includes(clock)) this._clock(clock);
    const [left, right] = this.stages;
    const place = placeIn(this.places, said, [left.store.first, right.store.first]);
    for (const name of ["step", "beside"]) said.delete(name);
    left.follow(said.toString());
    for (const id of (said.get("view") ?? "").split(",")) for (const dock of right.docks) dock.show(id);
    if (uidOf(left.pinned) >= 0) right.look(undefined, left.pinned);
    if (place !== undefined) this.goto(place);
  }

  /** @param {number} place */
  goto(place) {
    const at = Math.max(0, Math.min(this.places.length - 1, place));
    this.player.step = at;
    for (const [i, move] of this.moves.entries()) move(this.stages[i].store.first + this.places[at][i]);
    this._draw();
  }

  _draw() {
    const { player, places, stages } = this;
    const place = places[player.step];
    const last = places.length - 1;
    Object.assign(player, { first: 0, last });
    Object.assign(player.range, { min: "0", max: String(last), value: String(player.step) });
    const steps = stages.map(({ store }, i) => store.first + place[i]);
    const times = this.data.times.map((of, i) => of[place[i]]);
    const when = this.clock.value === "time" ? `at ${timeOf(Math.max(...times))}` : steps[0] === steps[1] ? `step ${steps[0]}` : `steps ${steps.join(", ")}`;
    const widest = `steps ${stages.map(({ store }, i) => store.first + this.data.times[i].length - 1).join(", ")}`;
    player.number.style.minWidth = `max(110px, ${widest.length}ch)`; // so that nothing moves
    say(player.number, when);
    player.range.setAttribute("aria-valuetext", `${when}, place ${player.step} of ${last}`);
    const both = this.clock.value === "time" ? `steps ${steps[0]} | ${steps[1]}` : ""; // else the player's number says them
    player.batch.replaceChildren(both, h("span", { class: "msgl-pairtimes" }, `${timeOf(times[0])} | ${timeOf(times[1])}`));
    player.phase.hidden = true;
    const reached = Math.max(...steps);
    let before = 0;
    for (const [step, n] of this.differing) if (step <= reached) before += n;
    const here = this.differing.get(reached) ?? 0;
    const all = [...this.differing.values()].reduce((sum, n) => sum + n, 0);
    const settings = this.data.settings.map(([name, a, b]) => `${name}: ${a} | ${b}`).join("; ") || "the same settings";
    const { first } = this.data;
    const parted = first ? `; they part in step ${first[0]}: ${first[1] ?? "nothing"} | ${first[2] ?? "nothing"}` : "";
    say(this.note, `${settings}. Of the events ${all} differ, ${before} of them up to step ${reached}, ${here} in it${parted}`);
    this.note.title = this.note.textContent;
    Object.assign(this.el.dataset, { place: player.step, places: places.length, clock: this.clock.value, differing: before, here });
  }

  /** @param {KeyboardEvent} event */
  _key(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.key === "Escape") { // lets go in both, wherever it was held
      for (const stage of this.stages) stage.key(event);
      return;
    }
    if (target.closest?.(".msgl-cells, .msgl-reads, [role=tablist]")) return;
    if (!this.player.key(event)) {
      if (target === document.body) for (const stage of this.stages) stage.key(event);
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}
