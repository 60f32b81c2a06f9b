// @ts-check
import { h, say } from "./look.js";
import { placeOf } from "./path.js";

/**
 * @typedef {{paragraph: number, parts: [string, string][], place: string}} Sentence see minisgl_widgets/markup.py; a place
 *   is the end of an address
 */

/** Sentences by paragraph, each with its number. @param {Sentence[]} sentences @returns {[number, Sentence][][]} */
export function paragraphsOf(sentences) {
  /** @type {[number, Sentence][][]} */
  const found = [];
  sentences.forEach((sentence, i) => {
    if (!found.length || sentences[i - 1].paragraph !== sentence.paragraph) found.push([]);
    found[found.length - 1].push([i, sentence]);
  });
  return found;
}

/**
 * A text above the views. Going to a sentence moves the player, holds what it speaks of, and frames the view to look at.
 *
 *     .msgl-tour        data-sentence (from 0), data-sentences
 *     .msgl-sentence    data-number, aria-current on the one that is read; .msgl-link in it: data-place
 *     .msgl-lit         the view to look at
 */
export class Tour {
  /** @param {HTMLElement} el @param {import("./stage.js").Stage[]} stages @param {{sentences: Sentence[]}} data */
  constructor(el, [stage], { sentences }) {
    this.stage = stage;
    this.sentences = sentences;
    this.at = 0;
    this.place = h("span", { class: "msgl-tourplace", role: "status" });
    const button = (/** @type {string} */ name, /** @type {string} */ text, /** @type {number} */ by) =>
      h("button", { type: "button", class: `msgl-btn msgl-${name}`, onclick: () => this.go(this.at + by) }, text);
    this.spans = sentences.map((sentence, i) => h("span", { class: "msgl-sentence", "data-number": i, onclick: () => this.go(i) }, sentence.parts.map(([words, place]) => place
      ? h("button", { type: "button", class: "msgl-link", "data-place": place, onclick: (/** @type {Event} */ e) => this._link(e, i, place) }, words)
      : words)));
    this.prose = h("div", { class: "msgl-prose msgl-scroll", tabindex: 0, "aria-label": "the tour" },
      paragraphsOf(sentences).map((some) => h("p", null, some.map(([i]) => [this.spans[i], " "]))));
    this.el = h("section", { class: "msgl-tour", "aria-label": "tour" }, this.prose,
      h("div", { class: "msgl-tourkeys" }, this.place, button("before", "Back (p)", -1), button("onward", "Next (n)", 1)));
    stage.head.prepend(this.el);
    document.addEventListener("keydown", (e) => this._key(e), true); // before the stage, where n goes to a breakpoint
    this.go(0);
  }

  /** @param {number} i */
  go(i) {
    this.at = Math.max(0, Math.min(this.sentences.length - 1, i));
    for (const [n, span] of this.spans.entries()) {
      if (n === this.at) span.setAttribute("aria-current", "step");
      else span.removeAttribute("aria-current");
    }
    const span = this.spans[this.at];
    this.prose.scrollTop = Math.max(0, span.offsetTop - this.prose.clientHeight / 3);
    say(this.place, `sentence ${this.at + 1} of ${this.sentences.length}`);
    Object.assign(this.el.dataset, { sentence: this.at, sentences: this.sentences.length });
    this.follow(this.sentences[this.at].place);
  }

  /** @param {string} place */
  follow(place) {
    const { stage } = this;
    const { step, pointer, views } = placeOf(place);
    stage.player.stop();
    stage.look(step, pointer ?? null);
    for (const lit of stage.root.querySelectorAll(".msgl-lit")) lit.classList.remove("msgl-lit");
    for (const id of [...views].reverse()) {
      const dock = stage.docks.find((d) => d.show(id));
      const panel = dock ? dock.el : stage.root.querySelector(`.msgl-panel.msgl-${id}`);
      panel?.classList.add("msgl-lit");
      // the first is brought into sight last; a frame is as high as what it shows
      if (!window.frameElement) panel?.scrollIntoView({ block: "nearest" });
    }
  }

  /** @param {Event} event @param {number} i @param {string} place */
  _link(event, i, place) {
    event.stopPropagation();
    if (i !== this.at) this.go(i);
    this.follow(place);
  }

  /** @param {KeyboardEvent} event */
  _key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const target = /** @type {HTMLElement} */ (event.target);
    if (target.matches?.("input:not([type=range]), select, textarea")) return;
    const within = this.prose.contains(target);
    if (event.key === "n" || (within && event.key === "ArrowDown")) this.go(this.at + 1);
    else if (event.key === "p" || (within && event.key === "ArrowUp")) this.go(this.at - 1);
    else {
      if (target === document.body) this.stage.key(event);
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}
