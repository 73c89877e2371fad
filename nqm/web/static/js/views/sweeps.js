// Sweeps over batch sizes, which two views share. There is one request for each optimizer, so that each line is drawn as
// soon as its answer arrives.

import { isAbort } from "../api.js";
import { ask } from "../upload.js";
import { valueText } from "../format.js";
import { withValues } from "../composer.js";

export const USES = ["spectrum", "data", "kind", "label_noise", "target", "sizes", "o"];

const SHARED = ["problem", "target", "batch_sizes"]; // what is wrong with these is wrong for all

/** One answer for each optimizer. If an optimizer is wrong or takes too long, an error takes its place. */
export async function askSweeps(state, signal, progress) {
  const found = state.o.map(() => null);
  const one = async (text, i) => {
    try {
      found[i] = await ask("/api/sweep", state, { optimizers: [text], target: state.target, batch_sizes: state.sizes }, signal);
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
      rows: sweep.batch_sizes.map((size, i) => [
        size, sweep.steps[i], sweep.examples[i], sweep.lr[i], sweep.effective_lr[i],
        ...names.map((name) => sweep.settings[name][i]), sweep.messages[i],
      ]), // prettier-ignore
    };
  });
}
