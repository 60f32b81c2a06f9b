// @ts-check
/**
 * What is known of every step at once, a number or two each: what a scrub bar, a chart and breakpoints need.
 *
 * @typedef {{step: number, phase: string, uids: number[], num_tokens: number, violations: string[], flags: number}} StepEntry
 */
import { Column } from "./column.js";

export class StepIndex {
  /** One number a step: phase (an index into `phases`), num_tokens, violations, batch (requests in it), cost, flags (bits,
   * see `flag`), and after the step waiting, running, free_pages, reserved_pages, owned_pages, evictable_pages,
   * protected_pages, pending_pages. @type {Record<string, Int32Array>} */
  columns = {};
  /** Values changed before delta i: what walking costs. */
  cost = [0];

  /** @type {Record<string, Column>} */
  _columns = {};
  _batches = new Column(); // the uids of all batches
  _batchAt = [0]; // where those of step i begin
  /** @type {Map<number, string[]>} */
  _violations = new Map();

  /** @param {string[]} phases @param {string[]} flags names of the bits in the column of flags */
  constructor(phases = [], flags = []) {
    this.phases = phases;
    this.flags = flags;
  }

  /** Steps known. */
  get length() {
    return this.cost.length - 1;
  }

  /** Take what a head says of the steps that follow. @param {any} head */
  take(head) {
    for (const name of Object.keys(head.index)) {
      this._columns[name] ??= new Column();
      this._columns[name].push(head.index[name]);
      this.columns[name] = this._columns[name].values;
    }
    this._batches.push(head.uids);
    for (const n of head.index.batch) this._batchAt.push(this._batchAt[this._batchAt.length - 1] + n);
    for (const cost of head.index.cost) this.cost.push(this.cost[this.cost.length - 1] + cost + 1);
    for (const [i, said] of head.violations) this._violations.set(i, said);
  }

  /** The phase of a step. @param {number} i its index */
  phase(i) {
    return this.phases[this.columns.phase[i]];
  }

  /** The bit of a flag: refusal, eviction, split, retract, finish, handoff, drain, arrival, admission, broken or launch (of
   * a batch). @param {string} name */
  flag(name) {
    return 1 << this.flags.indexOf(name);
  }

  /** The requests in a step's batch. @param {number} i its index @returns {number[]} */
  batch(i) {
    return Array.from(this._batches.values.subarray(this._batchAt[i], this._batchAt[i + 1]));
  }

  /** What is known of a step. @param {number} i its index @param {number} step its number @returns {StepEntry} */
  entry(i, step) {
    const { num_tokens, flags } = this.columns;
    return { step, phase: this.phase(i), uids: this.batch(i), num_tokens: num_tokens[i], violations: this._violations.get(i) ?? [], flags: flags[i] };
  }
}
