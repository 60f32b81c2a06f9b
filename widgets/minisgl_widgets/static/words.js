// @ts-check
import { h, panel, patch, say, chip, middle } from "./look.js";

const MOST = 60; // sentences shown
const LONGEST = 600; // characters of a sentence shown: one can name thousands of pages

/** What the step did, one sentence an event. */
export class Words {
  constructor() {
    this.key = "";
    this.list = h("ol", { class: "msgl-sentences msgl-scroll", tabindex: 0, "aria-label": "what happened in this step" });
    const { el, note } = panel("words", "What happened", "", this.list);
    this.scrolled = this.fresh = false;
    this.list.addEventListener("scroll", () => (this.scrolled = true));
    this.el = el;
    this.note = note;
  }

  /** @param {import("./stage.js").Frame} frame */
  draw({ store, entry, step }) {
    const events = store.events(step);
    const key = `${step} ${store.edition} ${events !== null}`;
    if (this.key === key) return;
    this.key = key;
    say(this.note, `in step ${step}`);
    const words = (events ?? []).map((e) => e.words).filter(Boolean);
    const none = events === null ? "It is still being read." : entry ? "Nothing that changes the books." : "The start of the record.";
    patch(this.list, words.length ? words.slice(0, MOST).map((w) => h("li", null, sentence(middle(w, LONGEST)))) : h("li", { class: "msgl-empty" }, none),
      words.length > MOST ? h("li", { class: "msgl-empty" }, `and ${words.length - MOST} more`) : null);
    this.fresh = true;
  }

  /** What is new is seen from its beginning. */
  settle() {
    if (this.fresh && this.scrolled) this.list.scrollTop = 0;
    this.scrolled &&= !this.fresh;
    this.fresh = false;
  }
}

/** A sentence, with request numbers as name tags. @param {string} words */
function sentence(words) {
  return words.split(/(\brequest \d+)/).map((part) => {
    const uid = /^request (\d+)$/.exec(part);
    return uid ? ["request ", chip(Number(uid[1]))] : part;
  });
}
