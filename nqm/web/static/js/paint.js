// Parts of a chart that uPlot does not draw, painted on its canvas: cells of a map, boundaries, marks and their labels.

import { colourAt, extentOf } from "./colormap.js";
import { DASHES, STRIP_HEIGHT, cellEdges, endNames, endRoom } from "./model.js";

export const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
const ratio = () => window.devicePixelRatio || 1;

export class Painter {
  constructor(panel, colour) {
    this.panel = panel;
    this.colour = colour;
  }

  paint(role) {
    return this.colour[role] ?? role;
  }

  /** Behind the lines: cells of a map, and intervals along the bottom. */
  under(chart) {
    const { ctx, bbox } = chart;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    if (this.panel.heat) this.paintHeat(chart);
    (this.panel.strips ?? []).forEach((strip, row) => this.paintStrip(chart, strip, row));
    ctx.restore();
  }

  paintHeat(chart) {
    const { xs, ys, rows, kinds, missing } = this.panel.heat;
    const [low, high] = extentOf(rows);
    const place = (v) => (high > low ? Math.log(v / low) / Math.log(high / low) : 0);
    const left = cellEdges(xs, this.panel.x.scale).map((v) => Math.round(chart.valToPos(v, "x", true)));
    const base = cellEdges(ys, this.panel.y.scale).map((v) => Math.round(chart.valToPos(v, "y", true)));
    rows.forEach((row, j) => {
      row.forEach((value, i) => {
        chart.ctx.fillStyle = value === null ? this.paint(missing[kinds[j][i]]?.role ?? "grid") : colourAt(place(value));
        chart.ctx.fillRect(left[i], base[j + 1], left[i + 1] - left[i], base[j] - base[j + 1]);
      });
    });
  }

  paintStrip(chart, strip, row) {
    const { ctx, bbox } = chart;
    const tall = STRIP_HEIGHT * ratio();
    const top = bbox.top + bbox.height - (row + 1) * (tall + 2 * ratio());
    for (const part of strip.parts) {
      if (part.from === null || part.to === null) continue;
      const a = chart.valToPos(part.from, "x", true);
      const b = chart.valToPos(part.to, "x", true);
      ctx.globalAlpha = part.opacity;
      ctx.fillStyle = this.paint(strip.role);
      ctx.fillRect(a, top, Math.max(1, b - a - ratio()), tall);
    }
    ctx.globalAlpha = 1;
  }

