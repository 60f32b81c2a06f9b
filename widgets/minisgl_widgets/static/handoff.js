// @ts-check
import { h, panel, patch, chip, hint, ranges, count } from "./look.js";

/** What becomes of a segment's pages. @param {any} handoff @param {{name: string, pages: number[]}} segment */
export function fateOf(handoff, { name, pages }) {
  if (!pages.length) return "nothing";
  if (name === "locked") return handoff.finished && !handoff.node ? "stays; its lock is dropped" : "stays; its lock moves on";
  const later = handoff.pending ? " after the batch in flight" : "";
  if (name === "duplicate") return `freed${handoff.replaced.length ? ` for the cache's ${ranges(handoff.replaced)}` : ""}${later}`;
  if (name === "inserted") return "now the cache's";
  return handoff.finished ? `freed${later}` : "the request's own";
}

/** A segment's places, and how far they are filled: only the tail can have room left.
 * @param {any} handoff @param {{start: number, end: number}} segment */
export function spanOf(handoff, { start, end }) {
  if (end <= handoff.n) return `[${start}, ${end})`;
  return `[${start}, ${end}), ${start < handoff.n ? `filled to ${handoff.n}` : "not filled yet"}`;
}

/** The handoffs of the last step that had any: four segments each. */
export class Handoffs {
  constructor() {
    this.now = false;
    this.list = h("div", { class: "msgl-handoffs msgl-scroll", tabindex: 0, role: "list", "aria-label": "handoffs" });
    const { el, note } = panel("handoff", "Handoff to the cache", "", this.list);
    this.el = el;
    this.note = note;
  }

  /** @param {import("./stage.js").Frame} frame */
  draw({ state, step }) {
    const { handoffs } = state;
    const now = handoffs.length > 0 && handoffs[0].step === step;
    if (this.handoffs === handoffs && this.now === now) return;
    this.handoffs = handoffs;
    this.now = now;
    this.el.dataset.handoffs = String(handoffs.length);
    this.el.dataset.since = handoffs.length ? String(handoffs[0].step) : "";
    hint(this.note, handoffs.length ? `${count(handoffs.length, "handoff")} ${now ? "in this step" : `at step ${handoffs[0].step}`}` : "who owns what afterwards");
    patch(this.list, handoffs.length ? handoffs.map((/** @type {any} */ x) => this._handoff(x)) : h("p", { class: "msgl-empty", role: "listitem" }, "No request has handed anything over yet."));
  }

  /** @param {any} handoff */
  _handoff(handoff) {
    const total = Math.max(1, handoff.pages.length * handoff.page_size);
    return h("div", { class: "msgl-ho", role: "listitem", "data-uid": handoff.uid, "data-finished": handoff.finished },
      h("div", { class: "msgl-hohead" }, chip(handoff.uid), h("span", null, `${handoff.finished ? "has ended" : "has finished its prefill"}: KV of tokens [0, ${handoff.n})`)),
      h("div", { class: "msgl-hobar", "aria-hidden": "true" }, handoff.segments.map((/** @type {any} */ s) => s.end > s.start
        ? h("i", { class: `msgl-seg msgl-s-${s.name}`, style: `flex:${(s.end - s.start) / total} 1 0`, "data-pages": s.pages.join(" "), "data-of": handoff.uid, title: `${s.name}: ${ranges(s.pages)}` }, h("b", null, ranges(s.pages))) : null)),
      h("div", { class: "msgl-hogrid", style: `grid-template-columns:${handoff.segments.map((/** @type {any} */ s) => (s.pages.length ? "minmax(0, 1fr)" : "max-content")).join(" ")}` }, handoff.segments.map((/** @type {any} */ s) =>
        h("div", { class: `msgl-hocell${s.pages.length ? "" : " msgl-off"}`, "data-segment": s.name, "data-pages": s.pages.join(" "), "data-of": handoff.uid },
          h("b", null, h("i", { class: `msgl-swatch msgl-s-${s.name}` }), s.name), h("span", { class: "msgl-two" }, s.pages.length ? spanOf(handoff, s) : "no page"), s.pages.length ? h("span", { class: "msgl-two", title: ranges(s.pages) }, `${s.pages.length === 1 ? "page" : "pages"} ${ranges(s.pages)}`) : null, s.pages.length ? h("em", { title: fateOf(handoff, s) }, fateOf(handoff, s)) : null))));
  }
}
