// View (c): the best learning rate, momentum and decay against batch size.

import { optimizer } from "../catalogue.js";
import { labelled, menu } from "../dom.js";
import { valueText } from "../format.js";
import { about, capital, short, spoken, times } from "../words.js";
import { layers } from "../grammar.js";
import { readTree } from "../composer.js";
import { USES, askSweeps, commandsOf, errorsOf, followable, opened, sweepTables, sweepsOf } from "./sweeps.js";

const RATES = [
  ["effective_lr", "effective"],
  ["lr", "as it is set"],
];
const NAMES = { effective_lr: "best effective learning rate", lr: "best learning rate" };

export const settings = {
  id: "settings",
  tab: "Best settings",
  title: "Best settings against batch size",
  about: {
    see: "The tuned values behind the steps. Effective rates, lr / (1 - momentum), grow with the batch size and level off.",
    why: "Noise allows only small rates at small batches. At large ones the edge of stability ends the growth of SGD's rate; momentum lets the effective rate grow further.",
    tries: [["See learning rates as they are set", { rate: "lr" }], ["Compare averages", { o: ["EMA(SGD())", "EMA(HeavyBall())"] }]],
  },
  cards: { families: true, sizes: true },
  uses: [...USES, "rate"],
  pair: true,
  quick: followable,
  ask: askSweeps,
  errors: errorsOf,
  commands: commandsOf,
  tables: (answers) => sweepTables(sweepsOf(answers)),

  controls(state, update) {
    return [labelled("Learning rate", menu(RATES, state.rate, (rate) => update({ rate })), "effective_lr", "rate")];
  },

  figure(answers, state) {
    const sweeps = sweepsOf(answers);
    const names = [...new Set(sweeps.flatMap((sweep) => Object.keys(sweep.settings)))].filter((name) => name !== "lr");
    const panels = [panel(sweeps, NAMES[state.rate], "log2", (sweep) => sweep[state.rate])];
    for (const name of names) panels.push(panel(sweeps, `best ${name}`, scaleOf(name, sweeps), (sweep) => sweep.settings[name]));
    return { title: `Best settings for loss ${state.target} against batch size`, panels };
  },

  headline(answers) {
    const [sweep] = sweepsOf(answers).sort((a, b) => growth(b) - growth(a));
    const rates = (sweep?.effective_lr ?? []).filter((value) => value !== null);
    if (rates.length < 2) return "";
    const ends = [sweep.batch_sizes[0], sweep.batch_sizes.at(-1)].map(about);
    const rate = `From batch size ${ends[0]} to ${ends[1]}, the best effective rate of ${spoken(sweep.label)} changes by ${times(growth(sweep))}`;
    const momenta = (sweep.settings.momentum ?? []).filter((value) => value !== null);
    return momenta.length ? `${capital(rate)}, and its best momentum goes from ${valueText(momenta[0])} to ${valueText(momenta.at(-1))}.` : `${rate}.`;
  },

  pick(answers, figure, at, line, index) {
    const sweep = sweepsOf(answers).find((one) => one.role === figure.panels[at].lines[line].role);
    return sweep?.optimizers[index] ? opened(sweep, index) : null;
  },
};

function growth(sweep) {
  const rates = sweep.effective_lr.filter((value) => value !== null);
  return rates.length ? Math.max(...rates) / Math.min(...rates) : 0;
}

function panel(sweeps, label, scale, column) {
  const lines = sweeps
    .filter((sweep) => column(sweep)?.some((value) => value !== null))
    .map((sweep) => ({ label: sweep.label, x: sweep.batch_sizes, y: column(sweep), role: sweep.role, points: true, pick: true, end: short(sweep.label) }));
  const y = { label, scale, ...(scale === "memory" ? { min: 0 } : {}) };
  return { title: label[0].toUpperCase() + label.slice(1), x: { label: "batch size", scale: "log2" }, y, lines, height: 340 };
}

/** The scale on which a parameter is searched. */
function scaleOf(name, sweeps) {
  const last = name.split(".").at(-1);
  for (const sweep of sweeps) {
    for (const layer of layers(readTree(sweep.label) ?? { name: "", args: [] })) {
      const found = optimizer(layer.name)?.parameters.find((p) => p.name === last);
      if (found) return found.scale === "choice" ? "linear" : found.scale;
    }
  }
  return "linear";
}
