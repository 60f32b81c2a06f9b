// @ts-check
import { h, panel, patch, chip, clipped, middle, say, count } from "./look.js";

const LINE = 26;
const STATUS_SIGNS = { waiting: "○", prefill: "◐", running: "●", finished: "✓" };
const STATUS_WORDS = { waiting: "waits", prefill: "prefill", running: "running", finished: "ended" };
const HEADINGS = ["req", "status", "prompt", "output", "in", "out", "KV", "pages", "promised"];

/** The request table. A request keeps its row for the whole run. */
export class Requests {
  /** @param {import("./stage.js").Stage} stage */
  constructor(stage) {
    this.stage = stage;
    this.rows = h("div", { class: "msgl-rows" });
    /** @type {Map<number, {key: string, row: any}>} */
    this.built = new Map();
    this.top = this.high = 0;
    this.room = 20;
    this.known = 0; // requests there were when the newest step was last followed
    this.placed = 0; // where this view scrolled to by itself
    this.byHand = false;
    this.body = h("div", { class: "msgl-tbody msgl-scroll" }, this.rows);
    const heads = HEADINGS.map((c) => h("span", { role: "columnheader" }, c));
    this.prompt = heads[2];
    this.table = h("div", { class: "msgl-table", role: "table", "aria-label": "requests" },
      h("div", { class: "msgl-thead", role: "row" }, heads), this.body);
    const { el, note } = panel("requests", "Requests", "", this.table);
    this.el = el;
    this.counts = h("span");
    note.append(this.counts, h("span", { class: "msgl-cached" }, "tinted"), " = found in the cache");
    this.body.addEventListener("scroll", () => {
      const { scrollTop, clientHeight, scrollHeight } = this.body;
      if (Math.abs(scrollTop - this.placed) > 1) this.byHand = scrollTop + clientHeight < scrollHeight - 1;
      stage.redraw();
    });
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
  draw({ state, store, following }) {
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
    say(this.counts, `${waiting.length} waiting, ${running.length} running, ${done} ended; `);
    const from = Math.max(0, Math.floor(this.top / LINE) - 2);
    const to = Math.min(uids.length, from + Math.ceil((this.high || 8 * LINE) / LINE) + 4);
    patch(this.rows, uids.slice(from, to).map((uid, i) => {
      // a row is built anew only when something in it changed
      const r = state.requests[uid];
      const key = r ? [r.status, r.verdict, r.reason, r.output.length, r.matched, r.cached_len, r.pages.length, r.pending.length, r.row, r.reserved, this.room, store.edition].join(" ") : "";
      const old = this.built.get(uid);
      if (old && old.key === key) return old.row;
      const row = this._row(uid, r, store.texts, (from + i) * LINE, this.room);
      this.built.set(uid, { key, row });
      return row;
    }));
    if (this.built.size > 200) this.built.clear();
  }

  /** Sizes, read before anything is drawn. */
  measure() {
    this.top = this.body.scrollTop;
    this.high = this.body.clientHeight;
    this.room = Math.max(20, Math.floor(this.prompt.clientWidth / 7.7)); // characters
  }

  /** @param {number} uid @param {any} r @param {Record<string, string>} texts @param {number} top @param {number} room */
  _row(uid, r, texts, top, room) {
    if (!r) {
      return h("div", { class: "msgl-request msgl-later", role: "row", style: `top:${top}px`, "data-status": "unknown" },
        h("span", { role: "cell" }, h("span", { class: "msgl-chip msgl-none" }, h("b", null, uid))), h("span", { role: "cell" }, "not here yet"));
    }
    const { matched } = r;
    // cut each part in its own middle, so that the border between them stays in sight
    let hit = clipped(texts, r.prompt.slice(0, matched), room);
    let own = clipped(texts, r.prompt.slice(matched), room);
    hit = middle(hit, Math.max(room >> 1, room - own.length));
    own = middle(own, Math.max(4, room - hit.length));
    const status = /** @type {"waiting"} */ (r.status);
    const why = r.status === "waiting" && r.verdict && r.verdict !== "admitted" ? `: ${r.verdict}` : r.reason ? `: ${r.reason}` : "";
    const holds = r.status === "finished" && (r.row >= 0 || r.pending.length) ? "; its row and pages wait for the batch in flight" : "";
    const output = clipped(texts, r.output, 400);
    return h("div", { class: "msgl-request", role: "row", tabindex: 0, style: `top:${top}px`, "data-key": `r${uid}`, "data-uid": uid, "data-status": r.status,
      "data-reason": r.reason, "data-pages-held": r.pages.length, "data-pending": r.pending.length, "data-row": r.row, "data-reserved": r.reserved, "data-matched": matched, "data-output": r.output.length,
      "data-cached-len": r.cached_len, "data-prompt": r.prompt.length },
      h("span", { role: "cell" }, chip(uid)),
      h("span", { role: "cell", class: "msgl-status", title: `${STATUS_WORDS[status]}${why}${holds}` }, h("i", { "aria-hidden": "true" }, holds ? "◌" : STATUS_SIGNS[status]), " ",
        status === "waiting" ? this._why(uid, `${STATUS_WORDS[status]}${why}`) : `${STATUS_WORDS[status]}${why}`),
      h("span", { role: "cell", class: "msgl-text", title: clipped(texts, r.prompt, 400) }, hit ? h("span", { class: "msgl-cached" }, hit) : null, r.error ? r.error : own),
      h("span", { role: "cell", class: "msgl-text msgl-out", title: output }, output ? middle(output, 60) : ""),
      h("span", { role: "cell", class: "msgl-num", title: `${count(r.prompt.length, "prompt token")}, ${matched} found in the cache` }, matched ? `${r.prompt.length} (${matched})` : r.prompt.length),
      h("span", { role: "cell", class: "msgl-num" }, `${r.output.length}/${r.max_tokens}`),
      h("span", { role: "cell", class: "msgl-num" }, r.cached_len),
      h("span", { role: "cell", class: "msgl-num", title: r.pending.length ? `${count(r.pages.length, "page")} in its row; ${r.pending.length} pending` : null }, r.pages.length, r.pending.length ? "*" : ""),
      h("span", { role: "cell", class: "msgl-num" }, r.reserved));
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
