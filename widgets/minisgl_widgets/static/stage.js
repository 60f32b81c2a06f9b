// @ts-check
/**
 * The stage: one player and the views it drives. An anywidget module (AFM): the default export makes one definition
 * per model, so that all views of a model share its record and nothing else.
 *
 * What a test, or a script, may rely on (numbers in pages unless they say otherwise):
 *
 *     .msgl           data-step, data-first, data-last, data-phase (prefill | decode | idle | start)
 *     .msgl-first .msgl-back .msgl-play .msgl-forward .msgl-last .msgl-live     buttons; .msgl-range the scrub bar
 *     .msgl-strip     data-free, data-owned, data-evictable, data-protected, data-pending (of the owned ones); .msgl-cells the canvas, .msgl-tip its text
 *     .msgl-lamp      data-sound (true | false), data-violations
 *     .msgl-ledger    data-tests, data-since; each .msgl-test: data-uid, data-verdict, data-step, data-need, data-reserved,
 *                     data-free, data-evictable, data-pending, data-evictable-locked, data-available, data-available-locked
 *     .msgl-requests  data-waiting, data-running; each .msgl-request: data-uid, data-status, data-reason, data-matched,
 *                     data-output, data-prompt, data-cached-len (tokens), data-pages-held, data-pending, data-reserved, data-row
 *     .msgl-tree      data-nodes; each .msgl-node: data-node, data-locks, data-used, data-mark (new | split | hit | evicted)
 *     .msgl-handoff   data-handoffs, data-since; each .msgl-ho: data-uid, data-finished; each .msgl-hocell: data-segment, data-pages
 *     .msgl-words     li: the step's sentences
 *     .msgl-hi        whatever belongs to what is pointed at
 */
import { RunStore, Cursor, pageKinds, countKinds, pendingPages, selectionOf } from "./record.js";
import { h, paletteOf } from "./look.js";
import { Player } from "./player.js";
import { PageStrip } from "./pages.js";
import { Ledger } from "./ledger.js";
import { Tree } from "./tree.js";
import { Handoffs } from "./handoff.js";
import { Requests } from "./requests.js";
import { Lamp, pagesNamed } from "./lamp.js";
import { Words } from "./words.js";

/**
 * @typedef {import("./record.js").Pointer} Pointer
 * @typedef {{store: RunStore, state: any, step: number, entry: import("./record.js").StepEntry | null,
 *   delta: import("./record.js").Change[], kinds: Uint8Array, counts: Record<string, number>, pending: Set<number>,
 *   selection: import("./record.js").Selection | null, suspects: Set<number>, changed: Set<number>, palette: any, following: boolean}} Frame
 *   everything a view draws
 */

