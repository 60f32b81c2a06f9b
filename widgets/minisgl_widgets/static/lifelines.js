// @ts-check
import { FREE, CACHE } from "./record.js";
import { h, say, count, packedOf, uidLook } from "./look.js";
import { tick } from "./chart.js";
import { brokenPages } from "./ghosts.js";
import { LifePicture, livesOf, lifeAt, lifeWords, moved, ownerName, sharesOf, stretchAt, zoomed } from "./lives.js";

const LIFE_LEFT = 46; // as wide as in the chart, so that a step is at the same place in both
const LIFE_RIGHT = 8;
const LIFE_TOP = 4;
const LIFE_BOTTOM = 20;
const LIFE_SLICE = 3; // milliseconds of drawing between two frames
const MOST_STRETCHES = 20_000; // that are hatched one by one
const MOST_PINNED = 2000; // pages that a selected part holds
const READABLE = 11; // pixels that a line of text needs

/** @typedef {import("./lives.js").Part} Part */

/** Page life lines: who had each page when. The idea is PyTorch's memory visualiser: what is in memory keeps its identity
 * through time. Large runs are drawn cell by cell, each in the colour of who had most of it. */
export class LifeLines {
  static id = "lifelines";
  static title = "Page life lines";
  static dock = "left";

  /** @param {import("./stage.js").Stage} stage */
  constructor(stage) {
    this.stage = stage;
    this.width = this.height = 0;
    /** @type {import("./lives.js").Lives | null} */
    this.lives = null;
    this.livesKey = "";
    /** @type {Part | null} what is seen; null: all */
    this.part = null;
    /** @type {LifePicture | null} */
    this.picture = null;
    this.pictureKey = this.baseKey = "";
    this.painted = 0; // rows of the picture
    this.base = document.createElement("canvas"); // all that is the same at every step
    this.small = document.createElement("canvas"); // the picture, a pixel a cell
    /** @type {{step: number, page: number, said: string}[]} */
    this.broken = [];
    /** @type {{step: number, page: number} | null} what the mouse or the arrow keys are at */
    this.under = null;
    /** @type {{x: number, y: number, x1: number, y1: number} | null} in pixels, while it is dragged */
    this.drag = null;
    /** @type {Part | null} */
    this.selected = null;
    this.sharesKey = this.sharesText = ""; // of the selected part
    this.canvas = h("canvas", { class: "msgl-lifecells", tabindex: 0, role: "img" });
    this.note = h("div", { class: "msgl-lifenote", role: "status" });
    const button = (/** @type {string} */ sign, /** @type {string} */ label, /** @type {() => void} */ act) =>
      h("button", { type: "button", class: "msgl-btn", "aria-label": label, title: label, onclick: act }, sign);
    this.closer = button("to it", "Zoom to the selected part (z)", () => this._zoomTo(this.selected));
    const tools = h("div", { class: "msgl-lifetools" },
      "steps", button("−", "Fewer details: more steps", () => this._zoom(1.6, 1)), button("+", "More details: fewer steps", () => this._zoom(1 / 1.6, 1)),
      "pages", button("−", "More pages", () => this._zoom(1, 1.6)), button("+", "Fewer pages", () => this._zoom(1, 1 / 1.6)),
      button("all", "The whole run (0)", () => this._zoomTo(null)), this.closer);
    const legend = h("div", { class: "msgl-lifekeys" },
      h("span", { class: "msgl-key" }, h("i", { class: "msgl-swatch msgl-k-owned" }), "owned by a request"),
      h("span", { class: "msgl-key" }, h("i", { class: "msgl-swatch msgl-life-cache" }), "cached"),
      h("span", { class: "msgl-key" }, h("i", { class: "msgl-swatch msgl-k-free" }), "free"));
    this.box = h("div", { class: "msgl-lifebox" }, this.canvas);
    this.el = h("div", { class: "msgl-dockview msgl-lifelines" }, h("div", { class: "msgl-lifetop" }, legend, tools), this.note, this.box);
    for (const kind of ["pointerdown", "pointermove", "pointerup", "pointercancel"]) this.canvas.addEventListener(kind, (/** @type {PointerEvent} */ e) => this._mouse(e));
    this.canvas.addEventListener("pointerleave", () => this._at(null));
    this.canvas.addEventListener("blur", () => this._at(null));
    this.canvas.addEventListener("wheel", (/** @type {WheelEvent} */ e) => this._wheel(e), { passive: false });
    this.canvas.addEventListener("keydown", (/** @type {KeyboardEvent} */ e) => this._key(e));
  }

