// @ts-check
import { h, say, patch, count } from "./look.js";

const GIB_BYTES = 2 ** 30;
const MOST_SHARES = 60; // requests that the bar tells apart

/**
 * @typedef {{name: string, layers: number, kv_heads: number, head_dim: number, params: number, int8_bytes: number}} Model 0: not known
 * @typedef {"gib" | "pages" | "tokens" | "requests"} Given what says how large the pool is
 * @typedef {{pageSize: number, length: number, given: Given, value: number}} Wish `length`: prompt and new tokens of a request
 * @typedef {{perToken: number, pageBytes: number, each: number, pages: number, tokens: number, bytes: number, atOnce: number, left: number}} Figures
 *   `each`: pages of a request in the worst case; `left`: pages beside those of the `atOnce` requests
 */

/** Bytes per token, and from there to pages, tokens and requests: what `minisgl.size` says, to the byte.
 * @param {Model} model @param {number} width bytes of a number @param {Wish} wish @returns {Figures} */
export function capacityOf(model, width, { pageSize, length, given, value }) {
  const perToken = 2 * model.layers * model.kv_heads * model.head_dim * width;
  const pageBytes = perToken * pageSize;
  const each = Math.ceil(length / pageSize);
  const pages = { gib: () => Math.floor(Math.floor(value * GIB_BYTES) / pageBytes), pages: () => value, tokens: () => Math.ceil(value / pageSize), requests: () => value * each }[given]();
  const atOnce = Math.floor(pages / each);
  return { perToken, pageBytes, each, pages, tokens: pages * pageSize, bytes: pages * pageBytes, atOnce, left: pages - atOnce * each };
}

/** What is wrong with a number that was given; "" if nothing. @param {string} what @param {number} value */
export function wrongNumber(what, value) {
  if (what === "gib") return Number.isFinite(value) && value > 0 ? "" : "GiB: a number above 0";
  return Number.isInteger(value) && value >= 1 ? "" : `${what}: a whole number of at least 1`;
}

/** The same question to Python. @param {string} who the model, as Python has it @param {string} dtype @param {Wish} wish @param {Figures} capacity */
export function sizeCode(who, dtype, { pageSize, length, given, value }, { pages, pageBytes }) {
  const pool = given === "gib" ? `gib=${value}` : given === "requests" ? `requests=${value}` : `gib=${pages} * ${pageBytes} / 2**30`;
  return `size(${who}, ${pool}, page_size=${pageSize}, length=${length}, dtype="${dtype}")`;
}

/** GiB in as few digits as say something. @param {number} bytes */
function gibOf(bytes) {
  return String(Number((bytes / GIB_BYTES).toPrecision(4)));
}

