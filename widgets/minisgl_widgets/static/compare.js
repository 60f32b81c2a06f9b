// @ts-check
import { Cells, fitCanvas, penOf } from "./canvas.js";
import { FREE, KINDS } from "./state.js";
import { h, say, chip, clipped, count, packedOf, uidLook } from "./look.js";
import { ownerName } from "./lives.js";
import { gridFor } from "./pages.js";

const COUNTERS = { free_pages: "free", owned_pages: "owned", pending_pages: "of them pending", evictable_pages: "evictable", protected_pages: "locked", reserved_pages: "promised",
  running: "running", waiting: "waiting" };
const MOST_LINES = 60; // requests, and nodes, that are listed
const SCROLLBAR = 16; // pixels
const LARGE = 4096; // pages from which on the lists come before the picture, and numbers need more room
const FATES = { came: "+", went: "−", moved: "→" };

/** @typedef {{status: string, verdict: string, reason: string, pages: number, cached: number, output: number, row: number}} RequestAt */
/** @typedef {{parent: number, tokens: number[], pages: number, locks: number}} NodeAt */
/**
 * What is kept of a moment to compare others with: a copy, since states move on.
 * @typedef {{step: number, owner: Int32Array, counters: Record<string, number>, requests: Map<number, RequestAt>, nodes: Map<number, NodeAt>}} Moment
 */

/** @param {any} state @returns {Moment} */
export function momentOf(state) {
  const requests = new Map();
  for (const uid in state.requests) requests.set(Number(uid), requestAt(state.requests[uid]));
  const nodes = new Map();
  for (const id in state.nodes) if (id !== "0") nodes.set(Number(id), { ...nodeAt(state.nodes[id]), tokens: state.nodes[id].tokens.slice() });
  return { step: state.step, owner: state.pages.owner.slice(), counters: { ...state.counters }, requests, nodes };
}

/** @param {any} request @returns {RequestAt} */
function requestAt({ status, verdict, reason, pages, cached_len, output, row }) {
  return { status, verdict, reason, pages: pages.length, cached: cached_len, output: output.length, row };
}

/** @param {any} node @returns {NodeAt} */
function nodeAt({ parent, tokens, pages, locks }) {
  return { parent, tokens, pages: pages.length, locks };
}

/** Pages that came into use, went (are free now), or moved to another owner. @param {Int32Array} before @param {Int32Array} after */
export function pageMoves(before, after) {
  /** @type {Record<keyof typeof FATES, number[]>} */
  const moves = { came: [], went: [], moved: [] };
  for (let p = 0; p < after.length; p++) {
    if (before[p] === after[p]) continue;
    (before[p] === FREE ? moves.came : after[p] === FREE ? moves.went : moves.moved).push(p);
  }
  return moves;
}

/** The requests that are otherwise, those that have not ended first. @param {Map<number, RequestAt>} before @param {Record<string, any>} after
 * @returns {number[]} */
export function requestMoves(before, after) {
  /** @type {[number[], number[]]} */
  const [live, over] = [[], []];
  for (const key in after) {
    const [uid, now] = [Number(key), after[key]];
    const was = before.get(uid);
    const same = was && was.status === now.status && was.verdict === now.verdict && was.reason === now.reason && was.row === now.row
      && was.pages === now.pages.length && was.cached === now.cached_len && was.output === now.output.length;
    if (!same) (now.status === "finished" ? over : live).push(uid);
  }
  for (const uid of before.keys()) if (!(uid in after)) over.push(uid);
  return live.concat(over);
}

/** What is otherwise with one, in words. @param {RequestAt | undefined} was @param {RequestAt | undefined} now @returns {string} */
export function requestWords(was, now) {
  const by = (/** @type {string} */ noun, /** @type {number} */ n) => (n > 0 ? `+${count(n, noun)}` : n < 0 ? `−${count(-n, noun)}` : "");
  const pages = by("page", (now?.pages ?? 0) - (was?.pages ?? 0));
  const tokens = by("token", (now?.output ?? 0) - (was?.output ?? 0));
  const said = [];
  if (!now) said.push("not there yet", pages, tokens);
  else if (!was) said.push(`new: ${lifeStage(now)}`, pages, tokens);
  else {
    const [a, b] = [lifeStage(was), lifeStage(now)];
    said.push(a === b ? "" : `${a} → ${b}`, pages, tokens, was.cached === now.cached ? "" : `KV ${was.cached} → ${now.cached}`,
      was.row === now.row ? "" : now.row < 0 ? `left row ${was.row}` : `row ${now.row}`);
  }
  return said.filter(Boolean).join(", ");
}