  // -- where what is

  /** All there is. @returns {Part} */
  get _all() {
    const { first, last, numPages } = this.stage.store;
    return { x0: first + 1, x1: Math.max(first + 2, last + 1), y0: 0, y1: numPages };
  }

  /** What is seen. @returns {Part} */
  get _seen() {
    return this.part ?? this._all;
  }

  get _inner() {
    return { wide: Math.max(1, this.width - LIFE_LEFT - LIFE_RIGHT), high: Math.max(1, this.height - LIFE_TOP - LIFE_BOTTOM) };
  }

  /** @param {number} step where it begins */
  _x(step) {
    const { x0, x1 } = this._seen;
    return LIFE_LEFT + ((step - x0) / (x1 - x0)) * this._inner.wide;
  }

  /** @param {number} page */
  _y(page) {
    const { y0, y1 } = this._seen;
    return LIFE_TOP + ((page - y0) / (y1 - y0)) * this._inner.high;
  }

  /** The step and the page at a place in pixels, within what is seen. @param {number} x @param {number} y */
  _place(x, y) {
    const { x0, x1, y0, y1 } = this._seen;
    const { wide, high } = this._inner;
    return {
      step: Math.max(x0, Math.min(x1 - 1, x0 + Math.floor(((x - LIFE_LEFT) / wide) * (x1 - x0)))),
      page: Math.max(y0, Math.min(y1 - 1, y0 + Math.floor(((y - LIFE_TOP) / high) * (y1 - y0)))),
    };
  }

  // -- what is done to it

  /** @param {{step: number, page: number} | null} place */
  _at(place) {
    if (place?.step === this.under?.step && place?.page === this.under?.page) return;
    this.under = place;
    this.stage.point(place && { kind: "page", page: place.page });
    this.stage.redraw();
  }

  /** @param {PointerEvent} event */
  _mouse(event) {
    const [x, y] = [event.offsetX, event.offsetY];
    if (event.type === "pointerdown" && event.button === 0) {
      this.drag = { x, y, x1: x, y1: y };
      this.canvas.setPointerCapture(event.pointerId);
    } else if (event.type === "pointercancel") this.drag = null;
    else if (event.type === "pointerup" && this.drag) {
      const { drag } = this;
      this.drag = null;
      if (this._dragged(drag)) this._select(drag);
      else this._choose(this._place(x, y));
    } else if (event.type === "pointermove") {
      if (this.drag) Object.assign(this.drag, { x1: x, y1: y });
      this._at(this._place(x, y));
    }
    this.stage.redraw();
  }

  /** Is it more than a hand that trembles? @param {{x: number, y: number, x1: number, y1: number}} drag */
  _dragged({ x, y, x1, y1 }) {
    return Math.abs(x1 - x) + Math.abs(y1 - y) > 6;
  }

  /** @param {{x: number, y: number, x1: number, y1: number}} drag */
  _select({ x, y, x1, y1 }) {
    const from = this._place(Math.min(x, x1), Math.min(y, y1));
    const to = this._place(Math.max(x, x1), Math.max(y, y1));
    this.selected = { x0: from.step, x1: to.step + 1, y0: from.page, y1: to.page + 1 };
    const pages = Array.from({ length: Math.min(MOST_PINNED, to.page + 1 - from.page) }, (_, i) => from.page + i);
    this.stage.pinned = null;
    this.stage.pin({ kind: "pages", pages, uid: -1 });
  }

  /** Go to the step and hold the page. @param {{step: number, page: number}} place */
  _choose({ step, page }) {
    this.selected = null;
    this.stage.goto(step);
    this.stage.pinned = null;
    this.stage.pin({ kind: "page", page });
  }

  /** @param {Part | null} part */
  _zoomTo(part) {
    this.part = part && { ...part };
    this.selected = null;
    this.stage.redraw();
  }

