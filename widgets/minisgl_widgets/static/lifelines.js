// @ts-check
import { h, say, count } from "./look.js";
import { fitCanvas, penOf } from "./canvas.js";
import { brokenPages } from "./ghosts.js";
import { LIFE_BOTTOM, LIFE_LEFT, LifeGround, LifeSpace } from "./lifedraw.js";
import { livesOf, lifeAt, lifeWords, moved, ownerName, sharesOf, zoomed } from "./lives.js";

const MOST_PINNED = 2000; // pages that a selected part holds

/** @typedef {import("./lives.js").Part} Part */

/** Page life lines: who had each page when. The idea is PyTorch's memory visualiser: what is in memory keeps its identity
 * through time. Large runs are drawn cell by cell, each in the colour of who had most of it. */
export class LifeLines {
  static id = "lifelines";
  static title = "Life lines";
  static dock = "left";

  /** @param {import("./stage.js").Stage} stage */
  constructor(stage) {
    this.stage = stage;
    /** @type {import("./lives.js").Lives | null} */
    this.lives = null;
    this.livesKey = "";
    this.record = 0; // the number of the one that was read
    /** @type {Part | null} what is seen; null: all */
    this.part = null;
    this.ground = new LifeGround();
    this.space = new LifeSpace(0, 0, { x0: 0, x1: 1, y0: 0, y1: 1 });
    /** @type {{step: number, page: number, said: string}[]} */
    this.broken = [];
    /** @type {{step: number, page: number} | null} what the mouse or the arrow keys are at */
    this.under = null;
    /** @type {{x: number, y: number, x1: number, y1: number} | null} in pixels, while it is dragged */
    this.drag = null;
    /** @type {Part | null} */
    this.selected = null;
    this.step = NaN; // the player's, when it last moved
    this.sharesKey = this.sharesText = ""; // of the selected part
    this.canvas = h("canvas", { class: "msgl-lifecells", tabindex: 0, role: "img" });
    this.note = h("div", { class: "msgl-lifenote", role: "status" });
    const button = (/** @type {string} */ sign, /** @type {string} */ label, /** @type {() => void} */ act) =>
      h("button", { type: "button", class: "msgl-btn", "aria-label": label, title: label, onclick: act }, sign);
    this.closer = button("to it", "to it: zoom to the selected part (z)", () => this._zoomTo(this.selected));
    const tools = h("div", { class: "msgl-lifetools" },
      "steps", button("−", "Fewer details: more steps", () => this._zoom(1.6, 1)), button("+", "More details: fewer steps", () => this._zoom(1 / 1.6, 1)),
      "pages", button("−", "More pages", () => this._zoom(1, 1.6)), button("+", "Fewer pages", () => this._zoom(1, 1 / 1.6)),
      button("all", "all: the whole run (0)", () => this._zoomTo(null)), this.closer);
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
    const { first, last, pages } = this.lives ?? { first: 0, last: 1, pages: 1 };
    return { x0: first + 1, x1: last + 1, y0: 0, y1: pages };
  }

