// A figure on the screen. Each panel is a uPlot chart with its own legend, usable by mouse, touch and keyboard.

import { batchText, forward, backward, valueText, ticksOf } from "./format.js";
import { colours } from "./theme.js";
import { element } from "./dom.js";
import { DASHES, limits, visiblePoints } from "./model.js";
import { FONT, Painter } from "./paint.js";
import { legendEntries } from "./legend.js";

/** Draw a figure into a box; `destroy` removes it. A chosen point calls `onPick(panel, line, index)`. */
export function drawFigure(box, figure, onPick = null) {
  const charts = figure.panels.map((panel, i) => new PanelChart(panel, (line, at) => onPick?.(i, line, at), Boolean(onPick), i === 0));
  box.replaceChildren(...charts.map((chart) => chart.node));
  charts.forEach((chart) => chart.draw());
  const watch = new ResizeObserver(() => charts.forEach((chart) => chart.resize()));
  watch.observe(box);
  return {
    charts,
    /** Show where a step lies on every panel, and a dot at a height; null takes it away. */
    mark: (x, y) => charts.forEach((chart) => chart.mark(x, y)),
    destroy() {
      watch.disconnect();
      charts.forEach((chart) => chart.destroy());
    },
  };
}

export class PanelChart {
  constructor(panel, onPick, pickable, first) {
    this.panel = panel;
    this.onPick = onPick;
    this.pickable = pickable && (panel.heat ? true : panel.lines.some((line) => line.pick));
    this.hint = this.pickable && first ? `Choose a point to open it under ${panel.opens ?? "Loss over steps"}.` : "\u00a0";
    this.hidden = new Set();
    this.active = Math.max(0, panel.lines.findIndex((line) => line.pick));
    this.cell = null;
    this.plot = element("div", {
      class: "plot",
      tabindex: "0",
      role: "group",
      "aria-roledescription": "chart",
      "aria-label": this.summary(),
      onkeydown: (event) => this.key(event),
    });
    this.readout = element("p", { class: "readout", "aria-live": "polite" });
    this.legend = element("ul", { class: "legend" });
    const title = panel.title ? [element("h3", {}, panel.title)] : [];
    this.node = element("section", { class: "panel" }, ...title, this.plot, this.legend, this.readout);
    this.say("");
  }

  summary() {
    const { x, y, title, heat, lines } = this.panel;
    const what = heat ? heat.label : lines.map((line) => line.label).join(", ");
    const keys = heat ? "Arrow keys move over the cells" : "Left and right arrow keys read values, up and down change the line";
    return `${title ?? y.label}: ${y.label} against ${x.label}. ${what}. ${keys}${this.pickable ? ", Enter opens the point" : ""}.`;
  }

  width() {
    return Math.max(240, Math.floor(this.plot.clientWidth));
  }

  height() {
    const wanted = this.panel.height ?? 380;
    return this.width() < 480 ? Math.min(wanted, 320) : wanted;
  }

  draw() {
    this.chart?.destroy();
    this.limits = limits(this.panel);
    this.colour = colours();
    this.painter = new Painter(this.panel, this.colour);
    this.drawn = this.panel.lines.map((line) => visiblePoints(line, this.panel));
    const tables = this.drawn.filter((line) => line.x.length).map((line) => [line.x, line.y]);
    this.kept = this.drawn.map((line, i) => (line.x.length ? i : -1)).filter((i) => i >= 0);
    const data = tables.length ? uPlot.join(tables) : [[this.limits.x[0], this.limits.x[1]]];
    this.chart = new uPlot(this.options(), data, this.plot);
    this.chart.over.addEventListener("pointerdown", (event) => (this.finger = event.pointerType === "touch"));
    this.chart.over.addEventListener("click", (event) => this.click(event));
    const { items, values } = legendEntries(this.panel, this.colour, this.hidden, (i) => this.toggle(i));
    this.values = values;
    this.legend.replaceChildren(...items);
  }

  /** Hide or show a line; returns whether it is now shown. */
  toggle(i) {
    if (!this.hidden.delete(i)) this.hidden.add(i);
    const at = this.kept.indexOf(i);
    if (at >= 0) this.chart.setSeries(at + 1, { show: !this.hidden.has(i) });
    return !this.hidden.has(i);
  }

  /** A rule at x that moves without a new drawing, with a dot at height y if a line of the panel that has a name is there. */
  mark(x, y = null) {
    this.marked = [x, y];
    if (!this.chart) return;
    this.pointer ??= element("div", { class: "now", "aria-hidden": "true" }, element("i", {}));
    if (this.pointer.parentNode !== this.chart.over) this.chart.over.append(this.pointer);
    const left = x === null ? NaN : this.chart.valToPos(x, "x");
    const own = this.panel.lines.some((line) => line.end && line.y.includes(y));
    const top = y === null || !own ? NaN : this.chart.valToPos(y, "y");
    this.pointer.hidden = !(left >= 0 && left <= this.chart.over.clientWidth);
    this.pointer.firstChild.hidden = !Number.isFinite(top);
    this.pointer.style.left = `${left}px`;
    if (Number.isFinite(top)) this.pointer.firstChild.style.top = `${top}px`;
  }

