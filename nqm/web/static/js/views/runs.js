// View (g): runs of your own. Logged losses beside the fitted law, with residuals; a run that was not made; and the best one.

import { valueText } from "../format.js";
import { element } from "../dom.js";
import { ask, openLogs } from "../upload.js";
import { Invitation } from "../report.js";
import { change } from "../words.js";
import { parametersOf, readTree } from "../composer.js";
import { SHAPES, piecesOfRun, printPieces, readPieces } from "../pieces.js";
import { state as now } from "../state.js";
import { Editing } from "./editing.js";
import { offer } from "../save.js";

const NOTHING = "Drop a log of a training run anywhere on this page: a CSV with step, loss and learning rate, or a trainer_state.json. Or open the sample: three runs of a language model of 100 million parameters.";
const PIECES = 20; // of a schedule that is to be dragged, after its warm-up
const WARMUP_SHARE = 0.1; // the warm-up takes no more of a run, as in the best schedule
let last = null; // what is known about the logs, and the next run that was drawn last

export const runs = {
  id: "runs",
  tab: "Your runs",
  title: "Your runs, and the next one",
  about: {
    see: "Logged losses as dots, the law that was fitted to them as lines, and with a schedule the loss of a run that was not made, with its 90% interval.",
    why: "The law is the noisy quadratic: what is still to be learnt falls with the sum of the rates, and the noise follows the rate of the moment.",
    tries: [["Decay to zero over the last fifth", { shape: "wsd" }], ["A cosine", { shape: "cosine" }], ["The best schedule", { shape: "best" }]],
  },
  cards: (state) => ({ file: "runs", ...(state.data && state.shape ? { next: true, steps: true, batch: last?.data === state.data && last.sized } : {}) }),
  uses: ["data", "run", "batch", "steps", "shape", "schedule"],
  quick: (state) => Boolean(planned(state)) && last?.data === state.data,

  controls(state, update) {
    if (!state.data) return [element("button", { class: "strong", type: "button", id: "runs-sample", onclick: () => openLogs(update) }, "Open the sample")];
    const chip = (id, words) => element("button", { class: "chip", type: "button", id: `shape-${id}`, "aria-pressed": String(state.shape === id), onclick: () => update({ shape: state.shape === id ? "" : id }) }, words);
    const own = element("button", { class: "quiet", type: "button", id: "shape-own", onclick: () => last?.next && update({ shape: "own", schedule: dragged(now()) }) }, "Drag this schedule");
    return [
      element("div", { class: "presets", role: "group", "aria-label": "Schedule of the next run" }, ...Object.entries(SHAPES).map(([id, { name }]) => chip(id, name)), chip("best", "Best")),
      state.shape && state.shape !== "own" ? own : null,
      keep(state),
    ];
  },

  /** The schedule of the next run as pieces to drag. */
  edit(box, state, update) {
    this.editing ??= new Editing();
    this.editing.show(box, state.data && state.shape === "own" ? readPieces(state.schedule) : null, (pieces) => update({ shape: "own", schedule: printPieces(pieces) }));
  },

  async ask(state, signal) {
    if (!state.data) throw new Invitation(NOTHING);
    const logs = await ask("/api/outlook", state, {}, signal); // remembered while the next run changes
    last = { data: state.data, warmup: logs.warmup, sized: logs.batch_size !== null, next: last?.data === state.data ? last.next : null };
    const plan = state.shape === "best" ? { best: state.steps } : { schedule: planned(state) };
    if (plan.schedule === null) return [logs];
    const peak = peakOf(state);
    const body = { ...plan, ...(peak ? { peak } : {}), ...(last.sized ? { batch_size: state.batch } : {}), brief: true };
    const answer = await ask("/api/outlook", state, body, signal);
    last.next = answer.best ?? answer.planned;
    return [{ ...answer, runs: logs.runs }];
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
        ...(next ? [{ title: "Learning rate of the next run", edited: state.shape === "own", x, y: { label: "learning rate", scale: "linear" }, height: 190, lines: [{ label: "learning rate", x: next.steps, y: next.rates, role: "ink", width: 2 }] }] : []),
      ],
      notes: answer.remarks,
    }; // prettier-ignore
  },

  headline([answer]) {
    const next = answer.best ?? answer.planned;
    const fit = `The law fits these logs to ${valueText(Number((100 * answer.error).toPrecision(2)))}%`;
    if (!next) return `${fit}. Choose a schedule to see the loss of a run that was not made.`;
    const [loss, low, high] = [next.loss, next.low, next.high].map((column) => column.at(-1));
    if (low === null) return `The next run ends at ${valueText(loss)} by the law, which no log has checked so far out; there is no interval.`;
    return `The next run should end at ${valueText(loss)} (90%: ${valueText(low)} to ${valueText(high)})${against(Math.min(...answer.runs.map((run) => run.loss.at(-1))), loss, low, high)}.`;
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

/** The next run beside the best of the logs; within the interval nothing is said to be lower or higher. */
function against(logged, loss, low, high) {
  if (logged >= low && logged <= high) return `; the best of the logs ended at ${valueText(logged)}, within that interval`;
  const than = change(logged, loss, ["lower", "higher"]);
  return than?.includes("%") ? `, ${than} than the best of the logs` : `; the best of the logs ended at ${valueText(logged)}`;
}

/** The next run from the first logged step on; its steep beginning would take most of the axis. */
function since(next, logs) {
  if (!next) return null;
  const first = Math.min(...logs.map((run) => run.step[0]));
  const kept = next.steps.map((step) => step >= first);
  return Object.fromEntries(Object.entries(next).map(([name, column]) => [name, Array.isArray(column) ? column.filter((_, i) => kept[i]) : column]));
}

/** The schedule of the next run: a usual shape as text, with the warm-up of the logs, or the pieces that were dragged; null without either. */
function planned(state) {
  const steps = Number(state.steps);
  if (Object.hasOwn(SHAPES, state.shape)) return Number.isInteger(steps) && steps > 0 ? SHAPES[state.shape].text(steps, warmupOf(steps)) : null;
  return state.shape === "own" ? readPieces(state.schedule) : null;
}

/** Steps of warm-up of a run: those of the logs, as far as it is long enough. */
const warmupOf = (steps) => Math.min(last?.warmup ?? 0, Math.floor(WARMUP_SHARE * steps));

/** The learning rate that a schedule multiplies. */
function peakOf(state) {
  const tree = readTree(state.run);
  return (tree && parametersOf(tree).find((one) => one.parameter.name === "lr")?.value) ?? null;
}

/** The run that is drawn, in pieces. */
function dragged(state) {
  const steps = last.next.steps.at(-1);
  return printPieces(piecesOfRun(last.next, warmupOf(steps), PIECES, Number(peakOf(state)) || Math.max(...last.next.rates)));
}

/** A button that saves the forecast as nqm forecast would; the command line and Python read it. */
function keep(state) {
  const save = async () => {
    const { file } = await ask("/api/outlook", state, { brief: true, file: true });
    offer(new Blob([`${JSON.stringify(file)}\n`], { type: "application/json" }), "forecast.json");
  };
  return element("button", { class: "quiet", type: "button", id: "save-forecast", onclick: save }, "forecast.json");
}
