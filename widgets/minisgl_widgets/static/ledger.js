// @ts-check
import { h, panel, patch, chip, uidLook, WAITS } from "./look.js";

const RULE = "need + promised ≤ free + evictable + pending";
const SHORT_RULE = "need + promised ≤ to be had";
const SHOWN = 16; // tests of one pass drawn; a pass can hold hundreds

/** Pages that could be had before and after the matched prefix is locked. @param {any} test */
export function availableOf(test) {
  if (test.free === null) return { before: null, after: null };
  const had = test.free + test.pending;
  return { before: had + test.evictable, after: test.evictable_locked === null ? null : had + test.evictable_locked };
}

/** A test's outcome: the verdict, its numbers (the bars have them too), another reason, and when it was, if not in this step.
 * @param {any} test @param {number} step the step being looked at */
function outcomeOf(test, step) {
  const { before, after } = availableOf(test);
  const yes = test.verdict === "admitted";
  const since = test.step < step ? ` (${yes ? "at" : "tested in"} step ${test.step})` : "";
  const said = yes ? "admitted" : "waits";
  if (!yes && test.verdict !== "pages") return { said, why: `: ${WAITS[test.verdict]}`, sums: "", since };
  const locked = yes || after === null || after === before ? "" : " once its prefix is locked";
  return { said, why: "", sums: `: needs ${test.need}, ${test.reserved} promised, ${after ?? before} in all${locked}`, since };
}

/** The same in one sentence. @param {any} test @param {number} step */
export function verdictOf(test, step) {
  const { said, why, sums, since } = outcomeOf(test, step);
  return said + why + sums + since;
}

/** The admission ledger: each test of the last pass as bars of pages, wanted against to be had. */
export class Ledger {
  constructor() {
    this.key = false;
    this.fresh = this.end = this.scrolled = false;
    this.list = h("div", { class: "msgl-tests msgl-scroll", tabindex: 0, role: "list", "aria-label": "admission tests" });
    const { el, note } = panel("ledger", "Admission", RULE, this.list);
    this.el = el;
    this.note = note;
    this.list.addEventListener("scroll", () => (this.scrolled = true));
  }

  /** @param {import("./stage.js").Frame} frame */
  draw({ state, store, step }) {
    const { tests } = state;
    this.list.style.setProperty("--rows", String(Math.max(1, Math.min(4, store.extent.tests))));
    const key = tests.length ? tests[0].step < step : false;
    if (this.tests === tests && this.key === key && this.asked === store.extent.asked) return;
    this.tests = tests;
    this.key = key;
    this.asked = store.extent.asked;
    this.el.dataset.tests = String(tests.length);
    this.el.dataset.since = tests.length ? String(tests[0].step) : "";
    const said = [tests.length > 1 ? `${tests.length} tests` : "", key ? `step ${tests[0].step}` : ""].filter(Boolean).join(", ");
    patch(this.note, said ? h("span", null, `${said}: `) : null, h("span", { class: "msgl-wide" }, RULE), h("span", { class: "msgl-narrow" }, SHORT_RULE));
    this.note.title = RULE;
    if (!tests.length) {
      patch(this.list, h("p", { class: "msgl-empty", role: "listitem" }, "No request has been tested yet."));
      return;
    }
    const scale = Math.max(state.num_pages, store.extent.asked);
    const left = tests.length - SHOWN;
    patch(this.list, left > 0 ? h("p", { class: "msgl-empty" }, `${left} earlier tests of this pass are left out`) : null,
      tests.slice(-SHOWN).map((/** @type {any} */ t) => this._test(t, step, scale)));
    const refused = tests[tests.length - 1].verdict !== "admitted"; // a refusal ends the pass, so it is the last
    this.end = refused && tests.length > 1;
    this.fresh = true;
  }

  /** What is new is seen from its beginning, or from the refusal at its end. */
  settle() {
    if (!this.fresh) return;
    this.fresh = false;
    if (this.end) this.list.scrollTop = this.list.scrollHeight;
    else if (this.scrolled) this.list.scrollTop = 0;
    this.scrolled = this.end;
  }

  /** @param {any} test @param {number} step @param {number} scale */
  _test(test, step, scale) {
    const { before, after } = availableOf(test);
    const yes = test.verdict === "admitted";
    const { need, free, evictable, pending, reserved } = test;
    const { said, why, sums, since } = outcomeOf(test, step);
    const head = h("div", { class: "msgl-verdict", title: verdictOf(test, step) }, chip(test.uid), h("i", { "aria-hidden": "true" }, yes ? "✓" : "✕"),
      h("span", { class: "msgl-said" }, said + why, sums ? h("span", { class: "msgl-sums" }, sums) : null), h("span", { class: "msgl-since" }, since.trim()));
    const el = h("div", { class: "msgl-test", role: "listitem", "data-uid": test.uid, "data-verdict": test.verdict, "data-step": test.step,
      "data-need": need, "data-reserved": reserved, "data-free": free, "data-evictable": evictable, "data-pending": pending,
      "data-evictable-locked": test.evictable_locked, "data-available": before, "data-available-locked": after }, head);
    if (need === null) {
      el.append(h("div", { class: "msgl-nobars" }, test.free_rows === 0 ? "0 free rows" : test.budget !== null ? `${test.budget} prefill tokens left` : "not tested for pages"));
      return el;
    }
    const asked = need + reserved;
    const { colour } = uidLook(test.uid);
    const mine = `msgl-c${colour}`;
    const bar = (/** @type {string} */ label, /** @type {[string, number][]} */ parts, /** @type {string} */ sum) =>
      h("div", { class: "msgl-bar" }, h("span", { class: "msgl-barname" }, label),
        h("div", { class: "msgl-rail" }, parts.map(([kind, n]) => n ? h("i", { class: `msgl-part ${kind === "need" ? mine : `msgl-b-${kind}`}`, style: `width:${(100 * n) / scale}%`, title: `${kind} ${n}` },
          h("b", null, n)) : null),
          label === "asked" ? null : h("u", { style: `left:${(100 * asked) / scale}%` })),
        h("span", { class: "msgl-sum" }, sum));
    el.append(bar("asked", [["need", need], ["promised", reserved]], `${need} + ${reserved} = ${asked}`));
    const fit = (/** @type {number} */ sum) => (asked <= sum ? `≥ ${asked}` : `< ${asked}`);
    el.append(bar("to be had", [["free", free], ["evictable", evictable], ["pending", pending]], `${before} ${fit(/** @type {number} */ (before))}`));
    if (test.matched) el.append(after === null
      ? h("div", { class: "msgl-bar msgl-off" }, h("span", { class: "msgl-barname" }, "once locked"), h("div", { class: "msgl-rail" }), h("span", { class: "msgl-sum" }, "not reached"))
      : bar("once locked", [["free", free], ["evictable", test.evictable_locked], ["pending", pending]], `${after} ${fit(after)}`));
    return el;
  }
}