  resize() {
    if (this.chart && this.chart.width !== this.width()) this.chart.setSize({ width: this.width(), height: this.height() });
    if (this.marked) this.mark(...this.marked);
  }

  destroy() {
    this.chart?.destroy();
    this.chart = null;
  }

  options() {
    return {
      width: this.width(),
      height: this.height(),
      padding: [14, this.painter.room(), 0, 0],
      legend: { show: false },
      scales: { x: this.scale("x"), y: this.scale("y") },
      axes: [this.axis("x"), this.axis("y")],
      series: [{}, ...this.kept.map((i) => this.series(i))],
      cursor: {
        drag: { x: false, y: false, click: () => {} }, // a crosshair that snaps has moved, and uPlot would take a click for a drag
        y: Boolean(this.panel.heat),
        points: { size: 7, width: 0, fill: (chart, at) => this.painter.paint(this.panel.lines[this.kept[at - 1]].role) },
        move: (chart, left, top) => [this.snapped(chart, left), top],
        dataIdx: (chart, series, at) => (series === 0 || chart.data[series][at] !== undefined ? at : null),
      },
      hooks: {
        drawClear: [(chart) => this.painter.under(chart)],
        draw: [(chart) => this.painter.over(chart, this.cell, this.hidden)],
        setCursor: [(chart) => this.follow(chart)],
      },
    };
  }

  scale(side) {
    const [low, high] = this.limits[side];
    const name = this.panel[side].scale;
    const range = () => [low, high];
    if (name === "linear") return { time: false, range };
    return { time: false, distr: 100, fwd: forward[name], bwd: backward[name], range };
  }

  axis(side) {
    const { label, scale } = this.panel[side];
    const across = side === "x";
    const ticks = (low, high) => {
      const pixels = across ? this.width() - 70 : this.height() - 60;
      return ticksOf(scale, low, high, Math.max(2, Math.floor(pixels / (!across ? 38 : scale === "linear" ? 68 : 42))));
    };
    const [low, high] = this.limits[side];
    const longest = Math.max(...ticks(low, high).map((tick) => tick.text.length), 2);
    return {
      stroke: this.colour.muted,
      font: FONT,
      label,
      labelFont: FONT,
      labelSize: 20,
      labelGap: across ? 2 : 0,
      size: across ? 34 : 16 + 7 * longest,
      gap: 5,
      grid: { show: !this.panel.heat, stroke: this.colour.grid, width: 1 },
      ticks: { stroke: this.colour.grid, width: 1, size: 5 },
      border: { show: true, stroke: this.colour.muted, width: 1 },
      filter: (chart, splits) => splits, // uPlot would thin the labels of a scale that is not linear
      splits: (chart, at, min, max) => ticks(min, max).map((tick) => tick.value),
      values: (chart, splits) => {
        const known = new Map(ticks(low, high).map((tick) => [tick.value, tick.text]));
        return splits.map((value) => known.get(value) ?? valueText(value));
      },
    };
  }

  series(i) {
    const line = this.panel.lines[i];
    const stroke = this.painter.paint(line.role);
    return {
      label: line.label,
      show: !this.hidden.has(i),
      stroke,
      width: line.width ?? 2,
      paths: line.width === 0 ? () => null : line.stairs ? uPlot.paths.stepped({ align: 1 }) : undefined,
      dash: DASHES[line.dash ?? "solid"],
      points: { show: Boolean(line.points), size: line.small ? 4 : 7, width: 1.5, stroke, fill: this.colour.surface },
      spanGaps: false,
    };
  }

  say(text) {
    this.readout.textContent = text || this.hint;
  }

  /** The place of the nearest point of a line, so that the crosshair stands where the values are read. */
  snapped(chart, left) {
    if (this.panel.heat || left < 0 || !this.kept.length) return left;
    return chart.valToPos(chart.data[0][chart.posToIdx(left)], "x");
  }

  /** Show the values at the mouse: all of them below the chart, and those of listed lines in the legend. */
  follow(chart) {
    const { left, top, idx } = chart.cursor;
    this.readout.setAttribute("aria-live", "off"); // the mouse is no reader; keys say what they read
    if (left < 0 || left === null || left === undefined) {
      this.values?.forEach((node) => (node.textContent = ""));
      if (!this.finger) this.say(""); // a finger that is lifted leaves what it has read
      return;
    }
    if (this.panel.heat) {
      this.sayCell(this.cellAt(chart.posToVal(left, "x"), chart.posToVal(top, "y")));
      return;
    }
    const read = [];
    this.kept.forEach((i, at) => {
      const value = idx === null || this.hidden.has(i) ? null : (chart.data[at + 1][idx] ?? null);
      const node = this.values.get(i);
      if (node) node.textContent = value === null ? "" : valueText(value);
      else if (value !== null && !this.panel.lines[i].unlisted) read.push(`${this.panel.lines[i].end ?? this.panel.lines[i].label} ${valueText(value)}`);
    });
    if (idx !== null && this.kept.length) this.say([`${this.panel.x.label} ${this.across(chart.data[0][idx])}`, ...read, ...(this.finger && this.pickable ? ["tap the point again to open it"] : [])].join(" · "));
  }

