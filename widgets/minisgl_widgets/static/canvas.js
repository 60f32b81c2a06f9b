// @ts-check
/** Canvases: as sharp as the screen is, hatched as requests are everywhere, and many small cells at once. */

/** Give a canvas the pixels for so large a place on the page; whether it had others. What was on it is gone then.
 * @param {HTMLCanvasElement} canvas @param {number} width @param {number} height */
export function fitCanvas(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width === wide && canvas.height === high) return false;
  Object.assign(canvas, { width: wide, height: high });
  return true;
}

/** To draw on a canvas in the page's pixels. @param {HTMLCanvasElement} canvas */
export function penOf(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return pen;
}

/** @type {Map<string, CanvasPattern>} */
const hatches = new Map();

/** A request's second and third pattern. @param {CanvasRenderingContext2D} pen @param {number} pattern 1 or 2 @param {string} ink */
export function hatched(pen, pattern, ink) {
  const known = hatches.get(pattern + ink);
  if (known) return known;
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const lines = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
  lines.strokeStyle = ink;
  lines.globalAlpha = 0.6;
  for (const by of [-6, 0, 6]) {
    lines.moveTo(by, 6);
    lines.lineTo(by + 6, 0);
    if (pattern === 2) {
      lines.moveTo(by, 0);
      lines.lineTo(by + 6, 6);
    }
  }
  lines.stroke();
  const made = /** @type {CanvasPattern} */ (pen.createPattern(tile, "repeat"));
  hatches.set(pattern + ink, made);
  return made;
}

/** Cells of one colour each, a pixel a cell, enlarged when they are drawn. */
export class Cells {
  constructor() {
    this.canvas = document.createElement("canvas");
    this.image = new ImageData(1, 1);
    /** Their colours, row by row, as `packedOf` gives them. */
    this.words = new Uint32Array(this.image.data.buffer);
  }

  /** @param {number} columns @param {number} rows */
  resize(columns, rows) {
    if (this.image.width === columns && this.image.height === rows) return;
    this.image = new ImageData(columns, rows);
    this.words = new Uint32Array(this.image.data.buffer);
    Object.assign(this.canvas, { width: columns, height: rows });
  }

  /** @param {CanvasRenderingContext2D} pen @param {number} x @param {number} y @param {number} wide @param {number} high */
  draw(pen, x, y, wide, high) {
    /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d")).putImageData(this.image, 0, 0);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(this.canvas, x, y, wide, high);
  }
}