  /** @param {number} steps @param {number} pages factors @param {{step: number, page: number}} [around] */
  _zoom(steps, pages, around) {
    const all = this._all;
    const { x0, x1, y0, y1 } = this._seen;
    const { step, page } = around ?? { step: Math.max(x0, Math.min(x1, this.stage.cursor?.step ?? x0)), page: (y0 + y1) >> 1 };
    const [a, b] = steps === 1 ? [x0, x1] : zoomed(x0, x1, step, steps, all.x0, all.x1, 8);
    const [c, d] = pages === 1 ? [y0, y1] : zoomed(y0, y1, page, pages, all.y0, all.y1, 4);
    const whole = a === all.x0 && b === all.x1 && c === all.y0 && d === all.y1;
    this.part = whole ? null : { x0: a, x1: b, y0: c, y1: d };
    this.stage.redraw();
  }

  /** @param {number} steps @param {number} pages as shares of what is seen */
  _pan(steps, pages) {
    if (!this.part) return;
    const all = this._all;
    const { x0, x1, y0, y1 } = this.part;
    const by = (/** @type {number} */ share, /** @type {number} */ wide) => Math.sign(share) * Math.ceil(Math.abs(share) * wide);
    const [a, b] = moved(x0 + by(steps, x1 - x0), x1 - x0, all.x0, all.x1);
    const [c, d] = moved(y0 + by(pages, y1 - y0), y1 - y0, all.y0, all.y1);
    this.part = { x0: a, x1: b, y0: c, y1: d };
    this.stage.redraw();
  }

  /** The wheel is the page's, unless somebody works here: with the focus, or with ctrl. @param {WheelEvent} event */
  _wheel(event) {
    if (!event.ctrlKey && !this.canvas.matches(":focus")) return;
    event.preventDefault();
    const factor = Math.exp(Math.max(-100, Math.min(100, event.deltaY || event.deltaX)) / 250);
    this._zoom(event.altKey ? 1 : factor, event.shiftKey ? 1 : factor, this._place(event.offsetX, event.offsetY));
  }

  /** @param {KeyboardEvent} event */
  _key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const { y0, y1 } = this._seen;
    const step = this.stage.cursor?.step ?? 0;
    const page = this.under?.page ?? (this.stage.pinned?.kind === "page" ? this.stage.pinned.page : y0);
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    const pan = { PageUp: [0, -0.5], PageDown: [0, 0.5], ",": [-0.5, 0], ".": [0.5, 0] }[event.key];
    if (by) {
      this._at({ step, page: Math.max(0, Math.min(this.stage.store.numPages - 1, page + by)) });
      if (this.part && this.under && (this.under.page < y0 || this.under.page >= y1)) this._pan(0, by / 2);
    } else if (pan) this._pan(pan[0], pan[1]);
    else if (event.key === "+" || event.key === "=") this._zoom(1 / 1.6, 1 / 1.6, { step, page });
    else if (event.key === "-") this._zoom(1.6, 1.6, { step, page });
    else if (event.key === "0") this._zoomTo(null);
    else if (event.key === "z") this._zoomTo(this.selected ?? this.part);
    else if (event.key === "Enter") this._choose({ step, page });
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // -- drawing

  /** Sizes, read before anything is drawn. */
  measure() {
    this.width = this.box.clientWidth;
    this.height = this.box.clientHeight;
  }

  /** @param {import("./stage.js").Frame} frame */
  draw(frame) {
    const { store, step } = frame;
    const { width, height } = this;
    if (width <= 0) return;
    const ready = store.length > 0 && this._read(store);
    this._size(this.canvas);
    const context = this._context(this.canvas);
    if (!ready) {
      say(this.note, store.length ? "The changes of all pages are still being read." : "Once steps are recorded, a line for each page shows who had it when.");
      return;
    }
    if (this.part && (step < this.part.x0 || step >= this.part.x1) && step > store.first) {
      const { x0, x1 } = this.part;
      const [a, b] = moved(step - ((x1 - x0) >> 1), x1 - x0, this._all.x0, this._all.x1);
      Object.assign(this.part, { x0: a, x1: b });
    }
    this._compose(frame);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(this.base, 0, 0);
    this._context(this.canvas, false);
    this._over(context, frame);
    this._tell(frame);
  }

  /** Sort the changes, if there are new ones; false while they are not all there. @param {import("./record.js").RunStore} store */
  _read(store) {
    const key = `${store.edition} ${store.length}`;
    if (key === this.livesKey) return this.lives !== null;
    const changes = store.changes();
    if (!changes) return false;
    this.livesKey = key;
    this.lives = livesOf(store.keyframe.pages.owner, changes, store.first, store.last);
    this.broken = brokenPages(store);
    if (this.part && this.part.x1 > store.last + 1) this.part = null; // another record
    return true;
  }

