// View (a): steps to the target against batch size, optimizers side by side.

import { rounded, roundedText, valueText } from "../format.js";
import { known } from "../catalogue.js";
import { labelled, menu } from "../dom.js";
import { USES, askSweeps, commandsOf, errorsOf, opened, sweepTables, sweepsOf } from "./sweeps.js";

const OPACITY = { perfect: 0.9, diminishing: 0.5, maximal: 0.2 };

export const steps = {
  id: "steps",
  tab: "Steps × batch size",
  title: "Steps to the target against batch size",
  blurb: "Each optimizer is tuned at every batch size. Up to its critical batch size, twice the batch halves the steps; beyond it, returns diminish.",
  cards: { families: true, sizes: true },
  uses: [...USES, "critical"],
  ask: askSweeps,
  errors: errorsOf,
  commands: commandsOf,

  controls(state, update) {
    const options = Object.keys(known().definitions).map((name) => [name, name]);
    const choose = menu(options, state.critical, (critical) => update({ critical }));
    return [labelled("Critical batch size by", choose, "critical_batch_size", "critical")];
  },

  figure(answers, state) {
    const sweeps = sweepsOf(answers);
    const lines = [...sweeps.map(scaling), ...bounds(sweeps[0]), ...sweeps.map(curve)];
    const marks = [...floors(sweeps), ...sweeps.flatMap((sweep) => critical(sweep, state.critical))];
    const name = marks.find((mark) => mark.kind === "v");
    if (name) marks.push({ kind: "none", role: "muted", listed: `critical batch size: ${known().definitions[state.critical]}` });
    for (const sweep of sweeps) {
      const remark = sweep.remarks?.[state.critical]; // why there is no mark, or a rough one
      if (remark) marks.push({ kind: "none", role: sweep.role, listed: `critical batch size of ${sweep.label}: ${remark}` });
    }
    return {
      title: `Steps to loss ${state.target} against batch size`,
      panels: [
        {
          x: { label: "batch size", scale: "log2" },
          y: { label: `steps to loss ${state.target}`, scale: "log2", air: 0.06, below: 0.035 * sweeps.length },
          lines, marks, strips: sweeps.map(regimes), height: 460,
        },
      ], // prettier-ignore
    };
  },

  summary(answers) {
    const names = Object.keys(known().definitions);
    return {
      caption: "Critical batch size by definition",
      columns: ["optimizer", ...names, "fewest steps"],
      rows: sweepsOf(answers).map((sweep) => [sweep.label, ...names.map((name) => rounded(sweep.critical_batch_size[name])), sweep.smallest_steps]),
      remarks: sweepsOf(answers).map((sweep) => [null, ...names.map((name) => sweep.remarks?.[name]), null]),
      roles: sweepsOf(answers).map((sweep) => sweep.role),
    };
  },

  tables: (answers) => sweepTables(sweepsOf(answers)),

  pick(answers, figure, panel, line, index) {
    const sweep = sweepsOf(answers).find((one) => one.role === figure.panels[panel].lines[line].role);
    return sweep?.optimizers[index] ? opened(sweep, index) : null;
  },
};

const curve = (sweep) => ({ label: sweep.label, x: sweep.batch_sizes, y: sweep.steps, role: sweep.role, points: true, width: 2.4, pick: true });

const scaling = (sweep, i) => ({
  label: "perfect scaling", x: sweep.batch_sizes, y: sweep.perfect_scaling, role: sweep.role, dash: "dot", width: 1.1, loose: true, unlisted: i > 0,
}); // prettier-ignore

function bounds(sweep) {
  if (!sweep) return [];
  const line = (label, y, dash) => ({ label, x: sweep.batch_sizes, y, role: "muted", dash, width: 1.3, loose: true });
  const lines = [line("paper's bound d/(2CB)", sweep.bounds.paper, "dash"), line("Bayes bound", sweep.bounds.bayes, "solid")];
  return lines.filter((one) => one.y.some((value) => value !== null)); // a measured problem has no bound where it has no signal
}

/** The steps of conjugate gradients without noise; no method that combines gradients is faster. */
function floors(sweeps) {
  const values = [...new Set(sweeps.map((sweep) => sweep.bounds.conjugate_gradients).filter((value) => value !== null))];
  return values.map((at) => ({ kind: "h", at, role: "muted", dash: "dot", inside: true, label: `conjugate gradients without noise: ${valueText(at)}` }));
}

function critical(sweep, definition) {
  const at = sweep.critical_batch_size[definition];
  return at === null ? [] : [{ kind: "v", at, role: sweep.role, dash: "dash", label: roundedText(at) }];
}

function regimes(sweep) {
  const parts = Object.entries(sweep.regimes).map(([label, [from, to]]) => ({ label, from, to, opacity: OPACITY[label] }));
  return { label: sweep.label, role: sweep.role, parts };
}
