// @ts-check
/** Where something is: as a Python expression, and as the end of an address. */
import { h, say } from "./look.js";

/** The Python expression that gives what is held at a step, `trace` being the run. What is not there at that step is
 * left out of it. @param {any} state @param {import("./selection.js").Pointer} pointer */
export function pathOf(state, pointer) {
  const at = `trace.at(${state.step})`;
  if (!pointer) return at;
  if (pointer.kind === "page") return pointer.page === state.num_pages ? `${at}.pages.dummy` : `${at}.pages.owner[${pointer.page}]`;
  if (pointer.kind === "pages") return `${at}.pages.owner[[${pointer.pages.join(", ")}]]`;
  if (pointer.kind === "token" && pointer.uid in state.requests) {
    const k = Math.floor(pointer.at / state.page_size);
    return `${at}.requests[${pointer.uid}]${k < state.requests[pointer.uid].pages.length ? `.pages[${k}]` : ""}`;
  }
  if (pointer.kind === "token") return at;
  if (pointer.kind === "uid") return pointer.uid in state.requests ? `${at}.requests[${pointer.uid}]` : at;
  return pointer.node in state.nodes ? `${at}.tree[${pointer.node}]` : at;
}

/** The end of an address: `step=17&req=4&view=chart,events`. @param {number} step @param {import("./selection.js").Pointer} pointer
 * @param {string[]} views */
export function fragmentOf(step, pointer, views) {
  const parts = [`step=${step}`];
  if (pointer?.kind === "uid") parts.push(`req=${pointer.uid}`);
  else if (pointer?.kind === "token") parts.push(`req=${pointer.uid}`, `token=${pointer.at}`);
  else if (pointer?.kind === "page") parts.push(`page=${pointer.page}`);
  else if (pointer?.kind === "node") parts.push(`node=${pointer.node}`);
  if (views.length) parts.push(`view=${views.join(",")}`);
  return parts.join("&");
}

/** The other way round; what a fragment does not say is undefined. @param {string} fragment
 * @returns {{step?: number, pointer?: import("./selection.js").Pointer, views: string[]}} */
export function placeOf(fragment) {
  const said = new URLSearchParams(fragment.replace(/^#/, ""));
  const number = (/** @type {string} */ name) => (/^\d+$/.test(said.get(name) ?? "") ? Number(said.get(name)) : undefined);
  const [step, uid, token, page, node] = ["step", "req", "token", "page", "node"].map(number);
  /** @type {import("./selection.js").Pointer | undefined} */
  let pointer;
  if (uid !== undefined) pointer = token === undefined ? { kind: "uid", uid } : { kind: "token", uid, at: token };
  else if (page !== undefined) pointer = { kind: "page", page };
  else if (node !== undefined) pointer = { kind: "node", node };
  return { step, pointer, views: (said.get("view") ?? "").split(",").filter(Boolean) };
}

/** The button that copies the path of what is held. */
export class CopyPath {
  constructor() {
    this.text = h("code");
    this.done = h("span", { class: "msgl-sr", role: "status" });
    this.el = h("button", { type: "button", class: "msgl-btn msgl-copy", title: "Copy the Python expression of what is held (click something to hold it)", onclick: () => this.copy() },
      h("svg", { viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": "true" }, h("path", { d: "M2 2h8v2H4v6H2zM6 6h8v8H6z", fill: "currentColor" })), h("span", { class: "msgl-sr" }, "copy "), this.text, this.done);
  }

  async copy() {
    const text = this.text.textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // no clipboard for pages like this one: the older way needs a selection
      const field = h("textarea", { class: "msgl-sr" });
      field.value = text;
      this.el.after(field);
      field.select();
      document.execCommand("copy");
      field.remove();
      this.el.focus();
    }
    say(this.done, `copied ${text}`);
    this.el.classList.add("msgl-copied");
  }

  /** @param {import("./stage.js").Frame} frame */
  draw({ state, held }) {
    const path = pathOf(state, held);
    if (this.text.textContent === path) return;
    say(this.text, path);
    say(this.done, "");
    this.el.classList.remove("msgl-copied");
  }
}
