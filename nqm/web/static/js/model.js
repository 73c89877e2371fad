// The data of a figure, from which the screen, SVG, CSV and the one-file page are all made.
//
// figure: {title, panels: [panel], notes: [text], about}; about is the problem in words, where it is not that of the card
// panel:  {title, x: axis, y: axis, lines, marks, strips, heat, paths, height, edited, opens}; an edited panel is in the schedule editor,
//         and opens is the view that shows a chosen point
// axis:   {label, scale: "linear" | "log" | "log2" | "memory", min, max}
// line:   {label, x: [], y: [], role, dash: "solid" | "dash" | "dot", width, points, small, stairs, pick, end, series, bars}; end is its name
//         on paper, series its name in CSV where several lines share a label, bars are [low, high] at each x
// mark:   {kind: "v" | "h", at, role, label, dash, inside, side, below} or {kind: "point", x, y, role, label}
// strip:  {label, role, parts: [{from, to, label, opacity}]}, a row of intervals along the bottom
// heat:   {xs, ys, rows, kinds, label, missing}, rows[j][i] belongs to xs[i], ys[j]; where there is no number it is null, and
//         kinds[j][i] says why: missing = {kind: {label, role}}
// path:   {label, x: [], y: [], role, dash}, drawn in the order of its points

import { backward, forward, limitsOf, showable } from "./format.js";

export const DASHES = { solid: [], dash: [7, 4], dot: [2, 3] };
export const STRIP_HEIGHT = 9;

/** Where the axes of a panel begin and end. */
export function limits(panel) {
  const xs = [...panel.lines.map((line) => line.x), ...(panel.paths ?? []).map((path) => path.x)];
  const ys = [...panel.lines.filter((line) => !line.loose).map((line) => line.y)];
  if (panel.heat) return { x: cellSpan(panel.heat.xs, panel.x.scale), y: cellSpan(panel.heat.ys, panel.y.scale) };
  for (const mark of panel.marks ?? []) {
    if (mark.kind === "h" && mark.inside) ys.push([mark.at]);
    if (mark.kind === "point") ys.push([mark.y]);
  }
  return { x: limitsOf({ air: 0.02, ...panel.x }, xs), y: limitsOf(panel.y, ys) };
}

/** Edges of cells around their centres, on the axis's own scale. */
export function cellEdges(centres, scale) {
  const u = centres.map(forward[scale]);
  if (u.length === 1) return [u[0] - 0.5, u[0] + 0.5].map(backward[scale]);
  const edges = [u[0] - (u[1] - u[0]) / 2];
  for (let i = 0; i + 1 < u.length; i += 1) edges.push((u[i] + u[i + 1]) / 2);
  edges.push(u.at(-1) + (u.at(-1) - u.at(-2)) / 2);
  return edges.map(backward[scale]);
}

function cellSpan(centres, scale) {
  const edges = cellEdges(centres, scale);
  return [edges[0], edges.at(-1)];
}

/** The points of a line that its axes can show; other points leave a gap. */
export function visiblePoints(line, panel) {
  const x = [];
  const y = [];
  line.x.forEach((value, i) => {
    if (!showable(value, panel.x.scale)) return;
    const height = line.y[i] ?? null;
    x.push(value);
    y.push(showable(height, panel.y.scale) ? height : null);
  });
  return { x, y };
}

export const LETTER = 6.6; // width of a letter at 12 px, on average
const END_GAP = 15; // px between the names of two lines
const LONGEST_END = 24; // letters

/** The name at the end of a line, not too long for a margin. */
const endText = (line) => (line.end.length > LONGEST_END ? `${line.end.slice(0, LONGEST_END - 1)}…` : line.end);

/** The width of the margin in which lines are named. */
export function endRoom(panel, least) {
  return Math.max(least, ...panel.lines.filter((line) => line.end).map((line) => 14 + LETTER * endText(line).length));
}

/** Names of lines at their last points, moved apart where they would overlap; `up(y)` is a height in px. */
export function endNames(panel, hidden, up, top, bottom) {
  const names = [];
  panel.lines.forEach((line, i) => {
    if (!line.end || hidden.has(i)) return;
    const { x, y } = visiblePoints(line, panel);
    const last = y.findLastIndex((value) => value !== null);
    if (last >= 0) names.push({ text: endText(line), role: line.role, x: x[last], at: Math.min(bottom, Math.max(top, up(y[last]))) });
  });
  names.sort((a, b) => a.at - b.at);
  for (let i = 1; i < names.length; i += 1) names[i].at = Math.max(names[i].at, names[i - 1].at + END_GAP);
  const over = names.length ? Math.max(0, names.at(-1).at - bottom) : 0;
  return names.map((name) => ({ ...name, at: name.at - over }));
}

/** All numbers of a figure as rows of text for CSV: panel, series, x, y. */
export function rowsOf(figure) {
  const rows = [["panel", "series", "x_name", "x", "y_name", "y"]];
  for (const panel of figure.panels) {
    const name = panel.title ?? figure.title;
    for (const line of [...panel.lines, ...(panel.paths ?? [])]) {
      line.x.forEach((x, i) => rows.push([name, line.series ?? line.label, panel.x.label, x, panel.y.label, line.y[i] ?? ""]));
    }
    for (const mark of panel.marks ?? []) {
      if (mark.kind === "v") rows.push([name, mark.label, panel.x.label, mark.at, panel.y.label, ""]);
      if (mark.kind === "h") rows.push([name, mark.label, panel.x.label, "", panel.y.label, mark.at]);
    }
    if (panel.heat) {
      const { xs, ys, rows: cells, label } = panel.heat;
      rows.push(["panel", "series", panel.x.label, panel.y.label, label, ""]);
      ys.forEach((y, j) => xs.forEach((x, i) => rows.push([name, label, x, y, cells[j][i] ?? "", ""])));
    }
  }
  return rows;
}