  /** @param {HTMLCanvasElement} canvas */
  _size(canvas) {
    const ratio = window.devicePixelRatio || 1;
    const [wide, high] = [Math.round(this.width * ratio), Math.round(this.height * ratio)];
    if (canvas.width === wide && canvas.height === high) return false;
    canvas.width = wide;
    canvas.height = high;
    return true;
  }

  /** @param {HTMLCanvasElement} canvas @param {boolean} [clear] */
  _context(canvas, clear = true) {
    const ratio = window.devicePixelRatio || 1;
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (clear) context.clearRect(0, 0, this.width, this.height);
    return context;
  }

  /** What does not change with the step: made when the run, the part or the size is another, a few milliseconds a frame.
   * @param {import("./stage.js").Frame} frame */
  _compose({ palette }) {
    const lives = /** @type {import("./lives.js").Lives} */ (this.lives);
    const { wide, high } = this._inner;
    const { x0, x1, y0, y1 } = this._seen;
    const key = `${this.livesKey} ${wide} ${high} ${x0} ${x1} ${y0} ${y1}`;
    if (key !== this.pictureKey) {
      this.pictureKey = key;
      this.picture = new LifePicture(lives, this._seen, Math.floor(wide), Math.floor(high));
      this.painted = 0;
    }
    const picture = /** @type {LifePicture} */ (this.picture);
    const until = performance.now() + LIFE_SLICE;
    while (performance.now() < until && picture.more());
    if (picture.done < picture.rows) this.stage.redraw();
    const resized = this._size(this.base);
    if (!resized && this.painted === picture.done && this.palette === palette && this.baseKey === key) return;
    if (this.palette !== palette || this.baseKey !== key) this.painted = 0;
    this.palette = palette;
    this.baseKey = key;
    this._paint(picture, palette);
    this.painted = picture.done;
    const context = this._context(this.base);
    context.imageSmoothingEnabled = false;
    context.fillStyle = palette.free;
    context.fillRect(LIFE_LEFT, LIFE_TOP, wide, high);
    context.drawImage(this.small, 0, 0, picture.columns, picture.done, LIFE_LEFT, LIFE_TOP, wide, (high * picture.done) / picture.rows);
    if (picture.done === picture.rows) this._letter(context, picture, palette);
    this._axes(context, palette);
  }

  /** The new rows of the picture, a pixel a cell. @param {LifePicture} picture @param {any} palette */
  _paint({ owners, columns, rows, done }, palette) {
    if (this.small.width !== columns || this.small.height !== rows) {
      this.small.width = columns;
      this.small.height = rows;
      this.painted = 0;
    }
    if (done === this.painted) return;
    const { free, evictable, uids } = packedOf(palette);
    const image = new ImageData(columns, done - this.painted);
    const words = new Uint32Array(image.data.buffer);
    for (let i = 0, at = this.painted * columns; i < words.length; i++) {
      const owner = owners[at + i];
      words[i] = owner === FREE ? free : owner === CACHE ? evictable : uids[uidLook(owner).colour];
    }
    /** @type {CanvasRenderingContext2D} */ (this.small.getContext("2d")).putImageData(image, 0, this.painted);
  }

