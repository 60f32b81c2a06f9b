/** Reads a record that Python wrote: `node reads.mjs RECORD STEPS [TAIL...]`, the steps as a JSON list. Prints the state
 * after each step, in that order, then what the store knows besides. A TAIL is a JSON file of its message and its buffers in base64. */
import { readFileSync } from "node:fs";
import { load, plain } from "./modules.mjs";

const { RunStore } = await load("record.js");
const { Cursor } = await load("cursor.js");
const [record, steps, ...tails] = process.argv.slice(2);
const store = new RunStore();
await store.load(new Uint8Array(readFileSync(record)));
for (const file of tails) {
  const { message, buffers } = JSON.parse(readFileSync(file, "utf-8"));
  if (!store.append(message, buffers.map((text) => new Uint8Array(Buffer.from(text, "base64"))))) throw new Error(`${file} is missing something`);
}
const cursor = new Cursor(store, store.first);
for (const step of JSON.parse(steps)) console.log(JSON.stringify(plain(cursor.moveTo(step))));
const { title, texts, spans, extent, length, first, uids } = store;
const each = Array.from({ length }, (_, i) => store.entry(first + 1 + i));
const events = each.map(({ step }) => store.events(step));
const changes = Object.fromEntries(Object.entries(store.changes()).map(([name, values]) => [name, Array.from(values)]));
const index = Object.fromEntries(Object.entries(store.index).map(([name, values]) => [name, Array.from(values)]));
console.log(JSON.stringify({ title, texts, uids, spans: [...spans.values()], extent, each, events, changes, index, leaps: store.leaps.count, flags: store.flags }));
