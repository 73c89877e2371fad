// View (i): advice for a fitted network. The setting that reaches a training loss soonest, and steps against batch size.

import { element, labelled, numberField } from "../dom.js";
import { plain, valueText } from "../format.js";
import { Invitation, showWrong } from "../report.js";
import { ask, askSpectrum, openExample } from "../upload.js";
import { freed, readTree } from "../composer.js";
import { capital, short } from "../words.js";

const NOTHING = "Drop a file of nqm fit anywhere on this page, or open the sample: a small network on handwritten digits.";
const HALF = 0.5; // the first goal lies halfway from the loss of the checkpoint to the end of the descent, in logs

export const advice = {
  id: "advice",
  tab: "Advice",
  title: "How to reach a training loss soonest",
  about: {
    see: "Steps until the loss of a training first dips below the goal, each optimizer tuned at each batch size: the median of sampled trainings, and a bar that four of five are in.",
    why: "The quadratic of the fit, corrected along a descent, predicts every optimizer at once. Nothing was trained for this.",
    tries: [["A larger batch", { batch: "256" }], ["The spectrum behind it", { view: "network" }]],
  },
  cards: (state) => ({ file: "advice", ...(state.data ? { batch: true, family: state.advised === "own" } : {}) }),
  uses: ["data", "batch", "goal", "advised", "run"],

  controls(state, update) {
    const own = element("input", { type: "checkbox", id: "advised", checked: state.advised === "own", onchange: () => update({ advised: own.checked ? "own" : "" }) });
    if (!state.data) return [element("button", { class: "strong", type: "button", id: "advice-sample", onclick: () => openExample(update, "advice") }, "Open the sample")];
    return [goalField(state, update), element("label", { class: "check", for: "advised" }, own, "Only the optimizer under Setting, tuned")];
  },

  async ask(state, signal, progress) {
    if (!state.data) throw new Invitation(NOTHING);
    const target = state.goal || String(await halfway(state, signal));
    const tree = state.advised === "own" ? readTree(state.run) : null;
    const body = { batch_size: state.batch, target, ...(tree ? { optimizer: freed(tree) } : {}) };
    const heard = ({ done, of }) => progress.say?.(`Tuning … ${Math.floor((100 * done) / of)}% is done.`);
    return [await ask("/api/advise", { ...state, kind: "quadratic" }, body, signal, heard)];
  },

  figure([answer], state) {
    const families = rowsOf(answer);
    const lines = families.flatMap(({ family, rows }, i) => {
      const known = rows.filter((row) => row.steps !== null);
      const line = (y, look) => ({ x: known.map((row) => row.batch_size), y, role: `c${i}`, ...look });
      return [
        line(known.map((row) => row.steps), { label: family, points: true, width: 2.4, pick: true, end: short(family), bars: known.map((row) => [row.low, row.high]) }),
        line(known.map((row) => row.low), { label: `${family}, 10% of trainings`, width: 0, unlisted: true }),
        line(known.map((row) => row.high), { label: `${family}, 90% of trainings`, width: 0, unlisted: true }),
      ];
    });
    const critical = answer.critical_by_hits ?? answer.critical_batch_size;
    const marks = [{ kind: "v", at: answer.batch_size, role: "ink", dash: "dot", label: `your batch size ${valueText(answer.batch_size)}` }];
    if (critical) marks.push({ kind: "v", at: critical.value, role: "c0", dash: "dash", label: `${short(families[0].family)}: critical at ${valueText(Math.round(critical.value))}` });
    const panel = { x: { label: "batch size", scale: "log2" }, y: { label: `steps to training loss ${valueText(answer.target)}`, scale: "log2", air: 0.08 }, lines, marks, height: 400, opens: "Your network" };
    return { title: `Steps to training loss ${valueText(answer.target)} from ${valueText(answer.loss)}`, about: state.name, panels: [panel], notes: answer.sentences.map(sentenceOf) };
  },

  headline([answer]) {
    if (answer.steps === null) return sentenceOf(answer.sentences[0]);
    const end = answer.high === null ? "no upper end" : valueText(answer.high);
    return `${rounded(answer.optimizer)} reaches ${valueText(answer.target)} in ${valueText(answer.steps)} steps at batch size ${valueText(answer.batch_size)} (four of five trainings: ${valueText(answer.low)} to ${end}).`;
  },

  measures: (answers) => rowsOf(answers[0]).map(({ family, rows }) => ({ name: short(family), x: rows.map((row) => row.batch_size), y: rows.map((row) => row.steps), unit: "steps" })),

  facts([answer]) {
    const [, ...rest] = answer.sentences;
    const interval = (found) => (found?.low === null || found?.low === undefined ? null : `90%: ${valueText(found.low)} to ${valueText(found.high)}`);
    const size = (name, found) => (found ? [{ name, value: valueText(Number(found.value.toPrecision(3))), note: interval(found), term: "critical_batch_size" }] : []);
    return [
      ...size("critical batch size, by first hits", answer.critical_by_hits),
      ...size("critical batch size, by expected loss", answer.critical_batch_size),
      ...(rest.length ? [{ name: "what this rests on", value: sentenceOf(rest.at(-1)), wide: true }] : []),
      ...(rest.length > 1 ? [{ name: "what else would help", value: rest.slice(0, -1).map(sentenceOf).join(" "), wide: true }] : []),
    ];
  },

  summary([answer]) {
    if (!answer.table.length) return null;
    const here = answer.table.filter((row) => row.batch_size === answer.batch_size);
    const columns = ["optimizer", "steps", "10%", "90%", "examples", "expected loss arrives"];
    const rows = here.map((row) => [row.optimizer, row.steps, row.low, row.high, row.examples, row.expected_steps]);
    return { caption: `Tuned at batch size ${valueText(answer.batch_size)}`, columns, rows, roles: here.map((_, i) => `c${i}`) };
  },

  tables: ([answer]) => [{
    caption: "Every optimizer at every batch size", columns: ["batch size", "optimizer", "steps", "10%", "90%", "examples", "expected loss arrives"],
    rows: answer.table.map((row) => [row.batch_size, row.optimizer, row.steps, row.low, row.high, row.examples, row.expected_steps]),
  }], // prettier-ignore

  pick(answers, figure, panel, line, index) {
    const found = rowsOf(answers[0])[Math.floor(line / 3)]?.rows.filter((row) => row.steps !== null)[index];
    return found ? { view: "network", run: found.optimizer, batch: String(found.batch_size), steps: String(Math.max(10, 2 * found.steps)) } : null;
  },
};

