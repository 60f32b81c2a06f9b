// @ts-check
/**
 * Changes, which move a state: applied forwards, undone backwards. The state's shape and the four kinds of change are
 * described in `minisgl/events/state.py`; only the three lists in `pages` are typed arrays here.
 *
 * @typedef {(string|number|null)[]} Path
 * @typedef {["set", Path, any, any] | ["column", Path, any[], any, any] | ["append", Path, any[], any[]] |
 *   ["splice", Path, number, any[], any[]]} Change
 */

/** A deep copy, so that a delta does not change when the state moves on. @param {any} value @returns {any} */
export function fresh(value) {
  if (ArrayBuffer.isView(value)) return /** @type {any} */ (value).slice();
  if (Array.isArray(value)) {
    return value.length && typeof value[0] === "object" && value[0] !== null ? value.map(fresh) : value.slice();
  }
  if (value !== null && typeof value === "object") {
    /** @type {any} */
    const copy = {};
    for (const key of Object.keys(value)) copy[key] = fresh(value[key]);
    return copy;
  }
  return value;
}

// What follows runs for every change of every step that is walked, so it takes paths and changes apart by index: unpacking
// them into variables would make lists that live for a moment only.

/** What is at the first `depth` parts of a path. @param {any} state @param {Path} path @param {number} depth */
function reach(state, path, depth) {
  for (let i = 0; i < depth; i++) state = state[/** @type {string} */ (path[i])];
  return state;
}

/** Set an entry; null removes it. @param {any} state @param {Path} path @param {any} value */
function put(state, path, value) {
  const table = reach(state, path, path.length - 1);
  const key = /** @type {string} */ (path[path.length - 1]);
  if (value === null) delete table[key];
  else table[key] = fresh(value);
}

// Most of a long jump is pages that get another owner. A loop that meets one kind of array only is ten times as fast as one
// that meets all of them, so each kind has its own.

/** @param {Int32Array} table @param {number[]} keys @param {any} values */
function fillOwners(table, keys, values) {
  if (Array.isArray(values)) for (let i = 0; i < keys.length; i++) table[keys[i]] = values[i];
  else for (let i = 0; i < keys.length; i++) table[keys[i]] = values;
}

/** @param {Float64Array} table @param {number[]} keys @param {any} values */
function fillOrder(table, keys, values) {
  if (Array.isArray(values)) for (let i = 0; i < keys.length; i++) table[keys[i]] = values[i];
  else for (let i = 0; i < keys.length; i++) table[keys[i]] = values;
}

/** Set one entry for each key: the path's null is read as that key. @param {any} state @param {Path} path @param {any[]} keys
 * @param {any} values as many, or the one that all get */
function fill(state, path, keys, values) {
  const hole = path.indexOf(null);
  const table = reach(state, path, hole);
  const many = Array.isArray(values);
  if (table instanceof Int32Array) fillOwners(table, keys, values);
  else if (table instanceof Float64Array) fillOrder(table, keys, values);
  else if (hole + 1 === path.length) for (let i = 0; i < keys.length; i++) table[keys[i]] = many ? values[i] : values;
  else {
    const field = /** @type {string} */ (path[hole + 1]);
    for (let i = 0; i < keys.length; i++) table[keys[i]][field] = many ? values[i] : values;
  }
}

/** Put a value at the end of each key's list, or take one off: `values` null. @param {any} state @param {Path} path
 * @param {any[]} keys @param {any[] | null} values */
function extend(state, path, keys, values) {
  const hole = path.indexOf(null);
  const table = reach(state, path, hole);
  const field = /** @type {string | undefined} */ (path[hole + 1]);
  for (let i = 0; i < keys.length; i++) {
    const list = field === undefined ? table[keys[i]] : table[keys[i]][field];
    if (values) list.push(values[i]);
    else list.pop();
  }
}

/** Exchange part of a list. One of the state's own becomes a new list: a view sees by that what it has drawn already. The
 * others mostly grow by many numbers, which `concat` copies at once, or lose them again.
 * @param {any} state @param {Path} path @param {number} from @param {number} removed how many @param {any[]} inserted */
function exchange(state, path, from, removed, inserted) {
  const table = reach(state, path, path.length - 1);
  const key = /** @type {string} */ (path[path.length - 1]);
  const list = table[key];
  if (from + removed < list.length) table[key] = list.slice(0, from).concat(inserted, list.slice(from + removed));
  else if (inserted.length || path.length === 1) table[key] = (removed ? list.slice(0, from) : list).concat(inserted);
  else list.length = from;
}

/** @param {any} state @param {Change} change */
function apply(state, change) {
  const path = change[1];
  if (change[0] === "set") put(state, path, change[3]);
  else if (change[0] === "column") fill(state, path, change[2], change[4]);
  else if (change[0] === "append") extend(state, path, change[2], change[3]);
  else exchange(state, path, change[2], change[3].length, change[4]);
}

/** @param {any} state @param {Change} change */
function undo(state, change) {
  const path = change[1];
  if (change[0] === "set") put(state, path, change[2]);
  else if (change[0] === "column") fill(state, path, change[2], change[3]);
  else if (change[0] === "append") extend(state, path, change[2], null);
  else exchange(state, path, change[2], change[4].length, change[3]);
}

/** @param {any} state @param {Change[]} delta */
export function applyDelta(state, delta) {
  for (const change of delta) apply(state, change);
}

/** @param {any} state @param {Change[]} delta */
export function undoDelta(state, delta) {
  for (let i = delta.length - 1; i >= 0; i--) undo(state, delta[i]);
}
