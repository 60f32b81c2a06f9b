// @ts-check
import { h, panel, patch, chip, middle } from "./look.js";

const MOST = 60; // sentences shown
const LONGEST = 600; // characters of a sentence shown: one can name thousands of pages

/** What the step did, one sentence an event. */
export class Words {
  constructor() {
    this.list = h("ol", { class: "msgl-sentences msgl-scroll", tabindex: 0, "aria-label": "what happened in this step" });
    const { el, note } = panel("words", "What happened", "", this.list);
    this.scrolled = false;
    this.list.addEventListener("scroll", () => (this.scrolled = true));
    this.el = el;
    this.note = note;
  }

  /** @param {import("./stage.js").Frame} frame */
  draw({ entry, step }) {
    if (this.entry === entry && this.step === step) return;
    this.entry = entry;
    this.step = step;
    this.note.textContent = `in step ${step}`;
    const words = entry ? entry.words : [];
    patch(this.list, words.length ? words.slice(0, MOST).map((w) => h("li", null, sentence(middle(w, LONGEST)))) : h("li", { class: "msgl-empty" }, entry ? "Nothing that changes the books." : "The start of the record."),
      words.length > MOST ? h("li", { class: "msgl-empty" }, `and ${words.length - MOST} more`) : null);
    if (this.scrolled) this.list.scrollTop = 0;
    this.scrolled = false;
  }
}

/** A sentence, with request numbers as name tags. @param {string} words */
function sentence(words) {
  return words.split(/(\brequest \d+)/).map((part) => {
    const uid = /^request (\d+)$/.exec(part);
    return uid ? ["request ", chip(Number(uid[1]))] : part;
  });
}
