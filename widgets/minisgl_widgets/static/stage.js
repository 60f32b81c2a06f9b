// @ts-check
/**
 * The stage: one player and the views it drives; `widget.js` makes them.
 *
 * What a view may use of the stage it is given (views.js says what it must have itself):
 *
 *     stage.goto(step)        move the player; a step that is not readable yet is gone to as soon as it is
 *     stage.point(pointer)    point at something for as long as the mouse is there; null: at nothing
 *     stage.pin(pointer)      hold it; again, or null, lets it go
 *     stage.pointer           what is pointed at, or else held (a Pointer, see selection.js)
 *     stage.selection         all that belongs to it: {pages, uids, nodes}, three Sets; or null
 *     stage.store             the run (RunStore, record.js): index columns, spans, entry(step), events(step), delta(step), changes()
 *     stage.beside            the store of the run that this one is compared with; or null
 *     stage.at(step)          the state after another step, to compare with; null while it is not readable. It is good
 *                             until the next call, and must not be changed
 *     stage.ask(question, uid)    show the answer to a question about a request in its tab, see questions.js
 *     stage.send(message)     tell the kernel; `stage.send` is null in an exported page
 *     stage.redraw()          draw in the next frame, for instance after the view was scrolled
 *
 * Elements with data-uid, data-node, data-on-page, or data-of with data-pages or data-token point at what they name without
 * further ado, and get the class msgl-hi while it is selected (a token while its page is, see tokens.js). A view draws `frame` and nothing else: it holds the state after the player's step.
 *
 * What a test, or a script, may rely on (numbers in pages unless they say otherwise):
 *
 *     .msgl           data-step, data-first, data-last, data-phase (prefill | decode | idle | start)
 *     .msgl-first .msgl-back .msgl-play .msgl-forward .msgl-last .msgl-live     buttons; .msgl-range the scrub bar
 *     .msgl-strip     data-free, data-owned, data-evictable, data-protected, data-pending (of the owned ones), data-suspects, data-dummy (its page); .msgl-cells the canvas, .msgl-tip its text
 *     .msgl-lamp      data-sound (true | false), data-violations
 *     .msgl-ledger    data-tests, data-since; each .msgl-test: data-uid, data-verdict, data-step, data-need, data-reserved,
 *                     data-free, data-evictable, data-pending, data-evictable-locked, data-available, data-available-locked
 *     .msgl-requests  data-waiting, data-running; each .msgl-request: data-uid, data-status, data-reason, data-matched,
 *                     data-output, data-prompt, data-cached-len (tokens), data-pages-held, data-pending, data-reserved, data-row;
 *                     in it .msgl-reads and .msgl-out, whose .msgl-token have data-of, data-token, data-end (the next one's number)
 *     .msgl-tree      data-nodes; each .msgl-node: data-node, data-locks, data-used, data-mark (new | split | hit | evicted); in it .msgl-token: data-on-page
 *     .msgl-handoff   data-handoffs, data-since; each .msgl-ho: data-uid, data-finished; each .msgl-hocell: data-segment, data-pages
 *     .msgl-words     li: the step's sentences
 *     .msgl-copy      code: the Python expression of what is held
 *     .msgl-dock      .msgl-tab: data-view, aria-selected; .msgl-dockbody: the view that is seen
 *     .msgl-breaks    data-steps (how many there are), data-at (which of them this step is; 0: none)
 *     .msgl-save-png .msgl-save-svg     buttons
 *     .msgl-lifelines data-step-from, -step-to, -page-from, -page-to (what is seen), data-drawn; .msgl-lifenote, of a page pointed at:
 *                     data-page, -step, -owner, -from, -to
 *     .msgl-eviction  data-policy, -asked, -free, -missing, -leaves, -pushed, -short, -order (nodes); each .msgl-leaf: data-node, -rank, -goes, -used, -uses, -held
 *     .msgl-capacity  data-model, -dtype, -page-size, -per-token, -page-bytes, -pages, -tokens, -bytes, -length, -each, -at-once, -left
 *     .msgl-pagetable data-rows, -taken, -per-page; each .msgl-tableline: data-row, -generation, -request, -entries; each .msgl-entry: data-at, -value, -kind
 *     .msgl-compare   data-a, -b, -came, -went, -moved; each .msgl-counter: data-counter, -before, -after; each .msgl-move: data-moved-request, or data-node and -what
 *     .msgl-timeline  .msgl-tl-row: data-uid, data-status (later | wait | prefill | decode | done, in the step); data-arrived, data-admitted,
 *                     data-first, data-finished (steps, -1: never); .msgl-tl-seg: data-kind, data-from, data-to (behind the last), data-reason
 *     .msgl-batches   data-prefill, data-decode (tokens), data-requests, data-budget
 *     .msgl-questions data-question, data-uid, data-answered; .msgl-cite in the answer: data-step, data-event
 *     .msgl-hi        whatever belongs to what is pointed at
 */
