// @ts-check
/**
 * The stage: one player and the views it drives. An anywidget module (AFM): the default export makes one definition
 * per model, so that all views of a model share its record and nothing else.
 *
 * What a view may use of the stage it is given (views.js says what it must have itself):
 *
 *     stage.goto(step)        move the player; a step that is not readable yet is gone to as soon as it is
 *     stage.point(pointer)    point at something for as long as the mouse is there; null: at nothing
 *     stage.pin(pointer)      hold it; again, or null, lets it go
 *     stage.pointer           what is pointed at, or else held (a Pointer, see record.js)
 *     stage.selection         all that belongs to it: {pages, uids, nodes}, three Sets; or null
 *     stage.store             the run (RunStore, record.js): index columns, spans, entry(step), events(step), delta(step), changes()
 *     stage.at(step)          the state after another step, to compare with; null while it is not readable. It is good
 *                             until the next call, and must not be changed
 *     stage.ask(question, uid)    show the answer to a question about a request in its tab, see questions.js
 *     stage.send(message)     tell the kernel; `stage.send` is null in an exported page
 *     stage.redraw()          draw in the next frame, for instance after the view was scrolled
 *
 * Elements with data-uid, data-node, or data-of and data-pages point at what they name without further ado, and get the
 * class msgl-hi while it is selected. A view draws `frame` and nothing else: it holds the state after the player's step.
 *
 * What a test, or a script, may rely on (numbers in pages unless they say otherwise):
 *
 *     .msgl           data-step, data-first, data-last, data-phase (prefill | decode | idle | start)
 *     .msgl-first .msgl-back .msgl-play .msgl-forward .msgl-last .msgl-live     buttons; .msgl-range the scrub bar
 *     .msgl-strip     data-free, data-owned, data-evictable, data-protected, data-pending (of the owned ones), data-suspects; .msgl-cells the canvas, .msgl-tip its text
 *     .msgl-lamp      data-sound (true | false), data-violations
 *     .msgl-ledger    data-tests, data-since; each .msgl-test: data-uid, data-verdict, data-step, data-need, data-reserved,
 *                     data-free, data-evictable, data-pending, data-evictable-locked, data-available, data-available-locked
 *     .msgl-requests  data-waiting, data-running; each .msgl-request: data-uid, data-status, data-reason, data-matched,
 *                     data-output, data-prompt, data-cached-len (tokens), data-pages-held, data-pending, data-reserved, data-row
 *     .msgl-tree      data-nodes; each .msgl-node: data-node, data-locks, data-used, data-mark (new | split | hit | evicted)
 *     .msgl-handoff   data-handoffs, data-since; each .msgl-ho: data-uid, data-finished; each .msgl-hocell: data-segment, data-pages
 *     .msgl-words     li: the step's sentences
 *     .msgl-copy      code: the Python expression of what is held
 *     .msgl-dock      .msgl-tab: data-view, aria-selected; .msgl-dockbody: the view that is seen
 *     .msgl-breaks    data-steps (how many there are), data-at (which of them this step is; 0: none)
 *     .msgl-save-png .msgl-save-svg     buttons
 *     .msgl-lifelines data-step-from, -step-to, -page-from, -page-to (what is seen), data-drawn; .msgl-lifenote, of a page pointed at:
 *                     data-page, -step, -owner, -from, -to
 *     .msgl-eviction  data-policy, -asked, -free, -missing, -leaves, -pushed, -short, -order (nodes); each .msgl-leaf: data-node, -rank, -goes, -used, -held
 *     .msgl-pagetable data-rows, -taken, -per-page; each .msgl-tableline: data-row, -generation, -request, -entries; each .msgl-entry: data-at, -value, -kind
 *     .msgl-compare   data-a, -b, -came, -went, -moved; each .msgl-counter: data-counter, -before, -after; each .msgl-move: data-moved-request, or data-node and -what
 *     .msgl-timeline  .msgl-tl-row: data-uid, data-status (later | wait | prefill | decode | done, in the step); data-arrived, data-admitted,
 *                     data-first, data-finished (steps, -1: never); .msgl-tl-seg: data-kind, data-from, data-to (behind the last), data-reason
 *     .msgl-batches   data-prefill, data-decode (tokens), data-requests, data-budget
 *     .msgl-questions data-question, data-uid, data-answered; .msgl-cite in the answer: data-step, data-event
 *     .msgl-hi        whatever belongs to what is pointed at
 */
