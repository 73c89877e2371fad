// The schedule editor: the height and the end of each piece can be dragged, or moved with the arrow keys.

import { valueText, ticksOf } from "./format.js";
import { halved, merged, moved, raised } from "./pieces.js";

const NS = "http://www.w3.org/2000/svg";
const HEIGHT = 196;
const PAD = { left: 64, right: 26, top: 12, bottom: 56 }; // steps stand above those of the loss
const GRIP = { wide: 10, tall: 18 }; // drawn where a piece ends
const FINGER = 28; // what a finger needs, where its neighbours leave as much
const STEP = 2 ** 0.25; // one press of an arrow key
const FINE = 2 ** (1 / 16); // with Shift
const EDGE = 0.01; // of all steps: how far an arrow key moves the end of a piece
const FINE_EDGE = 0.001;

const svg = (tag, attributes = {}) => {
  const node = document.createElementNS(NS, tag);
  set(node, attributes);
  return node;
};
const set = (node, attributes) => Object.entries(attributes).forEach(([name, value]) => node.setAttribute(name, value));

export class ScheduleEditor {
  /** Every move calls `onchange(pieces)`. */
  constructor(box, onchange) {
    this.box = box;
    this.onchange = onchange;
    this.root = svg("svg", { role: "group", "aria-label": "Schedule: a slider for the height of each piece, and one for each end between two" });
    this.readout = Object.assign(document.createElement("p"), { className: "readout" });
    this.readout.setAttribute("aria-hidden", "true"); // the sliders say it themselves
    this.back = svg("g");
    this.front = svg("g");
    this.root.append(this.back, this.front);
    this.parts = [];
    box.classList.add("editor");
    new ResizeObserver(() => this.pieces && this.place()).observe(box);
  }

  show(pieces) {
    this.pieces = pieces;
    if (this.root.parentNode !== this.box) this.box.replaceChildren(this.root, this.readout);
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
    const grab = svg("line", { class: "grab", "stroke-width": FINGER });
    const knob = svg("circle", { class: "knob", r: 6 });
    group.append(bar, lid, grab, knob);
    this.slide(group, this.heightKeys(i), (x, y) => raised(this.pieces, i, this.valueAt(y)), () => [0, this.y(this.pieces.lr[i])]);
    return { group, bar, lid, grab, knob, ...this.end(i) };
  }

  /** The end of piece i: a line through the picture, and a grip below it, away from the pieces. */
  end(i) {
    const edge = svg("g", { class: "edge", role: "slider", tabindex: "0", "aria-orientation": "horizontal" });
    const rule = svg("line", { class: "rule" });
    const reach = svg("line", { class: "grab" });
    const touch = svg("rect", { class: "touch" });
    const grip = svg("rect", { class: "grip", width: GRIP.wide, height: GRIP.tall, rx: 4 });
    edge.append(rule, reach, touch, grip);
    this.slide(edge, this.endKeys(i), (x) => moved(this.pieces, i, this.stepAt(x) - this.endOf(i)), () => [this.x(this.endOf(i)), 0]);
    return { edge, rule, reach, touch, grip };
  }

  /** A slider: keys and drags change the pieces, and the value of the active one is shown below. */
  slide(node, keys, change, place) {
    node.addEventListener("keydown", (event) => {
      const wanted = keys(event)[event.key];
      if (!wanted) return;
      event.preventDefault();
      this.tell(wanted());
    });
    for (const kind of ["pointerenter", "focus"]) node.addEventListener(kind, () => this.read(node));
    this.drag(node, change, place);
  }

  /** Start a drag. A handle keeps its distance from the pointer; the body of a piece jumps to it. */
  drag(node, change, place) {
    node.addEventListener("pointerdown", (event) => {
      const body = event.target.matches(".bar");
      if (body && event.pointerType === "touch") return; // a finger there scrolls the page
      event.preventDefault();
      node.setPointerCapture(event.pointerId);
      node.focus({ focusVisible: false, preventScroll: true });
      this.frozen = this.range(); // the scale must not run away under the finger
      const held = this.point(event);
      const off = body ? [0, 0] : place().map((at, k) => at - held[k]);
      const move = (next) => this.tell(change(...this.point(next).map((at, k) => at + off[k])));
      const end = () => {
        this.frozen = null;
        node.removeEventListener("pointermove", move);
        this.place();
      };
      node.addEventListener("pointermove", move);
      node.addEventListener("pointerup", end, { once: true });
      node.addEventListener("pointercancel", end, { once: true });
      if (body) move(event);
    });
  }

