// @ts-check
/** What the views share: how tokens, pages and requests look, and a few lines to build elements with. */

/** Why a request waits, by the verdict of its admission test, as in `minisgl.events.words`. @type {Record<string, string>} */
export const WAITS = { row: "no free row", budget: "this batch's prefill budget is used up", pages: "not enough pages", chunk: "an unfinished prompt goes first" };

const UID_COLOURS = 7; // --msgl-u0 .. --msgl-u6 in stage.css
const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "path", "rect", "text", "tspan", "circle", "line", "title", "defs", "pattern", "foreignObject"]);

/** Build an element: `h("b", {class: "x"}, "text", child)`. Null attributes and children are left out.
 * @param {string} tag @param {Record<string, any> | null} [attributes] @param {...any} children @returns {any} */
export function h(tag, attributes, ...children) {
  const el = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) el.addEventListener(name.slice(2), value);
    else el.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined && child !== false) el.append(child);
  return el;
}

/** Give an element these children; those it has already stay where they are, and the focus stays with the child of the
 * same `data-key`.
 * @param {Element} parent @param {...any} children */
export function patch(parent, ...children) {
  const root = /** @type {Document | ShadowRoot} */ (parent.getRootNode());
  const focused = root.activeElement && parent.contains(root.activeElement) ? root.activeElement.getAttribute("data-key") : null;
  let at = parent.firstChild;
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    if (child === at) at = at?.nextSibling ?? null;
    else parent.insertBefore(child, at);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
  if (focused !== null && !parent.contains(root.activeElement)) {
    /** @type {HTMLElement | null} */ (parent.querySelector(`[data-key="${focused}"]`))?.focus({ preventScroll: true });
  }
}

/** A panel with its heading. @param {string} name @param {string} heading @param {string} hint @param {...any} body */
export function panel(name, heading, hint, ...body) {
  const note = h("span", { class: "msgl-hint" }, hint);
  const el = h("section", { class: `msgl-panel msgl-${name}`, "aria-label": heading }, h("h3", null, heading, note), ...body);
  return { el, note };
}

/** Text that changes without moving anything. @param {Element} el @param {string} text */
export function say(el, text) {
  if (el.textContent !== text) el.textContent = text;
}

/** A panel's hint; where it is too long for its line, pointing at it shows the whole. @param {HTMLElement} el @param {string} text @param {string} [whole] */
export function hint(el, text, whole = text) {
  say(el, text);
  el.title = whole;
}

/** "1 page", "2 pages". @param {number} n @param {string} noun */
export function count(n, noun) {
  return `${n} ${noun}${n === 1 ? "" : "s"}`;
}

/** Numbers with runs shortened: 3-5, 9. @param {number[]} numbers */
export function ranges(numbers) {
  /** @type {number[][]} */
  const runs = [];
  for (const n of numbers) {
    const run = runs[runs.length - 1];
    if (run && n === run[1] + 1) run[1] = n;
    else runs.push([n, n]);
  }
  return runs.map(([a, b]) => (a === b ? `${a}` : `${a}-${b}`)).join(", ") || "none";
}

/** The colour of a request: an index into the palette; the pattern changes each time the palette is used up.
 * @param {number} uid */
export function uidLook(uid) {
  return { colour: uid % UID_COLOURS, pattern: Math.floor(uid / UID_COLOURS) % 3 };
}

/** A request's name tag, the same everywhere. @param {number} uid @param {string} [text] */
export function chip(uid, text) {
  const { colour, pattern } = uidLook(uid);
  return h("span", { class: `msgl-chip msgl-c${colour} msgl-p${pattern}`, "data-uid": uid, title: `request ${uid}` }, h("b", null, text ?? `${uid}`));
}

/** A hatching for SVG, to fill with `url(#id)`. @param {string} id @param {string} look the class of its lines @param {number} [crossed] 2: both ways */
export function svgHatch(id, look, crossed = 1) {
  return h("pattern", { id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, h("path", { class: look, d: crossed === 2 ? "M1 0V6M0 1H6" : "M1 0V6" }));
}

/** Before an id that stands for a text: white space that `visible` leaves alone, since no token says it. */
export const APART = "\u00a0";

/** What tokens say; ids where the text is not known. @param {Record<string, string>} texts @param {number[]} tokens */
export function textOf(texts, tokens) {
  let text = "";
  for (const token of tokens) {
    const known = texts[token];
    if (known !== undefined) text += known;
    else text += `${text && !text.endsWith(" ") ? APART : ""}#${token}`;
  }
  return text;
}

/** Make white space visible: all of it, or only what breaks lines. @param {string} text @param {boolean} [spaces] */
export function visible(text, spaces = false) {
  const broken = text.replace(/\r?\n/g, "⏎").replace(/\t/g, "⇥");
  return spaces ? broken.replace(/ /g, "␣") : broken;
}

/** Tokens as visible text of at most so many characters, the middle cut out; long lists are not read in full.
 * @param {Record<string, string>} texts @param {number[]} tokens @param {number} most @param {boolean} [spaces] */
export function clipped(texts, tokens, most, spaces = false) {
  if (tokens.length <= 2 * most) return middle(visible(textOf(texts, tokens), spaces), most);
  const head = visible(textOf(texts, tokens.slice(0, most)), spaces);
  const tail = visible(textOf(texts, tokens.slice(-most)), spaces);
  return middle(`${head}…${tail}`, most);
}

/** Cut the middle out of a long text. @param {string} text @param {number} most */
export function middle(text, most) {
  const chars = Array.from(text);
  if (chars.length <= most) return text;
  const head = Math.ceil((most - 1) / 2);
  return `${chars.slice(0, head).join("")}…${chars.slice(chars.length - (most - 1 - head)).join("")}`;
}

/** A colour from the style sheet, as [r, g, b]. @param {string} colour */
export function rgb(colour) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  return Array.from(context.getImageData(0, 0, 1, 1).data.subarray(0, 3));
}

/** Every colour that canvases need, read off the style sheet. @param {Element} root */
export function paletteOf(root) {
  const style = getComputedStyle(root);
  const read = (/** @type {string} */ name) => style.getPropertyValue(`--msgl-${name}`).trim();
  return {
    free: read("free"),
    soft: read("soft"),
    line: read("line"),
    ink: read("ink"),
    muted: read("muted"),
    bg: read("bg"),
    evictable: read("evictable"),
    evictableInk: read("evictable-ink"),
    protected: read("protected"),
    protectedInk: read("protected-ink"),
    focus: read("focus"),
    bad: read("bad"),
    prefill: read("prefill"),
    decode: read("decode"),
    uids: Array.from({ length: UID_COLOURS }, (_, i) => ({ fill: read(`u${i}`), ink: read(`u${i}-ink`) })),
  };
}

/** @type {WeakMap<any, Record<string, number> & {uids: number[]}>} */
const packedColours = new WeakMap();

/** A palette's colours as the 32-bit words of an ImageData. @param {any} palette as `paletteOf` gives it */
export function packedOf(palette) {
  let known = packedColours.get(palette);
  if (!known) {
    const pack = (/** @type {string} */ colour) => {
      const [r, g, b] = rgb(colour);
      return (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;
    };
    const { free, evictable, protected: locked, bg, soft, bad, uids } = palette;
    known = { free: pack(free), evictable: pack(evictable), protected: pack(locked), bg: pack(bg), soft: pack(soft), bad: pack(bad), uids: uids.map((/** @type {any} */ u) => pack(u.fill)) };
    packedColours.set(palette, known);
  }
  return known;
}