/** @param {RequestAt} request */
function lifeStage({ status, verdict, reason }) {
  if (status === "finished") return `ended: ${reason}`;
  return status === "waiting" ? `waits${verdict && verdict !== "admitted" ? `: ${verdict}` : ""}` : status;
}

const WHATS = /** @type {const} */ (["new", "gone", "split", "joined", "locks"]);
/** @typedef {{id: number, what: typeof WHATS[number], was: NodeAt | undefined, now: NodeAt | undefined}} NodeMove */

/** Nodes that are new, gone, cut (a node keeps its id and its end when it is split), whole again (the other way round), or
 * otherwise locked. @param {Map<number, NodeAt>} before @param {Record<string, any>} after @returns {NodeMove[]} */
export function nodeMoves(before, after) {
  /** @type {NodeMove[][]} */
  const found = WHATS.map(() => []);
  for (const key in after) {
    const [id, node] = [Number(key), after[key]];
    const was = before.get(id);
    const by = node.tokens.length - (was?.tokens.length ?? 0);
    if (id === 0 || (was && !by && was.locks === node.locks)) continue;
    const what = !was ? 0 : by < 0 ? 2 : by > 0 ? 3 : 4;
    found[what].push({ id, what: WHATS[what], was, now: nodeAt(node) });
  }
  for (const [id, was] of before) if (!(id in after)) found[1].push({ id, what: "gone", was, now: undefined });
  return found.flat();
}

/** @param {NodeMove} move */
export function nodeWords({ what, was, now }) {
  const { tokens, pages } = /** @type {NodeAt} */ (now ?? was);
  if (what === "locks") return `locks ${was?.locks} → ${now?.locks}`;
  if (what === "split") return `${was?.tokens.length} tokens, now ${tokens.length} below node ${now?.parent}`;
  if (what === "joined") return `was ${was?.tokens.length} tokens below node ${was?.parent}, ${tokens.length} in one`;
  return `${count(tokens.length, "token")}, ${count(pages, "page")}`;
}

/** Compare two moments: what moved, appeared and went between a step that was marked and the player's. */
export class Compare {
  static id = "compare";
  static title = "Compare";
  static dock = "left";
  static key = "a"; // marks the player's step

