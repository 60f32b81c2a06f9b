// @ts-check
import { h, say } from "./look.js";

/** Pages that the sentences name. @param {string[]} sentences @returns {Set<number>} */
export function pagesNamed(sentences) {
  const pages = new Set();
  for (const s of sentences) for (const m of s.matchAll(/\bpages? \[?(\d+(?:, \d+)*)/g)) for (const page of m[1].split(", ")) pages.add(Number(page));
  return pages;
}

/** The invariant lamp: does this step's state keep the engine's rules? */
export class Lamp {
  constructor() {
    this.light = h("span", { class: "msgl-light" });
    this.text = h("div", { class: "msgl-lamptext msgl-scroll" });
    this.el = h("div", { class: "msgl-lamp", role: "status", "aria-label": "invariants" }, this.text, this.light);
  }

  /** @param {import("./stage.js").Frame} frame */
  draw({ state, entry, counts, pending }) {
    const broken = entry ? entry.violations : [];
    this.el.dataset.sound = broken.length ? "false" : "true";
    this.el.dataset.violations = String(broken.length);
    say(this.light, broken.length ? `✕ broken: ${broken.length}` : "✓ sound");
    const { free, owned, evictable } = counts;
    const waits = pending.size ? ` (${pending.size} pending)` : "";
    const sum = `${free} free + ${owned} owned${waits} + ${evictable + counts.protected} cached = ${state.num_pages} pages`;
    say(this.text, broken.length ? broken.slice(0, 20).join("; ") : sum);
    this.text.title = broken.length ? broken.join("\n") : "Every page has exactly one owner, no live row names a free page, counters equal a walk of the tree.";
  }
}
