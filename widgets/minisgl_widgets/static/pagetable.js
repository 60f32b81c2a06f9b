// @ts-check
import { tokensOf } from "./state.js";
import { uidOf } from "./selection.js";
import { h, patch, hint, chip, count, textOf, visible } from "./look.js";

const TABLE_LINE = 26;
const ENTRY_NAMES = { cached: "found in the cache", computed: "computed", ahead: "ahead: nothing written yet" };

/**
 * @typedef {{at: number, page: number, value: number, start: number, kind: keyof typeof ENTRY_NAMES, filled: number, border: boolean}} Entry
 *   number `at` of its row, for the tokens from `start` on; `filled`: how much of it holds KV, from 0 to 1; `border`: a page begins
 */

/**
 * The entries `from` to `to` of a request's row, as the device's page table has them: of each token its slot, or of each
 * page its number, as kernels read it.
 * @param {any} request @param {number} pageSize @param {boolean} perPage @param {number} from @param {number} to
 * @returns {Entry[]}
 */
export function entriesOf(request, pageSize, perPage, from, to) {
  const wide = perPage ? pageSize : 1; // tokens in an entry
  /** @type {Entry[]} */
  const found = [];
  const end = Math.min(to, (request.pages.length * pageSize) / wide);
  for (let at = Math.max(0, from); at < end; at++) {
    const start = at * wide;
    const page = request.pages[Math.floor(start / pageSize)];
    const filled = Math.max(0, Math.min(1, (request.cached_len - start) / wide));
    /** @type {Entry["kind"]} */
    const kind = start < request.matched ? "cached" : filled > 0 ? "computed" : "ahead";
    const value = perPage ? page : page * pageSize + (start % pageSize);
    found.push({ at, page, value, start, kind, filled, border: start % pageSize === 0 });
  }
  return found;
}

/** The page table: rows by positions, as attention kernels read it. */
export class PageTable {
  static id = "pagetable";
  static title = "Page table";
  static dock = "right";

  /** @param {import("./stage.js").Stage} stage */
  constructor(stage) {
    this.stage = stage;
    this.top = this.left = this.high = this.wide = 0;
    this.perPage = false;
    this.longest = 0; // pages of the longest row seen, so that the table does not shrink while scrubbing
    this.brought = "-1"; // the request, or token, that was last brought into sight
    const choose = (/** @type {boolean} */ perPage, /** @type {string} */ name, /** @type {string} */ label) =>
      h("button", { type: "button", class: "msgl-btn", title: label, onclick: () => this._choose(perPage) }, name);
    this.byToken = choose(false, "slot per token", "entry j is the slot of token j: page × page size + place in the page");
    this.byPage = choose(true, "page per entry", "entry i is the page of tokens i × page size onwards: what paged kernels read");
    this.note = h("span", { class: "msgl-hint" });
    const key = (/** @type {keyof typeof ENTRY_NAMES} */ kind) => h("span", { class: "msgl-key" }, h("i", { class: `msgl-swatch msgl-e-${kind}` }), ENTRY_NAMES[kind]);
    this.heads = h("div", { class: "msgl-tableheads", "aria-hidden": "true" });
    this.labels = h("div", { class: "msgl-tablelabels" });
    this.cells = h("div", { class: "msgl-tablecells", role: "list" });
    this.room = h("div", { class: "msgl-tableroom" }, this.cells);
    this.body = h("div", { class: "msgl-tablebody msgl-scroll", tabindex: 0, "aria-label": "entries of the page table" }, this.room);
    this.body.addEventListener("scroll", () => stage.redraw());
    // heads and labels stand outside of what scrolls, and are moved along
    this.grid = h("div", { class: "msgl-tablegrid" },
      h("div", { class: "msgl-tablecorner" }, "row"), h("div", { class: "msgl-clipped" }, this.heads), h("div", { class: "msgl-clipped" }, this.labels), this.body);
    this.el = h("div", { class: "msgl-dockview msgl-pagetable" },
      h("div", { class: "msgl-tabletop", role: "group", "aria-label": "what an entry is" }, this.byToken, this.byPage, this.note),
      h("div", { class: "msgl-tablekeys" }, key("cached"), key("computed"), key("ahead"), h("span", { class: "msgl-key" }, h("i", { class: "msgl-swatch msgl-e-border" }), "a page begins")), this.grid);
  }

