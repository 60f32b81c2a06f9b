// @ts-check
import { h, say, count, middle } from "./look.js";
import { fromBase64, partsOf, inflate } from "./decode.js";

const LONGEST_EVENT = 260; // characters of a sentence shown

/**
 * @typedef {{topic: string, kind: string, step: number, prompt: string, choices: string[], unit: string, answer: number,
 *   event: string, type: string, made: string, why: string, uid: number}} Question see minisgl_widgets/decisions.py
 * @typedef {{title: string, topic: string | null, seed: number, questions: Question[], pieces: (string | null)[]}} QuizData
 */

/** What an answer is worth, in words. @param {Question} question @param {number} given */
export function markOf(question, given) {
  const right = given === question.answer;
  if (right) return { right, said: "Right." };
  return { right, said: question.choices.length ? `Not so: it is ${question.answer + 1}.` : `Not so: it is ${count(question.answer, question.unit)}, not ${given}.` };
}

/** The line that a student shows. @param {QuizData} quiz @param {(boolean | null)[]} marks one a question; null: not answered */
export function resultOf({ title, topic, seed, questions }, marks) {
  const right = marks.filter((m) => m === true).length;
  const topics = [...new Set(questions.map((q) => q.topic))];
  const each = topics.map((t) => {
    const mine = marks.filter((_, i) => questions[i].topic === t);
    return `${t} ${mine.filter((m) => m === true).length}/${mine.length}`;
  });
  const left = marks.filter((m) => m === null).length;
  return `${right} of ${marks.length} right (${each.join(", ")})${left ? `, ${left} left` : ""}: ${title}${topic ? `, on ${topic}` : ""}, seed ${seed}`;
}

/** Add a piece of the record. @param {import("./record.js").RunStore} store @param {string} piece in base64 */
async function addPiece(store, piece) {
  const parts = partsOf(fromBase64(piece));
  for (const part of parts) await inflate(part);
  const named = parts.map(({ name, first, count: n }) => /** @type {[string, number, number]} */ ([name, first, n]));
  const { first, count: n } = parts[0];
  const fits = store.append({ first, count: n, parts: named }, parts.map((part) => /** @type {Uint8Array} */ (part.bytes)));
  if (!fits) throw new Error(`the run has ${store.length} steps, and what goes on after ${first} does not fit`);
}

/**
 * The quiz: asks, with the views before the decision; marks, with the views after it. The store knows no step that the
 * reader may not see yet, so neither player nor views can give anything away.
 *
 *     .msgl-quiz     data-question (from 0), data-state (ask | told | done), data-right, data-answered
 *     .msgl-choice   data-choice; after the answer data-mark (right | wrong) on the right one and on one that was wrong
 *     .msgl-verdict-line   data-right (true | false)
 */
export class Quiz {
  /** @param {HTMLElement} el @param {import("./stage.js").Stage[]} stages @param {QuizData} data */
  constructor(el, [stage], data) {
    this.stage = stage;
    this.data = data;
    this.at = 0; // the question
    this.state = "ask"; // ask: it waits for an answer; told: it has one; done: there are no more; busy: on its way to one of these
    this.piece = 0; // of the record, the next
    /** @type {(boolean | null)[]} */
    this.marks = data.questions.map(() => null);
    this.place = h("b", { class: "msgl-quizplace" });
    this.score = h("span", { class: "msgl-quizscore" });
    this.prompt = h("p", { class: "msgl-prompt", tabindex: -1 });
    this.choices = h("div", { class: "msgl-choices", role: "group", "aria-label": "answers" });
    this.verdict = h("div", { class: "msgl-marked", role: "status" });
    this.next = h("button", { type: "button", class: "msgl-btn msgl-goon", onclick: () => this.go() });
    this.el = h("section", { class: "msgl-quiz", "aria-label": "quiz" },
      h("div", { class: "msgl-quizhead" }, this.place, this.keys = h("span", { class: "msgl-hint" }, "keys 1 to 5 or a number and Enter answer; n goes on"), this.score, this.next),
      this.prompt, this.choices, this.verdict);
    stage.head.prepend(this.el);
    document.addEventListener("keydown", (e) => this._key(e), true); // before the stage, where n goes to a breakpoint
    if (stage.store.ready) this.ask();
    else {
      const ready = () => {
        if (!stage.store.ready) return;
        stage.store.listeners.delete(ready);
        this.ask();
      };
      stage.store.listeners.add(ready);
    }
  }

  /** @returns {Question} */
  get question() {
    return this.data.questions[this.at];
  }

  /** Give the views the next piece of the run. */
  async reveal() {
    const piece = this.data.pieces[this.piece++];
    if (piece) await addPiece(this.stage.store, piece);
  }

