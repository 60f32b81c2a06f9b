/** What the preview says just before each eviction of a record: `node evicts.mjs RECORD ASKED`, ASKED being how many pages
 * were wanted each time, as a JSON list. Prints for each: the nodes that went, the order foretold, and what would be pushed out. */
import { readFileSync } from "node:fs";
import { load } from "./modules.mjs";

const { RunStore } = await load("record.js");
const { Cursor } = await load("cursor.js");
const { applyDelta, fresh } = await load("change.js");
const { evictionOrder, pushedOut } = await load("eviction.js");
const [record, wanted] = process.argv.slice(2);
const asked = JSON.parse(wanted);
const store = new RunStore();
await store.load(new Uint8Array(readFileSync(record)));
const cursor = new Cursor(store, store.first);
const goes = ([kind, path, , now]) => kind === "set" && path[0] === "nodes" && path.length === 2 && now === null;
const told = [];
for (let step = store.first + 1; step <= store.last; step++) {
  if (!(store.entry(step).flags & store.flag("eviction"))) continue;
  const state = fresh(cursor.moveTo(step - 1));
  let group = null;
  for (const change of store.delta(step)) {
    if (goes(change) && !group) {
      const order = evictionOrder(state.nodes, store.config.eviction);
      group = { step, gone: [], order, pushed: pushedOut(state.nodes, order, state.pages.owner.filter((who) => who === -1).length, asked[told.length]) };
      told.push(group);
    }
    if (goes(change)) group.gone.push(change[1][1]);
    else group = null;
    applyDelta(state, [change]);
  }
}
console.log(JSON.stringify(told));
