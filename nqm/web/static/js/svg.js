// A figure as SVG text, made from the same data as on the screen; PNG files are made from it.

import { ticksOf, forward, valueText } from "./format.js";
import { colourAt, extentOf } from "./colormap.js";
import { DASHES, LETTER, STRIP_HEIGHT, cellEdges, endNames, endRoom, limits, visiblePoints } from "./model.js";

const WIDTH = 860;
const LEFT = 78;
const RIGHT = 24;
const TOP = 34;
const BELOW = 46;
const FONT = "system-ui, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif";

const escape = (text) =>
  String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
const fixed = (v) => Number(v.toFixed(2));

/** The whole figure, with its panels below one another. */
export function svgOf(figure, colour, { sentence = "", origin = [] } = {}) {
  let top = 30;
  const parts = [text(LEFT, 22, figure.title, { size: 15, weight: 600, fill: colour.ink })];
  for (const line of wrapped(sentence)) {
    parts.push(text(LEFT, top + 12, line, { size: 13, fill: colour.ink }));
    top += 17;
  }
  for (const panel of figure.panels) {
    const drawn = panelOf(panel, top, colour);
    parts.push(drawn.svg);
    top = drawn.bottom;
  }
  for (const note of [...(figure.notes ?? []), ...origin].flatMap(wrapped)) {
    top += 16;
    parts.push(text(LEFT, top, note, { size: 11, fill: colour.muted }));
  }
  const height = Math.ceil(top + 14);
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}" ` +
    `font-family="${FONT}" font-size="12"><rect width="100%" height="100%" fill="${colour.surface}"/>${parts.join("")}</svg>`
  );
}

const LINE = 118; // letters in a line of text

/** Text in lines that fit the picture; a long word, such as a link, is cut. */
function wrapped(words) {
  const lines = [];
  for (let rest = words; rest;) {
    const at = rest.length <= LINE ? rest.length : Math.max(rest.lastIndexOf(" ", LINE), 0) || LINE;
    lines.push(rest.slice(0, at).trim());
    rest = rest.slice(at).trim();
  }
  return lines.slice(0, 6);
}

function panelOf(panel, start, colour) {
  const height = panel.height ?? 380;
  const frame = { left: LEFT, top: start + (panel.title ? TOP : 12), width: WIDTH - LEFT - endRoom(panel, RIGHT), height: height - BELOW };
  const place = placer(panel, frame);
  const paint = (role) => colour[role] ?? role;
  const clip = `clip${Math.round(start)}`;
  const body = [
    panel.heat ? heatOf(panel, place, colour) : "",
    ...(panel.strips ?? []).map((strip, row) => stripOf(strip, row, place, frame, paint)),
    ...panel.lines.map((line) => lineOf(line, panel, place, paint, colour)),
    ...(panel.paths ?? []).map((path) => polyline(path.x.map((x, i) => place(x, path.y[i])), path, paint)),
    ...marksOf(panel, place, frame, paint, colour),
  ];
  const legend = legendOf(panel, frame.top + frame.height + BELOW + 8, colour, paint);
  const title = panel.title ? text(LEFT, start + 22, panel.title, { size: 13, weight: 600, fill: colour.ink }) : "";
  const svg =
    `<clipPath id="${clip}"><rect x="${frame.left}" y="${frame.top}" width="${frame.width}" height="${frame.height}"/></clipPath>` +
    `${title}${axesOf(panel, place, frame, colour)}<g clip-path="url(#${clip})">${body.join("")}</g>${endsOf(panel, place, frame, paint)}${legend.svg}`;
  return { svg, bottom: legend.bottom };
}

function placer(panel, frame) {
  const { x, y } = limits(panel);
  const side = (axis, [low, high], from, size) => {
    const to = forward[axis.scale];
    return (v) => from + (size * (to(v) - to(low))) / (to(high) - to(low));
  };
  const across = side(panel.x, x, frame.left, frame.width);
  const up = side(panel.y, y, frame.top + frame.height, -frame.height);
  return (a, b) => (a === null || b === null ? null : [a === undefined ? null : across(a), b === undefined ? null : up(b)]);
}

