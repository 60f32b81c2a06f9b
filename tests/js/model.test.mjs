/** The border with the kernel: what the module listens to and what it sends. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { initialState, load, stepEntry } from "./modules.mjs";

const { default: define } = await load("stage.js");

function kernel(record, traits = {}) {
  const handlers = {};
  const sent = [];
  const values = { record: record ? JSON.stringify(record) : "", length: record ? record.deltas.length : 0, ...traits };
  return {
    sent,
    model: { get: (name) => values[name], on: (name, fn) => (handlers[name] = fn), off() {}, send: (message) => sent.push(message) },
    set(name, value) {
      values[name] = value;
      handlers[`change:${name}`]?.();
    },
    message: (content) => handlers["msg:custom"](content),
  };
}

const record = (steps) => ({
  version: 2, title: "t", texts: {}, keyframe: initialState(),
  deltas: Array.from({ length: steps }, (_, i) => [["set", ["step"], i, i + 1]]), steps: Array.from({ length: steps }, (_, i) => stepEntry(i + 1)),
});
const tail = (first, n) => ({ kind: "tail", first, texts: {}, deltas: Array.from({ length: n }, (_, i) => [["set", ["step"], first + i, first + i + 1]]),
  steps: Array.from({ length: n }, (_, i) => stepEntry(first + i + 1)) });

test("a gap in the tail asks for the whole record, once per gap", () => {
  const k = kernel(record(2));
  define().initialize({ model: k.model });
  k.message(tail(2, 1));
  assert.deepEqual(k.sent, []);
  k.message(tail(5, 1));
  assert.deepEqual(k.sent, [{ kind: "resync" }]);
  k.set("record", JSON.stringify(record(6)));
  k.message(tail(6, 1));
  assert.deepEqual(k.sent, [{ kind: "resync" }]);
  k.message({ kind: "something new" });
});

test("a model without a record waits for one", () => {
  const k = kernel(null);
  define().initialize({ model: k.model });
  k.message(tail(0, 1));
  assert.deepEqual(k.sent, [{ kind: "resync" }]);
});

test("two models share nothing", () => {
  const a = kernel(record(2));
  const b = kernel(record(5));
  define().initialize({ model: a.model });
  define().initialize({ model: b.model });
  a.message(tail(2, 1));
  b.message(tail(5, 1));
  assert.deepEqual([a.sent, b.sent], [[], []]);
});
