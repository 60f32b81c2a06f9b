// @ts-check
import { cacheReader, pagesOf, tokensOf } from "./state.js";
import { h, panel, patch, chip, clipped, middle, say, hint, count, textOf, visible } from "./look.js";
import { lengthOf, markTokens, piecesOf, tokenSpans } from "./tokens.js";

const LINE = 26;
const STATUS_SIGNS = { waiting: "○", prefill: "◐", running: "●", finished: "✓" };
const FAILED = "✕"; // ended, but not well
const STATUS_WORDS = { waiting: "waits", prefill: "prefill", running: "running", finished: "ended" };
const HEADINGS = ["req", "status", "prompt", "output", "in", "out", "KV", "pages", "promised"];

/** Where a request's token is, in words. @param {any} state @param {number} uid @param {number} at @param {Record<string, string>} texts */
export function tokenWords(state, uid, at, texts) {
  const request = state.requests[uid];
  if (!request) return `request ${uid} is not here at this step`;
  const ps = state.page_size;
  const tokens = tokensOf(request);
  const k = Math.floor(at / ps);
  const end = Math.min(tokens.length, (k + 1) * ps);
  if (at >= end) return `request ${uid} has no token ${at} yet`;
  const which = end - k * ps === 1 ? `token ${at}` : `tokens ${k * ps} to ${end - 1}`;
  const said = `${which} of request ${uid}, “${middle(visible(textOf(texts, tokens.slice(k * ps, end)), true), 32)}”:`;
  const page = pagesOf(state, uid)[k];
  if (page === undefined) return `${said} in no page ${request.status === "finished" ? "any more" : "yet"}`;
  const node = state.pages.node[page];
  const written = request.row < 0 || k * ps < request.cached_len;
  return `${said} page ${page}${node > 0 ? `, in the cache's node ${node}` : ""}${written ? "" : ", not written yet"}`;
}

/** The request table. A request keeps its row for the whole run, and its text shows which page each token is in. */
export class Requests {
  /** @param {import("./stage.js").Stage} stage */
  constructor(stage) {
    this.stage = stage;
    this.rows = h("div", { class: "msgl-rows" });
    /** @type {Map<number, {key: string, row: any}>} */
    this.built = new Map();
    this.top = this.high = 0;
    this.room = this.outRoom = 20;
    /** @type {Map<number, {key: string, cell: any}>} prompts, which change less often than what stands beside them */
    this.prompts = new Map();
    this.reading = -1; // whose text has the focus
    this.at = 0; // the token that keys point at in the text that has the focus
    this.marked = false;
    this.known = 0; // requests there were when the newest step was last followed
    this.placed = 0; // where this view scrolled to by itself
    this.byHand = false;
    this.body = h("div", { class: "msgl-tbody msgl-scroll" }, this.rows);
    const heads = HEADINGS.map((c) => h("span", { role: "columnheader" }, c));
    this.prompt = heads[2];
    this.output = heads[3];
    this.spoken = h("div", { class: "msgl-sr", "aria-live": "polite" });
    this.table = h("div", { class: "msgl-table", role: "table", "aria-label": "requests" },
      h("div", { class: "msgl-thead", role: "row" }, heads), this.body);
    const { el, note } = panel("requests", "Requests", "", this.table, this.spoken);
    this.el = el;
    this.note = note;
    this.counts = h("span");
    this.key = h("span", null, h("span", { class: "msgl-cached" }, "tinted"), " = found in the cache; point at a word for its page");
    this.body.addEventListener("scroll", () => {
      const { scrollTop, clientHeight, scrollHeight } = this.body;
      if (Math.abs(scrollTop - this.placed) > 1) this.byHand = scrollTop + clientHeight < scrollHeight - 1;
      stage.redraw();
    });
    this.body.addEventListener("focusin", (/** @type {FocusEvent} */ e) => {
      const uid = (this.reading = this._reader(e));
      if (uid < 0 || !(/** @type {Element} */ (e.target).matches(":focus-visible"))) return;
      if (stage.pointer?.kind !== "token" || stage.pointer.uid !== uid) this.at = 0;
      stage.point({ kind: "token", uid, at: this.at });
      e.stopPropagation(); // the row is not what is pointed at
    });
    this.body.addEventListener("focusout", () => {
      if (this.reading >= 0) stage.point(null);
      this.reading = -1;
    });
    this.body.addEventListener("keydown", (/** @type {KeyboardEvent} */ e) => this._key(e));
  }

  /** Whose text has the focus; -1: nobody's. @param {Event} event */
  _reader(event) {
    const text = /** @type {Element} */ (event.target).closest(".msgl-reads");
    return text ? Number(text.closest("[data-uid]")?.getAttribute("data-uid")) : -1;
  }

