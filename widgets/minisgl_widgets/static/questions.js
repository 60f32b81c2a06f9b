// @ts-check
import { uidOf } from "./selection.js";
import { h, say, patch } from "./look.js";

/**
 * Questions and their answers: text, picture and numbers that Python made (`questions.py`). In a notebook the kernel is asked;
 * a page brings its answers along. Steps in an answer move the player, requests in it can be pointed at.
 */
export class Questions {
  static id = "questions";
  static title = "Questions";
  static dock = "right";

  /** @param {import("./stage.js").Stage} stage */
  constructor(stage) {
    this.stage = stage;
    this.question = "";
    this.uid = -1;
    this.edition = this.record = -1;
    this.known = 0; // requests in the list
    this.shown = ""; // what the answer below was made of
    this.asked = ""; // key of what the kernel was asked last; it drops what it was asked before
    this.given = stage.store.given;
    this.who = h("select", { class: "msgl-types msgl-who", "aria-label": "about which request", onchange: () => this._choose(Number(this.who.value)) });
    this.each = h("span", { class: "msgl-asks", role: "group", "aria-label": "questions about a request" });
    this.run = h("span", { class: "msgl-asks", role: "group", "aria-label": "questions about the run" });
    this.bar = h("div", { class: "msgl-askbar" }, this.who, this.each, this.run);
    this.again = h("button", { type: "button", class: "msgl-btn msgl-again", hidden: true, onclick: () => this._ask() }, "ask again");
    this.note = h("p", { class: "msgl-asknote", role: "status" });
    this.code = h("code");
    this.line = h("div", { class: "msgl-askline" }, this.note, this.code, this.again);
    this.answer = h("div", { class: "msgl-answer msgl-scroll", tabindex: 0, role: "region", "aria-label": "the answer" });
    this.el = h("div", { class: "msgl-dockview msgl-questions" }, this.bar, this.line, this.answer);
    const follow = (/** @type {Event} */ e) => {
      const cited = /** @type {Element} */ (e.target).closest("[data-step]");
      if (!cited || (e instanceof KeyboardEvent && e.key !== "Enter")) return;
      stage.goto(Number(cited.getAttribute("data-step")));
      e.stopPropagation();
    };
    for (const kind of ["click", "keydown"]) this.answer.addEventListener(kind, follow);
  }

  /** Show the answer to a question. @param {string} id */
  ask(id) {
    this.question = id;
    this.stage.redraw();
    this.el.closest("section")?.scrollIntoView({ block: "nearest" });
  }

  /** @param {number} uid */
  _choose(uid) {
    this.uid = uid;
    if (this.stage.pinned?.kind !== "uid" || this.stage.pinned.uid !== uid) this.stage.pin({ kind: "uid", uid });
  }

  /** Another record, or more requests. @param {import("./record.js").RunStore} store */
  _offer(store) {
    if (this.record !== store.record) this.known = 0;
    this.record = store.record;
    if (this.edition !== store.edition || !this.each.childElementCount) {
      this.edition = store.edition;
      const offer = (/** @type {boolean} */ each) => store.questions.filter((question) => question.each === each).map(({ id, title }) =>
        h("button", { type: "button", class: "msgl-btn msgl-askfor", "data-question": id, onclick: () => this.ask(id) }, title));
      patch(this.each, offer(true));
      patch(this.run, offer(false));
      this.question ||= store.questions[0]?.id ?? "";
    }
    if (this.known !== store.uids.length) {
      if (!this.known) this.who.replaceChildren();
      this.who.append(...store.uids.slice(this.known).map((uid) => h("option", { value: uid }, `request ${uid}`)));
      this.known = store.uids.length;
      if (!store.spans.has(this.uid)) this.uid = longestWait(store);
    }
  }

  /** Ask the kernel for what is to be shown. */
  _ask() {
    const { store, send } = this.stage;
    const question = store.questions.find(({ id }) => id === this.question);
    if (!question || !send) return;
    this.asked = this._key(question);
    send({ kind: "ask", id: question.id, uid: question.each ? this.uid : -1 });
    this.stage.redraw();
  }

  /** @param {{id: string, each: boolean}} question */
  _key({ id, each }) {
    return each ? `${id}:${this.uid}` : id;
  }

  /** @param {import("./stage.js").Frame} frame */
  draw({ store, held }) {
    this._offer(store);
    if (store.spans.has(uidOf(held))) this.uid = uidOf(held);
    if (this.who.value !== String(this.uid)) this.who.value = String(this.uid);
    for (const button of this.bar.querySelectorAll("[data-question]")) button.setAttribute("aria-pressed", String(button.dataset.question === this.question));
    const question = store.questions.find(({ id }) => id === this.question);
    if (!question || (question.each && this.uid < 0)) return this._show("", "Once there is a request, its answers appear here: why it waited, who kept it out, where its time went.", "");
    if (this.given !== store.given) this.asked = ""; // the record was sent again, and answers were lost
    this.given = store.given;
    const key = this._key(question);
    Object.assign(this.el.dataset, { question: question.id, uid: question.each ? this.uid : -1 });
    const given = store.answer(key);
    if (given) {
      const old = given.last < store.last;
      return this._show(`${key} ${given.last} ${given.html.length}`, old ? `As of step ${given.last}.` : "", given.html, old && this.stage.send !== null);
    }
    const code = question.code.replace("UID", String(this.uid));
    if (this.stage.send === null) return this._show(key, "This page does not bring that answer along; in Python:", "", false, code);
    if (this.asked === key) return this._show(key, "The kernel has been asked:", "", false, code);
    if (question.dear) return this._show(key, "It takes many replays of the run:", "", true, code);
    this._ask();
  }

  /** @param {string} shown @param {string} note @param {string} html @param {boolean} [again] may it be asked (again)?
   * @param {string} [code] the same in Python */
  _show(shown, note, html, again = false, code = "") {
    say(this.note, note);
    say(this.code, code);
    this.again.hidden = !again;
    this.line.hidden = !note && !again;
    say(this.again, html ? "ask again" : "ask");
    this.el.dataset.answered = String(html !== "");
    if (this.shown === shown && this.answer.childElementCount > 0 === (html !== "")) return;
    this.shown = shown;
    this.answer.innerHTML = html;
    this.answer.scrollTop = 0;
  }
}

/** The request that was longest in the queue, in steps; -1 if there is none. @param {import("./record.js").RunStore} store */
export function longestWait(store) {
  let longest = -1;
  let found = -1;
  for (const { uid, arrived, admitted, finished } of store.spans.values()) {
    const waited = (admitted >= 0 ? admitted : finished >= 0 ? finished : store.last) - arrived;
    if (waited > longest) [longest, found] = [waited, uid];
  }
  return found;
}
