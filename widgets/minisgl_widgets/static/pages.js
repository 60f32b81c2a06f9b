// @ts-check
import { KINDS, pageHolds } from "./state.js";
import { h, panel, say, count, uidLook, textOf, visible, middle, rgb } from "./look.js";
import { Cells, fitCanvas, hatched, penOf } from "./canvas.js";

const GRID_COLUMNS = [16, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 448, 512, 576, 640, 768, 1024];
const LARGEST = 40;
const GUTTER = 46;
const FRAMED = 28; // pixels of a cell that has room for a frame and what is written in it
const MOST_SUSPECTS = 1000; // pages that a broken step names in data-suspects
const NAMES = { free: "free", owned: "owned by a request", evictable: "cached, evictable", protected: "cached, locked" };

/** The grid for a number of pages: as few columns as the height allows, so cells are as large as they can be.
 * @param {number} pages @param {number} width @param {number} most pixels that it may be high */
export function gridFor(pages, width, most) {
  let best = { columns: 16, cell: 2, rows: Math.ceil(pages / 16) };
  for (const columns of GRID_COLUMNS) {
    const cell = Math.min(LARGEST, Math.floor(width / columns));
    if (cell < 2) break;
    best = { columns, cell, rows: Math.ceil(pages / columns) };
    if (best.rows * cell <= most) break;
  }
  return best;
}

/** The page strip: one cell per page, always in the same place; the last one is the dummy page, page `num_pages`, which is in no
 * count: padding is written there. */