import { RunStore } from "./record.js";
import { Cursor } from "./cursor.js";
import { pageKinds, countKinds, pendingPages } from "./state.js";
import { selectionOf } from "./selection.js";
import { h, say, paletteOf } from "./look.js";
import { Player, forStage } from "./player.js";
import { PageStrip } from "./pages.js";
import { Ledger } from "./ledger.js";
import { Tree } from "./tree.js";
import { Handoffs } from "./handoff.js";
import { Requests } from "./requests.js";
import { Lamp } from "./lamp.js";
import { suspectsOf } from "./ghosts.js";
import { Words } from "./words.js";
import { SavePicture } from "./picture.js";
import { CopyPath, fragmentOf, placeOf } from "./path.js";
import { fromBase64 } from "./decode.js";
import { Dock, arrange, arrangeFew } from "./layout.js";
import { VIEWS } from "./views.js";
import { PANELS } from "./panels.js";

/**
 * @typedef {import("./selection.js").Pointer} Pointer
 * @typedef {{store: RunStore, state: any, step: number, entry: import("./stepindex.js").StepEntry | null,
 *   delta: import("./change.js").Change[], kinds: Uint8Array, counts: Record<string, number>, pending: Set<number>,
 *   held: Pointer, selection: import("./selection.js").Selection | null, suspects: Map<number, string>, changed: Set<number>, palette: any,
 *   following: boolean}} Frame
 *   everything a view draws: `state` after `step`, the `delta` that led there, the kind of each page (an index into KINDS)
 *   and how many there are of each, pages that are pending or changed owner in this step, and `suspects`: what is wrong with
 *   which page
 * @typedef {{live?: boolean, compact?: boolean, without?: string[], start?: number, send?: ((message: any) => void) | null, rested?: (stage: Stage) => void,
 *   heading?: HTMLElement}} Options compact: only pages, requests and the left tabs, so that two stages fit side by
 *   side; without: ids of tabs that it has not
 */

const REST = 200; // milliseconds without a move after which others are told where the player is