  /** What is seen. @returns {Part} */
  get _seen() {
    return this.part ?? this._all;
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
      else this._choose(this.space.place(x, y));
    } else if (event.type === "pointermove") {
      if (this.drag) Object.assign(this.drag, { x1: x, y1: y });
      this._at(this.space.place(x, y));
    }
    this.stage.redraw();
  }

  /** Is it more than a hand that trembles? @param {{x: number, y: number, x1: number, y1: number}} drag */
  _dragged({ x, y, x1, y1 }) {
    return Math.abs(x1 - x) + Math.abs(y1 - y) > 6;
  }

  /** @param {{x: number, y: number, x1: number, y1: number}} drag */
  _select({ x, y, x1, y1 }) {
    const from = this.space.place(Math.min(x, x1), Math.min(y, y1));
    const to = this.space.place(Math.max(x, x1), Math.max(y, y1));
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
    this._zoom(event.altKey ? 1 : factor, event.shiftKey ? 1 : factor, this.space.place(event.offsetX, event.offsetY));
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
    this.space = new LifeSpace(this.box.clientWidth, this.box.clientHeight, this._seen);
  }

  /** @param {import("./stage.js").Frame} frame */
  draw(frame) {
    const { store, step, palette } = frame;
    if (this.space.width <= 0) return;
    const ready = store.length > 0 && this._read(store);
    this._follow(step);
    const space = (this.space = new LifeSpace(this.space.width, this.space.height, this._seen));
    fitCanvas(this.canvas, space.width, space.height);
    const pen = penOf(this.canvas);
    pen.clearRect(0, 0, space.width, space.height);
    if (!ready) {
      say(this.note, store.length ? "The changes of all pages are still being read." : "Once steps are recorded, a line for each page shows who had it when.");
      return;
    }
    this.ground.draw(/** @type {import("./lives.js").Lives} */ (this.lives), this.livesKey, space, palette, getComputedStyle(this.canvas).fontFamily);
    if (!this.ground.whole) this.stage.redraw();
    pen.drawImage(this.ground.canvas, 0, 0, space.width, space.height);
    this._over(pen, frame);
    this._tell(frame);
  }

  /** Keep the player's step in sight when it moves. @param {number} step */
  _follow(step) {
    if (step === this.step) return;
    this.step = step;
    if (!this.part || (step >= this.part.x0 && step < this.part.x1) || step < this._all.x0) return;
    const { x0, x1 } = this.part;
    [this.part.x0, this.part.x1] = moved(step - ((x1 - x0) >> 1), x1 - x0, this._all.x0, this._all.x1);
  }

  /** Sort the changes, if there are new ones; false while they are not all there. A picture that is being made is finished
   * first: a run that goes on would never let it end. @param {import("./record.js").RunStore} store */
  _read(store) {
    const { lives } = this;
    const key = `${store.edition} ${store.length}`;
    const another = lives && this.record !== store.record;
    if (key === this.livesKey || (lives && !another && !this.ground.whole)) return true;
    const changes = store.changes();
    if (!changes) return lives !== null && !another;
    if (another) this.part = this.selected = null;
    this.livesKey = key;
    this.record = store.record;
    this.lives = livesOf(store.keyframe.pages.owner, changes, store.first, store.last);
    this.broken = brokenPages(store);
    return true;
  }

  /** What changes with the step and the mouse. @param {CanvasRenderingContext2D} context @param {import("./stage.js").Frame} frame */
  _over(context, { step, selection, palette, suspects }) {
    const { space } = this;
    const { wide, height, line, part } = space;
    const { x0, x1, y0, y1 } = part;
    context.save();
    context.beginPath();
    context.rect(LIFE_LEFT - 6, 0, wide + 12, height);
    context.clip();
    if (selection && selection.pages.size && selection.pages.size <= MOST_PINNED) {
      context.fillStyle = palette.focus;
      for (const page of selection.pages) {
        if (page < y0 || page >= y1) continue;
        const y = this.space.y(page);
        context.fillRect(LIFE_LEFT - 5, y, 5, Math.max(1.5, line));
        if (line >= 5) {
          context.fillRect(LIFE_LEFT, y, wide, 1);
          context.fillRect(LIFE_LEFT, y + line - 1, wide, 1);
        }
      }
    }
    for (const { step: at, page } of this.broken) if (at >= x0 && at < x1 && page >= y0 && page < y1) drawGhost(context, space, at, page, palette);
    for (const page of suspects.keys()) if (page >= y0 && page < y1 && step >= x0 && step < x1) drawGhost(context, space, step, page, palette);
    if (step >= x0 && step < x1) {
      context.strokeStyle = palette.focus;
      context.lineWidth = 2;
      const x = this.space.x(step + 0.5);
      context.beginPath();
      context.moveTo(x, 0);
      context.lineTo(x, height - LIFE_BOTTOM + 4);
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
    return { x: this.space.x(x0), x1: this.space.x(x1), y: this.space.y(y0), y1: this.space.y(y1) };
  }

  /** What is pointed at, selected or broken, in words. @param {import("./stage.js").Frame} frame */
  _tell({ store, step, suspects }) {
    const lives = /** @type {import("./lives.js").Lives} */ (this.lives);
    const { x0, x1, y0, y1 } = this.space.part;
    const shown = { stepFrom: x0, stepTo: x1 - 1, pageFrom: y0, pageTo: y1 - 1, drawn: Number(this.ground.whole) };
    Object.assign(this.el.dataset, shown);
    this.closer.setAttribute("aria-disabled", String(!this.selected));
    const { pointer } = this.stage; // here, or in another view
    const page = this.under?.page ?? (pointer?.kind === "page" ? pointer.page : undefined);
    const at = this.under?.step ?? step;
    let said = `${count(store.numPages, "page")}, ${count(store.length, "step")}. Point at a page; click to go there; drag to select; ctrl and wheel, or + and −, zoom.`;
    if (page !== undefined && page < store.numPages) {
      const { owner, from, to } = lifeAt(lives, page, at);
      Object.assign(this.note.dataset, { page, step: at, owner, from, to });
      const wrong = (at === step ? suspects.get(page) : undefined) ?? this.broken.find((b) => b.page === page && b.step === at)?.said;
      said = wrong ? `✕ ${wrong}` : lifeWords(lives, page, at);
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

/** What is wrong with a page at a step. @param {CanvasRenderingContext2D} context @param {LifeSpace} space @param {number} step
 * @param {number} page @param {any} palette */
function drawGhost(context, space, step, page, palette) {
  const [x, y] = [space.x(step), space.y(page)];
  const [wide, high] = [Math.max(9, space.x(step + 1) - x), Math.max(9, space.line)];
  for (const [colour, line] of [[palette.bg, 4.5], [palette.bad, 2.5]]) {
    context.strokeStyle = colour;
    context.lineWidth = line;
    context.strokeRect(x, y, wide, high);
  }
  context.beginPath(); // struck through, for who does not see the colour
  context.moveTo(x, y);
  context.lineTo(x + wide, y + high);
  context.stroke();
}
