// @ts-check
import { h, patch, say, hint, count, ranges, clipped } from "./look.js";

const LEAF_LINE = 26;
const MOST_MARKED = 2000; // pages pushed out that are marked in the strip
const POLICIES = { lru: "lru: used longest ago first", lfu: "lfu: used least often first, then the oldest node", fifo: "fifo: made first, first out" };

/** What decides between leaves, as `EVICTIONS` in minisgl/kvcache/radix.py has it: smallest first, then the oldest node.
 * @type {Record<string, (node: any) => number>} */
const EVICTION_KEYS = { lru: (node) => node.used, lfu: (node) => node.uses, fifo: () => 0 };

/**
 * The nodes that could be evicted, in the order in which they would be: leaves that nobody holds, and whoever becomes one
 * when they are gone.
 * @param {Record<string, any>} nodes @param {string} policy @returns {number[]}
 */
export function evictionOrder(nodes, policy) {
  const keyOf = EVICTION_KEYS[policy];
  /** @type {Map<number, number>} */
  const children = new Map();
  for (const id in nodes) children.set(nodes[id].parent, (children.get(nodes[id].parent) ?? 0) + 1);
  const heap = new LeafHeap();
  const offer = (/** @type {number} */ id) => {
    if (id > 0 && !children.get(id) && !nodes[id].locks) heap.push(keyOf(nodes[id]), id);
  };
  for (const id in nodes) offer(Number(id));
  const order = [];
  for (let id = heap.pop(); id !== undefined; id = heap.pop()) {
    order.push(id);
    const { parent } = nodes[id];
    children.set(parent, /** @type {number} */ (children.get(parent)) - 1);
    offer(parent);
  }
  return order;
}

/** Leaves by what decides between them, then by number. */
class LeafHeap {
  /** @type {[number, number][]} */
  entries = [];

  /** @param {number} a @param {number} b */
  _before(a, b) {
    const [x, y] = [this.entries[a], this.entries[b]];
    return x[0] !== y[0] ? x[0] < y[0] : x[1] < y[1];
  }

  /** @param {number} a @param {number} b */
  _swap(a, b) {
    [this.entries[a], this.entries[b]] = [this.entries[b], this.entries[a]];
  }

  /** @param {number} key @param {number} id */
  push(key, id) {
    let at = this.entries.push([key, id]) - 1;
    for (let up = (at - 1) >> 1; at > 0 && this._before(at, up); at = up, up = (at - 1) >> 1) this._swap(at, up);
  }

  /** The first, or undefined. */
  pop() {
    const [first] = this.entries;
    const last = this.entries.pop();
    if (this.entries.length && last) {
      this.entries[0] = last;
      for (let at = 0; ; ) {
        let least = at;
        for (const below of [2 * at + 1, 2 * at + 2]) if (below < this.entries.length && this._before(below, least)) least = below;
        if (least === at) break;
        this._swap(at, least);
        at = least;
      }
    }
    return first?.[1];
  }
}

/** What goes for `n` pages, `free` of which are free: whole leaves, in order, until there are enough. `short`: pages that
 * could not be had at all. @param {Record<string, any>} nodes @param {number[]} order @param {number} free @param {number} n */
export function pushedOut(nodes, order, free, n) {
  const missing = Math.max(0, n - free);
  /** @type {number[]} */
  const pages = [];
  let leaves = 0;
  while (pages.length < missing && leaves < order.length) for (const page of nodes[order[leaves++]].pages) pages.push(page);
  return { missing, leaves, pages, short: Math.max(0, missing - pages.length) };
}

/** What the policy asks of a node, in words. @param {any} node @param {string | undefined} policy @param {number} newest the last use of any node */
export function usesWords(node, policy, newest) {
  if (policy === "lfu") return count(node.uses, "use");
  return node.used < newest ? `${count(newest - node.used, "use")} ago` : "used last";
}

/** Eviction preview: which part of the prefix cache goes next, and what a request of n pages would push out. */
export class EvictionPreview {
  static id = "eviction";
  static title = "Who goes next";
  static dock = "right";

  /** @param {import("./stage.js").Stage} stage */
  constructor(stage) {
    this.stage = stage;
    this.top = this.high = 0;
    const set = (/** @type {Event} */ e) => this._ask(Number(/** @type {HTMLInputElement} */ (e.target).value));
    this.asked = 8;
    this.number = h("input", { type: "number", class: "msgl-evictpages", min: 1, value: 8, "aria-label": "pages of the request", oninput: set });
    this.slider = h("input", { type: "range", class: "msgl-evictslider", min: 1, max: 8, value: 8, "aria-label": "pages of the request", oninput: set });
    this.outcome = h("span", { class: "msgl-pushed", role: "status" });
    this.enters = h("span", { class: "msgl-enters" });
    // with data-pages, pointing at the question marks the pages that would go
    this.ask = h("div", { class: "msgl-evictask", "data-of": -1, "data-pages": "" },
      h("label", null, "a request of ", this.number, " pages"), this.slider, this.outcome, this.enters);
    this.ask.addEventListener("click", (/** @type {Event} */ e) => e.stopPropagation()); // it is pointed at, never held
    this.ask.addEventListener("keydown", (/** @type {KeyboardEvent} */ e) => e.key === "Enter" && e.stopPropagation());
    this.note = h("div", { class: "msgl-evictnote" });
    this.rows = h("div", { class: "msgl-rows", role: "list" });
    this.body = h("div", { class: "msgl-leaves msgl-scroll", tabindex: 0, "aria-label": "cached nodes in the order in which they would go" }, this.rows);
    this.body.addEventListener("scroll", () => stage.redraw());
    this.el = h("div", { class: "msgl-dockview msgl-eviction" }, this.ask, this.note, this.body);
  }

