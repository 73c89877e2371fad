// View (e): steps to the target over two settings, and where stability ends.

import { plain, valueText } from "../format.js";
import { ask } from "../upload.js";
import { labelled, menu, textField } from "../dom.js";
import { named, readTree, uniqueNames, withValues } from "../composer.js";
import { mostBatch } from "../state.js";
import { longer } from "./sweeps.js";

const CELLS = [["24", "24 × 24"], ["32", "32 × 32"], ["48", "48 × 48"], ["64", "64 × 64"]]; // prettier-ignore
const MISSING = {
  above_floor: { label: "floor above the target", role: "grid" },
  diverged: { label: "diverges", role: "beyond" },
  out_of_steps: { label: "too many steps", role: "soft" },
};
const RATES = "0.0001..4"; // the whole range of a slider is more than a map can use

export const map = {
  id: "map",
  tab: "Phase map",
  title: "Phase map: steps to the target over two settings",
  about: {
    see: "Each cell is one setting, coloured by its steps to the target. All values but those on the two axes are those of the setting.",
    why: "Too small a rate is slow, too large a rate is noisy, and beyond the line it diverges. Along the valley a smaller rate and a larger momentum trade off.",
    tries: [["Batch size against learning rate", { y: "batch_size", yrange: "" }], ["A noisier problem: batch size 64", { batch: "64" }]],
  },
  cards: { setting: true, batch: true },
  uses: ["spectrum", "data", "kind", "label_noise", "run", "batch", "target", "x", "y", "xrange", "yrange", "cells"],

  controls(state, update) {
    const names = axisNames(state.run).map((name) => [name, name.replace("_", " ")]);
    const { x, y } = axes(state);
    const pickX = menu(names, x.name, (name) => update({ x: name, xrange: "", ...(name === y.name ? { y: x.name, yrange: "" } : {}) }));
    const pickY = menu(names, y.name, (name) => update({ y: name, yrange: "", ...(name === x.name ? { x: y.name, xrange: "" } : {}) }));
    const range = (axis, key, id) =>
      labelled(`${axis.name.replace("_", " ")} range`, textField(`${axis.low}..${axis.high}`, (text) => update({ [key]: text }), { needed: true, size: "12" }), null, id);
    return [
      labelled("Across", pickX, null, "map-x"),
      range(x, "xrange", "map-xrange"),
      labelled("Up", pickY, null, "map-y"),
      range(y, "yrange", "map-yrange"),
      labelled("Cells", menu(cellsOf(state), state.cells, (cells) => update({ cells })), null, "map-cells"),
    ];
  },

  async ask(state, signal) {
    const { x, y } = axes(state);
    const body = { optimizer: without(state.run, [x.name, y.name]), target: state.target, x, y };
    if (x.name !== "batch_size" && y.name !== "batch_size") body.batch_size = state.batch;
    return [await ask("/api/map", state, body, signal)];
  },

  figure([answer], state) {
    const { x, y, boundary } = answer;
    const paths = boundary.length
      ? [{ label: "end of stability", x: boundary.map((p) => p[0]), y: boundary.map((p) => p[1]), role: "c3", width: 2.6 }]
      : [];
    const marks = [];
    const here = [x, y].map((axis) => valueOf(state, axis.name));
    if (here.every((value, i) => inside(value, [x, y][i].values))) marks.push({ kind: "point", x: here[0], y: here[1], role: "c1", listed: "this setting", points: true, width: 0 });
    if (answer.best) marks.push({ kind: "point", x: answer.best.x, y: answer.best.y, role: "c0", listed: `best: ${valueText(answer.best.steps)} steps`, points: true, width: 0 });
    return {
      title: `Steps to loss ${state.target}: ${answer.optimizer}`,
      panels: [
        {
          x: { label: x.name.replace("_", " "), scale: scaleOf(x) },
          y: { label: y.name.replace("_", " "), scale: scaleOf(y) },
          lines: [], paths, marks, height: 520,
          heat: { xs: x.values, ys: y.values, rows: answer.steps, kinds: answer.outcome, label: "steps", missing: seen(answer.outcome) },
        },
      ], // prettier-ignore
    };
  },

  headline([answer]) {
    if (!answer.best) return "No setting of this map reaches the target.";
    const value = (axis, at) => `${axis.name.replace("_", " ")} ${valueText(at)}`;
    return `The best of these settings takes ${valueText(answer.best.steps)} steps: ${value(answer.x, answer.best.x)} and ${value(answer.y, answer.best.y)}.`;
  },

  facts([answer]) {
    const none = [{ name: "best cell", value: "no cell reaches the target", wide: true }];
    if (!answer.best) return none;
    return [
      { name: "fewest steps", value: valueText(answer.best.steps) },
      { name: answer.x.name.replace("_", " "), value: valueText(answer.best.x), term: answer.x.name },
      { name: answer.y.name.replace("_", " "), value: valueText(answer.best.y), term: answer.y.name },
    ];
  },

  tables([answer]) {
    const columns = [answer.y.name, ...answer.x.values.map((value) => valueText(value))];
    return [{ caption: `Steps to the target; across: ${answer.x.name}`, columns, rows: answer.steps.map((row, j) => [answer.y.values[j], ...row]) }];
  },

  pick([answer], figure, panel, line, [i, j], state) {
    const short = (value) => Number(value.toPrecision(6)); // a cell is a place to look, not an optimum
    const values = { [answer.x.name]: short(answer.x.values[i]), [answer.y.name]: short(answer.y.values[j]) };
    const changes = { view: "loss", run: withValues(state.run, values) };
    if (values.batch_size) changes.batch = String(values.batch_size);
    if (answer.steps[j][i] !== null) changes.steps = String(longer(answer.steps[j][i]));
    return changes;
  },
};

