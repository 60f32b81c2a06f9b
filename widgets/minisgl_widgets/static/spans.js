// @ts-check
/**
 * The lives of requests, and why those that wait do so. Known for the whole run at once, whatever step is looked at.
 *
 * @typedef {{uid: number, before: boolean, arrived: number, admitted: number, first: number, finished: number, reason: string,
 *   retracted: number[], readmitted: number[], verdicts: [number, string][], prompt: number,
 *   prefills: [number, number, number][]}} Span the steps of a request's life, -1 for
 *   what has not happened: admitted and first are the first time; `before`: it was there when the record began, so those
 *   that had happened by then say the record's first step. `verdicts`: when its admission verdict became another.
 *   `prompt`: its tokens; `prefills`: in which step which tokens [start, end) were computed, the first start after an
 *   admission being what was found in the cache
 * @typedef {{from: number, until: number, uid: number, verdict: string}} Refusal an admission test that ended its pass, and so
 *   why everybody waits after steps `from` to `until - 1`
 */

/** The requests of a run. */
export class Spans {
  /** By uid, in the order in which they came. @type {Map<number, Span>} */
  of = new Map();
  /** Every uid that ever appears. @type {number[]} */
  uids = [];
  /** Why requests wait, in the order of steps. @type {Refusal[]} */
  refusals = [];
  /** Whose prompts a step computed, by its index. @type {Map<number, {uid: number, start: number, end: number}[]>} */
  prefills = new Map();

  /** @param {number} [first] the step before the first one */
  constructor(first = 0) {
    this.first = first;
  }

  /** A request that was there when the record began. @param {any} request */
  meet(request) {
    const was = (/** @type {boolean} */ there) => (there ? this.first : -1);
    this.uids.push(request.uid);
    this.of.set(request.uid, {
      uid: request.uid, before: true, arrived: this.first, admitted: was(request.status !== "waiting"), first: was(request.output.length > 0),
      finished: was(request.status === "finished"), reason: request.reason, retracted: [], readmitted: [],
      verdicts: request.verdict ? [[this.first, request.verdict]] : [], prompt: request.prompt.length, prefills: [] });
  }

  /** What happened to a request: what is told of it is described in `_mark` in record.py.
   * @param {string} what @param {number} uid @param {number} step @param {string} detail */
  mark(what, uid, step, detail) {
    let span = this.of.get(uid);
    if (!span) {
      this.uids.push(uid);
      span = { uid, before: false, arrived: step, admitted: -1, first: -1, finished: -1, reason: "", retracted: [], readmitted: [], verdicts: [], prompt: 0, prefills: [] };
      this.of.set(uid, span);
    }
    const known = span.verdicts[span.verdicts.length - 1];
    if (what === "tested" && detail !== "admitted") this.refuse(uid, step, detail);
    else if (what === "admitted" || what === "finished") this._unrefuse(uid, step);
    if (what === "arrived") span.prompt = Number(detail);
    else if (what === "admitted" && span.admitted < 0) span.admitted = step;
    else if (what === "admitted") span.readmitted.push(step);
    else if (what === "prefill") {
      const [start, end] = detail.split(" ").map(Number);
      span.prefills.push([step, start, end]);
      const i = step - this.first - 1;
      const others = this.prefills.get(i);
      if (others) others.push({ uid, start, end });
      else this.prefills.set(i, [{ uid, start, end }]);
    } else if (what === "first") span.first = step;
    else if (what === "retracted") span.retracted.push(step);
    else if (what === "finished" || what === "refused") Object.assign(span, { finished: step, reason: what === "refused" ? "error" : detail });
    else if (what === "tested" && (!known || known[1] !== detail)) span.verdicts.push([step, detail]);
  }

  /** It was tested, and has to wait. @param {number} uid @param {number} step @param {string} verdict */
  refuse(uid, step, verdict) {
    const last = this.refusals[this.refusals.length - 1];
    if (last && last.uid === uid && last.verdict === verdict && last.until === Infinity) return;
    if (last) last.until = Math.min(last.until, step);
    this.refusals.push({ from: step, until: Infinity, uid, verdict });
  }

  /** A request that had been refused has left the queue. @param {number} uid @param {number} step */
  _unrefuse(uid, step) {
    const last = this.refusals[this.refusals.length - 1];
    if (last?.uid === uid) last.until = Math.min(last.until, step);
  }
}
