// @ts-check
/**
 * A cursor moves through a record in both directions. Nothing is computed but the position: states come from applying deltas
 * forwards and undoing them backwards, and a leap is one delta for many steps.
 */
import { applyDelta, fresh, undoDelta } from "./change.js";

/** One reader's place in a run: `state` is the state after `step`. */
export class Cursor {
  /** @param {import("./record.js").RunStore} store @param {number} [step] */
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
