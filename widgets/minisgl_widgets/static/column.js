// @ts-check
/** Whole numbers, one a step, that grow with the run. */
export class Column {
  constructor() {
    this.room = new Int32Array(256);
    this.values = this.room.subarray(0, 0);
  }

  /** @param {ArrayLike<number>} more */
  push(more) {
    const { length } = this.values;
    const whole = length + more.length;
    if (whole > this.room.length) {
      const room = new Int32Array(Math.max(whole, 2 * this.room.length));
      room.set(this.values);
      this.room = room;
    }
    this.room.set(more, length);
    this.values = this.room.subarray(0, whole);
  }
}
