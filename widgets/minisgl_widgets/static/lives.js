// @ts-check
/** The lives of pages: who had each of them when, and a picture of it in as many cells as there is room for. */
import { FREE, CACHE } from "./state.js";

/**
 * Each page's life as a list of stretches: those of page p are numbers `at[p]` to `at[p + 1]`, in `steps` the step from
 * which on somebody had it (the first: the record's start) and in `owners` who (a uid, FREE or CACHE).
 * @typedef {{first: number, last: number, pages: number, at: Int32Array, steps: Int32Array, owners: Int32Array}} Lives
 */

/** Sort a run's changes by page. Of several in one step the last counts: that is the state after it.
 * @param {Int32Array} start who had each page at the start
 * @param {{steps: ArrayLike<number>, pages: ArrayLike<number>, owners: ArrayLike<number>}} changes in the order in which they came
 * @param {number} first @param {number} last @returns {Lives} */
export function livesOf(start, changes, first, last) {
  const n = start.length;
  const room = new Int32Array(n + 1);
  for (let p = 0; p < n; p++) room[p + 1] = 1;
  for (let i = 0; i < changes.pages.length; i++) room[changes.pages[i] + 1]++;
  for (let p = 0; p < n; p++) room[p + 1] += room[p];
  const steps = new Int32Array(room[n]);
  const owners = new Int32Array(room[n]);
  const next = room.slice(0, n);
  for (let p = 0; p < n; p++) {
    steps[next[p]] = first;
    owners[next[p]++] = start[p];
  }
  for (let i = 0; i < changes.pages.length; i++) {
    const page = changes.pages[i];
    const to = next[page];
    const again = steps[to - 1] === changes.steps[i];
    const place = again ? to - 1 : to;
    steps[place] = changes.steps[i];
    owners[place] = changes.owners[i];
    next[page] = place + 1;
    // came and went within one step: nobody ever saw it
    if (owners[place] === owners[place - 1]) next[page] = place;
  }
  // close the gaps that this left
  const at = new Int32Array(n + 1);
  let to = 0;
  for (let p = 0; p < n; p++) {
    at[p] = to;
    for (let i = room[p]; i < next[p]; i++, to++) {
      steps[to] = steps[i];
      owners[to] = owners[i];
    }
  }
  at[n] = to;
  return { first, last, pages: n, at, steps: steps.subarray(0, to), owners: owners.subarray(0, to) };
}

/** The stretch of a page's life that a step is in, as a number in `steps` and `owners`. @param {Lives} lives
 * @param {number} page @param {number} step */
export function stretchAt({ at, steps }, page, step) {
  let low = at[page];
  for (let high = at[page + 1]; high - low > 1; ) {
    const mid = (low + high) >> 1;
    if (steps[mid] <= step) low = mid;
    else high = mid;
  }
  return low;
}

/** Who has a page when: from a step to another, both included, and who then (null: nobody else does until the end).
 * @param {Lives} lives @param {number} page @param {number} step */
export function lifeAt(lives, page, step) {
  const i = stretchAt(lives, page, step);
  const ends = i + 1 === lives.at[page + 1];
  return { owner: lives.owners[i], from: lives.steps[i], to: ends ? lives.last : lives.steps[i + 1] - 1, next: ends ? null : lives.owners[i + 1] };
}

/** @param {number} owner */
export function ownerName(owner) {
  return owner === FREE ? "free" : owner === CACHE ? "cached" : `request ${owner}`;
}

/** The same in words: "page 12: request 4 from step 3 to 17, then cached". @param {Lives} lives @param {number} page @param {number} step */
export function lifeWords(lives, page, step) {
  const { owner, from, to, next } = lifeAt(lives, page, step);
  const begins = from === lives.first ? (lives.first ? ` from the start of the record (step ${from})` : " from the start") : ` from step ${from}`;
  return `page ${page}: ${ownerName(owner)}${begins}${next === null ? " to the end" : ` to ${to}, then ${ownerName(next)}`}`;
}

/**
 * Part of a run: steps `x0` to `x1` and pages `y0` to `y1`, the second ones excluded.
 * @typedef {{x0: number, x1: number, y0: number, y1: number}} Part
 */

