// The schedule editor: pieces to drag, or to move with the arrow keys.

import { readable, ticksOf } from "./format.js";
import { halved, merged, moved, raised } from "./pieces.js";

const NS = "http://www.w3.org/2000/svg";
const HEIGHT = 230;
const PAD = { left: 62, right: 30, top: 12, bottom: 42 };
const STEP = 2 ** 0.25; // one press of an arrow key
const FINE = 2 ** (1 / 16); // with Shift
const EDGE = 0.01; // of all steps: how far an arrow key moves the end of a piece

const svg = (tag, attributes = {}) => {
  const node = document.createElementNS(NS, tag);
  set(node, attributes);
  return node;
};
const set = (node, attributes) => Object.entries(attributes).forEach(([name, value]) => node.setAttribute(name, value));

export class ScheduleEditor {
  /** `onchange(pieces)` is told of every move. */
  constructor(box, onchange) {
    this.box = box;
    this.onchange = onchange;
    this.root = svg("svg", { role: "group", "aria-label": "Schedule: one slider for each piece" });
    this.back = svg("g");
    this.front = svg("g");
    this.root.append(this.back, this.front);
    this.parts = [];
    box.classList.add("editor");
    new ResizeObserver(() => this.pieces && this.place()).observe(box);
  }

  show(pieces) {
    this.pieces = pieces;
    if (this.root.parentNode !== this.box) this.box.replaceChildren(this.root);
    if (this.parts.length !== pieces.lr.length) this.build();
    this.place();
  }

  build() {
    const held = this.parts.findIndex((part) => part.group === document.activeElement);
    this.parts = this.pieces.lr.map((_, i) => this.part(i));
    this.front.replaceChildren(...this.parts.map((part) => part.group), ...this.parts.slice(0, -1).map((part) => part.edge));
    if (held >= 0) this.parts[Math.min(held, this.parts.length - 1)].group.focus();
  }

  part(i) {
    const group = svg("g", { class: "piece", role: "slider", tabindex: "0", "aria-orientation": "vertical" });
    const bar = svg("rect", { class: "bar" });
    const lid = svg("line", { class: "lid" });
    const knob = svg("circle", { class: "knob", r: 6 });
    group.append(bar, lid, knob);
    const edge = svg("line", { class: "edge" });
    group.addEventListener("keydown", (event) => this.key(event, i));
    this.drag(group, (x, y) => raised(this.pieces, i, this.valueAt(y)));
    this.drag(edge, (x) => moved(this.pieces, i, this.stepAt(x) - this.endOf(i)));
    return { group, bar, lid, knob, edge };
  }

