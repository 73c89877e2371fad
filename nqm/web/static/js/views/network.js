// View (f): signal and noise over curvature, of a measured network or of any spectrum.

import { valueText } from "../format.js";
import { about } from "../words.js";
import { askSpectrum } from "../upload.js";
import { isAbort } from "../api.js";
import { isFit } from "../state.js";
import { goalField, halfwayOf } from "./advice.js";

const OWN_NOISE = "This view shows the noise of the spectrum itself. The noise of a linear regression differs: it follows from its loss and its label noise.";
const LOG = (label) => ({ label, scale: "log" });

export const network = {
  id: "network",
  tab: "Your network",
  title: "The spectrum of the problem",
  about: {
    see: "Where the signal and the noise of the gradient sit over curvature: of a network that nqm fit has measured, or of a built-in spectrum.",
    why: "These two measures are all that the model needs. They become the problem of every other view.",
    tries: [["How to reach a loss soonest", { view: "advice" }], ["Its critical batch sizes", { view: "steps" }], ["Its loss over steps", { view: "loss" }]],
  },
  cards: (state) => ({ goal: true, own: true, ...(isFit(state) ? { setting: true, batch: true, steps: true } : {}) }),
  uses: ["spectrum", "data", "kind", "run", "batch", "steps", "goal"],
  pair: true,

  controls: (state, update) => (isFit(state) ? [goalField(state, update)] : []),

  async ask(state, signal, progress) {
    const answer = await askSpectrum("/api/spectrum", state, {}, signal);
    if (!answer.fit) return [answer];
    progress([answer]);
    const target = state.goal || halfwayOf(answer.fit);
    try {
      return [answer, await askSpectrum("/api/predict", state, { optimizer: state.run, batch_size: state.batch, steps: state.steps, target }, signal)];
    } catch (error) {
      if (isAbort(error)) throw error;
      return [answer, { error }]; // the spectrum stands, whatever the setting
    }
  },

  errors: ([, predicted]) => (predicted?.error ? [predicted.error] : []),
  commands: (answers) => answers.filter((answer) => answer?.command),

  figure([answer, predicted], state) {
    const panels = answer.fit ? fitPanels(answer.fit) : plainPanels(answer);
    if (predicted?.loss) panels.push(prediction(predicted));
    return { title: state.name && state.data ? state.name : state.spectrum, panels };
  },

  headline([answer]) {
    const scale = answer.fit?.noise_scale ?? { value: answer.noise_scale };
    if (!scale.value) return "";
    const range = scale.low === undefined ? "" : ` (90%: ${about(scale.low)} to ${about(scale.high)})`;
    return `Signal and noise of a gradient are equal at batch size ${about(scale.value)}${range}, the noise scale.`;
  },

  facts([answer, predicted], state) {
    const { fit } = answer;
    const noise = state.kind === "quadratic" ? [] : [{ name: "noise", value: OWN_NOISE, wide: true }];
    const common = [
      estimated("noise scale", "noise_scale", fit?.noise_scale, answer.noise_scale),
      estimated("curvature noise scale", "curvature_noise_scale", fit?.curvature_noise_scale, answer.curvature_noise_scale),
      { name: "largest curvature", value: valueText(answer.largest_curvature), term: "curvature" },
      { name: "loss above the minimum", value: valueText(answer.initial_loss), term: "loss" },
    ];
    if (!fit) return [...common, { name: "modes", value: valueText(answer.modes), term: "dimension" }, ...noise];
    return [
      ...common,
      { name: "loss of the network", value: valueText(fit.loss) },
      { name: "parameters", value: valueText(fit.parameters) },
      { name: "noise exponent (C = H: 1)", value: valueText(fit.noise_exponent), term: "noise_exponent" },
      ...(predicted?.first_hits ? [hitFact(predicted.first_hits)] : []),
      ...(predicted?.message ? [{ name: "how far the prediction holds", value: predicted.message, term: "reach", wide: true }] : []),
      ...noise,
    ];
  },

  tables([answer]) {
    const { h, c, s, count } = answer.nodes_shown;
    return [{ caption: "Nodes of the spectrum", columns: ["h", "c", "s", "count"], rows: h.map((value, i) => [value, c[i], s[i], count[i]]) }];
  },
};