import { Cursor } from "./cursor.js";
import { Drawing } from "./drawing.js";
import { frameOf } from "./frame.js";
import { highlight, pointerOf } from "./pointing.js";
import { h, say, paletteOf } from "./look.js";
import { Player, forStage } from "./player.js";
import { PageStrip } from "./pages.js";
import { Ledger } from "./ledger.js";
import { Tree } from "./tree.js";
import { Handoffs } from "./handoff.js";
import { Requests } from "./requests.js";
import { Lamp } from "./lamp.js";
import { Words } from "./words.js";
import { SavePicture } from "./picture.js";
import { CopyPath, fragmentOf, placeOf } from "./path.js";
import { Dock, arrange, arrangeFew } from "./layout.js";
import { VIEWS } from "./views.js";

/**
 * @typedef {import("./selection.js").Pointer} Pointer
 * @typedef {import("./frame.js").Frame} Frame
 * @typedef {{live?: boolean, compact?: boolean, without?: string[], start?: number, send?: ((message: any) => void) | null, rested?: (stage: Stage) => void,
 *   heading?: HTMLElement}} Options compact: only pages, requests and the left tabs, so that two stages fit side by
 *   side; without: ids of tabs that it has not
 */

const REST = 200; // milliseconds without a move after which others are told where the player is

/** One place where a record is shown. */
export class Stage {
  /** @param {HTMLElement} el @param {import("./record.js").RunStore} store @param {Options} [options] */
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
    /** @type {import("./record.js").RunStore | null} the run that this one stands beside: what shows both has one scale */
    this.beside = null;
    this.drawing = new Drawing({ views: () => this._views(), make: () => this._frame(), mark: ({ selection }) => highlight(this.root, selection), drawn: (frame) => this._drawn(frame) });
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
    for (const { el } of [strip, ledger, handoffs, requests, tree, words, ...this.docks]) this.drawing.watch(el);
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
    this.drawing.close();
    clearTimeout(this.resting);
    this.store.listeners.delete(this.listen);
    this.resized.disconnect();
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

  /** Is the newest step of a live run shown, and so each that will be? */
  get following() {
    return this.live && this.cursor?.step === this.store.last;
  }

  /** No more steps will come. */
  over() {
    this.live = false;
    this.player.live.hidden = true;
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

  /** @param {Event} event */
  _hover(event) {
    if (event.target === this.strip.canvas) return;
    if (event.type === "focusin" && !(/** @type {Element} */ (event.target).matches(":focus-visible"))) return;
    this.point(pointerOf(event));
  }

  /** @param {Event} event */
  _click(event) {
    const pointer = pointerOf(event);
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
    } else if (event.key === "Enter" && pointerOf(event)) {
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
    this.drawing.request();
  }

  /** What there is to draw; null while no step is readable. */
  _frame() {
    const { store, cursor } = this;
    this.waiting.hidden = store.ready;
    this.body.hidden = this.head.hidden = !store.ready;
    this.root.classList.toggle("msgl-huge", store.numPages > 4096);
    if (!store.ready || !cursor) return null;
    this.palette ??= paletteOf(this.root);
    const frame = frameOf(cursor, { pointer: this.pointer, held: this.pinned, palette: this.palette, following: this.following });
    this.selection = frame.selection;
    say(this.title, store.title || "A run of minisgl");
    return frame;
  }

  /** @param {Frame} frame */
  _drawn({ store, step, entry }) {
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

  /** Every view there is, with the panel it is in. @returns {[Element, import("./views.js").View][]} */
  _views() {
    /** @type {[Element, import("./views.js").View][]} */
    const all = this.views.map((view) => [view.el, view]);
    for (const { el, view } of this.docks) if (view) all.push([el, view]);
    return all;
  }
}