  /** In a text, arrows go from page to page. @param {KeyboardEvent} event */
  _key(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const uid = this._reader(event);
    if (uid < 0 || event.altKey || event.ctrlKey || event.metaKey || (by === undefined && event.key !== "Enter")) return;
    const state = this.stage.cursor?.state;
    if (by === undefined) this.stage.pin({ kind: "token", uid, at: this.at });
    else {
      const ps = state.page_size;
      const last = Math.max(0, tokensOf(state.requests[uid]).length - 1);
      this.at = Math.max(0, Math.min(Math.floor(last / ps), Math.floor(this.at / ps) + by)) * ps;
      this.stage.point({ kind: "token", uid, at: this.at });
    }
    event.preventDefault();
    event.stopPropagation();
  }

  /** Bring the newest request that has not ended into sight. @param {number[]} uids @param {any} state */
  _show(uids, state) {
    let newest = uids.length - 1;
    while (newest > 0 && (state.requests[uids[newest]]?.status ?? "finished") === "finished") newest--;
    if (newest <= 0) newest = uids.length - 1;
    const { clientHeight, scrollTop } = this.body;
    if (newest * LINE >= scrollTop && (newest + 1) * LINE <= scrollTop + clientHeight) return;
    this.body.scrollTop = (newest + 1) * LINE - clientHeight;
    this.placed = this.top = this.body.scrollTop;
    this.high = clientHeight;
  }

  /** @param {import("./stage.js").Frame} frame */
  draw({ state, store, following, selection }) {
    const { uids } = store;
    this.body.style.setProperty("--rows", String(Math.max(1, Math.min(8, uids.length))));
    this.rows.style.height = `${uids.length * LINE}px`;
    if (following && uids.length > this.known) {
      this.known = uids.length;
      if (!this.byHand) this._show(uids, state);
    }
    const { waiting, running } = state;
    const done = Object.values(state.requests).reduce((n, r) => n + (r.status === "finished" ? 1 : 0), 0);
    this.el.dataset.waiting = String(waiting.length);
    this.el.dataset.running = String(running.length);
    const { pointer } = this.stage;
    if (pointer?.kind === "token") hint(this.note, tokenWords(state, pointer.uid, pointer.at, store.texts));
    else {
      say(this.counts, `${waiting.length} waiting, ${running.length} running, ${done} ended; `);
      patch(this.note, this.counts, this.key);
      this.note.title = "";
    }
    if (this.reading >= 0) say(this.spoken, this.note.textContent);
    const from = Math.max(0, Math.floor(this.top / LINE) - 2);
    const to = Math.min(uids.length, from + Math.ceil((this.high || 8 * LINE) / LINE) + 4);
    patch(this.rows, uids.slice(from, to).map((uid, i) => {
      // a row is built anew only when something in it changed
      const r = state.requests[uid];
      const key = r ? [r.status, r.verdict, r.reason, r.output.length, r.matched, r.cached_len, r.pages.length, r.pending.length, r.row, r.reserved, this.room, this.outRoom, store.edition].join(" ") : "";
      const old = this.built.get(uid);
      if (old && old.key === key) return old.row;
      const row = this._row(uid, r, store, (from + i) * LINE);
      this.built.set(uid, { key, row });
      return row;
    }));
    for (const kept of [this.built, this.prompts]) if (kept.size > 200) kept.clear();
    this._markTokens(state, selection);
  }

  /** Mark the tokens of what is selected, in every text that is seen. @param {any} state @param {import("./selection.js").Selection | null} selection */
  _markTokens(state, selection) {
    if (!selection && !this.marked) return;
    this.marked = selection !== null;
    const cached = cacheReader(state);
    const { pointer } = this.stage;
    for (const row of this.rows.children) {
      const uid = Number(row.getAttribute("data-uid") ?? -1);
      const whole = pointer?.kind === "uid" && pointer.uid === uid; // the row itself is marked
      if (uid >= 0) markTokens(row, selection && !whole ? pagesOf(state, uid, cached) : [], state.page_size, selection && selection.pages);
    }
  }

  /** Sizes, read before anything is drawn. */
  measure() {
    this.top = this.body.scrollTop;
    this.high = this.body.clientHeight;
    this.room = Math.max(20, Math.floor(this.prompt.clientWidth / 7.7)); // characters
    this.outRoom = Math.max(12, Math.floor(this.output.clientWidth / 7.7));
  }

