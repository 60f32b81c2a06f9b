// @ts-check
import { h, panel, patch, clipped, hint, count } from "./look.js";
import { markTokens, piecesOf } from "./tokens.js";

const TREE_ROW = 48;
const NODE_HIGH = 34;
const LEVEL = 236; // from one level to the next, at most and at least
const NARROW_LEVEL = 176;
const NODE_GAP = 28; // between a node and its children
const TREE_LEFT = 26;
const MOTION = 180; // milliseconds, as in tree.css

/**
 * Where each node stands: children in the order of the oldest id below them, one row per leaf. A node that a step
 * evicted keeps its place in that step.
 * @param {Record<string, any>} nodes
 */
export function layoutTree(nodes) {
  const ids = Object.keys(nodes).map(Number); // they grow
  const most = ids[ids.length - 1] + 1;
  const [parents, oldest, depth] = [new Int32Array(most).fill(-1), new Int32Array(most), new Int32Array(most)];
  /** @type {Map<number, number[]>} */
  const children = new Map();
  for (const id of ids) {
    if (id === 0) continue;
    const parent = (parents[id] = nodes[id].parent in nodes ? nodes[id].parent : 0);
    const known = children.get(parent);
    if (known) known.push(id);
    else children.set(parent, [id]);
  }
  // parents first, without recursion: trees can be as deep as a conversation is long
  const order = [0];
  for (let i = 0; i < order.length; i++) for (const id of children.get(order[i]) ?? []) order.push(id);
  for (let i = order.length - 1; i > 0; i--) {
    const id = order[i];
    let least = id;
    for (const child of children.get(id) ?? []) if (oldest[child] < least) least = oldest[child];
    oldest[id] = least;
  }
  for (const list of children.values()) if (list.length > 1) list.sort((a, b) => oldest[a] - oldest[b]);
  /** @type {Map<number, {row: number, depth: number, parent: number}>} */
  const places = new Map();
  let row = 0;
  let depths = 0;
  const stack = [0];
  while (stack.length) {
    const id = /** @type {number} */ (stack.pop());
    const below = children.get(id);
    places.set(id, { row, depth: depth[id], parent: parents[id] });
    if (depth[id] > depths) depths = depth[id];
    if (!below) row++;
    else {
      for (let i = below.length - 1; i >= 0; i--) {
        depth[below[i]] = depth[id] + 1;
        stack.push(below[i]);
      }
    }
  }
  return { places, rows: Math.max(1, row), depths };
}

/** What the step did to the tree: id -> new | split | hit, and the nodes it evicted. @param {any[]} delta */
export function treeChanges(delta) {
  /** @type {Map<number, string>} */
  const marks = new Map();
  /** @type {Map<number, any>} */
  const gone = new Map();
  const born = new Set();
  for (const [kind, path, ...what] of delta) {
    if (path[0] !== "nodes") continue;
    if (kind === "column") {
      if (path[2] === "used") for (const id of what[0]) if (!marks.has(id)) marks.set(id, "hit");
      continue;
    }
    const id = Number(path[1]);
    const [old, value] = what;
    if (path.length === 2 && value === null) {
      if (born.has(id)) marks.delete(id);
      gone.set(id, old);
    } else if (path.length === 2 && old === null) {
      born.add(id);
      marks.set(id, "new");
    } else if (path[2] === "parent") marks.set(value, "split");
  }
  return { marks, gone };
}

/** @param {number} id @param {any} node @param {Record<string, string>} texts @param {number} x @param {number} y
 * @param {number} wide @param {string} looks @param {string} mark @param {number} age 0: longest unused, 1: just used */
function nodeBox(id, node, texts, x, y, wide, looks, mark, age) {
  const ps = node.pages.length ? node.tokens.length / node.pages.length : 1;
  const pieces = piecesOf(texts, node.tokens, 0, node.tokens.length, ps, Math.floor((wide - 16) / 7.6), true);
  const text = pieces.map((piece) => piece.text).join("");
  const facts = `${count(node.tokens.length, "token")}, ${count(node.pages.length, "page")}`;
  return h("g", { class: `msgl-node msgl-n-${looks}`, transform: `translate(${x} ${y})`, tabindex: 0, role: "img", "data-key": `n${id}`, "data-node": id,
    "data-locks": node.locks, "data-mark": mark, "data-used": node.used,
    "aria-label": `node ${id}: ${facts}, ${node.locks ? `locked ${node.locks} times` : "evictable"}${mark ? `, ${mark}` : ""}: ${text}` },
    h("title", null, `node ${id}: ${facts}, used ${count(node.uses, "time")}, last at tick ${node.used}\n${clipped(texts, node.tokens, 200)}`),
    h("rect", { class: "msgl-nodebox", width: wide, height: NODE_HIGH, rx: 4, style: looks === "evictable" ? `--age:${age.toFixed(2)}` : null }),
    h("text", { class: "msgl-nodetext", x: 8, y: 14 }, pieces.map(({ start, end, text: said, gap }) =>
      h("tspan", { class: "msgl-token", "data-on-page": gap ? null : node.pages[Math.floor(start / ps)], "data-token": start, "data-end": end }, said))),
    h("text", { class: "msgl-nodefacts", x: 8, y: 28 }, `${id}: ${count(node.tokens.length, "token")}`),
    looks === "protected" ? h("text", { class: "msgl-nodelock", x: wide - 8, y: 28 }, `locked ${node.locks}×`) : null,
    mark ? h("g", { class: `msgl-mark msgl-m-${mark}`, transform: `translate(${wide - 60} ${NODE_HIGH - 3})` },
      h("rect", { width: 52, height: 14, rx: 7 }), h("text", { x: 26, y: 10.5 }, mark)) : null);
}