  /** Hatch and name what is large enough. @param {CanvasRenderingContext2D} context @param {LifePicture} picture @param {any} palette */
  _letter(context, picture, palette) {
    const lives = /** @type {import("./lives.js").Lives} */ (this.lives);
    const { wide, high } = this._inner;
    const { x0, x1, y0, y1 } = this._seen;
    const line = high / (y1 - y0);
    const font = getComputedStyle(this.canvas).fontFamily;
    context.font = `600 ${Math.min(13, Math.max(12, Math.floor(line)))}px ${font}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    const inkOf = (/** @type {number} */ owner) => (owner === CACHE ? palette.evictableInk : palette.uids[uidLook(owner).colour].ink);
    const fillOf = (/** @type {number} */ owner) => (owner === CACHE ? palette.evictable : palette.uids[uidLook(owner).colour].fill);
    const name = (/** @type {number} */ owner, /** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ room) => {
      const text = owner === CACHE ? (room > 60 ? "cached" : "·") : String(owner);
      if (context.measureText(text).width + 6 > room) return;
      context.strokeStyle = fillOf(owner);
      context.lineWidth = 4;
      context.lineJoin = "round";
      context.strokeText(text, x, y);
      context.fillStyle = inkOf(owner);
      context.fillText(text, x, y);
    };
    const some = lives.at[y1] - lives.at[y0] <= MOST_STRETCHES;
    for (let page = y0; page < y1 && some && line >= 2; page++) {
      for (let i = stretchAt(lives, page, x0); i < lives.at[page + 1] && lives.steps[i] < x1; i++) {
        const owner = lives.owners[i];
        if (owner === FREE) continue;
        const from = this._x(Math.max(x0, lives.steps[i]));
        const to = this._x(i + 1 < lives.at[page + 1] ? Math.min(x1, lives.steps[i + 1]) : x1);
        const y = this._y(page);
        if (owner >= 0 && uidLook(owner).pattern) this._hatch(context, from, y, to - from, line, uidLook(owner).pattern, inkOf(owner));
        if (line < READABLE) continue;
        context.fillStyle = palette.bg;
        context.fillRect(from, y + line - 1, to - from, 1);
        context.fillRect(from, y, 1, line);
        name(owner, (from + to) / 2, y + line / 2, to - from);
      }
    }
    if (line >= READABLE) return;
    for (const { owner, row, from, to } of largestRuns(picture, Math.ceil((READABLE + 1) / (high / picture.rows)))) {
      name(owner, LIFE_LEFT + ((from + to) / 2 / picture.columns) * wide, LIFE_TOP + ((row + 0.5) / picture.rows) * high, ((to - from) / picture.columns) * wide);
    }
  }

  /** @param {CanvasRenderingContext2D} context @param {number} x @param {number} y @param {number} wide @param {number} high @param {number} pattern @param {string} ink */
  _hatch(context, x, y, wide, high, pattern, ink) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const pen = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
    pen.strokeStyle = ink;
    pen.globalAlpha = 0.6;
    for (const by of [-6, 0, 6]) {
      pen.moveTo(by, 6);
      pen.lineTo(by + 6, 0);
      if (pattern === 2) {
        pen.moveTo(by, 0);
        pen.lineTo(by + 6, 6);
      }
    }
    pen.stroke();
    context.fillStyle = /** @type {CanvasPattern} */ (context.createPattern(tile, "repeat"));
    context.fillRect(x, y, wide, high);
  }

  /** @param {CanvasRenderingContext2D} context @param {any} palette */
  _axes(context, palette) {
    const { wide, high } = this._inner;
    const { x0, x1, y0, y1 } = this._seen;
    context.font = `12px ${getComputedStyle(this.canvas).fontFamily}`;
    context.fillStyle = palette.muted;
    context.strokeStyle = palette.line;
    context.lineWidth = 1;
    context.strokeRect(LIFE_LEFT - 0.5, LIFE_TOP - 0.5, wide + 1, high + 1);
    context.textAlign = "right";
    context.textBaseline = "middle";
    const pages = tick(y1 - y0);
    for (let n = Math.ceil(y0 / pages) * pages; n < y1; n += pages) {
      const y = Math.max(LIFE_TOP + 6, this._y(n + 0.5));
      context.fillText(String(n), LIFE_LEFT - 6, y);
    }
    context.textAlign = "center";
    context.textBaseline = "alphabetic";
    const steps = tick(x1 - x0);
    for (let n = Math.ceil(x0 / steps) * steps; n < x1; n += steps) context.fillText(String(n), this._x(n + 0.5), this.height - 5);
  }

  /** What changes with the step and the mouse. @param {CanvasRenderingContext2D} context @param {import("./stage.js").Frame} frame */
  _over(context, { step, selection, palette, suspects }) {
    const { wide, high } = this._inner;
    const { x0, x1, y0, y1 } = this._seen;
    const line = high / (y1 - y0);
    context.save();
    context.beginPath();
    context.rect(LIFE_LEFT - 6, 0, wide + 12, this.height);
    context.clip();
    if (selection && selection.pages.size && selection.pages.size <= MOST_PINNED) {
      context.fillStyle = palette.focus;
      for (const page of selection.pages) {
        if (page < y0 || page >= y1) continue;
        const y = this._y(page);
        context.fillRect(LIFE_LEFT - 5, y, 5, Math.max(1.5, line));
        if (line >= 5) {
          context.fillRect(LIFE_LEFT, y, wide, 1);
          context.fillRect(LIFE_LEFT, y + line - 1, wide, 1);
        }
      }
    }
    for (const { step: at, page } of this.broken) if (at >= x0 && at < x1 && page >= y0 && page < y1) this._ghost(context, at, page, palette);
    for (const page of suspects.keys()) if (page >= y0 && page < y1 && step >= x0 && step < x1) this._ghost(context, step, page, palette);
    if (step >= x0 && step < x1) {
      context.strokeStyle = palette.focus;
      context.lineWidth = 2;
      const x = this._x(step + 0.5);
      context.beginPath();
      context.moveTo(x, 0);
      context.lineTo(x, this.height - LIFE_BOTTOM + 4);
      context.stroke();
    }
    const box = this.drag && this._dragged(this.drag) ? this.drag : this.selected && this._box(this.selected);
    if (box) {
      context.setLineDash([5, 3]);
      context.strokeStyle = palette.ink;
      context.lineWidth = 1.5;
      context.strokeRect(Math.min(box.x, box.x1), Math.min(box.y, box.y1), Math.abs(box.x1 - box.x), Math.abs(box.y1 - box.y));
    }
    context.restore();
  }

  /** @param {Part} part */
  _box({ x0, x1, y0, y1 }) {
    return { x: this._x(x0), x1: this._x(x1), y: this._y(y0), y1: this._y(y1) };
  }

  /** @param {CanvasRenderingContext2D} context @param {number} step @param {number} page @param {any} palette */
  _ghost(context, step, page, palette) {
    const [x, y] = [this._x(step), this._y(page)];
    const [wide, high] = [Math.max(9, this._x(step + 1) - x), Math.max(9, this._y(page + 1) - y)];
    context.strokeStyle = palette.bg;
    context.lineWidth = 4;
    context.strokeRect(x, y, wide, high);
    context.strokeStyle = palette.bad;
    context.lineWidth = 2.5;
    context.strokeRect(x, y, wide, high);
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x + wide, y + high);
    context.stroke();
  }

  /** What is pointed at, selected or broken, in words. @param {import("./stage.js").Frame} frame */
  _tell({ store, step, held, suspects }) {
    const lives = /** @type {import("./lives.js").Lives} */ (this.lives);
    const { x0, x1, y0, y1 } = this._seen;
    const shown = { stepFrom: x0, stepTo: x1 - 1, pageFrom: y0, pageTo: y1 - 1, drawn: Number(this.picture?.done === this.picture?.rows) };
    Object.assign(this.el.dataset, shown);
    this.closer.setAttribute("aria-disabled", String(!this.selected));
    const page = this.under?.page ?? (held?.kind === "page" ? held.page : undefined);
    const at = this.under?.step ?? step;
    let said = `${count(store.numPages, "page")}, ${count(store.length, "step")}. Point at a page; click to go there; drag to select; ctrl and wheel, or + and −, zoom.`;
    if (page !== undefined && page < store.numPages) {
      const { owner, from, to } = lifeAt(lives, page, at);
      Object.assign(this.note.dataset, { page, step: at, owner, from, to });
      const wrong = this.broken.find((b) => b.page === page && b.step === at)?.said ?? (at === step ? suspects.get(page) : undefined);
      said = wrong ? `✕ step ${at}: ${wrong}` : lifeWords(lives, page, at);
    } else for (const name of Object.keys(this.note.dataset)) delete this.note.dataset[name];
    if (this.selected && !this.under) said = this._shares(lives, this.selected);
    this.note.title = said;
    say(this.note, said);
    this.canvas.setAttribute("aria-label", `Who had which page when: pages ${y0} to ${y1 - 1} over steps ${x0} to ${x1 - 1}. At step ${step}. ${said} Up and down move from page to page.`);
  }

  /** @param {import("./lives.js").Lives} lives @param {Part} part */
  _shares(lives, part) {
    const key = `${this.livesKey} ${JSON.stringify(part)}`;
    if (this.sharesKey !== key) {
      this.sharesKey = key;
      const { x0, x1, y0, y1 } = part;
      const shares = sharesOf(lives, part);
      const all = (x1 - x0) * (y1 - y0);
      const most = shares.slice(0, 5).map(([owner, n]) => `${ownerName(owner)} ${Math.round((100 * n) / all)} %`);
      const others = shares.length > 5 ? ` and ${shares.length - 5} more` : "";
      this.sharesText = `pages ${y0} to ${y1 - 1} in steps ${x0} to ${x1 - 1}: ${most.join(", ")}${others}`;
    }
    return this.sharesText;
  }
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
