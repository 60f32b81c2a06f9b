import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./modules.mjs";

const { placesOf, placeAt, placeIn, timeOf } = await load("pair.js");
const { Quiz, markOf, resultOf } = await load("quiz.js");
const { paragraphsOf } = await load("tour.js");

test("on the clock of steps the shorter run waits at its end", () => {
  assert.deepEqual(placesOf([[0, 10, 20], [0, 5]], "step"), [[0, 0], [1, 1], [2, 1]]);
});

test("on the clock of time each stands at the last step that was over", () => {
  const places = placesOf([[0, 10, 20, 30], [0, 5, 20]], "time");
  assert.deepEqual(places, [[0, 0], [0, 1], [1, 1], [2, 2], [3, 2]]);
  assert.equal(placeAt(places, 0, 1), 2);
  assert.equal(placeAt(places, 1, 2), 3);
  assert.equal(placeAt(places, 0, 99), 4);
});

test("steps that take no time are passed over together", () => {
  assert.deepEqual(placesOf([[0, 0, 0, 4], [0, 4, 4]], "time"), [[0, 0], [2, 0], [3, 2]]);
  assert.deepEqual(placesOf([[0], [0]], "time"), [[0, 0]]);
});

test("an address means a place of the pair, not of one run", () => {
  const said = (text) => new URLSearchParams(text);
  const together = placesOf([[0, 10, 20, 30], [0, 5]], "step");
  const [long, short] = [[3, 3], [0, 0]];
  assert.equal(placeIn(together, said("step=2"), short), 2);
  assert.equal(placeIn(together, said("step=5&clock=step"), long), 2);
  assert.equal(placeIn(placesOf([[0, 5], [0, 10, 20, 30]], "step"), said("step=3"), short), 3, "the longer run is the right one");
  assert.equal(placeIn(together, said("step=99"), short), 3);
  assert.equal(placeIn(together, said("view=chart"), short), undefined);
  assert.equal(placeIn(together, said("step=x"), short), undefined);
  const places = placesOf([[0, 10, 20, 30], [0, 5, 12, 14, 20]], "time");
  for (const [place, [a, b]] of places.entries()) assert.equal(placeIn(places, said(`step=${a + 3}&beside=${b + 3}`), long), place);
  assert.deepEqual(places[placeIn(places, said("step=1&beside=4"), short)], [1, 1], "there is no such place: the first of the left run's");
});

test("ten thousand steps have their places at once", () => {
  const times = Array.from({ length: 10_001 }, (_, i) => i * 7);
  assert.equal(placesOf([times, times.map((t) => t + 3)], "time").length, 20_001);
});

test("a time is told in the unit that fits", () => {
  assert.equal(timeOf(27_400), "27 ms");
  assert.equal(timeOf(1_457_700), "1.46 s");
});

const choice = { topic: "admission", choices: ["in", "out"], answer: 1, unit: "" };
const number = { topic: "pages", choices: [], answer: 4, unit: "page" };

test("an answer is marked, and a wrong one is told the right one", () => {
  assert.deepEqual(markOf(choice, 1), { right: true, said: "Right." });
  assert.deepEqual(markOf(choice, 0), { right: false, said: "Not so: it is 2." });
  assert.deepEqual(markOf(number, 4), { right: true, said: "Right." });
  assert.deepEqual(markOf(number, 5), { right: false, said: "Not so: it is 4 pages, not 5." });
});

test("the result says how many, of which topics, and of which quiz", () => {
  const quiz = { title: "Five prompts", topic: null, seed: 3, questions: [choice, number, choice] };
  assert.equal(resultOf(quiz, [true, false, true]), "2 of 3 right (admission 2/2, pages 0/1): Five prompts, seed 3");
  assert.equal(resultOf({ ...quiz, topic: "pages" }, [true, false, null]), "1 of 3 right (admission 1/2, pages 0/1), 1 left: Five prompts, on pages, seed 3");
});

test("going on twice before the next piece is there goes on once, and gives no piece away", async () => {
  const questions = [choice, choice, choice];
  const quiz = Object.assign(Object.create(Quiz.prototype), {
    data: { questions, pieces: [null, null, null, null, null, null] }, at: 0, piece: 1, state: "told",
    choices: { querySelector: () => null }, prompt: { focus() {} },
    ask() {
      this.state = "ask";
    },
    _head() {},
  });
  await Promise.all([quiz.go(), quiz.go()]);
  assert.deepEqual([quiz.at, quiz.piece, quiz.state], [1, 2, "ask"]);
});

test("sentences stand in their paragraphs", () => {
  const some = [0, 0, 2].map((paragraph) => ({ paragraph, parts: [], place: "" }));
  assert.deepEqual(paragraphsOf(some).map((p) => p.map(([i]) => i)), [[0, 1], [2]]);
});