/** The reasons why cells of this map have no number. */
function seen(outcome) {
  const kinds = new Set(outcome.flat());
  return Object.fromEntries(Object.entries(MISSING).filter(([kind]) => kinds.has(kind)));
}

/** The sizes to choose from, including that of the link. */
function cellsOf({ cells }) {
  return CELLS.some(([n]) => n === cells) ? CELLS : [[cells, `${cells} × ${cells}`], ...CELLS];
}

const scaleOf = (axis) => (axis.name === "batch_size" ? "log2" : axis.scale);

function axisNames(run) {
  const tree = readTree(run);
  const numbers = tree ? uniqueNames(tree).filter((one) => one.parameter.scale !== "choice").map((one) => one.name) : [];
  return [...numbers, "batch_size"];
}

/** The two axes for a request: the chosen parameters if this optimizer has them, otherwise its first two. */
function axes(state) {
  const names = axisNames(state.run);
  const x = names.includes(state.x) ? state.x : names[0];
  const y = names.includes(state.y) && state.y !== x ? state.y : names.find((name) => name !== x);
  const axis = (name, range) => ({ name, ...ends(range || usual(name, state)), n: Number(state.cells) });
  return { x: axis(x, state.xrange), y: axis(y, state.yrange) };
}

function ends(range) {
  const [low, high] = range.split("..").map((text) => text.trim());
  return { low, high: high ?? low };
}

function usual(name, state) {
  if (name === "batch_size") return `1..${mostBatch(state)}`;
  const parameter = uniqueNames(readTree(state.run)).find((one) => one.name === name).parameter;
  return name === "lr" ? RATES : `${plain(parameter.low, 4)}..${plain(parameter.high, 4)}`;
}

function valueOf(state, name) {
  if (name === "batch_size") return Number(state.batch);
  return Number(named(state.run).find((one) => one.name === name)?.value);
}

const inside = (value, values) => Number.isFinite(value) && value >= values[0] && value <= values.at(-1);

/** The text of the setting without the parameters on the axes. */
function without(run, names) {
  return names.reduce((text, name) => named(text).find((one) => one.name === name)?.with(null) ?? text, run);
}