/** A picture of so many cells, each with the owner that most pages had most of its time; made line by line, so that
 * a large one can be made in turns. */
export class LifePicture {
  /** @param {Lives} lives @param {Part} part @param {number} columns at most the steps of the part @param {number} rows at most its pages */
  constructor(lives, part, columns, rows) {
    this.lives = lives;
    this.part = part;
    this.columns = Math.min(columns, part.x1 - part.x0);
    this.rows = Math.min(rows, part.y1 - part.y0);
    this.owners = new Int32Array(this.columns * this.rows);
    this.done = 0; // rows
    this._sums = new Float64Array(2); // by owner + 2: page-steps in the cell at hand
  }

  /** Make the next row; false if there is none left. */
  more() {
    if (this.done >= this.rows) return false;
    const { lives, part, columns, rows, done, owners } = this;
    const { at, steps } = lives;
    const from = part.y0 + Math.floor((done * (part.y1 - part.y0)) / rows);
    const to = part.y0 + Math.floor(((done + 1) * (part.y1 - part.y0)) / rows);
    const places = new Int32Array(to - from); // the stretch that each page is in
    for (let p = from; p < to; p++) places[p - from] = stretchAt(lives, p, part.x0);
    const touched = [];
    for (let c = 0; c < columns; c++) {
      const a = part.x0 + Math.floor((c * (part.x1 - part.x0)) / columns);
      const b = part.x0 + Math.floor(((c + 1) * (part.x1 - part.x0)) / columns);
      touched.length = 0;
      for (let p = from; p < to; p++) {
        const end = at[p + 1];
        let i = places[p - from];
        let since = a;
        for (;;) {
          const until = i + 1 < end && steps[i + 1] < b ? steps[i + 1] : b;
          if (until > since) {
            const owner = lives.owners[i] + 2;
            if (owner >= this._sums.length) this._sums = grown(this._sums, owner);
            if (!this._sums[owner]) touched.push(owner);
            this._sums[owner] += until - since;
            since = until;
          }
          if (i + 1 >= end || steps[i + 1] > b) break;
          i++;
        }
        places[p - from] = i;
      }
      let best = touched[0];
      for (const owner of touched) if (this._sums[owner] > this._sums[best]) best = owner;
      for (const owner of touched) this._sums[owner] = 0;
      owners[done * columns + c] = best - 2;
    }
    this.done++;
    return true;
  }
}

/** @param {Float64Array} sums @param {number} least */
function grown(sums, least) {
  const larger = new Float64Array(Math.max(least + 1, 2 * sums.length));
  larger.set(sums);
  return larger;
}

/** How a rectangle of the run is shared: page-steps by owner, most first. Reads every stretch in it.
 * @param {Lives} lives @param {Part} part @returns {[number, number][]} */
export function sharesOf(lives, { x0, x1, y0, y1 }) {
  /** @type {Map<number, number>} */
  const sums = new Map();
  for (let p = y0; p < y1; p++) {
    for (let i = stretchAt(lives, p, x0); i < lives.at[p + 1] && lives.steps[i] < x1; i++) {
      const until = i + 1 < lives.at[p + 1] ? Math.min(x1, lives.steps[i + 1]) : x1;
      const owner = lives.owners[i];
      sums.set(owner, (sums.get(owner) ?? 0) + until - Math.max(x0, lives.steps[i]));
    }
  }
  return [...sums].sort((a, b) => b[1] - a[1] || a[0] - b[0]);
}

/** Zoom a range around a place, within limits: as wide as `factor` says, at least `least`.
 * @param {number} from @param {number} to @param {number} around @param {number} factor @param {number} low @param {number} high @param {number} least
 * @returns {[number, number]} */
export function zoomed(from, to, around, factor, low, high, least) {
  const wide = Math.max(Math.min(least, high - low), Math.min(high - low, Math.round((to - from) * factor)));
  const share = (around - from) / Math.max(1, to - from);
  return moved(Math.round(around - share * wide), wide, low, high);
}

/** A range of a width, as near to a place as limits allow. @param {number} from @param {number} wide @param {number} low
 * @param {number} high @returns {[number, number]} */
export function moved(from, wide, low, high) {
  const at = Math.max(low, Math.min(high - wide, from));
  return [at, at + wide];
}