/** One place where a record is shown. */
export class Stage {
  /** @param {HTMLElement} el @param {RunStore} store
   * @param {{live?: boolean, drawn?: (step: number) => void, moved?: (step: number) => void, heading?: HTMLElement}} [options] */
  constructor(el, store, { live = false, drawn = () => {}, moved = () => {}, heading } = {}) {
    this.store = store;
    this.live = live;
    this.drawn = drawn;
    this.moved = moved;
    /** @type {Cursor | null} */
    this.cursor = null;
    /** @type {Pointer} what the mouse or the focus is on */
    this.hovered = null;
    /** @type {Pointer} what was clicked */
    this.pinned = null;
    this.frame = 0;
    this.acknowledged = -1;
    this.player = new Player({ goto: (step) => this.goto(step), live });
    this.title = heading ?? h("h2");
    this.title.classList.add("msgl-title");
    this.lamp = new Lamp();
    this.strip = new PageStrip(this);
    this.requests = new Requests(this);
    this.tree = new Tree(this);
    const [ledger, handoffs, words] = [new Ledger(), new Handoffs(), new Words()];
    const { strip, requests, tree } = this;
    this.views = [this.player, this.lamp, strip, ledger, requests, tree, handoffs, words];
    this.waiting = h("p", { class: "msgl-nothing" }, "No step has been recorded yet. Run or step the engine, and it appears here.");
    this.body = h("div", { class: "msgl-body" },
      h("div", { class: "msgl-column msgl-pool" }, strip.el, words.el), h("div", { class: "msgl-column" }, ledger.el, handoffs.el),
      requests.el, tree.el);
    this.head = h("div", { class: "msgl-top" }, h("div", { class: "msgl-head" }, this.title, this.lamp.el), this.player.el);
    this.root = h("div", { class: "msgl", tabindex: -1, role: "group", "aria-label": "a recorded run", "data-lm-suppress-shortcuts": "true" }, this.head, this.waiting, this.body);
    el.append(this.root);

    this.root.addEventListener("keydown", (/** @type {KeyboardEvent} */ e) => this._key(e));
    for (const kind of ["pointerover", "focusin"]) this.root.addEventListener(kind, (/** @type {Event} */ e) => this._hover(e));
    this.root.addEventListener("pointerleave", () => this.point(null));
    this.root.addEventListener("click", (/** @type {Event} */ e) => this._click(e));
    this.resized = new ResizeObserver(() => this.redraw());
    this.resized.observe(this.root);
    this.restyle = () => {
      this.palette = null;
      this.redraw();
    };
    this.themed = new MutationObserver(this.restyle);
    this.themed.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class"] });
    this.media = matchMedia("(prefers-color-scheme: dark)");
    this.media.addEventListener("change", this.restyle);
    this.listen = (/** @type {"load" | "tail"} */ what) => this._changed(what);
    store.listeners.add(this.listen);
    this.tail = -1;
    this._changed("load");
  }

  close() {
    this.player.stop();
    cancelAnimationFrame(this.frame);
    this.store.listeners.delete(this.listen);
    this.resized.disconnect();
    this.themed.disconnect();
    this.media.removeEventListener("change", this.restyle);
    this.root.remove();
  }

  /** @param {"load" | "tail"} what */
  _changed(what) {
    const { store } = this;
    if (!store.ready) return this.redraw();
    const followed = this.live && (!this.cursor || this.cursor.step >= this.tail);
    if (what === "load") {
      // a record opens at the first step that did something, a live run at its newest
      this.cursor = new Cursor(store, followed ? store.last : this.cursor?.step ?? store.first + 1);
    } else if (followed && !this.player.timer) /** @type {Cursor} */ (this.cursor).moveTo(store.last);
    this.tail = store.last;
    this.redraw();
  }

  /** @param {number} step */
  goto(step) {
    if (!this.cursor) return;
    this.cursor.moveTo(step);
    this.player.step = this.cursor.step;
    this.moved(this.cursor.step);
    this.redraw();
  }

  /** Point at something for as long as the mouse is there. @param {Pointer} pointer */
  point(pointer) {
    if (JSON.stringify(pointer) === JSON.stringify(this.hovered)) return;
    this.hovered = pointer;
    this.redraw();
  }

  /** Keep pointing at something; again, or null, lets it go. @param {Pointer} pointer */
  pin(pointer) {
    this.pinned = JSON.stringify(pointer) === JSON.stringify(this.pinned) ? null : pointer;
    this.redraw();
  }

  /** @param {Event} event @returns {Pointer} */
  _pointer(event) {
    const target = /** @type {Element | null} */ (/** @type {Element} */ (event.target).closest?.("[data-uid], [data-node], [data-of]"));
    if (!target) return null;
    if (target.hasAttribute("data-node")) return { kind: "node", node: Number(target.getAttribute("data-node")) };
    if (target.hasAttribute("data-of")) {
      const pages = (target.getAttribute("data-pages") ?? "").split(" ").filter(Boolean).map(Number);
      return { kind: "pages", pages, uid: Number(target.getAttribute("data-of")) };
    }
    return { kind: "uid", uid: Number(target.getAttribute("data-uid")) };
  }

  /** @param {Event} event */
  _hover(event) {
    if (event.target === this.strip.canvas) return;
    if (event.type === "focusin" && !(/** @type {Element} */ (event.target).matches(":focus-visible"))) return;
    this.point(this._pointer(event));
  }

