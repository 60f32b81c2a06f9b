import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./modules.mjs";

const asked = [];
Object.assign(globalThis, { IntersectionObserver: class {}, requestAnimationFrame: (draw) => asked.push(draw) });
const { Drawing } = await load("drawing.js");

test("a view out of sight waits while the player moves, and is let go when there is nothing to draw", () => {
  const [panel, drawn] = [{}, []];
  const frames = [{ step: 1 }, { step: 2 }, null];
  const view = { draw: ({ step }) => drawn.push(step) };
  const drawing = new Drawing({ views: () => [[panel, view]], make: () => frames.shift(), mark: () => {}, drawn: () => {} });
  drawing.request();
  asked.shift()();
  drawing._seen([{ target: panel, isIntersecting: false }]);
  drawing.request();
  asked.shift()();
  assert.deepEqual([drawn, drawing.late], [[1], [view]]);
  drawing.request();
  const [catchUp, draw] = asked.splice(0);
  draw();
  catchUp();
  assert.deepEqual([drawn, drawing.late], [[1], []]);
});
