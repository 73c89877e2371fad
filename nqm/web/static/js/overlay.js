// Measured points of a CSV file, laid over any figure whose axes have the names of its columns.

import { element } from "./dom.js";
import { readCsv } from "./csv.js";

const MOST_BYTES = 2 ** 20; // of a file with measured points
const MOST_SERIES = 12;
const NAMES = ["series", "name", "run", "optimizer"]; // columns that tell one series from another

/** A label or a column in one spelling: "Batch size" and "batch_size" are the same, and so are "step" and "steps". */
export const keyOf = (text) => text.toLowerCase().replace(/\(.*?\)/g, " ").replace(/[^a-z0-9.]+/g, "_").replace(/^_|_$/g, "").replace(/^(step|example|hour)s(?=_|$)/, "$1");

/** The column of an axis: the one whose name is the label or its first words ("steps" for "steps to loss 0.01"). */
export function columnOf(columns, label) {
  const key = keyOf(label);
  return columns.find((name) => key === keyOf(name)) ?? columns.find((name) => keyOf(name) && key.startsWith(`${keyOf(name)}_`)) ?? null;
}

/** The measured points of a table that belong on a panel, as lines; none if a column is missing. */
export function measuredLines({ columns, rows, name }, panel) {
  if (panel.heat) return [];
  ({ columns, rows } = plainTable({ columns, rows }, panel));
  const [x, y] = [columnOf(columns, panel.x.label), columnOf(columns, panel.y.label)];
  if (x === null || y === null || x === y) return [];
  const [across, up] = [columns.indexOf(x), columns.indexOf(y)];
  const by = columns.findIndex((column, i) => NAMES.includes(keyOf(column)) && i !== across && i !== up);
  const series = new Map();
  for (const row of rows) {
    const point = [row[across], row[up]].map((text) => (text.trim() === "" ? NaN : Number(text)));
    if (!point.every(Number.isFinite)) continue;
    const own = by < 0 ? name : row[by];
    const seen = series.get(own) ?? [];
    // A chart has one height at each x; a point that was measured again belongs to another layer.
    const layer = seen.find((points) => !points.has(point[0])) ?? seen[seen.push(new Map()) - 1];
    layer.set(...point);
    series.set(own, seen);
  }
  return [...series].slice(0, MOST_SERIES).flatMap(([own, layers]) => layers.map((points, i) => {
    const sorted = [...points].sort(([a], [b]) => a - b);
    return { label: `measured: ${own}`, x: sorted.map(([a]) => a), y: sorted.map(([, b]) => b), role: "ink", points: true, width: 0, unlisted: i > 0, measured: true };
  }));
}

/** A CSV that this page has saved names its axes in each row; the rows of a panel become a table like any other. */
function plainTable({ columns, rows }, panel) {
  const at = ["series", "x_name", "x", "y_name", "y"].map((name) => columns.indexOf(name));
  if (at.includes(-1)) return { columns, rows };
  const [series, xName, x, yName, y] = at;
  const own = rows.filter((row) => keyOf(row[xName]) === keyOf(panel.x.label) && keyOf(row[yName]) === keyOf(panel.y.label));
  return { columns: [panel.x.label, panel.y.label, "series"], rows: own.map((row) => [row[x], row[y], row[series]]) };
}

export class Overlay {
  /** `redraw()` draws the figure again; `complain(error)` shows an error, and null takes it away. */
  constructor(redraw, complain) {
    Object.assign(this, { redraw, complain, table: null, figure: null });
  }

  /** A button to choose a file, and one to remove its points. */
  buttons() {
    const input = element("input", { type: "file", accept: ".csv,.tsv,.txt", id: "measured-file", class: "offscreen", "aria-label": "A CSV file with measured points" });
    input.addEventListener("change", () => {
      if (input.files[0]) this.open(input.files[0]);
      input.value = "";
    });
    this.remove = element("button", { class: "quiet", type: "button", id: "measured-remove", hidden: true, onclick: () => this.set(null) }, "Remove measured points");
    return [input, element("label", { class: "quiet", for: "measured-file" }, "Lay measured points over this figure"), this.remove];
  }

  async open(file) {
    try {
      if (file.size > MOST_BYTES) throw new Error(`The file ${file.name} has ${file.size.toLocaleString("en")} bytes; measured points may have ${MOST_BYTES.toLocaleString("en")}`);
      const table = { name: file.name, ...readCsv(await file.text(), file.name) };
      if (!this.fitting(table)) throw new Error(unfit(table, this.figure));
      this.complain(null);
      this.set(table);
    } catch (error) {
      this.complain(error);
    }
  }

  set(table) {
    this.table = table;
    this.remove.hidden = !table;
    this.redraw();
  }

  fitting(table) {
    return this.figure?.panels.some((panel) => measuredLines(table, panel).length);
  }

  /** A figure with the measured points on the panels whose axes they have. */
  over(figure) {
    this.figure = figure;
    if (!this.table) return figure;
    return { ...figure, panels: figure.panels.map((panel) => ({ ...panel, lines: [...panel.lines, ...measuredLines(this.table, panel)] })) };
  }
}

/** What is wrong with a table whose points lie on no panel. */
function unfit({ name, columns }, figure) {
  const axes = (figure?.panels ?? []).filter((panel) => !panel.heat).map((panel) => `"${panel.x.label}" and "${panel.y.label}"`);
  if (!axes.length) return "Measured points cannot be laid over this figure";
  return `The file ${name} has the columns ${columns.map((column) => `"${column}"`).join(", ")}, or no numbers in them; this figure needs two columns with numbers that are named as its axes: ${[...new Set(axes)].join(", or ")}`;
}
