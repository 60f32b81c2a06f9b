// @ts-check
import { h, panel, patch, chip, textOf, visible, middle, say, count } from "./look.js";

const LINE = 30;
const SIGNS = { waiting: "○", prefill: "◐", running: "●", finished: "✓" };
const HEADINGS = ["req", "status", "prompt", "output", "in", "out", "KV", "pages", "promised"];

/** The request table. A request keeps its row for the whole run. */
export class Requests {
  /** @param {import("./stage.js").Stage} stage */
  constructor(stage) {
    this.rows = h("div", { class: "msgl-rows" });
    this.body = h("div", { class: "msgl-tbody msgl-scroll" }, this.rows);
    this.table = h("div", { class: "msgl-table", role: "table", "aria-label": "requests" },
      h("div", { class: "msgl-thead", role: "row" }, HEADINGS.map((c) => h("span", { role: "columnheader" }, c))), this.body);
    const { el, note } = panel("requests", "Requests", "", this.table);
    this.el = el;
    this.note = note;
    this.body.addEventListener("scroll", () => stage.redraw());
  }

  /** @param {import("./stage.js").Frame} frame */
  draw({ state, store }) {
    const { uids } = store;
    this.body.style.setProperty("--rows", String(Math.max(1, Math.min(8, uids.length))));
    this.rows.style.height = `${uids.length * LINE}px`;
    const { waiting, running } = state;
    const done = Object.values(state.requests).filter((r) => r.status === "finished").length;
    this.el.dataset.waiting = String(waiting.length);
    this.el.dataset.running = String(running.length);
    say(this.note, `${waiting.length} waiting, ${running.length} running, ${done} ended; `);
    this.note.append(h("span", { class: "msgl-cached" }, "tinted"), " = found in the cache");
    const from = Math.max(0, Math.floor(this.body.scrollTop / LINE) - 2);
    const to = Math.min(uids.length, from + Math.ceil((this.body.clientHeight || 8 * LINE) / LINE) + 4);
    patch(this.rows, uids.slice(from, to).map((uid, i) => this._row(uid, state.requests[uid], store.texts, (from + i) * LINE)));
  }

  /** @param {number} uid @param {any} r @param {Record<string, string>} texts @param {number} top */
  _row(uid, r, texts, top) {
    if (!r) {
      return h("div", { class: "msgl-request msgl-later", role: "row", style: `top:${top}px`, "data-status": "unknown" },
        h("span", { role: "cell" }, h("span", { class: "msgl-chip msgl-none" }, h("b", null, uid))), h("span", { role: "cell" }, "not here yet"));
    }
    const { matched } = r;
    const hit = middle(visible(textOf(texts, r.prompt.slice(0, matched))), 34);
    const own = middle(visible(textOf(texts, r.prompt.slice(matched))), matched ? 40 : 72);
    const ended = r.status === "finished";
    const why = r.status === "waiting" && r.verdict && r.verdict !== "admitted" ? `: ${r.verdict}` : ended ? `: ${r.reason}` : "";
    const output = visible(textOf(texts, r.output));
    return h("div", { class: "msgl-request", role: "row", tabindex: 0, style: `top:${top}px`, "data-key": `r${uid}`, "data-uid": uid, "data-status": r.status,
      "data-reason": r.reason, "data-pages-held": r.pages.length, "data-reserved": r.reserved, "data-matched": matched, "data-output": r.output.length,
      "data-cached-len": r.cached_len, "data-prompt": r.prompt.length },
      h("span", { role: "cell" }, chip(uid)),
      h("span", { role: "cell", class: "msgl-status" }, h("i", { "aria-hidden": "true" }, SIGNS[/** @type {"waiting"} */ (r.status)]), ` ${ended ? "ended" : r.status}${why}`),
      h("span", { role: "cell", class: "msgl-text", title: visible(textOf(texts, r.prompt)) }, hit ? h("span", { class: "msgl-cached" }, hit) : null, r.error ? r.error : own),
      h("span", { role: "cell", class: "msgl-text msgl-out", title: output }, output ? middle(output, 60) : ""),
      h("span", { role: "cell", class: "msgl-num", title: `${count(r.prompt.length, "prompt token")}, ${matched} found in the cache` }, matched ? `${r.prompt.length} (${matched})` : r.prompt.length),
      h("span", { role: "cell", class: "msgl-num" }, `${r.output.length}/${r.max_tokens}`),
      h("span", { role: "cell", class: "msgl-num" }, r.cached_len),
      h("span", { role: "cell", class: "msgl-num" }, r.pages.length),
      h("span", { role: "cell", class: "msgl-num" }, r.reserved));
  }
}
