// View (d): a schedule of the learning rate that the user drags piece by piece, beside the constant rate.

import { valueText } from "../format.js";
import { change, times } from "../words.js";
import { ask } from "../upload.js";
import { isAbort } from "../api.js";
import { lossAxis } from "./axes.js";
import { state as now } from "../state.js";
import { byId, element, labelled, menu, textField } from "../dom.js";
import { Editing } from "./editing.js";
import { parametersOf, readTree } from "../composer.js";
import { SHAPES, equalPieces, printPieces, readPieces, shaped, stretched } from "../pieces.js";

const COUNTS = ["1", "2", "5", "10", "20", "50"].map((n) => [n, n]);

const CAPS = { loss: "the bound on the loss", paper: "the paper's cap", max_rate: "the largest rate", none: "none is reached" };

const EVERY_STEP = "This schedule changes at every step. Choose a number of pieces to get one that you can drag.";

export const schedule = {
  id: "schedule",
  tab: "Schedule",
  title: "A schedule of the learning rate",
  about: {
    see: "Factors that multiply the learning rate, piece by piece, and the exact loss under them. Drag the tops and the ends of pieces. Keys: arrows move (Shift: finer); on a piece, Home resets, + splits, Delete removes.",
    why: "A large rate removes the signal quickly and leaves noise; a small one at the end removes the noise.",
    tries: [["A short cooldown", { schedule: "Schedule([80000, 20000], [1, 0.1])", steps: "100000" }], ["One constant rate", { schedule: "", pieces: "1" }]],
  },
  cards: { setting: true, batch: true, steps: true },
  uses: ["spectrum", "data", "kind", "label_noise", "run", "batch", "steps", "schedule", "pieces", "max_rate", "target"],
  quick: () => true,

  controls(state, update, run) {
    const text = textField(state.schedule || printPieces(piecesOf(state)), (next) => update({ schedule: next }), { class: "code", size: "16" });
    const best = (goal) => run((signal) => bestOf(now(), goal, signal)); // sliders have moved since this was built
    const fixed = state.kind === "quadratic";
    const button = (look, id, goal, words) => {
      const node = element("button", { class: look, type: "button", id, onclick: () => best(goal) }, words);
      node.disabled = !fixed;
      return node;
    };
    return [
      labelled("Schedule", text, "schedule", "schedule-text"),
      labelled("Pieces", menu(COUNTS, state.pieces, (pieces) => update({ pieces, schedule: "" })), "pieces", "pieces"),
      labelled("Largest rate", textField(state.max_rate, (next) => update({ max_rate: next }), { class: "code", size: "8", placeholder: "loss bounded" }), "max_rate", "max-rate"),
      element("div", { class: "presets", role: "group", "aria-label": "Usual schedules" }, ...Object.entries(SHAPES).map(([id, { name }]) =>
        element("button", { class: "chip", type: "button", id: `shape-${id}`, onclick: () => update({ schedule: printPieces(shaped(id, Number(now().steps), Number(now().pieces))) }) }, name))),
      button("strong", "best-loss", "steps", "Best for these steps"),
      button("quiet", "best-steps", "target", "Best for the target"),
      fixed ? null : element("p", { class: "note" }, "Best schedules can be found only for gradient noise of fixed variance."),
    ];
  },

  /** Show the editor, which stays in place while the loss below it is redrawn. */
  edit(box, state, update) {
    const pieces = piecesOf(state);
    this.editing ??= new Editing();
    this.editing.show(box, pieces, (next) => update({ schedule: printPieces(next) }), EVERY_STEP);
    const field = byId("schedule-text");
    if (field && field !== document.activeElement) field.value = state.schedule || printPieces(pieces);
  },

  /** When the number of steps changes, the pieces are stretched with it. */
  adapt(state, changed) {
    const pieces = state.schedule && changed.has("steps") ? readPieces(state.schedule) : null;
    const steps = Number(state.steps);
    if (!pieces || !Number.isInteger(steps) || changed.has("schedule")) return null;
    const next = printPieces(stretched(pieces, steps));
    return next === state.schedule ? null : { schedule: next };
  },

  async ask(state, signal, progress, moving) {
    const body = { optimizer: state.run, batch_size: state.batch, steps: state.steps, grid: "linear", points: moving ? 80 : 200, quick: moving };
    const pieces = piecesOf(state);
    const given = { ...body, schedule: pieces ? { lengths: pieces.lengths, lr: pieces.lr } : state.schedule };
    const [scheduled, constant] = await Promise.all([ask("/api/curve", state, given, signal), ask("/api/curve", state, body, signal)]);
    if (moving) return [scheduled, constant];
    progress([scheduled, constant]);
    const hit = { optimizer: state.run, batch_size: state.batch, target: state.target, schedule: given.schedule };
    const reached = await ask("/api/steps", state, hit, signal);
    progress([scheduled, constant, reached]);
    return [scheduled, constant, reached, ...(await Promise.all([bestPossible(state, signal), bestConstant(state, signal)]))];
  },

  figure([scheduled, constant], state) {
    const lines = [
      { label: "constant rate", x: constant.steps, y: constant.loss, role: "muted", dash: "dash", width: 1.8, loose: constant.outcome === "diverged" },
      { label: "with the schedule", x: scheduled.steps, y: scheduled.loss, role: "c0", width: 3 },
      { label: "its signal", x: scheduled.steps, y: scheduled.signal ?? [], role: "c4", dash: "dot", width: 1.4, loose: true },
      { label: "its noise / batch size", x: scheduled.steps, y: scheduled.noise_loss ?? [], role: "c1", dash: "dot", width: 1.4, loose: true },
    ].filter((line) => line.y.length);
    const marks = [{ kind: "h", at: Number(state.target), role: "c2", dash: "dot", label: `target ${state.target}`, side: "left", inside: true }];
    const rate = { label: "multiplier of the learning rate", x: scheduled.steps, y: scheduled.multipliers?.lr ?? [], role: "c3", stairs: true };
    const loss = { x: { label: "step", scale: "linear", air: 0 }, y: lossAxis(scheduled, constant), lines, marks, height: 198 };
    // The editor shows the pieces; downloads show them as a panel.
    const edited = Boolean(piecesOf(state));
    const shape = { title: "Schedule", edited, x: { label: "step", scale: "linear" }, y: { label: "× learning rate", scale: "linear" }, lines: [rate], height: 220 };
    return { title: `${scheduled.optimizer} with a schedule, batch size ${valueText(scheduled.batch_size)}`, panels: [shape, loss] };
  },

  headline([scheduled, , , best, tuned], state) {
    if (scheduled.outcome === "diverged") return "This schedule diverges: a piece lies beyond the edge of stability.";
    const [to, from] = [scheduled.loss.at(-1), tuned?.loss ?? null]; // of any rate, so that a button that changes the rate does not move it
    const part = from === null ? null : change(from, to, ["lower", "higher"]);
    const than = part === null ? "" : part === "as many" ? ", as at the best constant rate" : part.endsWith("many") ? `, ${times(to / from)} that of the best constant rate` : `, ${part} than at the best constant rate`;
    const score = best?.loss > 0 ? ` The best in ${state.pieces} pieces ends at ${valueText(best.loss)}${against(to, best.loss)}.` : "";
    return `The loss ends at ${valueText(to)}${than}.${score}`;
  },

  measures: ([scheduled]) => [{ name: "at the end", x: [0], y: [scheduled.loss.at(-1)], unit: "loss", words: ["lower", "higher"] }],

  facts([scheduled, constant, hit, best, tuned]) {
    return [
      { name: "loss with the schedule", value: valueText(scheduled.loss.at(-1)), term: "loss" },
      { name: "loss at the constant rate", value: valueText(constant.loss.at(-1)), term: "loss", note: tuned?.loss > 0 ? `at the best constant rate, ${valueText(tuned.lr)}: ${valueText(tuned.loss)}` : null },
      { name: "steps to the target", value: hit ? (hit.steps === null ? hit.outcome.replaceAll("_", " ") : valueText(hit.steps)) : "…", term: "target" },
      ...(best?.loss > 0 ? [{ name: "loss of the best schedule", value: valueText(best.loss), note: `this one is ${times(scheduled.loss.at(-1) / best.loss)} that` }] : []),
      ...(best?.loss > 0 ? [{ name: "limit of the best schedule", value: CAPS[best.cap], term: "max_rate" }] : []),
      ...(best?.warning ? [{ name: "warning", value: `The best schedule: ${best.warning}.`, wide: true, warn: true }] : []),
      ...(scheduled.outcome === "diverged" ? [{ name: "outcome", value: scheduled.message, wide: true }] : []),
    ];
  },

  tables([scheduled]) {
    const rows = scheduled.steps.map((step, i) => [step, scheduled.multipliers?.lr[i] ?? 1, scheduled.loss[i]]);
    return [{ caption: scheduled.message, columns: ["step", "× lr", "loss"], rows }];
  },
};

