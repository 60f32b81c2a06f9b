// @ts-check
/** The ground of the life lines: all that is the same at every step, drawn once for a part of the run and a size. */
import { FREE, CACHE } from "./state.js";
import { packedOf, uidLook } from "./look.js";
import { tick } from "./chart.js";
import { fitCanvas, hatched, penOf } from "./canvas.js";
import { LifePicture, stretchAt } from "./lives.js";

export const LIFE_TOP = 4;
export const LIFE_BOTTOM = 20;
export const LIFE_LEFT = 46; // as wide as in the chart, so that a step is at the same place in both
const LIFE_RIGHT = 8;
const LIFE_SLICE = 4; // milliseconds of drawing between two frames
const PATIENT = 4; // frames in which the last picture stays, before one is shown as far as it is done
const MOST_STRETCHES = 20_000; // that are hatched one by one
const READABLE = 11; // pixels that a line of text needs

/** @typedef {import("./lives.js").Part} Part */
/** @typedef {import("./lives.js").Lives} Lives */

/** A part of a run, in so many pixels. */
export class LifeSpace {
  /** @param {number} width @param {number} height @param {Part} part */
  constructor(width, height, part) {
    this.width = width;
    this.height = height;
    this.part = part;
    this.wide = Math.max(1, width - LIFE_LEFT - LIFE_RIGHT);
    this.high = Math.max(1, height - LIFE_TOP - LIFE_BOTTOM);
    /** Pixels that a page has. */
    this.line = this.high / (part.y1 - part.y0);
  }

  /** Where a step begins. @param {number} step */
  x(step) {
    return LIFE_LEFT + ((step - this.part.x0) / (this.part.x1 - this.part.x0)) * this.wide;
  }

  /** Where a page begins. @param {number} page */
  y(page) {
    return LIFE_TOP + (page - this.part.y0) * this.line;
  }

  /** The step and the page at a place, the nearest that are seen. @param {number} x @param {number} y */
  place(x, y) {
    const { x0, x1, y0, y1 } = this.part;
    return {
      step: Math.max(x0, Math.min(x1 - 1, x0 + Math.floor(((x - LIFE_LEFT) / this.wide) * (x1 - x0)))),
      page: Math.max(y0, Math.min(y1 - 1, y0 + Math.floor((y - LIFE_TOP) / this.line))),
    };
  }
}

/** The picture of a part, hatched and lettered, with its axes. */
export class LifeGround {
  constructor() {
    this.canvas = document.createElement("canvas");
    this.small = document.createElement("canvas"); // a pixel a cell
    /** @type {LifePicture | null} */
    this.picture = null;
    this.key = "";
    this.painted = 0; // rows of the picture
    this.waited = 0; // frames
    /** @type {any} */
    this.palette = null;
  }

  /** All of it is drawn. */
  get whole() {
    return this.picture !== null && this.picture.done === this.picture.rows;
  }

  /** Draw what is missing, for a few milliseconds. @param {Lives} lives @param {string} run names the run and its length
   * @param {LifeSpace} space @param {any} palette @param {string} font */
  draw(lives, run, space, palette, font) {
    const { width, height, wide, high, part } = space;
    const key = `${run} ${width} ${height} ${part.x0} ${part.x1} ${part.y0} ${part.y1}`;
    if (key !== this.key) {
      this.picture = new LifePicture(lives, part, Math.floor(wide), Math.floor(high));
      this.painted = this.waited = 0;
      this.key = key;
    }
    const picture = /** @type {LifePicture} */ (this.picture);
    for (const until = performance.now() + LIFE_SLICE; performance.now() < until && picture.more(); );
    if (!this.whole && this.waited++ < PATIENT) return; // what is soon done is not shown in halves
    const resized = fitCanvas(this.canvas, width, height);
    if (!resized && palette === this.palette && this.painted === picture.done) return;
    if (palette !== this.palette) this.painted = 0;
    this.palette = palette;
    this._paint(picture, palette);
    const pen = penOf(this.canvas);
    pen.clearRect(0, 0, width, height);
    pen.imageSmoothingEnabled = false;
    pen.fillStyle = palette.free;
    pen.fillRect(LIFE_LEFT, LIFE_TOP, wide, high);
    pen.drawImage(this.small, 0, 0, picture.columns, picture.done, LIFE_LEFT, LIFE_TOP, wide, (high * picture.done) / picture.rows);
    if (this.whole) this._letter(pen, lives, space, palette, font);
    drawAxes(pen, space, palette, font);
  }

  /** The new rows of the picture. @param {LifePicture} picture @param {any} palette */
  _paint({ owners, columns, rows, done }, palette) {
    if (!this.painted) Object.assign(this.small, { width: columns, height: rows });
    if (done === this.painted) return;
    const { free, evictable, uids } = packedOf(palette);
    const image = new ImageData(columns, done - this.painted);
    const words = new Uint32Array(image.data.buffer);
    for (let i = 0, at = this.painted * columns; i < words.length; i++) {
      const owner = owners[at + i];
      words[i] = owner === FREE ? free : owner === CACHE ? evictable : uids[uidLook(owner).colour];
    }
    /** @type {CanvasRenderingContext2D} */ (this.small.getContext("2d")).putImageData(image, 0, this.painted);
    this.painted = done;
  }