  /** @param {number} n */
  _ask(n) {
    this.asked = Math.max(1, Math.floor(n) || 1);
    this.stage.redraw();
  }

  /** Sizes, read before anything is drawn. */
  measure() {
    this.top = this.body.scrollTop;
    this.high = this.body.clientHeight;
  }

  /** @param {import("./stage.js").Frame} frame */
  draw({ store, state, step, counts }) {
    const policy = store.configAt(step).eviction;
    const { nodes } = state;
    const order = evictionOrder(nodes, policy ?? "lru");
    const { missing, leaves, pages, short } = pushedOut(nodes, order, counts.free, this.asked);
    const cached = Object.keys(nodes).length - 1;
    const how = policy === undefined ? "the policy is not in the record; this is the order of lru" : POLICIES[/** @type {"lru"} */ (policy)];
    hint(this.note, cached ? `${how}; ${cached - order.length} of ${count(cached, "node")} locked` : "Nothing is cached at this step. What ended requests leave behind will be listed here, who goes first on top.");
    for (const input of [this.number, this.slider]) {
      input.max = String(store.numPages);
      if (input !== this.stage.root?.getRootNode().activeElement || input.value === "") input.value = String(this.asked);
    }
    const { reserved_pages, pending_pages } = state.counters;
    const had = counts.free + counts.evictable + pending_pages;
    const fits = this.asked + reserved_pages <= had;
    say(this.enters, `${fits ? "would be let in" : "would have to wait"}: ${this.asked} + ${reserved_pages} promised ${fits ? "≤" : ">"} ${had} to be had`);
    say(this.outcome, this._outcome(counts.free, { missing, leaves, pages, short }));
    Object.assign(this.el.dataset, { policy: policy ?? "", asked: this.asked, free: counts.free, missing, leaves, pushed: pages.length, short, order: order.slice(0, 1000).join(" ") });
    this._mark(pages.slice(0, MOST_MARKED));
    const from = Math.max(0, Math.floor(this.top / LEAF_LINE) - 4);
    const to = Math.min(order.length, from + Math.ceil(this.high / LEAF_LINE) + 8);
    this.rows.style.height = `${order.length * LEAF_LINE}px`;
    let newest = 0;
    for (const id in nodes) newest = Math.max(newest, nodes[id].used);
    patch(this.rows, order.slice(from, to).map((id, i) => this._row(nodes[id], id, { rank: from + i + 1, goes: from + i < leaves, said: usesWords(nodes[id], policy, newest), top: (from + i) * LEAF_LINE, texts: store.texts })));
  }

  /** What it takes to give it its pages. @param {number} free
   * @param {{missing: number, leaves: number, pages: number[], short: number}} what */
  _outcome(free, { missing, leaves, pages, short }) {
    if (!missing) return `pushes out nothing: ${free} are free`;
    const goes = leaves ? `pushes out ${count(leaves, "node")} of ${count(pages.length, "page")}: ${missing} more than the ${free} free` : `nothing can be pushed out for it: ${free} are free`;
    return `${goes}${short ? `; ${short} could not be had` : ""}`;
  }

  /** What pointing at the question marks. @param {number[]} pages */
  _mark(pages) {
    const said = pages.join(" ");
    if (this.ask.getAttribute("data-pages") === said) return;
    this.ask.setAttribute("data-pages", said);
    if (this.ask.matches(":hover, :focus-within")) this.stage.point({ kind: "pages", pages, uid: -1 });
  }

  /** @param {any} node @param {number} id @param {{rank: number, goes: boolean, said: string, top: number, texts: Record<string, string>}} place */
  _row(node, id, { rank, goes, said, top, texts }) {
    return h("div", { class: `msgl-leaf${goes ? " msgl-goes" : ""}`, role: "listitem", tabindex: 0, style: `top:${top}px`, "data-key": `leaf${id}`, "data-node": id,
      "data-rank": rank, "data-goes": goes ? 1 : 0, "data-used": node.used, "data-uses": node.uses, "data-held": node.pages.length,
      title: `node ${id}: ${count(node.tokens.length, "token")} in pages ${ranges(node.pages.slice(0, 200))}; used ${count(node.uses, "time")}, last at tick ${node.used}` },
      h("span", { class: "msgl-num" }, `${rank}.`),
      h("span", { class: "msgl-goessign" }, goes ? "✕ goes" : ""),
      h("span", { class: "msgl-text" }, clipped(texts, node.tokens, 60, true)),
      h("span", { class: "msgl-num" }, count(node.pages.length, "page")),
      h("span", { class: "msgl-num" }, said));
  }
}