export class PageStrip {
  /** @param {import("./stage.js").Stage} stage */
  constructor(stage) {
    this.stage = stage;
    this.cursor = 0;
    this.width = this.left = 0;
    this.cells = new Cells(); // of a large pool
    /** @type {number | null} */
    this.under = null;
    this.canvas = h("canvas", { class: "msgl-cells", tabindex: 0, role: "img" });
    this.tip = h("div", { class: "msgl-tip", hidden: true });
    this.spoken = h("div", { class: "msgl-sr", "aria-live": "polite" });
    this.legend = h("div", { class: "msgl-legend" });
    this.counts = Object.fromEntries(KINDS.map((k) => [k, h("b", null, "0")]));
    this.waits = h("span", { hidden: true });
    for (const kind of KINDS) {
      const name = ` ${NAMES[/** @type {"free"} */ (kind)]}`;
      this.legend.append(h("span", { class: "msgl-key" }, h("i", { class: `msgl-swatch msgl-k-${kind}` }), this.counts[kind], name, kind === "owned" ? this.waits : null));
    }
    this.corner = h("span", { class: "msgl-key" }, h("i", { class: "msgl-swatch msgl-k-changed" }), "changed in this step");
    this.dummy = h("span");
    this.legend.append(
      this.corner,
      h("span", { class: "msgl-key msgl-dummy" }, h("i", { class: "msgl-swatch msgl-k-dummy" }), this.dummy));
    const { el, note } = panel("strip", "Pages", "", h("div", { class: "msgl-cellbox" }, this.canvas, this.tip), this.legend, this.spoken);
    this.el = el;
    this.note = note;
    this.canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ e) => this._over(this._hit(e)));
    this.canvas.addEventListener("pointerleave", () => this._over(null));
    this.canvas.addEventListener("click", (/** @type {PointerEvent} */ e) => {
      const page = this._hit(e);
      if (page !== null) this.cursor = page;
      stage.pin(page === null ? null : { kind: "page", page });
    });
    this.canvas.addEventListener("focus", () => this.canvas.matches(":focus-visible") && this._over(this.cursor));
    this.canvas.addEventListener("blur", () => this._over(null));
    this.canvas.addEventListener("keydown", (/** @type {KeyboardEvent} */ e) => this._key(e));
  }

  /** @param {PointerEvent} event */
  _hit(event) {
    if (!this.grid) return null;
    const column = Math.floor((event.offsetX - this.left) / this.grid.cell);
    const page = Math.floor(event.offsetY / this.grid.cell) * this.grid.columns + column;
    return column >= 0 && column < this.grid.columns && page >= 0 && page <= this.stage.store.numPages ? page : null;
  }

  /** @param {number | null} page */
  _over(page) {
    if (page === this.under) return;
    this.under = page;
    this.stage.point(page === null ? null : { kind: "page", page });
  }

  /** @param {KeyboardEvent} event */
  _key(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -(this.grid?.columns ?? 1), ArrowDown: this.grid?.columns ?? 1 };
    if (event.key in moves && !event.altKey) {
      this.cursor = Math.max(0, Math.min(this.stage.store.numPages, this.cursor + moves[/** @type {"ArrowUp"} */ (event.key)]));
      this._over(this.cursor);
    } else if (event.key === "Enter") this.stage.pin({ kind: "page", page: this.cursor });
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** What a page is and holds, in words. @param {any} state @param {Uint8Array} kinds @param {number} page @param {Record<string, string>} texts */
  describe(state, kinds, page, texts) {
    if (page === kinds.length) return { head: `page ${page}: the dummy`, lines: ["outside the count: nobody owns it", "padding of batches is written there, and nobody reads it", `row ${state.rows.length} of the page table, the dummy request's, names nothing else`] };
    const kind = KINDS[kinds[page]];
    const owner = state.pages.owner[page];
    const node = state.pages.node[page];
    let head = kind;
    if (kind === "owned") head = `owned by request ${owner}${state.requests[owner]?.pending.includes(page) ? ", pending: free when the batch in flight is done" : ""}`;
    else if (kind !== "free") head = `cached in node ${node}, ${kind === "protected" ? `locked ${state.nodes[node]?.locks ?? 0}×` : "evictable"}`;
    const lines = pageHolds(state, page).map(({ uid, start, end, tokens }) => {
      const who = uid >= 0 ? `request ${uid}` : "the prefix";
      const which = end - start === 1 ? `token ${start}` : `tokens ${start}-${end - 1}`;
      return end > start ? `${which} of ${who}: ${middle(visible(textOf(texts, tokens), true), 44)}` : `${who}: nothing written yet`;
    });
    return { head: `page ${page}: ${head}`, lines };
  }

  /** Sizes, read before anything is drawn. */
  measure() {
    this.width = this.el.clientWidth - 24;
  }

  /** @param {import("./stage.js").Frame} frame */
  draw(frame) {
    // what is pointed at may hold no page: then nothing fades
    if (frame.selection && !frame.selection.pages.size) frame = { ...frame, selection: null };
    const { state, kinds, counts, pending, store, palette, selection } = frame;
    const { width } = this;
    if (width <= 0) return;
    const n = kinds.length;
    const most = n > 4096 ? 400 : 216;
    const gutter = gridFor(n + 1, width - GUTTER, most).cell >= 10 ? GUTTER : 0;
    const grid = gridFor(n + 1, width - gutter, most);
    this.grid = grid;
    this.left = gutter;
    this.legend.style.setProperty("--digits", String(String(n).length)); // room for any count, so that nothing moves
    const { columns, cell, rows } = grid;
    this.legend.classList.toggle("msgl-framed", cell >= FRAMED);
    this.corner.hidden = cell < 8; // cells too small for it have none
    const size = [gutter + columns * cell + 1, rows * cell + 1];
    if (fitCanvas(this.canvas, size[0], size[1])) Object.assign(this.canvas.style, { width: `${size[0]}px`, height: `${size[1]}px` });
    const context = penOf(this.canvas);
    context.clearRect(0, 0, size[0], size[1]);
    if (cell >= 8) this._drawCells(context, frame, gutter);
    else this._drawPixels(context, frame, gutter);

    const at = (/** @type {number} */ page) => [gutter + (page % columns) * cell, Math.floor(page / columns) * cell];
    const ring = (/** @type {number} */ page, /** @type {string} */ colour, /** @type {number} */ line) => {
      const [x, y] = at(page);
      context.strokeStyle = colour;
      context.lineWidth = line;
      const out = cell < 8 ? 2 : -0.5;
      context.strokeRect(x + 0.5 - out, y + 0.5 - out, cell + 2 * out, cell + 2 * out);
    };
    if (selection && selection.pages.size <= 2000) for (const page of selection.pages) ring(page, palette.focus, cell >= 14 ? 3 : 2);
    for (const page of frame.suspects.keys()) {
      if (page > n) continue;
      ring(page, palette.bad, 3);
      const [x, y] = at(page);
      context.fillStyle = palette.bad; // a corner as well, for who does not see the colour
      context.beginPath();
      context.moveTo(x, y);
      context.lineTo(x + Math.max(5, cell * 0.36), y);
      context.lineTo(x, y + Math.max(5, cell * 0.36));
      context.fill();
    }
    this.el.dataset.suspects = [...frame.suspects.keys()].slice(0, MOST_SUSPECTS).join(" ");

    for (const kind of KINDS) {
      say(this.counts[kind], String(counts[kind]));
      this.el.dataset[kind] = String(counts[kind]);
    }
    this.el.dataset.pending = String(pending.size);
    this.waits.hidden = pending.size === 0;
    say(this.waits, `, ${pending.size} pending (slashed)`);
    say(this.dummy, `page ${n}, the dummy (D): outside the count`);
    this.el.dataset.dummy = String(n);
    say(this.note, `${count(n, "page")} of ${count(state.page_size, "token")}; a page never changes its place`);
    this.canvas.setAttribute("aria-label",
      `${n} pages: ${counts.free} free, ${counts.owned} owned${pending.size ? ` (${pending.size} pending)` : ""}, ${counts.evictable} cached and evictable, ${counts.protected} cached and locked; and page ${n}, the dummy. Arrow keys move from page to page.`);

    const under = this.under;
    this.tip.hidden = under === null;
    if (under !== null) {
      const { head, lines } = this.describe(state, kinds, under, store.texts);
      const wrong = frame.suspects.get(under);
      if (wrong) lines.unshift(`✕ ${wrong}`);
      this.tip.replaceChildren(h("b", null, head), ...lines.slice(0, 6).map((l) => h("div", null, l)), ...(lines.length > 6 ? [h("div", null, `and ${lines.length - 6} more`)] : []));
      const [x, y] = at(under);
      this.tip.style.left = `${Math.max(0, Math.min(x, width - 320))}px`;
      this.tip.style.top = `${y + cell + 6}px`;
      if (this.canvas.matches(":focus")) say(this.spoken, [head, ...lines].join("; "));
    }
  }

  /** @param {CanvasRenderingContext2D} context @param {import("./stage.js").Frame} frame @param {number} left */
  _drawCells(context, { state, kinds, pending, palette, selection, changed }, left) {
    const { columns, cell, rows } = /** @type {{columns: number, cell: number, rows: number}} */ (this.grid);
    const { owner, node } = state.pages;
    const gap = cell >= 14 ? 2 : 1;
    const inner = cell - gap;
    const font = getComputedStyle(this.canvas).fontFamily;
    context.textBaseline = "middle";
    if (left) {
      context.font = `11px ${font}`;
      context.fillStyle = palette.muted;
      context.textAlign = "right";
      const every = Math.ceil(12 / cell);
      for (let row = 0; row < rows; row += every) context.fillText(String(row * columns), left - 8, row * cell + cell / 2 + 1);
    }
    context.textAlign = "center";
    for (let p = 0; p < kinds.length; p++) {
      const x = left + (p % columns) * cell;
      const y = Math.floor(p / columns) * cell;
      const kind = kinds[p];
      context.globalAlpha = selection && !selection.pages.has(p) ? 0.4 : 1;
      if (kind === 0) {
        context.fillStyle = palette.free;
        context.fillRect(x, y, inner, inner);
        context.strokeStyle = palette.line;
        context.lineWidth = 1;
        context.strokeRect(x + 0.5, y + 0.5, inner - 1, inner - 1);
      } else {
        const look = kind === 1 ? uidLook(owner[p]) : { colour: 0, pattern: 0 };
        const fill = kind === 1 ? palette.uids[look.colour].fill : kind === 2 ? palette.evictable : palette.protected;
        const ink = kind === 1 ? palette.uids[look.colour].ink : kind === 2 ? palette.evictableInk : palette.protectedInk;
        context.fillStyle = fill;
        context.fillRect(x, y, inner, inner);
        if (look.pattern) this._hatch(context, x, y, inner, look.pattern, ink);
        const framed = kind === 3 && cell >= FRAMED;
        if (framed) {
          context.strokeStyle = ink;
          context.lineWidth = 1;
          context.strokeRect(x + 2.5, y + 2.5, inner - 5, inner - 5);
        }
        if (pending.has(p)) this._slash(context, x, y, inner, ink);
        const label = kind === 1 ? String(owner[p]) : kind === 3 ? `${state.nodes[node[p]]?.locks ?? ""}×` : "·";
        const px = Math.min(16, Math.floor((framed ? inner - 8 : inner) / (label.length > 2 ? 2.4 : 1.75)));
        if (cell >= 14 && px >= 7) {
          context.font = `600 ${px}px ${font}`;
          if (look.pattern) {
            context.fillStyle = fill;
            const w = context.measureText(label).width + 4;
            context.fillRect(x + (inner - w) / 2, y + inner / 2 - px / 2, w, px);
          }
          if (pending.has(p)) {
            context.strokeStyle = fill;
            context.lineWidth = 4;
            context.strokeText(label, x + inner / 2, y + inner / 2 + 1);
          }
          context.fillStyle = ink;
          context.fillText(label, x + inner / 2, y + inner / 2 + 1);
        }
      }
      if (changed.has(p) && cell >= 8) {
        const t = Math.max(4, Math.round(cell * 0.26));
        context.fillStyle = kind === 0 ? palette.ink : "#000000";
        context.beginPath();
        const inset = cell >= 14 ? 2 : 0;
        context.moveTo(x + inner - inset - t, y + inset);
        context.lineTo(x + inner - inset, y + inset);
        context.lineTo(x + inner - inset, y + inset + t);
        context.fill();
      }
    }
    this._drawDummy(context, kinds.length, palette, left, !selection || selection.pages.has(kinds.length));
  }

  /** @param {CanvasRenderingContext2D} context @param {number} page @param {any} palette @param {number} left @param {boolean} clear */
  _drawDummy(context, page, palette, left, clear) {
    const { columns, cell } = /** @type {{columns: number, cell: number}} */ (this.grid);
    const inner = cell - (cell >= 14 ? 2 : 1);
    const [x, y] = [left + (page % columns) * cell, Math.floor(page / columns) * cell];
    context.globalAlpha = clear ? 1 : 0.4;
    context.fillStyle = palette.bg;
    context.fillRect(x, y, inner, inner);
    this._hatch(context, x, y, inner, 1, palette.ink);
    context.setLineDash([3, 2]);
    context.strokeStyle = palette.muted;
    context.lineWidth = 1;
    context.strokeRect(x + 0.5, y + 0.5, inner - 1, inner - 1);
    context.setLineDash([]);
    const px = Math.min(16, Math.floor(inner / 1.75));
    if (cell >= 14) {
      context.font = `600 ${px}px ${getComputedStyle(this.canvas).fontFamily}`;
      context.fillStyle = palette.bg;
      context.fillRect(x + inner / 2 - px / 2, y + inner / 2 - px / 2 - 1, px, px + 2);
      context.fillStyle = palette.ink;
      context.fillText("D", x + inner / 2, y + inner / 2 + 1);
    }
    context.globalAlpha = 1;
  }

  /** A pending page is struck through, clear of the corner that marks a change. @param {CanvasRenderingContext2D} context @param {number} x @param {number} y @param {number} size @param {string} ink */
  _slash(context, x, y, size, ink) {
    context.strokeStyle = ink;
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(x + 1, y + 1);
    context.lineTo(x + size - 1, y + size - 1);
    context.stroke();
  }

  /** @param {CanvasRenderingContext2D} context @param {number} x @param {number} y @param {number} size @param {number} pattern @param {string} ink */
  _hatch(context, x, y, size, pattern, ink) {
    context.fillStyle = hatched(context, pattern, ink);
    context.fillRect(x, y, size, size);
  }

  /** Small cells: one pixel each, enlarged. @param {CanvasRenderingContext2D} context @param {import("./stage.js").Frame} frame @param {number} left */
  _drawPixels(context, { state, kinds, palette, selection }, left) {
    const { columns, cell, rows } = /** @type {{columns: number, cell: number, rows: number}} */ (this.grid);
    if (this.paletteKey !== palette) {
      this.paletteKey = palette;
      const pack = (/** @type {string} */ colour, dim = 0) => {
        const back = rgb(palette.bg);
        const [r, g, b] = rgb(colour).map((c, i) => Math.round(c * (1 - dim) + back[i] * dim));
        return (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;
      };
      const all = [palette.free, palette.evictable, palette.protected, palette.muted, ...palette.uids.map((/** @type {any} */ u) => u.fill)];
      this.packed = { plain: Uint32Array.from(all, (c) => pack(c)), dim: Uint32Array.from(all, (c) => pack(c, 0.65)) };
    }
    this.cells.resize(columns, rows);
    const { plain, dim } = /** @type {{plain: Uint32Array, dim: Uint32Array}} */ (this.packed);
    const { words } = this.cells;
    const { owner } = state.pages;
    const colours = selection ? dim : plain;
    for (let p = 0; p < kinds.length; p++) {
      const kind = kinds[p];
      words[p] = colours[kind === 1 ? 4 + (owner[p] % 7) : kind === 0 ? 0 : kind - 1];
    }
    const n = kinds.length;
    words[n] = (selection?.pages.has(n) ? plain : colours)[3]; // the dummy
    if (selection) {
      for (const p of selection.pages) if (p < n) words[p] = plain[kinds[p] === 1 ? 4 + (owner[p] % 7) : kinds[p] === 0 ? 0 : kinds[p] - 1];
    }
    this.cells.draw(context, left, 0, columns * cell, rows * cell);
    context.strokeStyle = palette.line;
    context.lineWidth = 1;
    context.strokeRect(left + 0.5, 0.5, columns * cell, rows * cell);
    context.strokeStyle = palette.muted; // a cell so small is found by what is around it
    context.strokeRect(left + (n % columns) * cell - 1.5, Math.floor(n / columns) * cell - 1.5, cell + 3, cell + 3);
  }
}