/** A number, or an estimate with its interval. */
function estimated(name, term, estimate, value) {
  if (!estimate) return { name, term, value: valueText(value) };
  return { name, term, value: valueText(estimate.value), note: `90%: ${valueText(estimate.low)} to ${valueText(estimate.high)}` };
}

/** When trainings first dip below the goal. */
function hitFact({ steps, low, high, target }) {
  const name = "steps until the loss first dips";
  if (steps === null) return { name, value: "not reached", note: `below ${valueText(target)}` };
  return { name, value: valueText(steps), note: `below ${valueText(target)}; four of five trainings: ${valueText(low)} to ${high === null ? "no end" : valueText(high)}` };
}

const dots = (label, nodes, role, key) => ({ label, x: nodes.h, y: nodes[key], role, points: true, width: 0 });

function fitPanels(fit) {
  const panels = [
    {
      title: "Gradient noise over curvature, largest directions",
      x: LOG("curvature h"), y: LOG("noise variance c of one example"), height: 340,
      lines: [dots("c along the largest curvatures", sorted(fit.top), "c1", "c")],
    },
    {
      title: "Signal and noise over curvature",
      x: LOG("curvature h"), y: LOG("weight"), height: 340,
      lines: [dots("gradient signal g²", sorted(fit.signal), "c0", "weight"), dots("gradient noise", sorted(fit.noise), "c1", "weight")],
    },
  ]; // prettier-ignore
  if (fit.density) {
    panels.push({ title: "Density of curvatures", x: LOG("curvature h"), y: LOG("directions, by weight"), height: 340, lines: [dots("density", sorted(fit.density), "c2", "weight")] });
  }
  return panels;
}

function plainPanels(answer) {
  const { edges, signal, noise } = answer.bands;
  const nodes = sorted(answer.nodes_shown);
  const stairs = (label, y, role) => ({ label, x: edges, y: [...y, y.at(-1)], role, stairs: true, width: 2.4 });
  return [
    {
      title: "Gradient noise over curvature",
      x: LOG("curvature h"), y: LOG("noise variance c of one example"), height: 360,
      lines: [dots("modes", nodes, "c1", "c")],
    },
    {
      title: "Signal and noise by decade of curvature",
      x: LOG("curvature h"), y: LOG("part of the initial loss; of the noise"), height: 360,
      lines: [stairs("signal", signal, "c0"), stairs("noise", noise, "c1")],
    },
  ]; // prettier-ignore
}

function prediction(run) {
  const checked = run.steps.find((_, i) => run.reach[i] > run.horizon?.within_5); // the first step past what the fit was tested for
  const line = (label, y, look) => ({ label, x: run.steps, y, ...look });
  return {
    title: `Predicted training loss: ${run.optimizer}, batch size ${valueText(run.batch_size)}`,
    x: LOG("step"), y: LOG("loss of the network"), height: 340,
    lines: [
      line("predicted", run.loss, { role: "c0", width: 2.6 }),
      line("90% interval", run.low, { series: "90% interval, low", role: "c0", dash: "dot", width: 1.3 }),
      line("90% interval", run.high, { series: "90% interval, high", role: "c0", dash: "dot", width: 1.3, unlisted: true }),
    ],
    marks: [
      ...(checked === undefined ? [] : [{ kind: "v", at: checked, role: "muted", label: "checks reach so far" }]),
      ...(run.first_hits?.steps ? [{ kind: "v", at: run.first_hits.steps, role: "c2", dash: "dot", label: `first dips below ${valueText(run.first_hits.target)}` }] : []),
    ],
  }; // prettier-ignore
}

const ROUND_OFF = 1e-12; // of the largest: what is smaller is rounding, and would stretch an axis

/** Nodes sorted by rising curvature, as a chart needs them, without those that are rounding errors. */
export function sorted(nodes) {
  const columns = ["h", "weight", "c"].filter((name) => Array.isArray(nodes[name])).map((name) => [nodes[name], ROUND_OFF * Math.max(...nodes[name])]);
  const order = nodes.h.map((h, i) => i).filter((i) => columns.every(([values, least]) => values[i] > least)).sort((a, b) => nodes.h[a] - nodes.h[b]);
  return Object.fromEntries(Object.entries(nodes).filter(([, column]) => Array.isArray(column)).map(([key, column]) => [key, order.map((i) => column[i])]));
}