  /** @param {import("./stage.js").Stage} stage */
  constructor(stage) {
    this.stage = stage;
    this.width = 0;
    /** @type {Moment | null} */
    this.a = null;
    this.key = "";
    /** @type {number | null} */
    this.under = null;
    this.record = 0;
    /** @type {any} */
    this.palette = null;
    this.cells = new Cells(); // of a large pool
    const button = (/** @type {string} */ name, /** @type {string} */ label, /** @type {() => void} */ act) =>
      h("button", { type: "button", class: "msgl-btn", title: label, onclick: act }, name);
    this.back = button("go to A", "Go to step A; mark the one you came from with a to swap them", () => this.a && stage.goto(this.a.step));
    this.heading = h("b", { class: "msgl-between", role: "status" });
    this.empty = h("p", { class: "msgl-empty" }, "Mark a step, then move the player: what came, went and changed between them appears here.");
    this.table = h("div", { class: "msgl-counters" });
    this.canvas = h("canvas", { class: "msgl-moves", role: "img", tabindex: 0 });
    this.canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ e) => this._at(this._hit(e.offsetX, e.offsetY)));
    for (const kind of ["pointerleave", "blur"]) this.canvas.addEventListener(kind, () => this._at(null));
    this.canvas.addEventListener("click", () => this.under !== null && stage.pin({ kind: "page", page: this.under }));
    this.canvas.addEventListener("keydown", (/** @type {KeyboardEvent} */ e) => this._key(e));
    this.keys = h("div", { class: "msgl-movekeys" });
    this.requests = h("div", { role: "list", "aria-label": "requests that changed" });
    this.nodes = h("div", { role: "list", "aria-label": "tree nodes that changed" });
    this.headings = [h("div", { class: "msgl-movehead" }), h("div", { class: "msgl-movehead" })];
    this.body = h("div", { class: "msgl-comparebody msgl-scroll", tabindex: 0, "aria-label": "differences" }, this.table, this.keys, this.canvas, h("div", { class: "msgl-movelists" }, h("div", null, this.headings[0], this.requests), h("div", null, this.headings[1], this.nodes)));
    this.el = h("div", { class: "msgl-dockview msgl-compare" },
      h("div", { class: "msgl-comparetop" }, button("mark this step as A", "Mark the player's step (a)", () => this.pressed()), this.back, this.heading), this.empty, this.body);
  }

  /** Mark the player's step. */
  pressed() {
    const { cursor } = this.stage;
    if (cursor) this.mark(cursor.step);
  }

  /** Mark a step; false while it is not readable. @param {number} step */
  mark(step) {
    const state = this.stage.at(step);
    if (state) this.a = momentOf(state);
    this.key = "";
    this.stage.redraw();
    return state !== null;
  }

  /** @param {number} x @param {number} y */
  _hit(x, y) {
    if (!this.grid) return null;
    const [column, row] = [Math.floor(x / this.grid.cell), Math.floor(y / this.grid.cell)];
    const page = row * this.grid.columns + column;
    return column >= 0 && column < this.grid.columns && page >= 0 && page < this.stage.store.numPages ? page : null;
  }

  /** @param {number | null} page */
  _at(page) {
    if (page === this.under) return;
    this.under = page;
    this.stage.point(page === null ? null : { kind: "page", page });
  }

  /** @param {KeyboardEvent} event */
  _key(event) {
    const by = { ArrowUp: -(this.grid?.columns ?? 1), ArrowDown: this.grid?.columns ?? 1 }[event.key];
    if (by) this._at(Math.max(0, Math.min(this.stage.store.numPages - 1, (this.under ?? 0) + by)));
    else if (event.key === "Enter" && this.under !== null) this.stage.pin({ kind: "page", page: this.under });
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Sizes, read before anything is drawn. */
  measure() {
    this.width = this.el.clientWidth - SCROLLBAR;
  }

  /** @param {import("./stage.js").Frame} frame */
  draw(frame) {
    const { store, state, step, palette } = frame;
    if (this.record !== store.record && this.a) { // another run: the same step of it, if it has one
      const there = this.stage.at(this.a.step);
      this.a = there && momentOf(there);
    }
    this.record = store.record;
    const { a } = this;
    this.body.hidden = !a;
    this.empty.hidden = a !== null;
    this.back.setAttribute("aria-disabled", String(!a));
    if (!a) {
      say(this.heading, "");
      return;
    }
    say(this.heading, a.step === step ? `A is this step, ${step}; move the player` : `from A, step ${a.step}, to step ${step}`);
    const key = `${a.step} ${step} ${this.width} ${store.edition} ${this.under}`;
    if (key === this.key && palette === this.palette) return;
    this.key = key;
    this.palette = palette;
    const moves = pageMoves(a.owner, state.pages.owner);
    Object.assign(this.el.dataset, { a: a.step, b: step, came: moves.came.length, went: moves.went.length, moved: moves.moved.length });
    this._counters(a, state);
    this._pages(a, frame, moves);
    const requests = requestMoves(a.requests, state.requests);
    say(this.headings[0], requests.length ? `${count(requests.length, "request")} changed` : "no request changed");
    this.requests.replaceChildren(...requests.slice(0, MOST_LINES).map((uid) => {
      const said = requestWords(a.requests.get(uid), state.requests[uid] && requestAt(state.requests[uid]));
      return h("div", { role: "listitem", class: "msgl-move", "data-moved-request": uid, title: said }, chip(uid), ` ${said}`);
    }), andMore(requests.length));
    const nodes = nodeMoves(a.nodes, state.nodes);
    say(this.headings[1], nodes.length ? `${count(nodes.length, "tree node")} changed` : "no tree node changed");
    this.nodes.replaceChildren(...nodes.slice(0, MOST_LINES).map((move) => {
      const { id, what, was, now } = move;
      const said = nodeWords(move);
      const { tokens } = /** @type {NodeAt} */ (now ?? was);
      return h("div", { role: "listitem", class: "msgl-move", "data-node": id, "data-what": what, title: `node ${id}, ${what}: ${said}` },
        h("span", { class: `msgl-what msgl-w-${what}` }, what), ` ${id} `, h("span", { class: "msgl-text" }, clipped(store.texts, tokens, 18, true)), ` ${said}`);
    }), andMore(nodes.length));
  }

  /** @param {Moment} a @param {any} b */
  _counters(a, b) {
    this.table.replaceChildren(...Object.entries(COUNTERS).map(([name, label]) => {
      const by = b.counters[name] - a.counters[name];
      return h("span", { class: `msgl-counter${by ? " msgl-changed" : ""}`, "data-counter": name, "data-before": a.counters[name], "data-after": b.counters[name] },
        `${label} `, h("b", null, by ? `${a.counters[name]} → ${b.counters[name]}` : b.counters[name]), by ? ` (${by > 0 ? "+" : "−"}${Math.abs(by)})` : "");
    }));
  }

  /** The pages that moved, as they are now. @param {Moment} a @param {import("./stage.js").Frame} frame
   * @param {Record<keyof typeof FATES, number[]>} moves */
  _pages(a, { state, step, kinds, palette }, moves) {
    const { owner } = state.pages;
    const n = owner.length;
    const grid = gridFor(n, Math.max(64, this.width), 112);
    this.grid = grid;
    const { columns, cell, rows } = grid;
    this.body.classList.toggle("msgl-large", n > LARGE);
    const [wide, high] = [columns * cell, rows * cell];
    if (fitCanvas(this.canvas, wide, high)) Object.assign(this.canvas.style, { width: `${wide}px`, height: `${high}px` });
    const context = penOf(this.canvas);
    context.clearRect(0, 0, wide, high);
    if (cell < 4) this._pixels(context, owner, kinds, moves, palette);
    else this._cells(context, owner, kinds, moves, palette);
    if (this.under !== null) {
      context.strokeStyle = palette.focus;
      context.lineWidth = 2;
      context.strokeRect((this.under % columns) * cell, Math.floor(this.under / columns) * cell, Math.max(4, cell - 1), Math.max(4, cell - 1));
    }
    const { came, went, moved } = moves;
    const said = `${came.length} came into use, ${went.length} went free, ${moved.length} changed owner`;
    const under = this.under === null ? "" : `page ${this.under}: ${ownerName(a.owner[this.under])} → ${ownerName(owner[this.under])}`;
    this.canvas.setAttribute("aria-label", `Pages between step ${a.step} and step ${step}: ${said}. Up and down move from page to page. ${under}`);
    this.keys.replaceChildren(h("span", null, `+ ${came.length} came into use`), h("span", null, `− ${went.length} went free`), h("span", null, `→ ${moved.length} changed owner`),
      h("b", null, under || `${n - came.length - went.length - moved.length} as they were`));
  }

  /** @param {CanvasRenderingContext2D} context @param {Int32Array} owner @param {Uint8Array} kinds
   * @param {Record<keyof typeof FATES, number[]>} moves @param {any} palette */
  _cells(context, owner, kinds, moves, palette) {
    const { columns, cell } = /** @type {{columns: number, cell: number}} */ (this.grid);
    const inner = cell - 1;
    const colourOf = (/** @type {number} */ p) => (owner[p] >= 0 ? palette.uids[uidLook(owner[p]).colour] : { fill: palette[KINDS[kinds[p]]], ink: palette[`${KINDS[kinds[p]]}Ink`] });
    const place = (/** @type {number} */ p) => /** @type {[number, number]} */ ([(p % columns) * cell, Math.floor(p / columns) * cell]);
    context.fillStyle = palette.free;
    for (let p = 0; p < owner.length; p++) context.fillRect(...place(p), inner, inner);
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.font = `700 ${Math.min(15, inner)}px ${getComputedStyle(this.canvas).fontFamily}`;
    for (const [fate, pages] of Object.entries(moves)) {
      for (const p of pages) {
        const [x, y] = place(p);
        const { fill, ink } = fate === "went" ? { fill: palette.bg, ink: palette.bad } : colourOf(p);
        context.fillStyle = fill;
        context.fillRect(x, y, inner, inner);
        context.strokeStyle = ink;
        context.lineWidth = 1;
        if (fate === "went") context.strokeRect(x + 0.5, y + 0.5, inner - 1, inner - 1);
        context.fillStyle = ink;
        if (inner >= 9) context.fillText(FATES[/** @type {"came"} */ (fate)], x + inner / 2, y + inner / 2 + 1);
      }
    }
  }

  /** Small cells: one pixel each, enlarged. @param {CanvasRenderingContext2D} context @param {Int32Array} owner
   * @param {Uint8Array} kinds @param {Record<keyof typeof FATES, number[]>} moves @param {any} palette */
  _pixels(context, owner, kinds, moves, palette) {
    const { columns, cell, rows } = /** @type {{columns: number, cell: number, rows: number}} */ (this.grid);
    const colours = packedOf(palette);
    this.cells.resize(columns, rows);
    const { words } = this.cells;
    words.fill(colours.soft);
    for (const p of moves.went) words[p] = colours.bad;
    for (const pages of [moves.came, moves.moved]) for (const p of pages) words[p] = owner[p] >= 0 ? colours.uids[uidLook(owner[p]).colour] : colours[KINDS[kinds[p]]];
    this.cells.draw(context, 0, 0, columns * cell, rows * cell);
  }
}

/** @param {number} n */
function andMore(n) {
  return n > MOST_LINES ? h("div", { class: "msgl-empty", role: "listitem" }, `and ${n - MOST_LINES} more`) : "";
}
