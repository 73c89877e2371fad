// View (g): runs of your own. Logged losses beside the fitted law, with residuals; a run that was not made; and the best one.

import { valueText } from "../format.js";
import { element } from "../dom.js";
import { ask, openLogs } from "../upload.js";
import { Invitation } from "../report.js";
import { change } from "../words.js";
import { parametersOf, readTree } from "../composer.js";
import { SHAPES, printPieces, readPieces, shaped } from "../pieces.js";
import { Editing } from "./editing.js";
import { give } from "../save.js";

const NOTHING = "Drop a log of a training run anywhere on this page: a CSV with step, loss and learning rate, or a trainer_state.json. Or open the sample: three runs of a language model of 100 million parameters.";
const PIECES = 20; // of a usual shape, which the editor shows
let last = null; // the last whole answer, whose logs stay while the schedule is dragged

export const runs = {
  id: "runs",
  tab: "Your runs",
  title: "Your runs, and the next one",
  about: {
    see: "Logged losses as dots, the law that was fitted to them as lines, and with a schedule the loss of a run that was not made, with its 90% interval.",
    why: "The law is the noisy quadratic: what is still to be learnt falls with the sum of the rates, and the noise follows the rate of the moment.",
    tries: [["Decay to zero over the last fifth", { shape: "wsd" }], ["A cosine", { shape: "cosine" }], ["The best schedule", { shape: "best" }]],
  },
  cards: { setting: true, steps: true },
  uses: ["data", "run", "steps", "shape", "schedule"],
  quick: (state) => Boolean(planned(state)) && last?.data === state.data,

  controls(state, update) {
    const chip = (id, words) => element("button", { class: "chip", type: "button", id: `shape-${id}`, "aria-pressed": String(state.shape === id), onclick: () => update({ shape: state.shape === id ? "" : id }) }, words);
    return [element("div", { class: "presets", role: "group", "aria-label": "Schedule of the next run" }, ...Object.entries(SHAPES).map(([id, { name }]) => chip(id, name)), chip("best", "Best")), state.data ? keep(state) : element("button", { class: "strong", type: "button", id: "runs-sample", onclick: () => openLogs(update) }, "Open the sample")];
  },

  /** The schedule of the next run, to drag. */
  edit(box, state, update) {
    this.editing ??= new Editing();
    this.editing.show(box, state.data ? planned(state) : null, (pieces) => update({ shape: "own", schedule: printPieces(pieces) }));
  },

  async ask(state, signal, progress, moving) {
    if (!state.data) throw new Invitation(NOTHING);
    const tree = readTree(state.run);
    const peak = tree ? parametersOf(tree).find((one) => one.parameter.name === "lr")?.value : null;
    const steps = Number(state.steps);
    const pieces = planned(state);
    const plan = pieces ? { schedule: pieces, ...(peak ? { peak } : {}) } : {};
    const answer = await ask("/api/outlook", state, { ...plan, ...(state.shape === "best" ? { best: steps } : {}), ...(moving ? { brief: true } : {}) }, signal);
    if (moving) return [{ ...answer, runs: last.runs }];
    last = { data: state.data, runs: answer.runs };
    return [answer];
  },

  figure([answer], state) {
    const lines = answer.runs.flatMap((run, i) => [
      { label: `${run.name || "run"}, fitted`, x: run.step, y: run.fitted, role: `c${i % 6}`, width: 2, end: run.name || "fitted" },
      { label: `${run.name || "run"}, logged`, x: run.step, y: run.loss, role: `c${i % 6}`, points: true, width: 0, unlisted: true },
    ]);
    const next = since(answer.best ?? answer.planned, answer.runs);
    if (next) {
      lines.push({ label: "next run", x: next.steps, y: next.loss, role: "ink", width: 2.6, end: "next run" });
      lines.push({ label: "next run, 5%", x: next.steps, y: next.low, role: "ink", dash: "dot", width: 1.2, unlisted: true, loose: true });
      lines.push({ label: "next run, 95%", x: next.steps, y: next.high, role: "ink", dash: "dot", width: 1.2, unlisted: true, loose: true });
    }
    const x = { label: "step", scale: "linear" };
    const residuals = answer.runs.map((run, i) => ({ label: `${run.name || "run"}, residual`, x: run.step, y: run.residual.map((part) => 100 * part), role: `c${i % 6}`, width: 1.2 }));
    return {
      title: state.name,
      panels: [
        { title: "Loss", x, y: { label: "loss", scale: "log", air: 0.05 }, lines, height: 300 },
        { title: "Residuals of the fit", x, y: { label: "logged above fitted, %", scale: "linear" }, lines: residuals, height: 190 },
        ...(next ? [{ title: "Learning rate of the next run", edited: Boolean(planned(state)), x, y: { label: "learning rate", scale: "linear" }, height: 190, lines: [{ label: "learning rate", x: next.steps, y: next.rates, role: "ink", width: 2 }] }] : []),
      ],
      notes: answer.remarks,
    }; // prettier-ignore
  },

  headline([answer]) {
    const next = answer.best ?? answer.planned;
    const fit = `The law fits these logs to ${valueText(Number((100 * answer.error).toPrecision(2)))}%`;
    if (!next) return `${fit}. Choose a schedule to see the loss of a run that was not made.`;
    const last = answer.runs.map((run) => run.loss.at(-1)).sort((a, b) => a - b)[0];
    const than = change(last, next.loss.at(-1), ["lower", "higher"]);
    const against = than && than.includes("%") ? `, ${than} than the best of the logs` : "";
    return `The next run should end at ${valueText(next.loss.at(-1))} (90%: ${valueText(next.low.at(-1))} to ${valueText(next.high.at(-1))})${against}.`;
  },

  facts([answer]) {
    const next = answer.best ?? answer.planned;
    return [
      ...(next ? [{ name: "how far this is from the logs", value: next.message, wide: true }] : []),
      ...(answer.remarks.length ? [{ name: "remarks", value: answer.remarks.map((text) => (/[.!?]$/.test(text) ? text : `${text}.`)).join(" "), wide: true }] : []),
    ];
  },

  tables: ([answer]) => answer.runs.map((run) => ({
    caption: run.name || "run", columns: ["step", "logged", "fitted", "residual"], rows: run.step.map((step, i) => [step, run.loss[i], run.fitted[i], run.residual[i]]),
  })), // prettier-ignore
};

/** The next run from the first logged step on; its steep beginning would take most of the axis. */
function since(next, logs) {
  if (!next) return null;
  const first = Math.min(...logs.map((run) => run.step[0]));
  const kept = next.steps.map((step) => step >= first);
  return Object.fromEntries(Object.entries(next).map(([name, column]) => [name, Array.isArray(column) ? column.filter((_, i) => kept[i]) : column]));
}

/** The pieces of the next run: a usual shape, or what was dragged; null without either. */
function planned(state) {
  const steps = Number(state.steps);
  if (Object.hasOwn(SHAPES, state.shape)) return Number.isInteger(steps) && steps > 0 ? shaped(state.shape, steps, PIECES) : null;
  return state.shape === "own" ? readPieces(state.schedule) : null;
}

/** A button that saves the forecast as nqm forecast would; the command line and Python read it. */
function keep(state) {
  const save = async () => {
    const { file } = await ask("/api/outlook", state, { brief: true, file: true });
    give(new Blob([`${JSON.stringify(file)}\n`], { type: "application/json" }), "forecast.json");
  };
  return element("button", { class: "quiet", type: "button", id: "save-forecast", onclick: save }, "forecast.json");
}