  click(event) {
    if (!this.pickable) return;
    const box = this.chart.over.getBoundingClientRect(); // a finger that is lifted has left the chart's own cursor
    const [left, top] = [event.clientX - box.left, event.clientY - box.top];
    if (this.panel.heat) {
      this.cell = this.cellAt(this.chart.posToVal(left, "x"), this.chart.posToVal(top, "y"));
      if (this.meant(this.cell.join(" "))) this.onPick(null, this.cell);
      else this.chart.redraw(false);
      return;
    }
    const near = this.nearest(left, top);
    if (!near) return;
    if (this.meant(`${near.line} ${near.index}`)) this.onPick(near.line, near.index);
  }

  /** Whether a click opens a point. A finger has no hover: its first tap reads the point, the second opens it. */
  meant(point) {
    const again = !this.finger || this.tapped === point;
    this.tapped = point;
    return again;
  }

  /** The point closest to a place on the screen, among the visible lines whose points can be chosen. */
  nearest(left, top) {
    let best = null;
    this.panel.lines.forEach((line, i) => {
      if (!line.pick || this.hidden.has(i)) return;
      line.x.forEach((x, index) => {
        if (line.y[index] === null) return;
        const far = Math.hypot(this.chart.valToPos(x, "x") - left, this.chart.valToPos(line.y[index], "y") - top);
        if (far < 40 && (!best || far < best.far)) best = { far, line: i, index };
      });
    });
    return best;
  }

  cellAt(x, y) {
    const { xs, ys } = this.panel.heat;
    return [closest(xs, x, this.panel.x.scale), closest(ys, y, this.panel.y.scale)];
  }

  sayCell([i, j]) {
    const { xs, ys, rows, kinds, label, missing } = this.panel.heat;
    const value = rows[j][i];
    const what = value === null ? (missing[kinds[j][i]]?.label ?? "no number") : `${label} ${valueText(value)}`;
    this.say(`${this.panel.x.label} ${valueText(xs[i])}, ${this.panel.y.label} ${valueText(ys[j])}: ${what}`);
  }

  key(event) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    if (event.target !== this.plot) return;
    if (event.key === "Enter" && this.pickable) {
      if (this.panel.heat) this.onPick(null, this.cell ?? this.middle());
      else if (this.at !== undefined) this.onPick(this.active, this.at);
    } else if (moves[event.key]) {
      if (this.panel.heat) this.moveCell(...moves[event.key]);
      else this.moveAlong(...moves[event.key]);
    } else return;
    event.preventDefault();
  }

  middle() {
    return [Math.floor(this.panel.heat.xs.length / 2), Math.floor(this.panel.heat.ys.length / 2)];
  }

  moveCell(across, up) {
    const { xs, ys } = this.panel.heat;
    const [i, j] = this.cell ?? this.middle();
    this.cell = [clamp(i + across, xs.length), clamp(j + up, ys.length)];
    this.sayCell(this.cell);
    this.chart.redraw(false);
  }

  moveAlong(across, up) {
    const { lines } = this.panel;
    if (!lines.length) return;
    this.active = (this.active + lines.length - up) % lines.length;
    const line = lines[this.active];
    this.at = clamp((this.at ?? (across > 0 ? -1 : line.x.length)) + across, line.x.length);
    const [value, height] = [line.x[this.at], line.y[this.at]];
    this.chart.setCursor({ left: this.chart.valToPos(value, "x"), top: height === null ? 0 : this.chart.valToPos(height, "y") });
    this.read(this.active, this.at);
  }

  /** Say the value of a point. */
  read(which, at) {
    const line = this.panel.lines[which];
    this.readout.setAttribute("aria-live", "polite");
    this.say(`${line.label}: ${valueText(line.y[at])} at ${this.panel.x.label} ${this.across(line.x[at])}`);
  }

  across(value) {
    return this.panel.x.scale === "log2" ? batchText(value) : valueText(value);
  }
}

function clamp(at, size) {
  return Math.min(size - 1, Math.max(0, at));
}

function closest(values, wanted, scale) {
  const to = forward[scale];
  let best = 0;
  values.forEach((value, i) => {
    if (Math.abs(to(value) - to(wanted)) < Math.abs(to(values[best]) - to(wanted))) best = i;
  });
  return best;
}