  /** @param {Event} event */
  _click(event) {
    const pointer = this._pointer(event);
    if (pointer) this.pin(pointer);
  }

  /** @param {KeyboardEvent} event */
  _key(event) {
    let done = this.player.key(event);
    if (event.key === "Escape" && (this.pinned || this.hovered)) {
      this.pinned = this.hovered = null;
      this.redraw();
      done = true;
    } else if (event.key === "Enter" && this._pointer(event)) {
      this._click(event);
      done = true;
    }
    if (done) {
      event.preventDefault();
      event.stopPropagation();
    }
  }

  /** Draw in the next frame, once. */
  redraw() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this._draw());
  }

  _draw() {
    this.frame = 0;
    const { store, cursor } = this;
    this.waiting.hidden = store.ready;
    this.body.hidden = this.head.hidden = !store.ready;
    this.root.classList.toggle("msgl-huge", store.numPages > 4096);
    if (!store.ready || !cursor) return;
    this.palette ??= paletteOf(this.root);
    const { state, step } = cursor;
    const entry = store.entry(step);
    const delta = store.delta(step);
    const kinds = pageKinds(state);
    const changed = new Set();
    for (const [, path, keys] of delta) if (path[0] === "pages" && path[1] === "owner") for (const page of keys) changed.add(page);
    /** @type {Frame} */
    const frame = { store, state, step, entry, delta, kinds, counts: countKinds(kinds), pending: pendingPages(state), selection: selectionOf(state, this.hovered ?? this.pinned),
      suspects: pagesNamed(entry ? entry.violations : []), changed, palette: this.palette,
      following: this.live && step === store.last };
    this.title.textContent = store.title || "A run of minisgl";
    for (const view of [this.player, this.strip, this.requests, this.tree]) view.measure();
    for (const view of this.views) view.draw(frame);
    this._highlight(frame.selection);
    const { dataset } = this.root;
    dataset.step = String(step);
    dataset.first = String(store.first);
    dataset.last = String(store.last);
    dataset.phase = entry ? entry.phase : "start";
    if (this.acknowledged !== store.last) {
      this.acknowledged = store.last;
      this.drawn(store.last);
    }
  }

  /** Mark what belongs to the selection. @param {import("./record.js").Selection | null} selection */
  _highlight(selection) {
    this.root.classList.toggle("msgl-pointing", selection !== null);
    for (const el of this.root.querySelectorAll("[data-uid], [data-node], [data-pages]")) {
      let on = false;
      if (selection) {
        if (el.hasAttribute("data-node")) on = selection.nodes.has(Number(el.getAttribute("data-node")));
        else if (el.hasAttribute("data-uid")) on = selection.uids.has(Number(el.getAttribute("data-uid")));
        else on = (el.getAttribute("data-pages") ?? "").split(" ").some((p) => p !== "" && selection.pages.has(Number(p)));
      }
      el.classList.toggle("msgl-hi", on);
    }
  }
}

/** @param {any} model @param {RunStore} store */
function readRecord(model, store) {
  const text = model.get("record");
  if (text) store.load(typeof text === "string" ? JSON.parse(text) : text);
}

export default () => {
  const store = new RunStore();
  return {
    /** @param {{model: any}} context */
    initialize({ model }) {
      readRecord(model, store);
      model.on("change:record", () => readRecord(model, store));
      model.on("msg:custom", (/** @type {any} */ message) => {
        if (message?.kind === "tail" && !store.append(message)) model.send({ kind: "resync" });
      });
    },

    /** @param {{model: any, el: HTMLElement}} context */
    render({ model, el }) {
      const stage = new Stage(el, store, {
        live: Boolean(model.get("live")),
        drawn: (step) => model.send({ kind: "drawn", step }),
        moved: model.get("moved"),
        heading: model.get("heading"),
      });
      if (Number(model.get("length") ?? 0) > store.length) model.send({ kind: "resync" });
      if (model.get("exported")) /** @type {any} */ (el).stage = stage;
      return () => stage.close();
    },
  };
};
