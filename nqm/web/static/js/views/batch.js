// View (h): which batch size to use. Time against cost of a training, from its noise scale and the seconds of a step.

import { post } from "../api.js";
import { readNoise } from "../cards/training.js";
import { roundedText, valueText } from "../format.js";

export const batch = {
  id: "batch",
  tab: "Batch size",
  title: "Which batch size should I use?",
  about: {
    see: "Time and cost of the whole training. Each point of the curve is a number of devices; the thick part is what the interval of the noise scale allows.",
    why: "A batch far below the noise scale wastes time, and one far above it wastes examples. At the recommended batch size the product of time and cost is smallest: beyond it, 1% less time costs more than 1% more.",
    tries: [["Ten times the noise", { noise: "10000", noise_low: "", noise_high: "" }], ["A second timing: 64 on a device take 0.25 s", { per_device: "32", seconds: "0.2", other_per_device: "64", other_seconds: "0.25" }]],
  },
  cards: { training: true },
  openFile: readNoise,
  uses: ["noise", "noise_low", "noise_high", "devices", "per_device", "seconds", "training_steps", "other_per_device", "other_seconds"],
  pair: true,

  async ask(state, signal) {
    const { noise, noise_low, noise_high, devices, per_device, seconds, training_steps, other_per_device, other_seconds } = state;
    const needed = { noise_scale: noise, devices, per_device, seconds, training_steps };
    const others = Object.entries({ low: noise_low, high: noise_high, other_per_device, other_seconds }).filter(([, value]) => value);
    return [await post("/api/batch", { ...needed, ...Object.fromEntries(others) }, signal)];
  },

  figure([answer], state) {
    const { by_devices, by_batch, chosen, present } = answer;
    const named = chosen.batch_size === present.batch_size ? [["keep", chosen, "c1"]] : [["now", present, "ink"], ["use", chosen, "c1"]]; // prettier-ignore
    const points = (x) => named.map(([label, of, role]) => ({ label, x: [of[x]], y: [of.hours], role, points: true, width: 2.4, unlisted: true }));
    const marks = (x) => named.map(([label, of, role]) => ({ kind: "v", at: of[x], role, dash: "dot", label: `${label} ${valueText(of.batch_size)}` }));
    const hours = { label: "hours of training", scale: "log", air: 0.08 };
    const cost = {
      title: "Time against cost, by the number of devices",
      x: { label: "cost: devices × hours", scale: "log" }, y: hours, height: 380, marks: marks("device_hours"),
      lines: [{ label: "more devices", x: by_devices.device_hours, y: by_devices.hours, role: "c0", width: 2.4, end: "more devices" }, ...(by_batch ? [] : allowed(answer, by_devices, "device_hours")), ...points("device_hours")],
    }; // prettier-ignore
    const same = by_batch && {
      title: `Time against batch size, on the same ${state.devices} devices`,
      x: { label: "batch size", scale: "log2" }, y: hours, height: 380, marks: marks("batch_size"),
      lines: [{ label: "hours", x: by_batch.batch_size, y: by_batch.hours, role: "c0", width: 2.4, end: "hours" }, ...allowed(answer, by_batch, "batch_size"), ...points("batch_size")],
    }; // prettier-ignore
    const about = `a training with noise scale ${state.noise} on ${state.devices} devices with ${state.per_device} examples each`;
    return { title: "Which batch size should I use?", about, panels: [...(same ? [same] : []), cost], notes: [answer.sentence, ...answer.rests_on] };
  },

  headline: ([answer]) => answer.sentence,

  measures: ([answer]) => [
    { name: "recommended", x: [0], y: [answer.chosen.hours], unit: "hours" },
    { name: "recommended", x: [0], y: [answer.chosen.device_hours], unit: "device hours" },
  ],

  facts([answer]) {
    const both = (name) => `${valueText(answer.present[name])} → ${valueText(answer.chosen[name])}`;
    const interval = answer.low === null ? "not known" : `${valueText(answer.low)} to ${answer.high === null ? "no upper end" : valueText(answer.high)}`;
    return [
      { name: "batch size", value: both("batch_size"), term: "batch_size" },
      { name: "its interval", value: interval, term: "noise_interval" },
      { name: "exact optimum", value: roundedText(answer.best_batch_size) },
      { name: "devices", value: both("devices"), term: "devices" },
      { name: "hours", value: both("hours") },
      { name: "devices × hours", value: both("device_hours") },
      { name: "what this rests on", value: answer.rests_on.join(" "), wide: true },
    ];
  },

  tables: ([answer]) => [tableOf("By the number of devices", answer.by_devices), ...(answer.by_batch ? [tableOf("On the same devices", answer.by_batch)] : [])],
};

/** The part of a curve that the interval of the noise scale allows. */
function allowed({ low, high }, curve, x) {
  if (low === null || low === high) return [];
  const inside = curve.batch_size.map((size) => size >= low && (high === null || size <= high));
  const kept = (name) => curve[name].filter((_, i) => inside[i]);
  return [{ label: "within the interval", x: kept(x), y: kept("hours"), role: "c0", width: 8 }];
}

function tableOf(caption, curve) {
  const names = ["batch_size", "devices", "per_device", "hours", "device_hours"];
  return { caption, columns: ["batch size", "devices", "batch per device", "hours", "devices × hours"], rows: curve.hours.map((_, i) => names.map((name) => curve[name][i])) };
}
