// @ts-check
/**
 * Reading binary: packed JSON (`minisgl_widgets/packed.py` says what it is), and the parts that a record is made of.
 *
 * @typedef {{name: string, first: number, count: number, bytes: Uint8Array | null, packed: Uint8Array | null, value: any}} Part
 *   `bytes` is what `unpack` reads, null as long as it is only there deflated (`packed`); `value` what it read, once asked
 */

/** A view of binary data, whatever it came as. @param {ArrayBuffer | ArrayBufferView} data @returns {Uint8Array} */
export function bytesOf(data) {
  return data instanceof ArrayBuffer ? new Uint8Array(data) : new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}

const utf8 = new TextDecoder();

/** A list by its kind: from the numbers of its section, at `from`. @param {string} kind @param {any} numbers
 * @param {number} from @param {number} length @param {number} first @returns {number[]} */
function listOf(kind, numbers, from, length, first) {
  const list = new Array(length);
  if (kind === kind.toLowerCase()) for (let i = 0; i < length; i++) list[i] = numbers[from + i];
  else {
    let value = first;
    list[0] = value;
    for (let i = 1; i < length; i++) list[i] = value += numbers[from + i - 1];
  }
  return list;
}

/** The value of packed JSON. Its lists of numbers may be shared: nobody must change them.
 * @param {Uint8Array} data @returns {any} */
export function unpack(data) {
  const view = new DataView(data.buffer, data.byteOffset, 20);
  let at = 20;
  const section = () => {
    const from = at;
    at += view.getUint32(sections++ * 4, true);
    return data.subarray(from, at);
  };
  let sections = 0;
  const [kinds, lengths, firsts, value] = JSON.parse(utf8.decode(section()));
  // a copy each, because typed arrays must begin where their kind of number may
  const aligned = () => section().slice().buffer;
  /** @type {Record<string, any>} */
  const numbers = { d: new Float64Array(aligned()), i: new Int32Array(aligned()), h: new Int16Array(aligned()), b: new Int8Array(aligned()) };
  /** @type {Record<string, number>} */
  const next = { d: 0, i: 0, h: 0, b: 0 };
  let known = 0;
  const lists = lengths.map((/** @type {number} */ length, /** @type {number} */ i) => {
    const kind = kinds[i];
    const where = kind.toLowerCase();
    const differences = kind !== where;
    const list = listOf(kind, numbers[where], next[where], length, differences ? firsts[known++] : 0);
    next[where] += differences ? length - 1 : length;
    return list;
  });
  const restore = (/** @type {any} */ v) => {
    if (v === null || typeof v !== "object") return v;
    if (Array.isArray(v)) {
      for (let i = 0; i < v.length; i++) if (typeof v[i] === "object") v[i] = restore(v[i]);
      return v;
    }
    if (v.$ !== undefined) return lists[v.$];
    for (const key in v) if (typeof v[key] === "object") v[key] = restore(v[key]);
    return v;
  };
  return restore(value);
}

/** A record's parts. @param {ArrayBuffer | ArrayBufferView} record @returns {Part[]} */
export function partsOf(record) {
  const data = bytesOf(record);
  const length = new DataView(data.buffer, data.byteOffset, 4).getUint32(0, true);
  const directory = JSON.parse(utf8.decode(data.subarray(4, 4 + length)));
  if (directory.version !== 3) throw new Error(`this player reads records of version 3, not ${directory.version}`);
  let at = 4 + length;
  return directory.parts.map((/** @type {[string, number, number, number]} */ [name, first, count, size]) => {
    const body = data.subarray(at, (at += size));
    return { name, first, count, bytes: directory.deflated ? null : body, packed: directory.deflated ? body : null, value: undefined };
  });
}

/** Make a part readable. @param {Part} part */
export async function inflate(part) {
  if (part.bytes || !part.packed) return;
  const stream = new Blob([/** @type {BlobPart} */ (part.packed)]).stream().pipeThrough(new DecompressionStream("deflate"));
  part.bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  part.packed = null;
}
