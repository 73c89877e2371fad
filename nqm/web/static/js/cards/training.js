// The card of a training as it runs now: its noise scale, its devices, and the seconds of a step.

import { post } from "../api.js";
import { byId, element, labelled, numberField, put, rebuild } from "../dom.js";
import { plain } from "../format.js";
import { showWrong } from "../report.js";
import { slider } from "../slider.js";
import { state } from "../state.js";

const SLIDERS = [
  { key: "noise", id: "noise", label: "Noise scale", term: "noise_scale", scale: "log", low: 1, high: 1e7, digits: 3 },
  { key: "devices", id: "devices", label: "Devices", term: "devices", scale: "log2", low: 1, high: 2 ** 12, whole: true },
  { key: "per_device", id: "per-device", label: "Batch per device", term: "per_device", scale: "log2", low: 1, high: 2 ** 13, whole: true },
  { key: "seconds", id: "seconds", label: "Seconds per step", term: "seconds", scale: "log", low: 1e-3, high: 100, digits: 3 },
  { key: "training_steps", id: "training-steps", label: "Steps of the training", term: "training_steps", scale: "log", low: 100, high: 1e7, whole: true, digits: 2 },
];
const FIELDS = [
  { key: "noise_low", id: "noise-low", label: "Lower end", term: "noise_interval" },
  { key: "noise_high", id: "noise-high", label: "Upper end", term: "noise_interval" },
  { key: "other_per_device", id: "other-per-device", label: "Another batch", term: "other_seconds" },
  { key: "other_seconds", id: "other-seconds", label: "Its seconds", term: "other_seconds" },
];

const LAST = 800_000; // bytes: of a longer log the end is read, where the present noise scale is
const FIRST = 4_000; // bytes of a file in which its first line is looked for

/** Whether a file is that of a monitor: lines of JSON with a noise scale. */
export async function isMonitored(file) {
  if (!file.name.toLowerCase().endsWith(".jsonl")) return false;
  const [line] = (await file.slice(0, FIRST).text()).split("\n");
  return line.includes('"noise_scale"');
}

/** Read the noise scale of a file into the state; a link then holds the numbers, not the file. */
export async function readNoise(file, update) {
  try {
    const log = !file.name.toLowerCase().endsWith(".json") && file.size > LAST;
    const text = log ? (await file.slice(-LAST).text()).replace(/^[^\n]*\n/, "") : await file.text();
    const found = await post("/api/noise", { text, name: file.name });
    showWrong(null);
    update({ view: "batch", noise: shortened(found.noise_scale), noise_low: shortened(found.low), noise_high: shortened(found.high), ...batchOf(found.batch_size, Number(state().devices)) });
    byId("noise-said").textContent = `${file.name}: ${found.sentence}`; // its card is there now
  } catch (error) {
    showWrong(error);
  }
}

const shortened = (value) => (value === null ? "" : plain(value, 4));

/** The batch on each device, if the file has the batch size; on one device if it cannot be divided. */
function batchOf(size, devices) {
  if (!Number.isInteger(size)) return {};
  return size % devices ? { devices: "1", per_device: String(size) } : { per_device: String(size / devices) };
}

export class TrainingCard {
  constructor(box, update) {
    this.box = box;
    this.update = update;
    this.parts = null;
  }

  show(state) {
    if (this.parts) return this.parts.forEach((sync) => sync(state));
    this.parts = [];
    const heading = element("h2", { id: "training-heading" }, "Your training now");
    const [low, high, other, seconds] = FIELDS.map((one) => this.field(one, state));
    const [noise, ...rest] = SLIDERS.map((one) => this.slider(one, state));
    const more = element("p", { class: "note" }, "If you have timed a step with another batch on the same devices, these stay, and the batch on each changes:");
    const row = (...fields) => element("div", { class: "row" }, ...fields);
    rebuild(this.box, heading, this.file(), noise, row(low, high), ...rest, more, row(other, seconds));
  }

  /** A file from which the noise scale is read, and what it says. */
  file() {
    const input = element("input", { type: "file", accept: ".jsonl,.json", id: "noise-file", class: "offscreen", "aria-label": "A file of nqm.nets.Monitor or nqm fit" });
    input.addEventListener("change", () => {
      if (input.files[0]) readNoise(input.files[0], this.update);
      input.value = ""; // so that the same file can be read again when it has grown
    });
    const said = element("p", { class: "note", id: "noise-said" }, "The file of nqm.nets.Monitor, or of nqm fit, has the noise scale.");
    return element("div", { class: "field" }, input, element("label", { class: "quiet", for: "noise-file" }, "Read it from a file"), said);
  }

  slider({ key, ...about }, state) {
    const part = slider({ ...about, value: state[key], onmove: (text) => this.update(key === "noise" ? { noise: text, noise_low: "", noise_high: "" } : { [key]: text }) });
    this.parts.push((next) => part.show(next[key]));
    return part.node;
  }

  field({ key, id, label, term }, state) {
    const field = numberField(state[key], (text) => this.update({ [key]: text }), { onwrong: showWrong });
    this.parts.push((next) => put(field, next[key]));
    return labelled(label, field, term, id);
  }
}