/** The field for the training loss that two views ask about. */
export function goalField(state, update) {
  const field = numberField(state.goal, (text) => update({ goal: text }), { onwrong: showWrong, size: "8", placeholder: "halfway" });
  return labelled("Training loss to reach", field, "goal", "goal");
}

/** The rows of each family, over batch sizes. */
function rowsOf({ table, families }) {
  const each = families.length ? table.length / families.length : 0;
  return families.map((family, i) => ({ family, rows: table.slice(i * each, (i + 1) * each) }));
}

/** The first goal, which the descent of the fit has reached. */
async function halfway(state, signal) {
  const { fit } = await askSpectrum("/api/spectrum", state, {}, signal);
  if (!fit) throw new Invitation(NOTHING);
  return halfwayOf(fit);
}

/** The loss halfway down the descent of a fit, in logs. */
export function halfwayOf(fit) {
  const last = Math.min(...(fit.descent?.loss ?? [fit.loss / 2]));
  return Number((fit.loss * (last / fit.loss) ** HALF).toPrecision(2));
}

/** An optimizer with its numbers to three digits. */
const rounded = (text) => text.replace(/\d+\.\d+(?:e-?\d+)?/g, (number) => plain(Number(number), 3));

const sentenceOf = (text) => `${capital(text)}${/[.!?]$/.test(text) ? "" : "."}`;