/** One place where a record is shown. */
export class Stage {
  /** @param {HTMLElement} el @param {RunStore} store @param {Options} [options] */
  constructor(el, store, { live = false, compact = false, without = [], start = -1, send = null, rested = () => {}, heading } = {}) {
    this.store = store;
    this.live = live;
    this.send = send;
    this.rested = rested;
    /** @type {Cursor | null} */
    this.cursor = null;
    /** @type {Cursor | null} the one of `at` */
    this.other = null;
    /** @type {number | null} the step to go to once it is readable */
    this.wanted = start >= 0 ? start : null;
    /** @type {Pointer} what the mouse or the focus is on */
    this.hovered = null;
    /** @type {Pointer} what was clicked */
    this.pinned = null;
    /** @type {import("./selection.js").Selection | null} */
    this.selection = null;
    this.frame = this.pause = 0; // what was asked of the browser
    /** @type {Set<Element>} panels out of sight */
    this.away = new Set();
    /** @type {import("./views.js").View[]} views that show an earlier frame than the others */
    this.late = [];
    /** @type {Frame | null} what is drawn */
    this.drawn = null;
    this.resting = 0;
    this.acknowledged = -1;
    this.player = new Player({ goto: (step) => this.goto(step), live });
    this.title = heading ?? h("h2");
    this.title.classList.add("msgl-title");
    this.lamp = new Lamp();
    this.copy = new CopyPath();
    this.save = new SavePicture(this);
    this.strip = new PageStrip(this);
    this.requests = new Requests(this);
    this.tree = new Tree(this);
    const [ledger, handoffs, words] = [new Ledger(), new Handoffs(), new Words()];
    const { strip, requests, tree } = this;
    /** @type {import("./views.js").View[]} */
    this.views = [this.player, this.lamp, this.copy, strip, ledger, requests, tree, handoffs, words];
    /** @type {Dock[]} */
    this.docks = [];
    for (const side of /** @type {("left" | "right")[]} */ (compact ? ["left"] : ["left", "right"])) this.docks.push(new Dock(this, side, VIEWS.filter((kind) => kind.dock === side && !without.includes(kind.id))));
    this.waiting = h("p", { class: "msgl-nothing" }, "No step has been recorded yet. Run or step the engine, and it appears here.");
    if (compact) this.views = [this.player, this.lamp, strip, requests];
    this.body = compact ? arrangeFew([strip, requests, this.docks[0]]) : arrange({ strip, words, ledger, handoffs, requests, tree }, this.docks);
    this.head = h("div", { class: "msgl-top" }, h("div", { class: "msgl-head" }, this.title, this.lamp.el),
      h("div", { class: "msgl-tools" }, this.save.el, this.copy.el), this.player.el);
    this.root = h("div", { class: `msgl${compact ? " msgl-compact" : ""}`, tabindex: -1, role: "group", "aria-label": "a recorded run", "data-lm-suppress-shortcuts": "true" }, this.head, this.waiting, this.body);
    el.append(this.root);
    // below a page's own heading the views are its sections, below a title of this stage they are one level deeper
    if (heading) for (const panel of this.root.querySelectorAll("h3")) panel.setAttribute("aria-level", "2");

    this.root.addEventListener("keydown", (/** @type {KeyboardEvent} */ e) => this.key(e));
    for (const kind of ["pointerover", "focusin"]) this.root.addEventListener(kind, (/** @type {Event} */ e) => this._hover(e));
    this.root.addEventListener("pointerleave", () => this.point(null));
    this.root.addEventListener("click", (/** @type {Event} */ e) => this._click(e));
    this.resized = new ResizeObserver(() => this.redraw());
    this.resized.observe(this.root);
    this.sight = new IntersectionObserver((entries) => this._seen(entries), { rootMargin: "100px" });
    for (const { el } of [strip, ledger, handoffs, requests, tree, words, ...this.docks]) this.sight.observe(el);
    /** @type {any} */
    this.palette = null;
    this.restyle = () => {
      this.palette = null;
      this.redraw();
    };
    this.themed = new MutationObserver(this.restyle);
    this.themed.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class"] });
    this.media = matchMedia("(prefers-color-scheme: dark)");
    this.media.addEventListener("change", this.restyle);
    this.listen = (/** @type {"load" | "tail" | "more"} */ what) => this._changed(what);
    store.listeners.add(this.listen);
    this.tail = -1;
    clearTimeout(this.resting); // what the tabs show at first is no move
    this._changed("load");
  }

  close() {
    this.player.stop();
    cancelAnimationFrame(this.frame);
    cancelAnimationFrame(this.pause);
    clearTimeout(this.resting);
    this.store.listeners.delete(this.listen);
    this.resized.disconnect();
    this.sight.disconnect();
    this.themed.disconnect();
    this.media.removeEventListener("change", this.restyle);
    for (const dock of this.docks) dock.close();
    this.root.remove();
  }

  /** @param {"load" | "tail" | "more"} what */
  _changed(what) {
    const { store } = this;
    if (!store.ready) return this.redraw();
    const followed = this.live && (!this.cursor || this.cursor.step >= this.tail);
    if (what === "load") {
      // a record opens at the first step that did something, a live run at its newest
      const step = followed ? store.last : this.cursor?.step ?? store.first + 1;
      this.cursor = new Cursor(store, store.reaches(step) ? step : store.first);
      this.other = null;
    } else if (what === "tail" && followed && !this.player.timer) {
      /** @type {Cursor} */ (this.cursor).moveTo(store.last);
      this.rest();
    }
    this.tail = store.last;
    if (this.wanted !== null && store.reaches(this.wanted)) this.goto(this.wanted);
    this.redraw();
  }

