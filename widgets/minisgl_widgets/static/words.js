// @ts-check
import { h, panel, patch, chip } from "./look.js";

/** What the step did, one sentence an event. */
export class Words {
  constructor() {
    this.list = h("ol", { class: "msgl-sentences msgl-scroll", tabindex: 0, "aria-label": "what happened in this step" });
    const { el, note } = panel("words", "What happened", "", this.list);
    this.el = el;
    this.note = note;
  }

  /** @param {import("./stage.js").Frame} frame */
  draw({ entry, step, store }) {
    this.list.style.setProperty("--rows", String(Math.max(3, Math.min(9, store.extent.words))));
    if (this.entry === entry && this.step === step) return;
    this.entry = entry;
    this.step = step;
    this.note.textContent = `in step ${step}`;
    const words = entry ? entry.words : [];
    patch(this.list, words.length ? words.map((w) => h("li", null, sentence(w))) : h("li", { class: "msgl-empty" }, entry ? "Nothing that changes the books." : "The start of the record."));
    this.list.scrollTop = 0;
  }
}

/** A sentence, with request numbers as name tags. @param {string} words */
function sentence(words) {
  return words.split(/(\brequest \d+)/).map((part) => {
    const uid = /^request (\d+)$/.exec(part);
    return uid ? ["request ", chip(Number(uid[1]))] : part;
  });
}