function axesOf(panel, place, frame, colour) {
  const { x, y } = limits(panel);
  const bottom = frame.top + frame.height;
  const out = [];
  for (const tick of ticksOf(panel.x.scale, ...x, 10)) {
    const at = fixed(place(tick.value)[0]);
    out.push(`<path d="M${at} ${frame.top}V${bottom + 5}" stroke="${colour.grid}"/>`);
    out.push(text(at, bottom + 18, tick.text, { anchor: "middle", fill: colour.muted }));
  }
  for (const tick of ticksOf(panel.y.scale, ...y, 8)) {
    const at = fixed(place(undefined, tick.value)[1]);
    out.push(`<path d="M${frame.left - 5} ${at}H${frame.left + frame.width}" stroke="${colour.grid}"/>`);
    out.push(text(frame.left - 8, at + 4, tick.text, { anchor: "end", fill: colour.muted }));
  }
  out.push(`<path d="M${frame.left} ${frame.top}V${bottom}H${frame.left + frame.width}" fill="none" stroke="${colour.muted}"/>`);
  out.push(text(frame.left + frame.width / 2, bottom + 36, panel.x.label, { anchor: "middle", fill: colour.ink }));
  const middle = fixed(frame.top + frame.height / 2);
  out.push(
    `<text transform="translate(18 ${middle}) rotate(-90)" text-anchor="middle" fill="${colour.ink}">${escape(panel.y.label)}</text>`,
  );
  return out.join("");
}

function lineOf(line, panel, place, paint, colour) {
  const { x, y } = visiblePoints(line, panel);
  const places = x.map((v, i) => place(v, y[i]));
  const dots = line.points
    ? places
        .filter(Boolean)
        .map(([a, b]) => `<circle cx="${fixed(a)}" cy="${fixed(b)}" r="${line.small ? 2 : 3.5}" fill="${colour.surface}" stroke="${paint(line.role)}" stroke-width="1.5"/>`)
        .join("")
    : "";
  const bars = (line.bars ?? []).map((ends, i) => polyline(ends.map((end) => place(line.x[i], end)), { role: line.role, width: 1.4 }, paint));
  return polyline(line.stairs ? stairs(places) : places, line, paint) + bars.join("") + dots;
}

function stairs(places) {
  return places.flatMap((at, i) => (i && at && places[i - 1] ? [[at[0], places[i - 1][1]], at] : [at]));
}

/** A path through points; a missing point breaks it. */
function polyline(places, look, paint) {
  let pen = "M";
  let d = "";
  for (const at of places) {
    if (!at || !at.every(Number.isFinite)) {
      pen = "M";
      continue;
    }
    d += `${pen}${fixed(at[0])} ${fixed(at[1])}`;
    pen = "L";
  }
  if (!d) return "";
  return `<path d="${d}" fill="none" stroke="${paint(look.role)}" stroke-width="${look.width ?? 2}"${dashed(look.dash)} stroke-linejoin="round"/>`;
}

const dashed = (dash) => (DASHES[dash ?? "solid"]?.length ? ` stroke-dasharray="${DASHES[dash].join(" ")}"` : "");

function heatOf(panel, place, colour) {
  const { xs, ys, rows, kinds, missing } = panel.heat;
  const [low, high] = extentOf(rows);
  const left = cellEdges(xs, panel.x.scale).map((v) => place(v)[0]);
  const base = cellEdges(ys, panel.y.scale).map((v) => place(undefined, v)[1]);
  const cells = rows.flatMap((row, j) =>
    row.map((value, i) => {
      const fill = value === null ? colour[missing[kinds[j][i]]?.role ?? "grid"] : colourAt(high > low ? Math.log(value / low) / Math.log(high / low) : 0);
      const [w, h] = [left[i + 1] - left[i] + 0.3, base[j] - base[j + 1] + 0.3]; // overlap hides seams
      return `<rect x="${fixed(left[i])}" y="${fixed(base[j + 1])}" width="${fixed(w)}" height="${fixed(h)}" fill="${fill}"/>`;
    }),
  );
  return `<g shape-rendering="crispEdges">${cells.join("")}</g>`;
}

function stripOf(strip, row, place, frame, paint) {
  const y = frame.top + frame.height - (row + 1) * (STRIP_HEIGHT + 2);
  return strip.parts
    .filter((part) => part.from !== null && part.to !== null)
    .map((part) => {
      const [a, b] = [place(part.from)[0], place(part.to)[0]];
      const w = fixed(Math.max(1, b - a - 1));
      return `<rect x="${fixed(a)}" y="${fixed(y)}" width="${w}" height="${STRIP_HEIGHT}" fill="${paint(strip.role)}" opacity="${part.opacity}"/>`;
    })
    .join("");
}