  /** @param {number} uid @param {any} r @param {import("./record.js").RunStore} store @param {number} top */
  _row(uid, r, store, top) {
    const { texts } = store;
    if (!r) {
      return h("div", { class: "msgl-request msgl-later", role: "row", style: `top:${top}px`, "data-status": "unknown" },
        h("span", { role: "cell" }, h("span", { class: "msgl-chip msgl-none" }, h("b", null, uid))), h("span", { role: "cell" }, "not here yet"));
    }
    const { matched } = r;
    const status = /** @type {"waiting"} */ (r.status);
    const why = r.status === "waiting" && r.verdict && r.verdict !== "admitted" ? `: ${r.verdict}` : r.reason ? `: ${r.reason}` : "";
    const holds = r.status === "finished" && (r.row >= 0 || r.pending.length) ? "; its row and pages wait for the batch in flight" : "";
    const failed = r.reason === "error";
    const output = clipped(texts, r.output, 400);
    return h("div", { class: "msgl-request", role: "row", tabindex: 0, style: `top:${top}px`, "data-key": `r${uid}`, "data-uid": uid, "data-status": r.status,
      "data-reason": r.reason, "data-pages-held": r.pages.length, "data-pending": r.pending.length, "data-row": r.row, "data-reserved": r.reserved, "data-matched": matched, "data-output": r.output.length,
      "data-cached-len": r.cached_len, "data-prompt": r.prompt.length },
      h("span", { role: "cell" }, chip(uid)),
      h("span", { role: "cell", class: "msgl-status", title: `${STATUS_WORDS[status]}${why}${holds}` }, h("i", { "aria-hidden": "true" }, holds ? "◌" : failed ? FAILED : STATUS_SIGNS[status]), " ",
        status === "waiting" ? this._why(uid, `${STATUS_WORDS[status]}${why}`) : `${STATUS_WORDS[status]}${why}`),
      this._prompt(uid, r, store),
      h("span", { role: "cell", class: "msgl-text msgl-out", title: r.error ? [r.error, output].join("\n").trim() : output }, r.error ? r.error : r.output.length ? tokenSpans(uid, piecesOf(texts, tokensOf(r), r.prompt.length, r.prompt.length + r.output.length, store.pageSize, this.outRoom)) : null),
      h("span", { role: "cell", class: "msgl-num", title: `${count(r.prompt.length, "prompt token")}, ${matched} found in the cache` }, matched ? `${r.prompt.length} (${matched})` : r.prompt.length),
      h("span", { role: "cell", class: "msgl-num" }, `${r.output.length}/${r.max_tokens}`),
      h("span", { role: "cell", class: "msgl-num" }, r.cached_len),
      h("span", { role: "cell", class: "msgl-num", title: r.pending.length ? `${count(r.pages.length, "page")} in its row; ${r.pending.length} pending` : null }, r.pages.length, r.pending.length ? "*" : ""),
      h("span", { role: "cell", class: "msgl-num" }, r.reserved));
  }

  /** The cell of a prompt. One that has the focus is built anew, since it would lose it on its way into another row.
   * @param {number} uid @param {any} r @param {import("./record.js").RunStore} store */
  _prompt(uid, r, { texts, pageSize, edition }) {
    const { room } = this;
    const { prompt, matched } = r;
    const key = [matched, prompt.length, room, edition].join(" ");
    const old = this.prompts.get(uid);
    if (old && old.key === key && this.reading !== uid) return old.cell;
    // cut each part in its own middle, so that the border between them stays in sight
    const own = lengthOf(texts, prompt, matched, prompt.length, room);
    const hit = Math.min(lengthOf(texts, prompt, 0, matched, room), Math.max(room >> 1, room - own));
    const spans = (/** @type {number} */ from, /** @type {number} */ to, /** @type {number} */ most) => tokenSpans(uid, piecesOf(texts, prompt, from, to, pageSize, most));
    const cell = h("span", { role: "cell", class: "msgl-text msgl-reads", tabindex: 0, "data-key": `t${uid}`, title: clipped(texts, prompt, 400) },
      hit ? h("span", { class: "msgl-cached" }, spans(0, matched, hit)) : null, spans(matched, prompt.length, Math.max(4, room - hit)));
    this.prompts.set(uid, { key, cell });
    return cell;
  }

  /** A waiting request's status leads to the answer, where there is a tab of answers. @param {number} uid @param {string} words */
  _why(uid, words) {
    if (!this.stage.answers) return words;
    const alone = (/** @type {Event} */ e) => e.stopPropagation(); // the row would let go of the request
    return h("button", { type: "button", class: "msgl-why", title: "Why is it waiting? The answer is in the tab of questions.",
      onclick: (/** @type {Event} */ e) => {
        alone(e);
        this.stage.ask("waiting", uid);
      },
      onkeydown: (/** @type {KeyboardEvent} */ e) => e.key === "Enter" && alone(e) }, words);
  }
}
