// @ts-check
/**
 * An anywidget module (AFM): the default export makes one definition per model, so that all views of a model share its
 * record and nothing else.
 */
import { RunStore } from "./record.js";
import { fromBase64 } from "./decode.js";
import { Stage } from "./stage.js";
import { PANELS } from "./panels.js";

/** What of a pointer others are told: several pages at once are only pointed at. @param {import("./selection.js").Pointer} pointer */
function tellable(pointer) {
  return pointer?.kind === "pages" ? null : pointer;
}

/** Send to the kernel, if there still is one: the views go on without. @param {any} model @param {any} message */
function tell(model, message) {
  try {
    model.send(message);
  } catch {
    // it was restarted, and nobody hears
  }
}

/** @param {any} model @param {RunStore} store */
function readRecord(model, store) {
  const record = model.get("record"); // bytes; in a page base64
  const bytes = typeof record === "string" ? fromBase64(record) : record;
  if (bytes?.byteLength) void store.load(bytes);
}

export default () => {
  const store = new RunStore();
  /** @type {Set<Stage>} */
  const stages = new Set();
  return {
    /** @param {{model: any}} context */
    initialize({ model }) {
      readRecord(model, store);
      model.on("change:record", () => readRecord(model, store));
      model.on("change:live", () => stages.forEach((stage) => stage.over()));
      model.on("msg:custom", (/** @type {any} */ message, /** @type {DataView[]} */ buffers) => {
        if (message?.kind === "tail" && !store.append(message, buffers)) tell(model, { kind: "resync" });
        else if (message?.kind === "answer") store.answered(message);
        else if (message?.kind === "look") for (const stage of stages) stage.look(message.step, message.selection);
      });
    },

    /** @param {{model: any, el: HTMLElement}} context */
    render({ model, el }) {
      const exported = model.get("exported");
      const stage = new Stage(el, store, {
        live: Boolean(model.get("live")),
        compact: Boolean(model.get("compact")),
        without: model.get("without") ?? [],
        start: model.get("start") ?? -1,
        send: exported ? null : (message) => tell(model, message),
        rested: exported ?? (({ cursor, pinned, following }) => cursor && tell(model, { kind: "looked", step: cursor.step, selection: tellable(pinned), following })),
        heading: model.get("heading"),
      });
      stages.add(stage);
      if (store.ready && Number(model.get("length") ?? 0) > store.length) tell(model, { kind: "resync" });
      if (exported) /** @type {any} */ (el).stage = stage;
      return () => {
        stages.delete(stage);
        stage.close();
      };
    },

    /** What a page of its own puts around its stages; see panels.js. @param {HTMLElement} el @param {Stage[]} shown @param {any} data */
    surround: (el, shown, data) => new PANELS[/** @type {"tour"} */ (data.kind)](el, shown, data),
  };
};