  point(event) {
    const at = this.root.getBoundingClientRect();
    return [event.clientX - at.left, event.clientY - at.top];
  }

  heightKeys(i) {
    return (event) => {
      const [low] = this.range();
      const factor = event.shiftKey ? FINE : STEP;
      const raise = (by) => raised(this.pieces, i, Math.max(this.pieces.lr[i], low) * by);
      const lower = (by) => raised(this.pieces, i, this.pieces.lr[i] / by);
      const { ArrowRight, ArrowLeft } = this.endKeys(i)(event);
      return {
        ArrowUp: () => raise(factor), ArrowDown: () => lower(factor), PageUp: () => raise(2), PageDown: () => lower(2),
        Home: () => raised(this.pieces, i, 1), ArrowRight, ArrowLeft,
        "+": () => halved(this.pieces, i), Delete: () => merged(this.pieces, i),
      }; // prettier-ignore
    };
  }

  endKeys(i) {
    return (event) => {
      const by = Math.max(1, (event.shiftKey ? FINE_EDGE : EDGE) * this.total());
      const move = (steps) => () => moved(this.pieces, i, steps);
      return {
        ArrowRight: move(by), ArrowUp: move(by), ArrowLeft: move(-by), ArrowDown: move(-by),
        PageUp: move(10 * by), PageDown: move(-10 * by), Home: move(-Infinity), End: move(Infinity),
      }; // prettier-ignore
    };
  }

  read(node) {
    this.readout.textContent = `${node.getAttribute("aria-label")}: ${node.getAttribute("aria-valuetext")}`;
    this.about = node;
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

  /** The range of multipliers in the picture: at least a few octaves. */
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

  /** A step rounded to about a pixel. */
  stepAt(x) {
    const pixel = this.total() / this.inner().wide;
    const unit = 10 ** Math.max(0, Math.floor(Math.log10(pixel)));
    return unit * Math.round((pixel * (x - PAD.left)) / unit);
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
    if (this.about?.isConnected) this.read(this.about);
    else this.readout.textContent = "";
  }

  placePart(i, start, end, floor) {
    const { group, bar, lid, grab, knob } = this.parts[i];
    const value = this.pieces.lr[i];
    const [a, b, y] = [this.x(start), this.x(end), this.y(value)];
    set(bar, { x: a, y, width: Math.max(0, b - a), height: Math.max(0, floor - y) });
    set(lid, { x1: a, x2: b, y1: y, y2: y });
    set(grab, { x1: a, x2: b, y1: y, y2: y });
    set(knob, { cx: (a + b) / 2, cy: y });
    if (i + 1 < this.parts.length) this.placeEnd(i, start, end, floor);
    const text = `${valueText(value)} times the learning rate, steps ${valueText(start)} to ${valueText(end)}`;
    const [low, high] = this.range();
    set(group, {
      "aria-label": `Piece ${i + 1} of ${this.parts.length}`,
      "aria-valuenow": value,
      "aria-valuemin": Math.min(low, value),
      "aria-valuemax": Math.max(high, value),
      "aria-valuetext": text,
    });
  }

  placeEnd(i, start, end, floor) {
    const { edge, rule, reach, touch, grip } = this.parts[i];
    const next = end + this.pieces.lengths[i + 1];
    const at = this.x(end);
    const room = Math.min(at - this.x(start), this.x(next) - at); // to the nearer neighbour
    const wide = Math.min(FINGER, Math.max(GRIP.wide, room));
    set(rule, { x1: at, x2: at, y1: PAD.top, y2: floor });
    set(reach, { x1: at, x2: at, y1: PAD.top, y2: floor, "stroke-width": Math.min(12, room / 2) });
    set(touch, { x: at - wide / 2, y: floor, width: wide, height: FINGER });
    set(grip, { x: at - GRIP.wide / 2, y: floor - GRIP.tall / 3 });
    set(edge, {
      "aria-label": `End of piece ${i + 1} of ${this.parts.length}`,
      "aria-valuenow": end,
      "aria-valuemin": start + 1,
      "aria-valuemax": next - 1,
      "aria-valuetext": `step ${valueText(end)}`,
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
      label(this.x(tick.value), floor + 30, tick.text, "middle");
    }
    parts.push(svg("path", { class: "frame", d: `M${PAD.left} ${PAD.top}V${floor}H${PAD.left + wide}` }));
    label(PAD.left + wide / 2, HEIGHT - 6, "step", "middle");
    label(0, 0, "× learning rate", "middle");
    set(parts.at(-1), { transform: `translate(14 ${PAD.top + tall / 2}) rotate(-90)` });
    this.back.replaceChildren(...parts);
  }
}
