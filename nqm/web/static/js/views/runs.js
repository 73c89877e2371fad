// View (g): runs of your own. Logged losses beside the fitted law, with residuals; a run that was not made; and the best one.

import { valueText } from "../format.js";
import { element } from "../dom.js";
import { ask } from "../upload.js";
import { change } from "../words.js";
import { parametersOf, readTree } from "../composer.js";
import { SHAPES, shaped } from "../pieces.js";

const NOTHING = "Drop a log of a training run anywhere on this page: a CSV with step, loss and learning rate, or a trainer_state.json.";

export const runs = {
  id: "runs",
  tab: "Your runs",
  title: "Your runs: logged, fitted, and what comes next",
  about: {
    see: "Logged losses as dots, the law that was fitted to them as lines, and with a schedule the loss of a run that was not made, with its 90% interval.",
    why: "The law is the noisy quadratic: what is still to be learnt falls with the sum of the rates, and the noise follows the rate of the moment.",
    tries: [["Decay to zero over the last fifth", { shape: "wsd" }], ["A cosine", { shape: "cosine" }], ["The best schedule", { shape: "best" }]],
  },
  cards: { setting: true, steps: true },
  uses: ["data", "run", "steps", "shape"],

  controls(state, update) {
    const chip = (id, words) => element("button", { class: "chip", type: "button", id: `shape-${id}`, "aria-pressed": String(state.shape === id), onclick: () => update({ shape: state.shape === id ? "" : id }) }, words);
    return [element("div", { class: "presets", role: "group", "aria-label": "Schedule of the next run" }, ...Object.entries(SHAPES).map(([id, { name }]) => chip(id, name)), chip("best", "Best"))];
  },

  async ask(state, signal) {
    if (!state.data) throw new Error(NOTHING);
    const tree = readTree(state.run);
    const peak = tree ? parametersOf(tree).find((one) => one.parameter.name === "lr")?.value : null;
    const steps = Number(state.steps);
    const plan = state.shape && state.shape !== "best" ? { schedule: shaped(state.shape, steps, 40), ...(peak ? { peak } : {}) } : {};
    return [await ask("/api/outlook", state, { ...plan, ...(state.shape === "best" ? { best: steps } : {}) }, signal)];
  },

  figure([answer], state) {
    const lines = answer.runs.flatMap((run, i) => [
      { label: `${run.name || "run"}, fitted`, x: run.step, y: run.fitted, role: `c${i % 6}`, width: 2, end: run.name || "fitted" },
      { label: `${run.name || "run"}, logged`, x: run.step, y: run.loss, role: `c${i % 6}`, points: true, width: 0, unlisted: true },
    ]);
    const next = answer.best ?? answer.planned;
    if (next) {
      lines.push({ label: "next run", x: next.steps, y: next.loss, role: "ink", width: 2.6, end: state.shape });
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
        ...(next ? [{ title: "Learning rate of the next run", x, y: { label: "learning rate", scale: "linear" }, height: 190, lines: [{ label: "learning rate", x: next.steps, y: next.rates, role: "ink", width: 2 }] }] : []),
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
      ...answer.remarks.map((value) => ({ name: "remark", value, wide: true })),
    ];
  },

  tables: ([answer]) => answer.runs.map((run) => ({
    caption: run.name || "run", columns: ["step", "logged", "fitted", "residual"], rows: run.step.map((step, i) => [step, run.loss[i], run.fitted[i], run.residual[i]]),
  })), // prettier-ignore
};