  /** @param {boolean} perPage */
  _choose(perPage) {
    this.perPage = perPage;
    this.body.scrollLeft = 0;
    this.stage.redraw();
  }

  /** Sizes, read before anything is drawn. */
  measure() {
    this.top = this.body.scrollTop;
    this.left = this.body.scrollLeft;
    this.high = this.body.clientHeight;
    this.wide = this.body.clientWidth;
  }

  /** @param {import("./stage.js").Frame} frame */
  draw({ store, state, held }) {
    const { perPage } = this;
    const ps = state.page_size;
    this.byToken.setAttribute("aria-pressed", String(!perPage));
    this.byPage.setAttribute("aria-pressed", String(perPage));
    const taken = state.rows.filter((/** @type {any} */ row) => row.uid >= 0);
    const longest = taken.reduce((/** @type {number} */ most, /** @type {any} */ row) => Math.max(most, state.requests[row.uid]?.pages.length ?? 0), 0);
    this.longest = Math.max(this.longest, longest);
    const entries = Math.max(1, this.longest * (perPage ? 1 : ps));
    const cell = 14 + 8 * String(perPage ? state.num_pages : state.num_pages * ps).length;
    const rows = state.rows.length;
    hint(this.note, `${taken.length} of ${count(rows, "row")} taken`, `${taken.length} of ${count(rows, "row")} taken; row ${rows} is the dummy request's`);
    Object.assign(this.el.dataset, { rows, taken: taken.length, perPage: Number(perPage), pageSize: ps });
    this.room.style.width = `${entries * cell}px`;
    this.room.style.height = `${(rows + 1) * TABLE_LINE}px`;
    this._bring(state, held, cell, perPage ? ps : 1);
    const from = Math.max(0, Math.floor(this.left / cell) - 1);
    const to = Math.min(entries, from + Math.ceil(this.wide / cell) + 3);
    const first = Math.max(0, Math.floor(this.top / TABLE_LINE) - 1);
    const last = Math.min(rows + 1, first + Math.ceil(this.high / TABLE_LINE) + 3);
    this.heads.style.transform = `translateX(${-this.left}px)`;
    this.labels.style.transform = `translateY(${-this.top}px)`;
    patch(this.heads, Array.from({ length: to - from }, (_, i) => this._head(from + i, cell, perPage ? 1 : ps)));
    const labels = [];
    const lines = [];
    for (let row = first; row < last; row++) {
      if (row === rows) {
        labels.push(this._label(row, -1, -1));
        lines.push(this._dummy(row, state));
        continue;
      }
      const { uid, generation } = state.rows[row];
      const request = uid >= 0 ? state.requests[uid] : null;
      labels.push(this._label(row, uid, generation));
      lines.push(this._line(row, request, entriesOf(request ?? { pages: [] }, ps, perPage, from, to), cell, store.texts, state));
    }
    patch(this.labels, labels);
    patch(this.cells, lines);
  }

