// Sweeps over batch sizes, which two views share. There is one request for each optimizer, so that each line is drawn as
// soon as its answer arrives.

import { isAbort } from "../api.js";
import { ask } from "../upload.js";
import { valueText } from "../format.js";
import { withValues } from "../composer.js";

export const USES = ["spectrum", "data", "kind", "label_noise", "target", "sizes", "o"];

const SHARED = ["problem", "target", "batch_sizes"]; // what is wrong with these is wrong for all

const MOST_SIZES = 40; // batch sizes of a request

const PATIENCE = 1500; // ms after which points are drawn one by one
const last = new Map(); // the last sweep of each optimizer at these batch sizes, from which a preview starts

/** One answer for each optimizer. If an optimizer is wrong or takes too long, an error takes its place. */
export async function askSweeps(state, signal, progress, moving) {
  if (moving) return preview(state, signal);
  const found = state.o.map(() => null);
  const began = performance.now();
  const one = async (text, i) => {
    const parts = [];
    const heard = (part) => {
      parts.push(part);
      if (performance.now() - began < PATIENCE) return;
      found[i] = unfinished(parts, state);
      progress([...found]);
    };
    try {
      found[i] = await ask("/api/sweep", state, { optimizers: [text], target: state.target, batch_sizes: state.sizes }, signal, heard);
      last.set(keyOf(text, state), found[i].sweeps[0]);
    } catch (error) {
      if (isAbort(error) || error.status === 0 || SHARED.some((name) => error.field?.startsWith(name))) throw error;
      error.input = `family-${i}-text`;
      found[i] = { error };
    }
    progress([...found]);
  };
  await Promise.all(state.o.map(one));
  return found;
}

const keyOf = (text, state) => `${text} ${state.sizes} ${state.kind}`;

/** Whether every optimizer has a sweep from which a preview can start. */
export function followable(state) {
  return state.kind === "quadratic" && state.o.every((text) => {
    const known = last.get(keyOf(text, state));
    return known?.method === "exact" && known.smallest_steps !== null && known.steps.every((steps) => steps !== null);
  });
}

/** Sweeps to about 1%, each from the last one of its optimizer. */
async function preview(state, signal) {
  return Promise.all(state.o.map(async (text) => {
    const key = keyOf(text, state);
    const known = last.get(key);
    const found = known.added.filter((row) => row.steps !== null).slice(0, MOST_SIZES - known.batch_sizes.length);
    const asked = known.batch_sizes.map((size, i) => ({ batch_size: size, steps: known.steps[i], optimizer: known.optimizers[i] }));
    const rows = [...asked, ...found].sort((a, b) => a.batch_size - b.batch_size);
    const body = {
      optimizers: [text], target: state.target, batch_sizes: rows.map((row) => row.batch_size), added: found.map((row) => row.batch_size),
      near: [...rows.map((row) => row.optimizer), known.optimizers.at(-1)], near_steps: [...rows.map((row) => row.steps), known.smallest_steps],
    }; // prettier-ignore
    const answer = await ask("/api/preview", state, body, signal);
    const [sweep] = answer.sweeps;
    if (sweep.smallest_steps !== null && sweep.steps.every((steps) => steps !== null)) last.set(key, sweep);
    return answer;
  }));
}

/** The points of a sweep that have arrived, in the form of an answer. */
function unfinished(parts, state) {
  const rows = parts.filter((part) => !part.added).sort((a, b) => a.batch_size - b.batch_size);
  const sweep = {
    label: parts[0].label, target: Number(state.target), unfinished: true, batch_sizes: rows.map((row) => row.batch_size), steps: rows.map((row) => row.steps),
    optimizers: rows.map((row) => row.optimizer), settings: {}, lr: [], effective_lr: [], examples: [], messages: [], critical_batch_size: {}, regimes: {},
    perfect_scaling: [], bounds: { paper: [], bayes: [], conjugate_gradients: null }, smallest_steps: null,
  }; // prettier-ignore
  return { sweeps: [sweep] };
}

/** The sweeps that have arrived, each with the index of its optimizer, which decides its colour. */
export function sweepsOf(answers) {
  return answers.flatMap((answer, i) => (answer?.sweeps ? [{ ...answer.sweeps[0], role: `c${i}`, place: i }] : []));
}

export const errorsOf = (answers) => answers.flatMap((answer) => (answer?.error ? [answer.error] : []));
export const commandsOf = (answers) => answers.filter((answer) => answer?.command);

/** The changes of the state for a chosen point: its setting, its batch size, and a few more steps than it needs. */
export function opened(sweep, index) {
  return {
    view: "loss",
    run: withValues(sweep.optimizers[index], Object.fromEntries(Object.entries(sweep.settings).map(([name, column]) => [name, column[index]]))),
    batch: String(sweep.batch_sizes[index]),
    steps: String(longer(sweep.steps[index])),
  };
}

/** A round number of steps, so large that the target is inside the picture. */
export function longer(steps) {
  return Math.max(10, Math.min(1e9, Math.round(Number((steps * 1.5).toPrecision(2)))));
}

export function sweepTables(sweeps) {
  return sweeps.map((sweep) => {
    const names = Object.keys(sweep.settings).filter((name) => name !== "lr");
    return {
      caption: `${sweep.label}, tuned for loss ${valueText(sweep.target)}`,
      columns: ["batch size", "steps", "examples", "lr", "effective lr", ...names, "message"],
      rows: [
        ...sweep.batch_sizes.map((size, i) => [
          size, sweep.steps[i], sweep.examples[i], sweep.lr[i], sweep.effective_lr[i],
          ...names.map((name) => sweep.settings[name][i]), sweep.messages[i],
        ]),
        ...(sweep.added ?? []).map((row) => [
          row.batch_size, row.steps, row.examples, row.lr, row.effective_lr, ...names.map((name) => row[name] ?? null),
          ["added", row.message].filter(Boolean).join("; "),
        ]),
      ].sort((a, b) => a[0] - b[0]), // prettier-ignore
    };
  });
}
