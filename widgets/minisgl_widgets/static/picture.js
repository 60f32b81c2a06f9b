// @ts-check
/** The frame as a picture: a copy of the stage with its styles and its canvases inside, as SVG or, drawn by the browser, as PNG. */
import { h, say } from "./look.js";

const SHARP = 2; // pixels of a PNG for each of the page's, at least

/** The text of every style sheet that speaks of the stage. @param {Element} root */
function stylesFor(root) {
  const place = /** @type {Document | ShadowRoot} */ (root.getRootNode());
  const sheets = [...document.querySelectorAll("style"), ...(place === document ? [] : place.querySelectorAll("style"))];
  return sheets.map((sheet) => sheet.textContent ?? "").filter((text) => text.includes(".msgl")).join("\n");
}

/** The names of all variables that a style sheet's text gives a value to. @param {string} text */
export function variablesIn(text) {
  return [...new Set(Array.from(text.matchAll(/(--msgl-[\w-]+)\s*:/g), (m) => m[1]))];
}

/** The text without what no XML may hold, and a run's texts can: control characters and halves of characters. @param {string} text */
export function asXml(text) {
  return text.replace(/[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]|\p{Surrogate}/gu, "");
}

/** Make the copy of an element say what the element shows: a canvas is an image, a field has its value, what is scrolled
 * stands where it was scrolled to. @param {Element} from @param {Element} to */
function freeze(from, to) {
  const froms = [from, ...from.querySelectorAll("*")];
  const copies = [to, ...to.querySelectorAll("*")];
  froms.forEach((el, i) => {
    const copy = /** @type {HTMLElement} */ (copies[i]);
    if (el instanceof HTMLInputElement) copy.setAttribute("value", el.value);
    else if (el instanceof HTMLOptionElement) copy.toggleAttribute("selected", el.selected);
    else if (el instanceof HTMLCanvasElement) {
      const { width, height } = el.getBoundingClientRect();
      copy.replaceWith(h("img", { src: el.toDataURL(), class: el.getAttribute("class"), style: `${el.getAttribute("style") ?? ""};width:${width}px;height:${height}px` }));
    }
    if (el.scrollTop || el.scrollLeft) {
      copy.style.overflow = "hidden";
      for (const child of copy.children) /** @type {HTMLElement} */ (child).style.transform = `translate(${-el.scrollLeft}px, ${-el.scrollTop}px)`;
    }
  });
}

/** The stage as it is now, as the text of an SVG file that needs nothing else. @param {HTMLElement} root */
export function svgOf(root) {
  const { width, height } = root.getBoundingClientRect();
  const copy = /** @type {HTMLElement} */ (root.cloneNode(true));
  freeze(root, copy);
  const styles = stylesFor(root);
  const style = getComputedStyle(root);
  // an SVG does not know what the page or the system prefers: its colours are those of now
  for (const name of variablesIn(styles)) copy.style.setProperty(name, style.getPropertyValue(name));
  copy.style.width = `${width}px`;
  copy.style.margin = "0";
  copy.querySelector(".msgl-top")?.setAttribute("style", "position: static");
  for (const moving of copy.querySelectorAll(".msgl-moving")) moving.classList.remove("msgl-moving"); // a picture stands still
  const body = h("body", { style: `margin:0;padding:0;background:${style.getPropertyValue("--msgl-bg")}` }, h("style", null, styles), copy);
  const size = { width: Math.ceil(width), height: Math.ceil(height) };
  const svg = h("svg", { ...size, viewBox: `0 0 ${size.width} ${size.height}` }, h("foreignObject", size, body));
  return { text: asXml(new XMLSerializer().serializeToString(svg)), ...size };
}

/** The same as PNG. @param {{text: string, width: number, height: number}} picture @returns {Promise<Blob>} */
async function pngOf({ text, width, height }) {
  const sharp = Math.max(SHARP, window.devicePixelRatio || 1);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = width * sharp;
  canvas.height = height * sharp;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.scale(sharp, sharp);
  context.drawImage(image, 0, 0, width, height);
  return new Promise((done, fail) => canvas.toBlob((blob) => (blob ? done(blob) : fail(new Error("this browser cannot write PNG"))), "image/png"));
}

/** A file's name: what run, which step. @param {string} title @param {number} step @param {string} kind */
export function pictureName(title, step, kind) {
  const run = title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 40);
  return `${run || "minisgl"}-step-${step}.${kind}`;
}

/** The buttons that save the frame. */
export class SavePicture {
  /** @param {import("./stage.js").Stage} stage */
  constructor(stage) {
    this.stage = stage;
    this.done = h("span", { class: "msgl-sr", role: "status" });
    const button = (/** @type {"png" | "svg"} */ kind) =>
      h("button", { type: "button", class: `msgl-btn msgl-save-${kind}`, title: `Save this frame as ${kind.toUpperCase()}`, "aria-label": `Save this frame as ${kind.toUpperCase()}`, onclick: () => void this.save(kind) }, kind.toUpperCase());
    this.el = h("div", { class: "msgl-save", role: "group", "aria-label": "save picture" }, h("span", { "aria-hidden": "true" }, "save"), button("png"), button("svg"), this.done);
  }

  /** Save the frame to a file. @param {"png" | "svg"} kind */
  async save(kind) {
    const { stage } = this;
    const name = pictureName(stage.store.title, stage.cursor?.step ?? 0, kind);
    try {
      stage.drawing.finish();
      const picture = svgOf(stage.root);
      const blob = kind === "png" ? await pngOf(picture) : new Blob([picture.text], { type: "image/svg+xml" });
      const address = URL.createObjectURL(blob);
      h("a", { href: address, download: name }).click();
      setTimeout(() => URL.revokeObjectURL(address), 10_000);
      say(this.done, `saved ${name}`);
    } catch (error) {
      say(this.done, `not saved: ${error}`);
    }
  }
}
