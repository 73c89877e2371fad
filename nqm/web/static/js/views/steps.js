// View (a): steps to the target against batch size, optimizers side by side.

import { rounded, roundedText, valueText } from "../format.js";
import { about, capital, short, spoken, times } from "../words.js";
import { known } from "../catalogue.js";
import { element, labelled, menu } from "../dom.js";
import { USES, askSweeps, commandsOf, errorsOf, followable, opened, sweepTables, sweepsOf } from "./sweeps.js";

const OPACITY = { perfect: 0.9, diminishing: 0.5, maximal: 0.2 };

export const steps = {
  id: "steps",
  tab: "Steps × batch size",
  title: "Steps to the target against batch size",
  about: {
    see: "The fewest steps that each optimizer needs at each batch size, with every number tuned. A dashed line marks its critical batch size: there it takes twice the steps of perfect scaling, unless you choose another definition.",
    why: "While noise dominates, twice the batch halves the steps. Once the noise is averaged away, curvature decides, and only a better optimizer helps.",
    tries: [["Add preconditioning", { o: ["SGD()", "HeavyBall()", "Preconditioned(SGD(), power=0.5)"] }], ["Ask for ten times less loss", { target: "0.001" }], ["Show the limits of any method", { limits: "shown" }]],
  },
  cards: { families: true, sizes: true },
  uses: [...USES, "critical", "limits"],
  quick: followable,
  ask: askSweeps,
  errors: errorsOf,
  commands: commandsOf,

  controls(state, update) {
    const options = Object.keys(known().definitions).map((name) => [name, name]);
    const choose = menu(options, state.critical, (critical) => update({ critical }));
    const limits = element("input", { type: "checkbox", id: "limits", checked: state.limits === "shown", onchange: () => update({ limits: limits.checked ? "shown" : "" }) });
    return [labelled("Critical batch size by", choose, "critical_batch_size", "critical"), element("label", { class: "check", for: "limits" }, limits, "Show limits")];
  },

  figure(answers, state) {
    const sweeps = sweepsOf(answers);
    const limits = state.limits === "shown";
    const lines = [...(limits ? [...sweeps.map(scaling), ...bounds(sweeps[0])] : []), ...sweeps.map(curve), ...sweeps.flatMap(added)];
    const marks = [...(limits ? floors(sweeps) : []), ...sweeps.flatMap((sweep) => critical(sweep, state.critical))];
    const name = marks.find((mark) => mark.kind === "v");
    if (name) marks.push({ kind: "none", role: "muted", listed: `critical batch size: ${known().definitions[state.critical]}` });
    const more = sweeps.reduce((sum, sweep) => sum + (sweep.added?.length ?? 0), 0);
    if (more) marks.push({ kind: "none", role: "muted", listed: `${more} points at batch sizes that the sweeps added, to know critical batch sizes to 1%; the table lists them` });
    for (const sweep of sweeps) {
      const remark = sweep.remarks?.[state.critical]; // why there is no mark, or a rough one
      if (remark) marks.push({ kind: "none", role: sweep.role, listed: `critical batch size of ${sweep.label}: ${remark}` });
    }
    return {
      title: `Steps to loss ${state.target} against batch size`,
      panels: [
        {
          x: { label: "batch size", scale: "log2" },
          y: { label: `steps to loss ${state.target}`, scale: "log2", air: 0.06, ...(limits ? { below: 0.035 * sweeps.length } : {}) },
          lines, marks, strips: limits ? sweeps.map(regimes) : [], height: 430,
        },
      ], // prettier-ignore
    };
  },

  headline: (answers, state) => said(sweepsOf(answers), state),

  measures: (answers) => sweepsOf(answers).map((sweep) => ({ name: spoken(sweep.label), x: sweep.batch_sizes, y: sweep.steps, unit: "steps" })),

  summary(answers) {
    const names = Object.keys(known().definitions);
    return {
      caption: "Critical batch size by definition",
      columns: ["optimizer", ...names, "fewest steps"],
      rows: sweepsOf(answers).map((sweep) => [sweep.label, ...names.map((name) => rounded(sweep.critical_batch_size[name] ?? null)), sweep.smallest_steps]),
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

const curve = (sweep) => ({ label: sweep.label, x: sweep.batch_sizes, y: sweep.steps, role: sweep.role, points: true, width: 2.4, pick: true, end: short(sweep.label) });

/** The points that a sweep added, between the batch sizes that were asked for. */
function added(sweep) {
  const inside = (sweep.added ?? []).filter((row) => row.steps !== null && row.batch_size > sweep.batch_sizes[0] && row.batch_size < sweep.batch_sizes.at(-1));
  if (!inside.length) return [];
  return [{ label: `${sweep.label}: added`, x: inside.map((row) => row.batch_size), y: inside.map((row) => row.steps), role: sweep.role, points: true, small: true, width: 0, loose: true, unlisted: true }];
}

const scaling = (sweep, i) => ({
  label: "perfect scaling", series: `perfect scaling of ${sweep.label}`, x: sweep.batch_sizes, y: sweep.perfect_scaling, role: sweep.role, dash: "dot", width: 1.1, loose: true, unlisted: i > 0,
}); // prettier-ignore

function bounds(sweep) {
  if (!sweep) return [];
  // A bound below one step says nothing, and may be as small as 1e-61.
  const line = (label, y, dash) => ({ label, x: sweep.batch_sizes, y: y.map((steps) => (steps >= 1 ? steps : null)), role: "muted", dash, width: 1.3, loose: true });
  const lines = [line("paper's bound d/(2CB)", sweep.bounds.paper, "dash"), line("Bayes bound", sweep.bounds.bayes, "solid")];
  return lines.filter((one) => one.y.some((value) => value !== null)); // a measured problem has no bound where it has no signal
}

/** The steps of conjugate gradients without noise; no method that combines gradients is faster. */
function floors(sweeps) {
  const values = [...new Set(sweeps.map((sweep) => sweep.bounds.conjugate_gradients).filter((value) => value !== null))];
  return values.map((at) => ({ kind: "h", at, role: "muted", dash: "dot", inside: true, label: `conjugate gradients without noise: ${valueText(at)}` }));
}

function critical(sweep, definition) {
  const at = sweep.critical_batch_size[definition] ?? null;
  return at === null ? [] : [{ kind: "v", at, role: sweep.role, dash: "dash", label: `${short(sweep.label)}: critical at ${roundedText(at)}` }];
}

const REFERENCE = "SGD()";
const SAME = 1.05; // steps within this factor are the same steps

/** The sentence that the figure amounts to. */
export function said(sweeps, { critical: definition }) {
  if (sweeps.some((sweep) => sweep.unfinished)) return "";
  const known = sweeps.filter((sweep) => sweep.critical_batch_size[definition] !== null && sweep.steps.some((steps) => steps !== null));
  if (!known.length) return sweeps.length ? "None of these batch sizes shows where scaling ends." : "";
  if (known.every(flat)) return flatly(known);
  const bent = known.filter((sweep) => !flat(sweep)).sort((a, b) => b.critical_batch_size[definition] - a.critical_batch_size[definition]);
  const [first] = bent;
  const last = bent.find((sweep) => sweep.label === REFERENCE) ?? bent.at(-1); // what most people know
  const at = (sweep) => about(sweep.critical_batch_size[definition]);
  const scaling = `${capital(spoken(first.label))} keeps scaling to batch size ${at(first)}`;
  if (first === last) return `${scaling}; beyond it, returns diminish.`;
  const ratio = first.critical_batch_size[definition] / last.critical_batch_size[definition];
  return `${scaling}; ${spoken(last.label)} stops at ${at(last)}: ${times(ratio)} further.`;
}

/** Whether the batch size makes no difference. */
function flat(sweep) {
  const steps = sweep.steps.filter((value) => value !== null);
  return sweep.batch_sizes.length > 1 && Math.max(...steps) <= SAME * Math.min(...steps);
}

function flatly(sweeps) {
  const sorted = [...sweeps].sort((a, b) => a.smallest_steps - b.smallest_steps);
  const [first, last] = [sorted[0], sorted.at(-1)];
  const same = `The batch size makes no difference here. ${capital(spoken(first.label))} takes ${valueText(first.smallest_steps)} steps`;
  return first === last ? `${same}.` : `${same}, ${spoken(last.label)} ${times(last.smallest_steps / first.smallest_steps)} as many.`;
}

function regimes(sweep) {
  const parts = Object.entries(sweep.regimes).map(([label, [from, to]]) => ({ label, from, to, opacity: OPACITY[label] }));
  return { label: sweep.label, role: sweep.role, parts };
}
