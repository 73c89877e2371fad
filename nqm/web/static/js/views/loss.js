// View (b): loss over steps of one setting, split into signal, noise and bands of curvature.

import { valueText } from "../format.js";
import { capital } from "../words.js";
import { ask } from "../upload.js";
import { lossAxis } from "./axes.js";
import { labelled, menu } from "../dom.js";

export const loss = {
  id: "loss",
  tab: "Loss over steps",
  title: "Loss over steps of one setting",
  about: {
    see: "The loss of one setting, split into the signal, what is left of the start, and the noise that gradients add.",
    why: "The signal falls in steep directions first. Noise grows to a floor in proportion to the learning rate, and in inverse proportion to the batch size.",
    tries: [["A batch four times as large", { batch: "1024" }], ["Half the learning rate", { run: "HeavyBall(lr=0.025, momentum=0.9)" }], ["Average the weights", { run: "EMA(HeavyBall(lr=0.05, momentum=0.9), decay=0.9999)" }]],
  },
  cards: { setting: true, batch: true, steps: true },
  uses: ["spectrum", "data", "kind", "label_noise", "run", "batch", "steps", "grid", "target"],
  quick: () => true,
  pair: true,

  controls(state, update) {
    const options = [["log", "logarithmic"], ["linear", "linear"]]; // prettier-ignore
    return [labelled("Steps", menu(options, state.grid, (grid) => update({ grid })), null, "grid")];
  },

  async ask(state, signal, progress, moving) {
    const setting = { optimizer: state.run, batch_size: state.batch };
    const curve = await ask("/api/curve", state, { ...setting, steps: state.steps, grid: state.grid, quick: moving }, signal);
    if (moving || curve.replicas !== null) return [curve];
    progress([curve]);
    return [curve, await ask("/api/steps", state, { ...setting, target: state.target }, signal)];
  },

  figure([curve], state) {
    const x = { label: "step", scale: state.grid === "log" ? "log" : "linear" };
    const marks = [{ kind: "h", at: Number(state.target), role: "c2", dash: "dot", label: `target ${state.target}`, side: "left", inside: true }];
    if (curve.floor !== null) marks.push({ kind: "h", at: curve.floor, role: "muted", dash: "dash", label: `floor ${valueText(curve.floor)}`, side: "left", below: true, inside: true });
    const lines = [{ label: "loss", x: curve.steps, y: curve.loss, role: "c0", width: 3, end: "loss" }];
    if (curve.signal) lines.push({ label: "signal", x: curve.steps, y: curve.signal, role: "c4", dash: "dash", width: 1.8, loose: true, end: "signal" });
    if (curve.noise_loss) lines.push({ label: "noise / batch size", x: curve.steps, y: curve.noise_loss, role: "c1", dash: "dash", width: 1.8, loose: true, end: "noise" });
    for (const [level, band] of Object.entries(curve.quantiles ?? {})) {
      lines.push({ label: `${valueText(100 * level)}% quantile of single runs`, x: curve.steps, y: band, role: "muted", dash: "dot", width: 1.2 });
    }
    const total = { title: "Loss = signal + noise / batch size", x, y: lossAxis(curve), lines, marks, height: 400 };
    return { title: `${curve.optimizer} at batch size ${valueText(curve.batch_size)}`, panels: [total, ...bands(curve, x)], notes: [curve.message] };
  },

  headline([curve, hit], state) {
    const end = `the loss ends at ${valueText(curve.loss.at(-1))}`;
    if (curve.outcome === "diverged") return "This setting diverges: its learning rate is beyond the edge of stability.";
    if (!hit) return `${capital(end)}.`;
    if (hit.steps !== null) return `The loss reaches ${state.target} after ${valueText(hit.steps)} steps.`;
    return hit.outcome === "above_floor" ? `Noise keeps the loss above ${valueText(curve.floor)}, so it never reaches ${state.target}.` : `${capital(end)} and does not reach ${state.target}.`;
  },

  timeline: ([curve]) => curve,

  measures: ([curve, hit]) => [
    { name: "at the end", x: [0], y: [curve.loss.at(-1)], unit: "loss", words: ["lower", "higher"] },
    { name: "to the target", x: [0], y: [hit?.steps ?? null], unit: "steps" },
  ],

  facts([curve, hit]) {
    return [
      { name: "loss at the end", value: valueText(curve.loss.at(-1)), term: "loss" },
      { name: "floor", value: valueText(curve.floor), term: "floor" },
      { name: "steps to the target", value: hit ? (hit.steps === null ? hit.outcome.replaceAll("_", " ") : valueText(hit.steps)) : "…", term: "target" },
      { name: "noise scale at the end", value: valueText(curve.noise_scale?.at(-1)), term: "noise_scale" },
      { name: "stable below lr", value: valueText(curve.stability_limit), term: "stability_limit" },
      { name: "outcome", value: hit && hit.outcome !== "reached" ? hit.message : curve.message, wide: true },
    ];
  },

  tables([curve]) {
    const columns = ["step", "loss", "signal", "noise / B", "noise scale"];
    const rows = curve.steps.map((step, i) => [step, curve.loss[i], curve.signal?.[i] ?? null, curve.noise_loss?.[i] ?? null, curve.noise_scale?.[i] ?? null]);
    return [{ caption: curve.message, columns, rows }];
  },
};

/** Signal and noise by decade of curvature: one colour for each decade, solid for signal, dotted for noise. */
function bands(curve, x) {
  if (!curve.band_signal) return [];
  const shown = curve.band_signal.map((row, i) => i).reverse().slice(0, 7);
  const lines = shown.flatMap((i, at) => {
    const [low, high] = [curve.band_edges[i], curve.band_edges[i + 1]].map((edge) => valueText(edge));
    const name = `h ${low} to ${high}`;
    return [
      { label: name, x: curve.steps, y: curve.band_signal[i], role: `c${at}`, width: 1.8 },
      { label: `${name}, noise`, x: curve.steps, y: curve.band_noise_loss[i], role: `c${at}`, dash: "dot", width: 1.6, loose: true, unlisted: true },
    ];
  });
  const title = "By curvature; dotted: its noise / batch size";
  return [{ title, x, y: { label: "part of the loss", scale: "log", min: least(curve), air: 0.08 }, lines, height: 400 }];
}

/** The lower end of the axis: the signal falls without limit, and less than a ten-thousandth of the loss is not shown. */
function least(curve) {
  const seen = curve.loss.filter((value) => value > 0);
  return seen.length ? Math.min(...seen) / 1e4 : undefined;
}