/** A number with its thousands apart. @param {number} n */
function grouped(n) {
  return String(n).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** Capacity card: how much a KV pool holds, in GiB, pages, tokens and requests; whichever is given, the others follow. */
export class Capacity {
  static id = "capacity";
  static title = "Capacity";
  static dock = "left";

  /** @param {import("./stage.js").Stage} stage */
  constructor(stage) {
    this.stage = stage;
    this.record = -1;
    /** @type {Wish} */
    this.wish = { pageSize: 1, length: 1, given: "pages", value: 1 };
    this.dtype = "bfloat16";
    this.model = h("select", { class: "msgl-types", "aria-label": "model", onchange: () => this._show() });
    this.width = h("select", { class: "msgl-types", "aria-label": "type of the KV's numbers", onchange: () => this._choose(this.width.value) });
    const field = (/** @type {string} */ name, /** @type {string} */ label) =>
      h("input", { type: "number", class: `msgl-capfield msgl-cap-${name}`, min: name === "gib" ? 0 : 1, step: name === "gib" ? "any" : 1, "aria-label": label, oninput: () => this._give(name) });
    /** @type {Record<string, HTMLInputElement>} */
    this.fields = {
      gib: field("gib", "GiB of the pool"), pages: field("pages", "pages of the pool"), tokens: field("tokens", "tokens that the pool holds"),
      requests: field("requests", "requests at once"), length: field("length", "tokens of a request, prompt and output"), pageSize: field("pageSize", "tokens in a page"),
    };
    const { gib, pages, tokens, requests, length, pageSize } = this.fields;
    this.formula = h("p", { class: "msgl-capformula" });
    const box = (/** @type {string} */ name, /** @type {HTMLInputElement} */ input) => h("label", { class: "msgl-capbox" }, input, h("span", null, name));
    const sign = (/** @type {string} */ said) => h("span", { class: "msgl-capsign", "aria-hidden": "true" }, said);
    this.chain = h("div", { class: "msgl-capchain", role: "group", "aria-label": "the pool: change any of them, and the others follow" },
      box("GiB", gib), sign("="), box("pages", pages), sign("="), box("tokens", tokens), sign("≥"), box("requests", requests), sign("of"), box("tokens each", length));
    this.bar = h("div", { class: "msgl-capbar", role: "img" });
    this.said = h("p", { class: "msgl-capsaid", role: "status" });
    this.beside = h("p", { class: "msgl-capbeside" });
    this.code = h("code", { class: "msgl-capcode", tabindex: 0, "aria-label": "the same in Python" });
    this.el = h("div", { class: "msgl-dockview msgl-capacity msgl-scroll", tabindex: 0, role: "group", "aria-label": "capacity card" },
      h("div", { class: "msgl-capwho" }, this.model, this.width, h("label", null, "pages of ", pageSize, " tokens")),
      this.formula, this.chain, this.bar, this.said, this.beside, this.code);
  }

  /** The run's own numbers, and its longest request. @param {import("./record.js").RunStore} store */
  _begin(store) {
    this.record = store.record;
    const { models, own, bytes } = store.sizing;
    this.model.replaceChildren(...models.map(({ name }, i) => h("option", { value: i }, own && i === 0 ? `${name} (this run's)` : name)));
    this.width.replaceChildren(...Object.keys(bytes).map((dtype) => h("option", { value: dtype }, dtype)));
    const { dtype, max_seq_len } = store.config;
    this.dtype = this.width.value = dtype in bytes ? dtype : "bfloat16";
    const pool = store.numPages * store.pageSize;
    const longest = Object.values(this.stage.at(store.last).requests).reduce((most, r) => Math.max(most, r.prompt.length + r.max_tokens), 0);
    this.wish = { pageSize: store.pageSize, length: longest || Math.min(max_seq_len ?? pool, pool), given: "pages", value: store.numPages };
    for (const input of Object.values(this.fields)) input.value = "";
    this._show();
  }

  /** @param {string} dtype */
  _choose(dtype) {
    this.dtype = dtype;
    this._show();
  }

  /** Take the number in a field. @param {string} name */
  _give(name) {
    const input = this.fields[name];
    const value = input.value === "" ? NaN : Number(input.value);
    const wrong = wrongNumber({ length: "length", pageSize: "page size" }[name] ?? name, value);
    input.setAttribute("aria-invalid", String(wrong !== ""));
    if (wrong) return void say(this.said, wrong);
    if (name === "length" || name === "pageSize") this.wish[name] = value;
    else Object.assign(this.wish, { given: name, value });
    this._show(input);
  }

  /** @param {HTMLInputElement | null} [typed] the field that is being written in: it is left alone */
  _show(typed = null) {
    const { models, bytes, own } = this.stage.store.sizing;
    const model = models[Number(this.model.value)];
    if (!model) return;
    const { wish, dtype, fields } = this;
    const found = capacityOf(model, bytes[dtype], wish);
    const { perToken, pageBytes, each, pages, tokens, atOnce, left } = found;
    const exact = wish.given === "gib" ? String(wish.value) : gibOf(found.bytes);
    const shown = { gib: exact, pages, tokens: wish.given === "tokens" ? wish.value : tokens, requests: wish.given === "requests" ? wish.value : atOnce, length: wish.length, pageSize: wish.pageSize };
    for (const [name, value] of Object.entries(shown)) {
      const input = fields[name];
      if (input === typed) continue;
      input.value = String(value);
      input.removeAttribute("aria-invalid");
    }
    for (const name of ["gib", "pages", "tokens", "requests"]) fields[name].classList.toggle("msgl-given", name === wish.given);
    say(this.formula, `A token's KV: 2 × ${model.layers} layers × ${model.kv_heads} KV heads × ${model.head_dim} × ${count(bytes[dtype], "byte")} = ${grouped(perToken)} bytes; a page of ${count(wish.pageSize, "token")}: ${grouped(pageBytes)}.`);
    const rest = left ? `, ${grouped(left)} ${left === 1 ? "page" : "pages"} left` : "";
    say(this.said, `${grouped(atOnce)} ${atOnce === 1 ? "request" : "requests"} at once, each of ${grouped(each)} ${each === 1 ? "page" : "pages"} in the worst case${rest}.`);
    const int8 = own && model === models[0] && this.stage.store.config.quantize === "int8";
    const scales = model.int8_bytes ? " (int8, with their scales)" : " (int8; their scales come on top)";
    const taken = int8 ? model.int8_bytes || model.params : model.params * bytes[dtype];
    const weights = model.params ? `${(taken / GIB_BYTES).toFixed(2)} GiB of weights${int8 ? scales : ""}` : "the weights";
    say(this.beside, `Not part of it: ${weights}, and the activations of a batch.${own ? "" : " The record does not say its model."}`);
    say(this.code, sizeCode(own && model === models[0] ? "trace" : `"${model.name}"`, dtype, wish, found));
    this._drawBar(found);
    Object.assign(this.el.dataset, { model: model.name, dtype, pageSize: wish.pageSize, length: wish.length, ...found });
  }

  /** The pool, cut into requests. @param {Figures} capacity */
  _drawBar({ pages, each, atOnce, left }) {
    const share = (/** @type {number} */ n) => `width:${(100 * n) / Math.max(1, pages)}%`;
    const shares = atOnce > MOST_SHARES ? [h("i", { class: "msgl-capshare", style: share(atOnce * each) }, h("b", null, grouped(atOnce)))]
      : Array.from({ length: atOnce }, (_, i) => h("i", { class: "msgl-capshare", style: share(each) }, h("b", null, i + 1)));
    patch(this.bar, shares, left ? h("i", { class: "msgl-capleft", style: share(left) }, h("b", null, "left")) : null);
    this.bar.setAttribute("aria-label", `the pool of ${count(pages, "page")}: ${count(atOnce, "request")} of ${count(each, "page")}, ${count(left, "page")} left`);
  }

  /** @param {import("./stage.js").Frame} frame */
  draw({ store }) {
    if (this.record !== store.record && store.reaches(store.last)) this._begin(store);
  }
}