/** The radix tree, left to right. */
export class Tree {
  /** @param {import("./stage.js").Stage} stage */
  constructor(stage) {
    this.top = this.high = this.wide = 0;
    this.stage = stage;
    this.step = NaN; // the one that was drawn last
    this.moved = -Infinity; // when it became another
    this.marked = false; // are tokens marked?
    this.deepest = 1; // levels seen so far: nodes become narrower so that these fit, and stay so
    /** @type {Map<number, {key: string, box: any}>} */
    this.built = new Map();
    this.edges = h("path", { class: "msgl-edge" });
    this.boxes = h("g");
    this.root = h("circle", { class: "msgl-root", cx: 9, cy: 2 + NODE_HIGH / 2, r: 6 }, h("title", null, "the root"));
    this.svg = h("svg", { class: "msgl-svg", role: "group", "aria-label": "radix tree" }, this.edges, this.root, this.boxes);
    this.box = h("div", { class: "msgl-treebox msgl-scroll" }, this.svg);
    this.empty = h("p", { class: "msgl-empty" }, "The prefix cache holds nothing at this step.");
    const { el, note } = panel("tree", "Prefix cache", "", this.box);
    this.el = el;
    this.note = note;
    this.box.append(this.empty);
    this.box.addEventListener("scroll", () => stage.redraw());
  }

  /** Sizes, read before anything is drawn. */
  measure() {
    this.top = this.box.scrollTop;
    this.high = this.box.clientHeight;
    this.wide = this.box.clientWidth;
  }

  /** What a single step changed may move, shortly (tree.css); whoever drags, leaps or goes on faster than that sees no motion,
   * and it costs nothing. @param {number} step */
  _move(step) {
    if (step === this.step) return;
    const now = performance.now();
    const calm = now - this.moved >= MOTION && Math.abs(step - this.step) === 1 && !this.stage.player.dragging;
    this.svg.classList.toggle("msgl-moving", calm);
    this.step = step;
    this.moved = now;
  }

  /** @param {import("./stage.js").Frame} frame */
  draw({ state, store, step, delta, selection }) {
    this._move(step);
    const { marks, gone } = treeChanges(delta);
    const nodes = gone.size ? { ...Object.fromEntries(gone), ...state.nodes } : state.nodes;
    const { places, rows, depths } = layoutTree(nodes);
    const held = Object.keys(state.nodes).length - 1;
    this.el.dataset.nodes = String(held);
    this.box.classList.toggle("msgl-small", store.extent.nodes < 2);
    this.box.style.setProperty("--rows", String(Math.min(6, Math.max(2, store.extent.nodes - 1))));
    this.empty.hidden = places.size > 1;
    let tokens = 0;
    let low = Infinity;
    let high = 0;
    for (const node of Object.values(state.nodes)) {
      if (node.parent < 0) continue; // the root
      tokens += node.tokens.length;
      if (node.used < low) low = node.used;
      if (node.used > high) high = node.used;
    }
    hint(this.note, held ? `${count(tokens, "token")} in ${count(held, "node")}; fainter = longer unused` : "empty");
    this.deepest = Math.max(this.deepest, depths);
    const level = Math.max(NARROW_LEVEL, Math.min(LEVEL, Math.floor((this.wide - TREE_LEFT - 8 + NODE_GAP) / this.deepest)));
    const wide = level - NODE_GAP;
    const width = TREE_LEFT + depths * level - NODE_GAP + 8;
    const height = rows * TREE_ROW + 4;
    this.svg.setAttribute("width", String(places.size > 1 ? width : 0));
    this.svg.setAttribute("height", String(places.size > 1 ? height : 0));
    const top = this.top - 2 * TREE_ROW;
    const bottom = this.top + this.high + 2 * TREE_ROW;
    const lines = [];
    /** @type {Map<number, string>} */
    const below = new Map();
    const boxes = [];
    for (const [id, { row, depth, parent }] of places) {
      const y = row * TREE_ROW + 2;
      const up = places.get(parent);
      const upY = up ? up.row * TREE_ROW + 2 : y;
      if (y < top || upY > bottom) continue;
      if (id === 0) continue;
      const x = TREE_LEFT + (depth - 1) * level;
      const from = depth === 1 ? 15 : x - NODE_GAP;
      const bend = x - 14;
      if (y > bottom) {
        below.set(parent, `M${from} ${upY + NODE_HIGH / 2}H${bend}V${bottom}`); // one line for all that are out of sight
        continue;
      }
      lines.push(`M${from} ${upY + NODE_HIGH / 2}H${bend}V${y + NODE_HIGH / 2}H${x}`);
      const node = nodes[id];
      const mark = gone.has(id) && !(id in state.nodes) ? "evicted" : marks.get(id) ?? "";
      const age = high > low ? Math.round((20 * (node.used - low)) / (high - low)) / 20 : 1; // in steps, so that few boxes change
      const looks = mark === "evicted" ? "evicted" : node.locks > 0 ? "protected" : "evictable";
      const key = [x, y, wide, looks, mark, node.locks, node.used, age, node.tokens.length, node.pages.length, store.edition].join(" ");
      const old = this.built.get(id);
      if (!old || old.key !== key) this.built.set(id, { key, box: nodeBox(id, node, store.texts, x, y, wide, looks, mark, age) });
      boxes.push(/** @type {any} */ (this.built.get(id)).box);
    }
    this.edges.setAttribute("d", [...lines, ...below.values()].join(""));
    patch(this.boxes, boxes);
    if (selection || this.marked) for (const box of boxes) markTokens(box, nodes[box.getAttribute("data-node")].pages, state.page_size, selection && selection.pages);
    this.marked = selection !== null;
    if (this.built.size > 500) this.built.clear();
  }
}
