// @ts-check
/** Where the views stand: the fixed part, and two docks, each a group of tabs that shows one view. */
import { h } from "./look.js";

let docks = 0; // so that ids are unique in a page of several stages

/** A group of tabs. Its size is the same whatever it shows. */
export class Dock {
  /** @param {import("./stage.js").Stage} stage @param {"left" | "right"} side @param {import("./views.js").ViewKind[]} kinds */
  constructor(stage, side, kinds) {
    this.stage = stage;
    this.kinds = kinds;
    const id = `msgl-dock-${docks++}`;
    /** @type {Map<string, import("./views.js").View>} those that were chosen once */
    this.made = new Map();
    this.tabs = kinds.map((kind) => h("button", { type: "button", class: "msgl-tab", role: "tab", id: `${id}-${kind.id}`, "aria-controls": id, "data-view": kind.id, "data-title": kind.title,
      onclick: () => this.show(kind.id) }, kind.title));
    this.body = h("div", { class: "msgl-dockbody", role: "tabpanel", id });
    this.list = h("div", { class: "msgl-tabs", role: "tablist", "aria-label": `more views, ${side}` }, this.tabs);
    this.list.addEventListener("keydown", (/** @type {KeyboardEvent} */ e) => this._key(e));
    this.el = h("section", { class: `msgl-panel msgl-dock msgl-dock-${side}`, hidden: !kinds.length, "aria-label": `more views, ${side}` }, this.list, this.body);
    this.shown = "";
    if (kinds.length) this.show(kinds[0].id);
  }

  /** The view that is seen. @returns {import("./views.js").View | undefined} */
  get view() {
    return this.made.get(this.shown);
  }

  /** Show a view of this dock; false if it has none of that id. @param {string} id */
  show(id) {
    const at = this.kinds.findIndex((kind) => kind.id === id);
    if (at < 0) return false;
    if (this.shown === id) return true;
    if (!this.made.has(id)) this.made.set(id, new this.kinds[at](this.stage));
    this.shown = id;
    this.body.replaceChildren(/** @type {import("./views.js").View} */ (this.view).el);
    for (const [i, tab] of this.tabs.entries()) {
      tab.setAttribute("aria-selected", String(i === at));
      tab.tabIndex = i === at ? 0 : -1;
    }
    this.body.setAttribute("aria-labelledby", this.tabs[at].id);
    this.stage.redraw();
    this.stage.rest();
    return true;
  }

  /** Is a key one of a view's? Then the view is shown and told. @param {string} key */
  pressed(key) {
    const kind = this.kinds.find((k) => k.key === key);
    if (!kind) return false;
    this.show(kind.id);
    this.view?.pressed?.();
    return true;
  }

  /** @param {KeyboardEvent} event */
  _key(event) {
    const at = this.kinds.findIndex((kind) => kind.id === this.shown);
    const n = this.kinds.length;
    const to = { ArrowLeft: at - 1 + n, ArrowRight: at + 1, Home: 0, End: n - 1 }[event.key];
    if (to === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    this.show(this.kinds[to % n].id);
    this.tabs[to % n].focus();
    event.preventDefault();
    event.stopPropagation();
  }

  close() {
    for (const view of this.made.values()) view.close?.();
  }
}

/** The body of a stage: what is always there, and below it the docks.
 * @param {Record<"strip" | "words" | "ledger" | "handoffs" | "requests" | "tree", {el: HTMLElement}>} fixed @param {Dock[]} sides */
export function arrange(fixed, sides) {
  return h("div", { class: "msgl-body" },
    h("div", { class: "msgl-column msgl-pool" }, fixed.strip.el, fixed.words.el), h("div", { class: "msgl-column" }, fixed.ledger.el, fixed.handoffs.el),
    fixed.requests.el, fixed.tree.el, h("div", { class: `msgl-docks${sides.every((dock) => dock.kinds.length) ? "" : " msgl-alone"}` }, sides.map((dock) => dock.el)));
}

/** The body of a stage that stands beside another one. @param {{el: HTMLElement}[]} views */
export function arrangeFew(views) {
  return h("div", { class: "msgl-body" }, views.map((view) => view.el));
}