  /** Scroll to the row of a request, or the entry of a token, that was just pinned. @param {any} state @param {import("./selection.js").Pointer} held
   * @param {number} cell pixels of an entry @param {number} wide tokens in an entry */
  _bring(state, held, cell, wide) {
    const uid = uidOf(held);
    const key = held?.kind === "token" ? `${uid} ${held.at}` : `${uid}`;
    if (key === this.brought) return;
    this.brought = key;
    const row = uid >= 0 ? state.rows.findIndex((/** @type {any} */ r) => r.uid === uid) : -1;
    if (row < 0) return;
    if (row * TABLE_LINE < this.top || (row + 1) * TABLE_LINE > this.top + this.high) this.body.scrollTop = row * TABLE_LINE;
    const at = held?.kind === "token" ? Math.floor(held.at / wide) * cell : this.left;
    if (at < this.left || at + cell > this.left + this.wide) this.body.scrollLeft = at - cell;
    this.top = this.body.scrollTop;
    this.left = this.body.scrollLeft;
  }

  /** @param {number} at @param {number} cell @param {number} every a number at each page's begin, as far as there is room */
  _head(at, cell, every) {
    const step = every * Math.ceil(40 / (every * cell));
    return h("span", { style: `left:${at * cell}px` }, at % step ? "" : at);
  }

  /** @param {number} row @param {number} uid @param {number} generation */
  _label(row, uid, generation) {
    return h("div", { class: "msgl-tablelabel", style: `top:${row * TABLE_LINE}px`, title: generation < 0 ? `row ${row}, the dummy request's` : `row ${row}, generation ${generation}` },
      h("span", { class: "msgl-num" }, row), uid >= 0 ? chip(uid) : h("span", { class: "msgl-chip msgl-none" }, h("b", null, "–")), h("small", null, generation < 0 ? "dummy" : `gen ${generation}`));
  }

  /** The dummy request's row. @param {number} row @param {any} state */
  _dummy(row, { num_pages, page_size }) {
    const said = this.perPage ? `every entry: page ${num_pages}, the dummy` : `every entry: slot ${num_pages * page_size}, the first of page ${num_pages}, the dummy`;
    return h("div", { class: "msgl-dummyline", role: "listitem", style: `top:${row * TABLE_LINE}px` },
      h("span", { class: "msgl-entry msgl-e-dummy", style: `left:${this.left + 8}px`, "data-on-page": num_pages, title: "padding of batches reads and writes there; it is in no count" }, said));
  }

  /** @param {number} row @param {any} request @param {Entry[]} entries @param {number} cell
   * @param {Record<string, string>} texts @param {any} state */
  _line(row, request, entries, cell, texts, state) {
    const { generation } = state.rows[row];
    const tokens = request ? tokensOf(request) : [];
    const ps = state.page_size;
    const line = h("div", { class: `msgl-tableline${request ? "" : " msgl-tablefree"}`, role: "listitem", style: `top:${row * TABLE_LINE}px`, "data-row": row, "data-generation": generation,
      "data-request": request ? request.uid : -1, "data-entries": request ? (request.pages.length * ps) / (this.perPage ? ps : 1) : 0 });
    if (!request) {
      line.append(h("span", { class: "msgl-tablenone", style: `left:${this.left + 8}px` }, generation ? `free; had ${count(generation, "request")} so far` : "free, never taken"));
      return line;
    }
    for (const { at, page, value, start, kind, filled, border } of entries) {
      const some = tokens.slice(start, start + (this.perPage ? ps : 1));
      const text = some.length ? visible(textOf(texts, some), true) : "not known yet";
      const where = this.perPage ? `entry ${at}: page ${page}, tokens ${start} to ${start + ps - 1}` : `token ${start}: slot ${value} = page ${page} × ${ps} + ${start % ps}`;
      const what = filled > 0 && filled < 1 ? `${kind}, ${Math.round(filled * ps)} of ${ps} written` : ENTRY_NAMES[kind];
      line.append(h("span", { class: `msgl-entry msgl-e-${kind}${border ? " msgl-e-border" : ""}`, style: `left:${at * cell}px;width:${cell}px${filled < 1 ? `;--filled:${filled}` : ""}`,
        "data-of": request.uid, "data-pages": page, "data-at": at, "data-value": value, "data-kind": kind, title: `${where}\n${text}\n${what}` }, value));
    }
    return line;
  }
}