function marksOf(panel, place, frame, paint, colour) {
  let row = 0;
  return (panel.marks ?? []).map((mark) => {
    if (mark.kind === "point") {
      const at = place(mark.x, mark.y);
      return at ? `<circle cx="${fixed(at[0])}" cy="${fixed(at[1])}" r="6" fill="${colour.surface}" stroke="${paint(mark.role)}" stroke-width="2"/>` : "";
    }
    const down = mark.kind === "v";
    const at = down ? place(mark.at)[0] : place(undefined, mark.at)[1];
    if (!Number.isFinite(at)) return "";
    const d = down ? `M${fixed(at)} ${frame.top}V${frame.top + frame.height}` : `M${frame.left} ${fixed(at)}H${frame.left + frame.width}`;
    const rule = `<path d="${d}" stroke="${paint(mark.role)}" stroke-width="1.2"${dashed(mark.dash ?? "dash")}/>`;
    if (!mark.label || mark.named === false) return rule;
    const wide = mark.label.length * LETTER;
    const end = frame.left + frame.width;
    const y = down ? frame.top + 13 + 17 * row++ : at + (mark.below ? 14 : -5);
    const right = down && (at + wide + 8 < end || at - 5 - wide < frame.left);
    const left = mark.side === "left";
    const x = down ? (right ? Math.min(at + 5, Math.max(frame.left + 2, end - wide)) : at - 5) : left ? frame.left + 6 : end - 6;
    return rule + text(x, y, mark.label, { anchor: right || left ? "start" : "end", fill: paint(mark.role), halo: colour.surface });
  });
}

function endsOf(panel, place, frame, paint) {
  const names = endNames(panel, new Set(), (y) => place(undefined, y)[1], frame.top, frame.top + frame.height);
  return names.map((name) => text(place(name.x)[0] + 8, name.at + 4, name.text, { weight: 600, fill: paint(name.role) })).join("");
}

function legendOf(panel, start, colour, paint) {
  const items = [
    ...panel.lines.filter((line) => line.label && !line.unlisted && !line.end).sort((a, b) => Boolean(b.pick) - Boolean(a.pick)),
    ...(panel.paths ?? []),
    ...(panel.heat ? Object.values(panel.heat.missing).map((kind) => ({ ...kind, width: 9 })) : []),
    ...(panel.marks ?? []).filter((mark) => mark.listed).map((mark) => ({ dash: "dash", ...mark, label: mark.listed })),
  ];
  let [x, y] = [LEFT, start];
  const out = [];
  if (panel.heat) {
    const [low, high] = extentOf(panel.heat.rows);
    out.push(text(x, y + 4, `${panel.heat.label}: ${valueText(low)}`, { fill: colour.ink }));
    const bar = x + (panel.heat.label.length + valueText(low).length + 3) * LETTER;
    for (let i = 0; i < 40; i += 1) out.push(`<rect x="${fixed(bar + 4 * i)}" y="${y - 6}" width="4.3" height="10" fill="${colourAt(i / 39)}"/>`);
    out.push(text(bar + 168, y + 4, valueText(high), { fill: colour.ink }));
    x = bar + 168 + (valueText(high).length + 3) * LETTER;
  }
  for (const item of items) {
    const wide = 38 + item.label.length * LETTER + 14;
    if (x + wide > WIDTH - 10 && x > LEFT) [x, y] = [LEFT, y + 18];
    if (item.points) out.push(`<circle cx="${fixed(x + 14)}" cy="${y}" r="3.5" fill="none" stroke="${paint(item.role)}" stroke-width="1.5"/>`);
    if (item.width !== 0) out.push(`<path d="M${fixed(x)} ${y}h28" stroke="${paint(item.role)}" stroke-width="${item.width ?? 2}"${dashed(item.dash)}/>`);
    out.push(text(x + 34, y + 4, item.label, { fill: colour.ink }));
    x += wide;
  }
  return { svg: out.join(""), bottom: y + 14 };
}

function text(x, y, words, { size = 12, weight = 400, anchor = "start", fill, halo } = {}) {
  const outline = halo ? ` stroke="${halo}" stroke-width="3" paint-order="stroke"` : "";
  return `<text x="${fixed(x)}" y="${fixed(y)}" font-size="${size}" font-weight="${weight}" text-anchor="${anchor}" fill="${fill}"${outline}>${escape(words)}</text>`;
}
