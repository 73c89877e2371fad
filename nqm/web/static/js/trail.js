// The states of the page before and after the current one, for undo and redo.

const TOGETHER = 600; // ms: changes of the same values that are nearer than this are one move of a slider
const AT_ONCE = 20; // ms: changes nearer than this follow from one another
const KEPT = 200; // states

export class Trail {
  constructor(first) {
    this.now = first;
    this.past = [];
    this.future = [];
    this.rest();
  }

  /** A change by the user: the new state, the keys that changed, and when, in ms. */
  record(next, keys, time) {
    const gap = time - this.time;
    const same = gap < AT_ONCE || (gap < TOGETHER && keys.some((key) => this.keys.includes(key)));
    if (!same) this.past.push(this.now);
    if (this.past.length > KEPT) this.past.shift();
    this.future = [];
    this.now = next;
    this.time = time;
    this.keys = keys;
  }

  /** The state before the last change; null if there is none. */
  undo() {
    return this.step(this.past, this.future);
  }

  /** The state that the last undo left; null if there is none. */
  redo() {
    return this.step(this.future, this.past);
  }

  step(from, to) {
    if (!from.length) return null;
    to.push(this.now);
    this.now = from.pop();
    this.rest();
    return this.now;
  }

  /** The next change is a new one, however soon it comes. */
  rest() {
    this.time = -Infinity;
    this.keys = [];
  }
}