  /** In front of the lines: boundaries, marks and their labels. */
  over(chart, cell, hidden = new Set()) {
    const { ctx, bbox } = chart;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const path of this.panel.paths ?? []) this.paintPath(chart, path);
    this.panel.lines.forEach((line, i) => line.bars && !hidden.has(i) && this.paintBars(chart, line));
    let row = 0;
    for (const mark of this.panel.marks ?? []) {
      if (mark.kind === "v" || mark.kind === "h") this.paintRule(chart, mark, mark.kind === "v" && mark.label ? row++ : 0);
      else this.paintPoint(chart, mark);
    }
    if (cell) this.paintCell(chart, cell);
    ctx.restore();
    this.paintEnds(chart, hidden);
  }

  /** The width of the right margin. */
  room() {
    return endRoom(this.panel, 26);
  }

  paintEnds(chart, hidden) {
    const { ctx, bbox } = chart;
    const r = ratio();
    const up = (value) => chart.valToPos(value, "y", true) / r;
    ctx.save();
    ctx.font = FONT.replace("12px", `600 ${12 * r}px`);
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    for (const name of endNames(this.panel, hidden, up, bbox.top / r, (bbox.top + bbox.height) / r)) {
      ctx.fillStyle = this.paint(name.role);
      ctx.fillText(name.text, chart.valToPos(name.x, "x", true) + 8 * r, name.at * r);
    }
    ctx.restore();
  }

  stroke(ctx, { role, dash, width }) {
    ctx.strokeStyle = this.paint(role);
    ctx.lineWidth = (width ?? 1.5) * ratio();
    ctx.setLineDash((DASHES[dash ?? "solid"] ?? []).map((d) => d * ratio()));
  }

  /** Intervals at the points of a line. */
  paintBars(chart, line) {
    this.stroke(chart.ctx, { role: line.role, width: 1.4 });
    line.bars.forEach((ends, i) => {
      const at = chart.valToPos(line.x[i], "x", true);
      const [low, high] = ends.map((end) => chart.valToPos(end, "y", true));
      if (![at, low, high].every(Number.isFinite)) return;
      chart.ctx.beginPath();
      chart.ctx.moveTo(at, low);
      chart.ctx.lineTo(at, high);
      chart.ctx.stroke();
    });
  }

  paintPath(chart, path) {
    this.stroke(chart.ctx, path);
    chart.ctx.beginPath();
    path.x.forEach((x, i) => {
      if (x === null || path.y[i] === null) return;
      chart.ctx.lineTo(chart.valToPos(x, "x", true), chart.valToPos(path.y[i], "y", true));
    });
    chart.ctx.stroke();
  }

  paintRule(chart, mark, row) {
    const { ctx, bbox } = chart;
    const down = mark.kind === "v";
    const at = chart.valToPos(mark.at, down ? "x" : "y", true);
    if (!Number.isFinite(at)) return;
    this.stroke(ctx, { dash: "dash", width: 1.2, ...mark });
    ctx.beginPath();
    ctx.moveTo(down ? at : bbox.left, down ? bbox.top : at);
    ctx.lineTo(down ? at : bbox.left + bbox.width, down ? bbox.top + bbox.height : at);
    ctx.stroke();
    if (mark.label && mark.named !== false) this.paintName(chart, mark, at, row);
  }

  paintName(chart, mark, at, row) {
    const { ctx, bbox } = chart;
    const r = ratio();
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    ctx.font = FONT.replace("12px", `${12 * r}px`);
    const wide = ctx.measureText(mark.label).width;
    const down = mark.kind === "v";
    const end = bbox.left + bbox.width;
    const room = at + wide + 8 * r < end;
    const x = down ? (room ? at + 5 * r : Math.max(bbox.left + 2 * r, at - wide - 5 * r)) : mark.side === "left" ? bbox.left + 6 * r : end - wide - 6 * r;
    const y = down ? bbox.top + (13 + 17 * row) * r : at + (mark.below ? 14 : -5) * r;
    ctx.globalAlpha = 0.85;
    ctx.fillStyle = this.colour.surface;
    ctx.fillRect(x - 2 * r, y - 11 * r, wide + 4 * r, 15 * r);
    ctx.globalAlpha = 1;
    ctx.fillStyle = this.paint(mark.role);
    ctx.fillText(mark.label, x, y);
  }

  paintPoint(chart, mark) {
    const { ctx } = chart;
    const [x, y] = [chart.valToPos(mark.x, "x", true), chart.valToPos(mark.y, "y", true)];
    this.stroke(ctx, { role: mark.role, width: 2.5 });
    ctx.beginPath();
    ctx.arc(x, y, 6 * ratio(), 0, 2 * Math.PI);
    ctx.fillStyle = this.colour.surface;
    ctx.fill();
    ctx.stroke();
  }

  paintCell(chart, [i, j]) {
    const { xs, ys } = this.panel.heat;
    const left = cellEdges(xs, this.panel.x.scale).map((v) => chart.valToPos(v, "x", true));
    const base = cellEdges(ys, this.panel.y.scale).map((v) => chart.valToPos(v, "y", true));
    this.stroke(chart.ctx, { role: "accent", width: 2.5 });
    chart.ctx.strokeRect(left[i], base[j + 1], left[i + 1] - left[i], base[j] - base[j + 1]);
  }
}
