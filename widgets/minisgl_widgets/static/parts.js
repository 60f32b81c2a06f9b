// @ts-check
/** The parts of a record: found by step, read when they are asked for, and forgotten again, as far as there are many. */
import { unpack, unpackEach } from "./decode.js";

/** @typedef {import("./decode.js").Part} Part */

const DECODED = 24; // parts that are kept decoded, of those that there are many of

export class Parts {
  /** Each in the order of its steps. @type {Record<string, Part[]>} */
  named = { steps: [], leap: [], events: [], changes: [], answers: [] };
  /** @type {Part[]} decoded, oldest first */
  _decoded = [];

  /** The part that holds step index `i`. @param {string} name @param {number} i @returns {Part | undefined} */
  at(name, i) {
    const parts = this.named[name];
    let low = 0;
    for (let high = parts.length; high - low > 1; ) {
      const mid = (low + high) >> 1;
      if (parts[mid].first <= i) low = mid;
      else high = mid;
    }
    const part = parts[low];
    return part && part.first <= i && i < part.first + part.count ? part : undefined;
  }

  /** What a part holds; it must be there inflated. @param {Part} part */
  read(part) {
    if (part.value === undefined) {
      const read = part.name === "steps" ? unpackEach : unpack;
      part.value = read(/** @type {Uint8Array} */ (part.bytes));
      if (part.name !== "leap") {
        this._decoded.push(part);
        if (this._decoded.length > DECODED) /** @type {Part} */ (this._decoded.shift()).value = undefined;
      }
    }
    return part.value;
  }

  /** Is all there that leads to step index `i` and on from it? @param {number} i */
  leadTo(i) {
    return this.named.leap.every((p) => p.bytes) && [i - 1, i].every((at) => this.at("steps", at)?.bytes !== null);
  }
}