  /** Hatch and name what is large enough. @param {CanvasRenderingContext2D} pen @param {Lives} lives @param {LifeSpace} space
   * @param {any} palette @param {string} font */
  _letter(pen, lives, space, palette, font) {
    const picture = /** @type {LifePicture} */ (this.picture);
    const { wide, high, line, part } = space;
    const lookOf = (/** @type {number} */ owner) => (owner === CACHE ? { fill: palette.evictable, ink: palette.evictableInk } : palette.uids[uidLook(owner).colour]);
    pen.font = `600 ${Math.max(READABLE, Math.min(13, Math.floor(line < READABLE ? 13 : line)))}px ${font}`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.lineJoin = "round";
    const name = (/** @type {number} */ owner, /** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ room) => {
      const text = owner === CACHE ? (room > 60 ? "cached" : "·") : String(owner);
      if (pen.measureText(text).width + 6 > room) return;
      const { fill, ink } = lookOf(owner);
      if (line < READABLE || (owner >= 0 && uidLook(owner).pattern)) {
        pen.strokeStyle = fill; // stands out from what is around it
        pen.lineWidth = 4;
        pen.strokeText(text, x, y);
      }
      pen.fillStyle = ink;
      pen.fillText(text, x, y);
    };
    if (line >= 2 && lives.at[part.y1] - lives.at[part.y0] <= MOST_STRETCHES) {
      for (let page = part.y0; page < part.y1; page++) {
        for (let i = stretchAt(lives, page, part.x0); i < lives.at[page + 1] && lives.steps[i] < part.x1; i++) {
          const owner = lives.owners[i];
          if (owner === FREE) continue;
          const from = space.x(Math.max(part.x0, lives.steps[i]));
          const to = space.x(i + 1 < lives.at[page + 1] ? Math.min(part.x1, lives.steps[i + 1]) : part.x1);
          const y = space.y(page);
          if (owner >= 0 && uidLook(owner).pattern) {
            pen.fillStyle = hatched(pen, uidLook(owner).pattern, lookOf(owner).ink);
            pen.fillRect(from, y, to - from, line);
          }
          if (line < READABLE) continue;
          pen.fillStyle = palette.bg; // a gap, so that neighbours are told apart
          pen.fillRect(from, y + line - 1, to - from, 1);
          pen.fillRect(from, y, 1, line);
          name(owner, (from + to) / 2, y + line / 2, to - from);
        }
      }
    }
    if (line >= READABLE) return;
    for (const { owner, row, from, to } of largestRuns(picture, Math.ceil(((READABLE + 1) * picture.rows) / high))) {
      const across = wide / picture.columns;
      name(owner, LIFE_LEFT + ((from + to) / 2) * across, LIFE_TOP + ((row + 0.5) / picture.rows) * high, (to - from) * across);
    }
  }
}

/** @param {CanvasRenderingContext2D} pen @param {LifeSpace} space @param {any} palette @param {string} font */
function drawAxes(pen, space, palette, font) {
  const { x0, x1, y0, y1 } = space.part;
  pen.font = `12px ${font}`;
  pen.fillStyle = palette.muted;
  pen.strokeStyle = palette.line;
  pen.lineWidth = 1;
  pen.strokeRect(LIFE_LEFT - 0.5, LIFE_TOP - 0.5, space.wide + 1, space.high + 1);
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  const pages = tick(y1 - y0);
  for (let n = Math.ceil(y0 / pages) * pages; n < y1; n += pages) pen.fillText(String(n), LIFE_LEFT - 6, Math.max(LIFE_TOP + 6, space.y(n + 0.5)));
  pen.textAlign = "center";
  pen.textBaseline = "alphabetic";
  const steps = tick((x1 - x0) / 2);
  for (let n = Math.ceil(x0 / steps) * steps; n < x1; n += steps) pen.fillText(String(n), space.x(n + 0.5), space.height - 5);
}

/** For each owner the longest run of its cells with room for a line of text above and below its middle.
 * @param {LifePicture} picture @param {number} tall cells that a line of text needs */
export function largestRuns({ owners, columns, rows }, tall) {
  /** @type {Map<number, {owner: number, row: number, from: number, to: number}>} */
  const best = new Map();
  const half = tall >> 1;
  for (let row = half; row < rows - half; row++) {
    for (let from = 0; from < columns; ) {
      const owner = owners[row * columns + from];
      let to = from + 1;
      while (to < columns && owners[row * columns + to] === owner) to++;
      const middle = (from + to) >> 1;
      const known = best.get(owner);
      if (owner !== FREE && (!known || to - from > known.to - known.from)) {
        let room = true;
        for (let r = row - half; r <= row + half && room; r++) room = owners[r * columns + middle] === owner;
        if (room) best.set(owner, { owner, row, from, to });
      }
      from = to;
    }
  }
  return best.values();
}
