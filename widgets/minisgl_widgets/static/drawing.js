// @ts-check
/**
 * When views draw: all of the same frame, in the browser's next one. While the player moves, those that nobody sees wait for
 * the first frame in which it does not: scrubbing costs what is seen of it.
 *
 * @typedef {import("./views.js").View} View
 * @typedef {import("./frame.js").Frame} Frame
 */

const MARGIN = "100px"; // around what is seen

export class Drawing {
  /** @param {{views: () => [Element, View][], make: () => Frame | null, mark: (frame: Frame) => void, drawn: (frame: Frame) => void}} stage
   *   views: each with the panel that is seen or not; make: null while there is nothing to draw; mark: once views have drawn,
   *   drawn: once those that are seen have */
  constructor(stage) {
    this.stage = stage;
    this.next = this.pause = 0; // what was asked of the browser
    /** @type {Frame | null} */
    this.frame = null;
    /** @type {View[]} views that show an earlier frame */
    this.late = [];
    /** @type {Set<Element>} panels out of sight */
    this.away = new Set();
    this.sight = new IntersectionObserver((entries) => this._seen(entries), { rootMargin: MARGIN });
  }

  /** Look after a panel; others are taken as seen. @param {Element} panel */
  watch(panel) {
    this.sight.observe(panel);
  }

  close() {
    cancelAnimationFrame(this.next);
    cancelAnimationFrame(this.pause);
    this.sight.disconnect();
  }

  /** Draw in the next frame, once. */
  request() {
    if (!this.next) this.next = requestAnimationFrame(() => this._draw());
  }

  /** Draw what is still to be drawn, seen or not. */
  finish() {
    if (this.next) {
      cancelAnimationFrame(this.next);
      this._draw();
    }
    const { late } = this;
    this.late = [];
    if (late.length) this._show(late);
  }

  _draw() {
    this.next = 0;
    const before = this.frame?.step;
    this.frame = this.stage.make();
    if (!this.frame) {
      this.late = []; // there is no frame any more that they could show
      return;
    }
    const moves = this.frame.step !== before;
    /** @type {View[]} */
    const seen = [];
    this.late = [];
    for (const [panel, view] of this.stage.views()) (moves && this.away.has(panel) ? this.late : seen).push(view);
    this._show(seen);
    this.stage.drawn(this.frame);
    if (this.late.length && !this.pause) this.pause = requestAnimationFrame(() => this._catchUp());
  }

  _catchUp() {
    this.pause = 0;
    if (!this.next) this.finish(); // else it is drawn with the rest, or the player moves on
  }

  /** @param {View[]} views */
  _show(views) {
    const frame = /** @type {Frame} */ (this.frame);
    for (const view of views) view.measure?.();
    for (const view of views) view.draw(frame);
    this.stage.mark(frame);
    for (const view of views) view.settle?.();
  }

  /** @param {IntersectionObserverEntry[]} entries */
  _seen(entries) {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) this.away.delete(target);
      else this.away.add(target);
    }
    if (this.late.length) this.request();
  }
}
