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

/** What a page holds as text: base64, decoded by the browser itself where it can. @param {string} text @returns {Uint8Array} */
export function fromBase64(text) {
  const native = /** @type {any} */ (Uint8Array).fromBase64;
  if (native) return native(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

const utf8 = new TextDecoder();

/** Where the numbers of a kind of list are. @param {string} kind */
function sectionOf(kind) {
  return kind === "t" ? "b" : kind.toLowerCase();
}

/** A list by its kind: from the numbers of its section, at `from`. @param {string} kind @param {any} numbers
 * @param {number} from @param {number} length @param {number} first @returns {number[]} */
function listOf(kind, numbers, from, length, first) {
  const list = new Array(length);
  if (kind === "t") for (let i = 0; i < length; i++) list[i] = numbers[from + i] === 1;
  else if (kind === kind.toLowerCase()) for (let i = 0; i < length; i++) list[i] = numbers[from + i];
  else {
    let value = first;
    list[0] = value;
    for (let i = 1; i < length; i++) list[i] = value += numbers[from + i - 1];
  }
  return list;
}

/** Packed JSON that is read piece by piece: its lists of numbers are made when they are asked for. They may be shared, so
 * nobody must change them. */
class Packed {
  /** @param {Uint8Array} data */
  constructor(data) {
    const sizes = new DataView(data.buffer, data.byteOffset, 20);
    let at = 20;
    const section = (/** @type {number} */ i) => data.subarray(at, (at += sizes.getUint32(4 * i, true)));
    const [kinds, lengths, firsts, value] = JSON.parse(utf8.decode(section(0)));
    // a copy each, because typed arrays must begin where their kind of number may
    const aligned = (/** @type {number} */ i) => section(i).slice().buffer;
    /** @type {Record<string, any>} */
    this.numbers = { d: new Float64Array(aligned(1)), i: new Int32Array(aligned(2)), h: new Int16Array(aligned(3)), b: new Int8Array(aligned(4)) };
    this.rest = data.subarray(at); // the entries of a packed list
    /** @type {string} */
    this.kinds = kinds;
    /** @type {number[]} */
    this.lengths = lengths;
    this.from = new Int32Array(lengths.length); // where a list's numbers begin
    this.first = new Float64Array(lengths.length); // its first number, where they are differences
    /** @type {Record<string, number>} */
    const next = { d: 0, i: 0, h: 0, b: 0 };
    let known = 0;
    for (let i = 0; i < lengths.length; i++) {
      const where = sectionOf(kinds[i]);
      const differences = kinds[i] === kinds[i].toUpperCase();
      this.from[i] = next[where];
      next[where] += differences ? lengths[i] - 1 : lengths[i];
      if (differences) this.first[i] = firsts[known++];
    }
    /** @type {number[][]} */
    this.lists = new Array(lengths.length);
    this.value = value;
  }

  /** @param {number} i @returns {number[]} */
  list(i) {
    return (this.lists[i] ??= listOf(this.kinds[i], this.numbers[sectionOf(this.kinds[i])], this.from[i], this.lengths[i], this.first[i]));
  }

  /** A piece of the value with its lists in it; the piece itself is changed. @param {any} v @returns {any} */
  restore(v) {
    if (v === null || typeof v !== "object") return v;
    if (Array.isArray(v)) {
      for (let i = 0; i < v.length; i++) if (typeof v[i] === "object") v[i] = this.restore(v[i]);
      return v;
    }
    if (v.$ !== undefined) return this.list(v.$);
    for (const key in v) if (typeof v[key] === "object") v[key] = this.restore(v[key]);
    return v;
  }
}

/** The value of packed JSON. @param {Uint8Array} data @returns {any} */
export function unpack(data) {
  const packed = new Packed(data);
  return packed.restore(packed.value);
}

/** The entries of a packed list, each read when it is first asked for.
 * @param {Uint8Array} data @returns {(i: number) => any} */
export function unpackEach(data) {
  const packed = new Packed(data);
  /** @type {number[]} */
  const ends = packed.value;
  /** @type {any[]} */
  const made = [];
  const read = (/** @type {number} */ i) => packed.restore(JSON.parse(utf8.decode(packed.rest.subarray(i ? ends[i - 1] : 0, ends[i]))));
  return (i) => (made[i] ??= read(i));
}

/** A record's parts. @param {ArrayBuffer | ArrayBufferView} record @returns {Part[]} */
export function partsOf(record) {
  const data = bytesOf(record);
  const length = new DataView(data.buffer, data.byteOffset, 4).getUint32(0, true);
  const directory = JSON.parse(utf8.decode(data.subarray(4, 4 + length)));
  if (directory.version !== 4) throw new Error(`this player reads records of version 4, not ${directory.version}`);
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
