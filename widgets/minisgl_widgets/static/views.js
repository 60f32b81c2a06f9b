// @ts-check
/**
 * The views that the tabs offer, in this order. Each is one file with one class:
 *
 *     static id       short and lasting: it stands in addresses (`view=chart`)
 *     static title    on its tab
 *     static dock     "left" or "right": the group of tabs it belongs to
 *     constructor(stage)    called when its tab is first chosen; what a view may use is described in stage.js
 *     el              its element; the dock gives it a fixed height, and it scrolls inside
 *     measure()       optional: reads sizes, before anything is drawn
 *     draw(frame)     draws a frame; called only while its tab is chosen, and while it is out of sight only once nothing moves
 *     settle()        optional: scrolls to what was drawn. Scrolling lays out the page, so nothing is drawn after it
 *     close()         optional: the stage goes away
 *     static key      optional: a key that shows the view and calls its pressed()
 */
import { Capacity } from "./capacity.js";
import { Chart } from "./chart.js";
import { LifeLines } from "./lifelines.js";
import { Compare } from "./compare.js";
import { EventLog } from "./events.js";
import { EvictionPreview } from "./eviction.js";
import { PageTable } from "./pagetable.js";
import { BatchStrip } from "./batch.js";
import { Questions } from "./questions.js";
import { Timeline } from "./timeline.js";

/**
 * @typedef {{el: HTMLElement, measure?: () => void, draw: (frame: import("./stage.js").Frame) => void, settle?: () => void, close?: () => void, pressed?: () => void}} View
 * @typedef {{id: string, title: string, dock: string, key?: string, new (stage: import("./stage.js").Stage): View}} ViewKind
 */

/** @type {ViewKind[]} */
export const VIEWS = [Chart, Timeline, LifeLines, Compare, Capacity, EventLog, BatchStrip, Questions, PageTable, EvictionPreview];