  /** @param {number} step */
  goto(step) {
    if (!this.cursor || !this.store.reaches(step)) {
      this.wanted = step;
      return;
    }
    this.wanted = null;
    this.cursor.moveTo(step);
    this.player.step = this.cursor.step;
    this.rest();
    this.redraw();
  }

  /** Go and hold because somebody else did: what is said to others later does not come back to them.
   * @param {number | undefined} step @param {Pointer | undefined} pointer */
  look(step, pointer) {
    if (step !== undefined) this.goto(step);
    if (pointer !== undefined) this.pinned = pointer;
    clearTimeout(this.resting);
    this.redraw();
  }

  /** Once nothing has moved for a moment, tell others where the player is. */
  rest() {
    clearTimeout(this.resting);
    this.resting = window.setTimeout(() => this.rested(this), REST);
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
    this.rest();
    this.redraw();
  }

  /** Is there a tab of answers? */
  get answers() {
    return this.docks.some((dock) => dock.kinds.some((kind) => kind.id === "questions"));
  }

  /** Hold a request and show the answer to a question about it. @param {string} question its id @param {number} uid */
  ask(question, uid) {
    if (this.pinned?.kind !== "uid" || this.pinned.uid !== uid) this.pin({ kind: "uid", uid });
    for (const dock of this.docks) if (dock.show("questions")) /** @type {any} */ (dock.view).ask(question);
  }

  /** What is pointed at, or else held. @returns {Pointer} */
  get pointer() {
    return this.hovered ?? this.pinned;
  }

  /** The state after another step: good until the next call, and not to be changed. Null while it is not readable.
   * @param {number} step */
  at(step) {
    const { store } = this;
    if (!store.ready || !store.reaches(step)) return null;
    if (this.other) return this.other.moveTo(step);
    this.other = new Cursor(store, step);
    return this.other.state;
  }

  /** The end of an address that leads here. */
  get fragment() {
    return fragmentOf(this.cursor?.step ?? 0, this.pinned, this.docks.map((dock) => dock.shown).filter(Boolean));
  }

  /** Go where the end of an address leads. @param {string} fragment */
  follow(fragment) {
    const { step, pointer, views } = placeOf(fragment);
    for (const id of views) for (const dock of this.docks) dock.show(id);
    this.look(step, pointer);
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

  /** A key, pressed within the stage or meant for it: what is around a stage hands on those of the page's body.
   * @param {KeyboardEvent} event */
  key(event) {
    let done = this.player.key(event) || (forStage(event) && this.docks.some((dock) => dock.pressed(event.key)));
    if (event.key === "Escape" && (this.pinned || this.hovered)) {
      this.point(null);
      this.pin(null);
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
    this.selection = selectionOf(state, this.pointer);
    /** @type {Frame} */
    const frame = { store, state, step, entry, delta, kinds, counts: countKinds(kinds), pending: pendingPages(state), held: this.pinned, selection: this.selection,
      suspects: suspectsOf(state, entry ? entry.violations : []), changed, palette: this.palette,
      following: this.live && step === store.last };
    say(this.title, store.title || "A run of minisgl");
    this.drawn = frame;
    const open = this.docks.filter((dock) => dock.view); // their views come and go
    const [seen, late] = [false, true].map((away) => [...this.views.filter(({ el }) => this.away.has(el) === away),
      ...open.filter(({ el }) => this.away.has(el) === away).map((dock) => /** @type {import("./views.js").View} */ (dock.view))]);
    this.late = late;
    this._show(seen);
    if (late.length && !this.pause) this.pause = requestAnimationFrame(() => this._catchUp());
    const { dataset } = this.root;
    dataset.step = String(step);
    dataset.first = String(store.first);
    dataset.last = String(store.last);
    dataset.phase = entry ? entry.phase : "start";
    if (this.acknowledged !== store.last) {
      this.acknowledged = store.last;
      this.send?.({ kind: "drawn", step: store.last });
    }
  }

  /** Draw views, all of the same frame. @param {import("./views.js").View[]} views */
  _show(views) {
    const frame = /** @type {Frame} */ (this.drawn);
    for (const view of views) view.measure?.();
    for (const view of views) view.draw(frame);
    this._highlight(frame.selection);
    for (const view of views) view.settle?.();
  }

  /** What is out of sight is drawn in the first frame in which nothing moves. */
  _catchUp() {
    this.pause = 0;
    if (!this.frame) this.drawAll();
  }

  /** Let what is out of sight show the same frame as the rest. */
  drawAll() {
    const views = this.late;
    this.late = [];
    if (views.length) this._show(views);
  }

  /** @param {IntersectionObserverEntry[]} entries */
  _seen(entries) {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) this.away.delete(target);
      else this.away.add(target);
    }
    if (this.late.length && entries.some((entry) => entry.isIntersecting)) this.redraw();
  }

