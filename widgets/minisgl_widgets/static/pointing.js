// @ts-check
/** Elements point at what their attributes name: data-uid, data-node, data-on-page, or data-of with data-pages or data-token;
 * and they are marked while it is selected (tokens by tokens.js). */

/** What an element that the mouse or the focus is on names. @param {Event} event @returns {import("./selection.js").Pointer} */
export function pointerOf(event) {
  const target = /** @type {Element | null} */ (/** @type {Element} */ (event.target).closest?.("[data-uid], [data-node], [data-of], [data-on-page]"));
  if (!target) return null;
  if (target.hasAttribute("data-on-page")) return { kind: "page", page: Number(target.getAttribute("data-on-page")) };
  if (target.hasAttribute("data-token")) return { kind: "token", uid: Number(target.getAttribute("data-of")), at: Number(target.getAttribute("data-token")) };
  if (target.hasAttribute("data-node")) return { kind: "node", node: Number(target.getAttribute("data-node")) };
  if (target.hasAttribute("data-of")) {
    const pages = (target.getAttribute("data-pages") ?? "").split(" ").filter(Boolean).map(Number);
    return { kind: "pages", pages, uid: Number(target.getAttribute("data-of")) };
  }
  return { kind: "uid", uid: Number(target.getAttribute("data-uid")) };
}

/** Mark what belongs to the selection. @param {HTMLElement} root @param {import("./selection.js").Selection | null} selection */
export function highlight(root, selection) {
  root.classList.toggle("msgl-pointing", selection !== null);
  if (!selection) {
    for (const el of root.querySelectorAll(".msgl-hi")) el.classList.remove("msgl-hi");
    return;
  }
  for (const el of root.querySelectorAll("[data-uid], [data-node], [data-pages], [data-on-page]")) {
    let on = false;
    if (el.hasAttribute("data-node")) on = selection.nodes.has(Number(el.getAttribute("data-node")));
    else if (el.hasAttribute("data-on-page")) on = selection.pages.has(Number(el.getAttribute("data-on-page")));
    else if (el.hasAttribute("data-uid")) on = selection.uids.has(Number(el.getAttribute("data-uid")));
    else on = (el.getAttribute("data-pages") ?? "").split(" ").some((/** @type {string} */ p) => p !== "" && selection.pages.has(Number(p)));
    el.classList.toggle("msgl-hi", on);
  }
}
