/** The border with the kernel: what the module listens to and what it sends. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { initialState, load, recordOf, tailOf } from "./modules.mjs";

const { default: define } = await load("widget.js");

function kernel(record, traits = {}) {
  const handlers = {};
  const sent = [];
  const values = { record: record ? recordOf(record) : new Uint8Array(), length: record ? record.deltas.length : 0, ...traits };
  return {
    sent,
    model: { get: (name) => values[name], on: (name, fn) => (handlers[name] = fn), off() {}, send: (message) => sent.push(message) },
    set(name, value) {
      values[name] = value;
      handlers[`change:${name}`]?.();
    },
    message: (content, buffers = []) => handlers["msg:custom"](content, buffers),
  };
}

const deltas = (steps) => Array.from({ length: steps }, (_, i) => [["set", ["step"], i, i + 1]]);
const record = (steps) => ({ keyframe: initialState(), deltas: deltas(steps) });
const tail = (first, n) => tailOf(deltas(first + n), first, first + n);

test("a gap in the tail asks for the whole record, once per gap", () => {
  const k = kernel(record(2));
  define().initialize({ model: k.model });
  k.message(...tail(2, 1));
  assert.deepEqual(k.sent, []);
  k.message(...tail(5, 1));
  assert.deepEqual(k.sent, [{ kind: "resync" }]);
  k.set("record", recordOf(record(6)));
  k.message(...tail(6, 1));
  assert.deepEqual(k.sent, [{ kind: "resync" }]);
  k.message({ kind: "something new" });
});

test("a model without a record waits for one", () => {
  const k = kernel(null);
  define().initialize({ model: k.model });
  k.message(...tail(0, 1));
  assert.deepEqual(k.sent, [{ kind: "resync" }]);
});

test("two models share nothing", () => {
  const a = kernel(record(2));
  const b = kernel(record(5));
  define().initialize({ model: a.model });
  define().initialize({ model: b.model });
  a.message(...tail(2, 1));
  b.message(...tail(5, 1));
  assert.deepEqual([a.sent, b.sent], [[], []]);
});