  /** Mark what belongs to the selection. @param {import("./selection.js").Selection | null} selection */
  _highlight(selection) {
    this.root.classList.toggle("msgl-pointing", selection !== null);
    if (!selection) {
      for (const el of this.root.querySelectorAll(".msgl-hi")) el.classList.remove("msgl-hi");
      return;
    }
    for (const el of this.root.querySelectorAll("[data-uid], [data-node], [data-pages]")) {
      let on = false;
      if (el.hasAttribute("data-node")) on = selection.nodes.has(Number(el.getAttribute("data-node")));
      else if (el.hasAttribute("data-uid")) on = selection.uids.has(Number(el.getAttribute("data-uid")));
      else on = (el.getAttribute("data-pages") ?? "").split(" ").some((/** @type {string} */ p) => p !== "" && selection.pages.has(Number(p)));
      el.classList.toggle("msgl-hi", on);
    }
  }
}

/** What of a pointer others are told: several pages at once are only pointed at. @param {Pointer} pointer */
function tellable(pointer) {
  return pointer?.kind === "pages" ? null : pointer;
}

/** Send to the kernel, if there still is one: the views go on without. @param {any} model @param {any} message */
function tell(model, message) {
  try {
    model.send(message);
  } catch {
    // it was restarted, and nobody hears
  }
}

/** @param {any} model @param {RunStore} store */
function readRecord(model, store) {
  const record = model.get("record"); // bytes; in a page base64
  const bytes = typeof record === "string" ? fromBase64(record) : record;
  if (bytes?.byteLength) void store.load(bytes);
}

export default () => {
  const store = new RunStore();
  /** @type {Set<Stage>} */
  const stages = new Set();
  return {
    /** @param {{model: any}} context */
    initialize({ model }) {
      readRecord(model, store);
      model.on("change:record", () => readRecord(model, store));
      model.on("msg:custom", (/** @type {any} */ message, /** @type {DataView[]} */ buffers) => {
        if (message?.kind === "tail" && !store.append(message, buffers)) tell(model, { kind: "resync" });
        else if (message?.kind === "answer") store.answered(message);
        else if (message?.kind === "look") for (const stage of stages) stage.look(message.step, message.selection);
      });
    },

    /** @param {{model: any, el: HTMLElement}} context */
    render({ model, el }) {
      const exported = model.get("exported");
      const stage = new Stage(el, store, {
        live: Boolean(model.get("live")),
        compact: Boolean(model.get("compact")),
        without: model.get("without") ?? [],
        start: model.get("start") ?? -1,
        send: exported ? null : (message) => tell(model, message),
        rested: exported ?? (({ cursor, pinned }) => cursor && tell(model, { kind: "looked", step: cursor.step, selection: tellable(pinned) })),
        heading: model.get("heading"),
      });
      stages.add(stage);
      if (store.ready && Number(model.get("length") ?? 0) > store.length) tell(model, { kind: "resync" });
      if (exported) /** @type {any} */ (el).stage = stage;
      return () => {
        stages.delete(stage);
        stage.close();
      };
    },

    /** What a page of its own puts around its stages; see panels.js. @param {HTMLElement} el @param {Stage[]} shown @param {any} data */
    surround: (el, shown, data) => new PANELS[/** @type {"tour"} */ (data.kind)](el, shown, data),
  };
};