  drag(node, change) {
    node.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      node.setPointerCapture(event.pointerId);
      if (node.matches(".piece")) node.focus({ focusVisible: false, preventScroll: true });
      this.frozen = this.range(); // the scale must not run away under the finger
      const move = (next) => {
        const at = this.root.getBoundingClientRect();
        this.tell(change(next.clientX - at.left, next.clientY - at.top));
      };
      const end = () => {
        this.frozen = null;
        node.removeEventListener("pointermove", move);
        this.place();
      };
      node.addEventListener("pointermove", move);
      node.addEventListener("pointerup", end, { once: true });
      node.addEventListener("pointercancel", end, { once: true });
      if (node.matches(".piece")) move(event);
    });
  }

  key(event, i) {
    const { lr } = this.pieces;
    const [low] = this.range();
    const factor = event.shiftKey ? FINE : STEP;
    const by = Math.max(1, EDGE * this.total());
    const changes = {
      ArrowUp: () => raised(this.pieces, i, Math.max(lr[i], low) * factor),
      ArrowDown: () => raised(this.pieces, i, lr[i] / factor),
      PageUp: () => raised(this.pieces, i, Math.max(lr[i], low) * 2),
      PageDown: () => raised(this.pieces, i, lr[i] / 2),
      Home: () => raised(this.pieces, i, 1),
      ArrowRight: () => moved(this.pieces, i, by),
      ArrowLeft: () => moved(this.pieces, i, -by),
      "+": () => halved(this.pieces, i),
      Delete: () => merged(this.pieces, i),
    };
    if (!changes[event.key]) return;
    event.preventDefault();
    this.tell(changes[event.key]());
  }

  tell(pieces) {
    this.show(pieces);
    this.onchange(pieces);
  }

  total() {
    return this.pieces.lengths.reduce((a, b) => a + b, 0);
  }

  endOf(i) {
    return this.pieces.lengths.slice(0, i + 1).reduce((a, b) => a + b, 0);
  }

  /** Multipliers that the picture spans: a few octaves at least. */
  range() {
    if (this.frozen) return this.frozen;
    const shown = this.pieces.lr.filter((v) => v > 0);
    return [Math.min(2 ** -6, ...shown.map((v) => v / 2)), Math.max(2, ...shown.map((v) => v * 1.5))];
  }

  width() {
    return Math.max(280, this.box.clientWidth);
  }

  inner() {
    return { wide: this.width() - PAD.left - PAD.right, tall: HEIGHT - PAD.top - PAD.bottom };
  }

  x(step) {
    return PAD.left + (this.inner().wide * step) / this.total();
  }

  y(value) {
    const [low, high] = this.range();
    const share = Math.log(Math.max(value, low) / low) / Math.log(high / low);
    return PAD.top + this.inner().tall * (1 - share);
  }

  valueAt(y) {
    const [low, high] = this.range();
    const share = 1 - (y - PAD.top) / this.inner().tall;
    return low * (high / low) ** Math.min(1, Math.max(0, share));
  }

  stepAt(x) {
    return (this.total() * (x - PAD.left)) / this.inner().wide;
  }

  place() {
    const { wide, tall } = this.inner();
    set(this.root, { viewBox: `0 0 ${this.width()} ${HEIGHT}`, height: HEIGHT });
    this.drawBack(wide, tall);
    let start = 0;
    this.pieces.lengths.forEach((length, i) => {
      this.placePart(i, start, start + length, PAD.top + tall);
      start += length;
    });
  }

  placePart(i, start, end, floor) {
    const { group, bar, lid, knob, edge } = this.parts[i];
    const value = this.pieces.lr[i];
    const [a, b, y] = [this.x(start), this.x(end), this.y(value)];
    set(bar, { x: a, y, width: Math.max(0, b - a), height: Math.max(0, floor - y) });
    set(lid, { x1: a, x2: b, y1: y, y2: y });
    set(knob, { cx: (a + b) / 2, cy: y });
    set(edge, { x1: b, x2: b, y1: PAD.top, y2: floor });
    const text = `${readable(value)} times the learning rate, steps ${readable(start)} to ${readable(end)}`;
    const [low, high] = this.range();
    set(group, {
      "aria-label": `Piece ${i + 1} of ${this.parts.length}`,
      "aria-valuenow": value,
      "aria-valuemin": Math.min(low, value),
      "aria-valuemax": Math.max(high, value),
      "aria-valuetext": text,
    });
  }

  drawBack(wide, tall) {
    const floor = PAD.top + tall;
    const parts = [];
    const label = (x, y, text, anchor) => {
      const node = svg("text", { x, y, "text-anchor": anchor });
      node.textContent = text;
      parts.push(node);
    };
    for (const tick of ticksOf("log2", ...this.range(), 5)) {
      const y = this.y(tick.value);
      parts.push(svg("line", { class: "gridline", x1: PAD.left, x2: PAD.left + wide, y1: y, y2: y }));
      label(PAD.left - 8, y + 4, tick.text, "end");
    }
    for (const tick of ticksOf("linear", 0, this.total(), Math.max(2, Math.floor(wide / 90)))) {
      label(this.x(tick.value), floor + 17, tick.text, "middle");
    }
    parts.push(svg("path", { class: "frame", d: `M${PAD.left} ${PAD.top}V${floor}H${PAD.left + wide}` }));
    label(PAD.left + wide / 2, HEIGHT - 6, "step", "middle");
    label(0, 0, "× learning rate", "middle");
    set(parts.at(-1), { transform: `translate(14 ${PAD.top + tall / 2}) rotate(-90)` });
    this.back.replaceChildren(...parts);
  }
}
