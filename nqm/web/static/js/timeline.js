// A time line to play: bars by curvature that empty (signal) and fill (noise) while the loss falls.

import { element } from "./dom.js";
import { valueText } from "./format.js";

const FRAME = 50; // ms between two points of the curve
const DECADES = 4; // a bar is empty where a part is this many decades below the largest

/** The height of a bar, from 0 to 1, on a logarithmic scale. */
export function barHeight(value, largest) {
  if (!(value > 0) || !(largest > 0)) return 0;
  return Math.min(1, Math.max(0, 1 + Math.log10(value / largest) / DECADES));
}

/** The bars of a curve at one of its points: [{name, signal, noise}] with heights, steepest first. */
export function barsAt(curve, at) {
  const largest = Math.max(...curve.band_signal.map((row) => row[0]), ...curve.band_noise_loss.map((row) => row.at(-1)));
  return curve.band_signal.map((row, i) => ({
    name: `h ${valueText(curve.band_edges[i])} to ${valueText(curve.band_edges[i + 1])}`,
    signal: barHeight(row[at], largest),
    noise: barHeight(curve.band_noise_loss[i][at], largest),
  })).reverse(); // prettier-ignore
}

export class Timeline {
  /** Every move calls `onmove(step, loss)`, and `onmove(null, null)` when there is nothing to mark. */
  constructor(box, onmove = () => {}) {
    this.box = box;
    this.onmove = onmove;
    this.at = 0;
    this.timer = null;
    this.range = element("input", { type: "range", min: "0", id: "timeline-step", "aria-label": "Step of the time line", oninput: () => this.move(Number(this.range.value)) });
    this.button = element("button", { class: "quiet", type: "button", id: "timeline-play", onclick: () => (this.timer ? this.stop() : this.play()) }, "Play");
    this.words = element("p", { class: "readout" });
    this.bars = element("div", { class: "bars", "aria-hidden": "true" });
    box.replaceChildren(element("div", { class: "timeline-head" }, this.button, this.range), this.words, this.bars);
  }

  /** Show a curve with bands; a curve without them hides the time line. */
  show(curve) {
    this.curve = curve?.band_signal?.length && curve.band_noise_loss ? curve : null;
    this.box.hidden = !this.curve;
    if (!this.curve) return this.stop();
    this.range.max = String(curve.steps.length - 1);
    this.move(Math.min(this.at, curve.steps.length - 1));
  }

  move(at) {
    this.at = at;
    this.range.value = String(at);
    const { steps, loss, signal, noise_loss } = this.curve;
    const words = `Step ${valueText(steps[at])}: loss ${valueText(loss[at])} = signal ${valueText(signal[at])} + noise ${valueText(noise_loss[at])}`;
    this.words.textContent = words;
    this.range.setAttribute("aria-valuetext", words);
    this.onmove(steps[at], loss[at]);
    this.bars.replaceChildren(...barsAt(this.curve, at).map((bar) => {
      const fill = (kind) => {
        const node = element("div", { class: `fill ${kind}` });
        node.style.height = `${100 * bar[kind]}%`;
        return element("div", { class: "well" }, node);
      };
      return element("div", { class: "band" }, element("div", { class: "wells" }, fill("signal"), fill("noise")), element("small", {}, bar.name));
    }));
  }

  play() {
    if (this.at >= this.curve.steps.length - 1) this.move(0);
    this.button.textContent = "Pause";
    this.timer = setInterval(() => {
      if (!this.curve || this.at >= this.curve.steps.length - 1) return this.stop();
      this.move(this.at + 1);
    }, FRAME);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.button.textContent = "Play";
  }
}