  ask() {
    const { question, stage } = this;
    this.state = "ask";
    stage.goto(question.step - 1);
    stage.look(undefined, question.uid >= 0 ? { kind: "uid", uid: question.uid } : null);
    say(this.prompt, question.prompt);
    this.verdict.replaceChildren();
    if (question.choices.length) {
      this.choices.replaceChildren(...question.choices.map((text, i) => h("button", { type: "button", class: "msgl-choice", "data-choice": i, onclick: () => this.answer(i) },
        h("kbd", null, i + 1), " ", text)));
    } else {
      const field = h("input", { type: "number", class: "msgl-field", min: 0, step: 1, inputmode: "numeric", "aria-label": `how many ${question.unit}s` });
      const form = h("form", { class: "msgl-numbered" }, field, ` ${question.unit}s `, h("button", { class: "msgl-btn" }, "Answer"));
      form.addEventListener("submit", (/** @type {Event} */ e) => {
        e.preventDefault();
        if (field.value !== "") this.answer(Number(field.value));
      });
      this.choices.replaceChildren(form);
    }
    this._head();
  }

  /** @param {number} given a choice's number from 0, or the number asked for */
  async answer(given) {
    if (this.state !== "ask") return;
    this.state = "busy";
    const { question } = this;
    const { right, said } = markOf(question, given);
    this.marks[this.at] = right;
    await this.reveal();
    this.state = "told";
    this.stage.goto(question.step);
    for (const button of this.choices.querySelectorAll("button, input")) button.disabled = true;
    for (const button of this.choices.querySelectorAll(".msgl-choice")) {
      const choice = Number(button.dataset.choice);
      if (choice === question.answer) button.dataset.mark = "right";
      else if (choice === given) button.dataset.mark = "wrong";
    }
    this.verdict.replaceChildren(
      h("p", { class: "msgl-verdict-line", "data-right": String(right) }, h("b", null, right ? "✓ " : "✕ ", said), ` The engine, in step ${question.step}: `, h("q", null, middle(question.event, LONGEST_EVENT))),
      h("p", { class: "msgl-because" }, question.why, " ", h("code", { title: "the function that made this event" }, question.made.split(".").slice(-2).join("."))));
    this._head();
    this.next.focus({ preventScroll: true });
  }

  /** On to the next question, or to the end. */
  async go() {
    if (this.state === "ask") this._head("Answer first.");
    if (this.state !== "told") return;
    this.state = "busy";
    await this.reveal();
    if (this.at + 1 < this.data.questions.length) {
      this.at++;
      this.ask();
      /** @type {HTMLElement} */ (this.choices.querySelector("input") ?? this.prompt).focus({ preventScroll: true });
      return;
    }
    this.state = "done";
    this.choices.replaceChildren();
    say(this.prompt, "That was the last question. All of the run is open now; these are the steps that you were asked about.");
    const result = resultOf(this.data, this.marks);
    this.keys.hidden = true;
    this.verdict.replaceChildren(h("p", { class: "msgl-result" }, h("b", null, result)),
      h("ol", { class: "msgl-asked" }, this.data.questions.map((q, i) => h("li", null, h("button", { type: "button", class: "msgl-btn", "data-right": String(this.marks[i]),
        onclick: () => this.stage.goto(q.step) }, `${this.marks[i] ? "✓" : "✕"} step ${q.step}: ${q.topic}`)))));
    this._head();
  }

  /** @param {string} [remark] */
  _head(remark) {
    const { questions } = this.data;
    const right = this.marks.filter((m) => m === true).length;
    const answered = this.marks.filter((m) => m !== null).length;
    const last = this.at + 1 === questions.length;
    say(this.place, this.state === "done" ? "Done" : `Question ${this.at + 1} of ${questions.length}: ${this.question.topic}`);
    say(this.score, remark ?? (answered ? `${right} of ${answered} right` : ""));
    say(this.next, this.state === "ask" ? "Next" : last ? "Result" : "Next");
    this.next.hidden = this.state === "done";
    this.next.setAttribute("aria-disabled", String(this.state !== "told"));
    Object.assign(this.el.dataset, { question: this.at, state: this.state, right, answered });
  }

  /** @param {KeyboardEvent} event */
  _key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const target = /** @type {HTMLElement} */ (event.target);
    if (target.matches?.("input:not([type=range]), select, textarea")) return;
    const choice = Number(event.key) - 1;
    if (event.key === "n") {
      event.stopPropagation();
      void this.go();
    } else if (this.state === "ask" && choice >= 0 && choice < this.question.choices.length) void this.answer(choice);
    else if (target === document.body) this.stage.key(event);
  }
}
