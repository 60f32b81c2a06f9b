// @ts-check
/** Texts of tokens, cut into the pages that hold them, so that a token can be pointed at, and a page in a text. */
import { APART, h, visible } from "./look.js";

/**
 * @typedef {{start: number, end: number, text: string, gap: boolean}} Piece tokens [start, end), which one page holds; or
 *   those that did not fit and stand behind "…"
 */

/** What one token says, as characters. @param {Record<string, string>} texts @param {number} token @param {boolean} first of its text
 * @param {boolean} spaces make them visible */
function charsOf(texts, token, first, spaces) {
  return Array.from(visible(texts[token] ?? `${first ? "" : APART}#${token}`, spaces));
}

/** How many characters tokens [from, to) take; `most` if it is more: long lists are not read in full.
 * @param {Record<string, string>} texts @param {number[]} tokens @param {number} from @param {number} to @param {number} most */
export function lengthOf(texts, tokens, from, to, most) {
  let length = 0;
  for (let i = from; i < to && length < most; i++) length += charsOf(texts, tokens[i], i === from, false).length;
  return Math.min(length, most);
}

/**
 * Tokens [from, to) as text of at most so many characters, the middle cut out, in pieces of a page each.
 * @param {Record<string, string>} texts @param {number[]} tokens @param {number} from @param {number} to
 * @param {number} pageSize @param {number} most @param {boolean} [spaces] make them visible
 * @returns {Piece[]}
 */
export function piecesOf(texts, tokens, from, to, pageSize, most, spaces = false) {
  /** @type {Piece[]} */
  const pieces = [];
  const chars = (/** @type {number} */ i) => charsOf(texts, tokens[i], i === from, spaces);
  const add = (/** @type {number} */ i, /** @type {string} */ text) => {
    const last = pieces[pieces.length - 1];
    if (last && !last.gap && Math.floor(last.start / pageSize) === Math.floor(i / pageSize)) {
      last.end = i + 1;
      last.text += text;
    } else pieces.push({ start: i, end: i + 1, text, gap: false });
  };
  const whole = lengthOf(texts, tokens, from, to, most + 1) <= most;
  let at = from;
  for (let room = whole ? most : Math.ceil((most - 1) / 2); at < to && (whole || room > 0); at++) {
    const said = chars(at);
    add(at, said.slice(0, room).join(""));
    room -= said.length;
  }
  if (whole) return pieces;
  /** @type {[number, string][]} */
  const tail = [];
  let back = to;
  for (let room = Math.floor((most - 1) / 2); back > from && room > 0; ) {
    const said = chars(--back);
    tail.push([back, said.slice(-room).join("")]);
    room -= said.length;
  }
  pieces.push({ start: at, end: Math.max(at, back), text: "…", gap: true });
  for (const [i, text] of tail.reverse()) add(i, text);
  return pieces;
}

/** Pieces of a request's text: each can be pointed at. @param {number} uid @param {Piece[]} pieces */
export function tokenSpans(uid, pieces) {
  return pieces.map(({ start, end, text, gap }) =>
    h("span", { class: "msgl-token", "data-of": gap ? null : uid, "data-token": start, "data-end": end }, text));
}

/** Mark the pieces whose pages are selected; `pages` are the request's. @param {Element} text @param {number[]} pages @param {number} pageSize
 * @param {Set<number> | null} selected */
export function markTokens(text, pages, pageSize, selected) {
  for (const piece of text.querySelectorAll(".msgl-token")) {
    const [start, end] = ["data-token", "data-end"].map((name) => Number(piece.getAttribute(name)));
    let on = false;
    if (selected) for (let k = Math.floor(start / pageSize); !on && k * pageSize < end && k < pages.length; k++) on = selected.has(pages[k]);
    piece.classList.toggle("msgl-hi", on);
  }
}