/** How far a loss is above the best one, in words. */
function against(loss, best) {
  const part = change(best, loss, ["lower", "higher"]);
  return part === "as many" || loss < best ? ", and this one with it" : part.endsWith("many") ? `; this one at ${times(loss / best)} that` : `; this one ${part}`;
}

/** The pieces of the current schedule; null if it is not made of a few pieces. */
function piecesOf(state) {
  if (state.schedule) return readPieces(state.schedule);
  const steps = Number(state.steps);
  return equalPieces(Number.isInteger(steps) && steps > 0 ? steps : 1000, Number(state.pieces));
}

/** The best schedule of as many pieces for these steps, as a measure of the one shown; null where there is none. */
async function bestPossible(state, signal) {
  if (state.kind !== "quadratic" || !readTree(state.run)) return null;
  try {
    return await ask("/api/schedule", state, bestBody(state, "steps"), signal);
  } catch (error) {
    if (isAbort(error)) throw error;
    return null; // a forecast, or an optimizer whose schedules cannot be searched
  }
}

/** The constant rate that ends lowest after these steps; null where searching it takes long or is not possible. */
async function bestConstant(state, signal) {
  if (state.kind !== "quadratic" || !rateless(state)) return null;
  try {
    return await ask("/api/tune", state, { optimizer: rateless(state), batch_size: state.batch, steps: state.steps }, signal);
  } catch (error) {
    if (isAbort(error)) throw error;
    return null;
  }
}

/** The setting without its learning rate; null if it has none. */
function rateless(state) {
  const tree = readTree(state.run);
  return (tree && parametersOf(tree).find((one) => one.parameter.name === "lr")?.with(null)) ?? null;
}

function bestBody(state, goal) {
  const limit = state.max_rate ? { max_rate: state.max_rate } : {};
  return { optimizer: rateless(state) ?? state.run, batch_size: state.batch, pieces: Number(state.pieces), [goal]: state[goal], ...limit };
}

/** The best schedule as changes of the state: the learning rate that it multiplies, its pieces, its steps. */
async function bestOf(state, goal, signal) {
  const found = await ask("/api/schedule", state, bestBody(state, goal), signal);
  if (!found.steps) return { message: found.message };
  const { lengths, lr } = found.schedule;
  return { changes: { run: found.optimizer, steps: String(found.steps), schedule: printPieces({ lengths, lr }) }, message: found.message };
}
