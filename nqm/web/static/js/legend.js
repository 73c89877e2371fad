// The legend of a panel: each line a button that hides and shows it, beside its value under the cursor.

import { element } from "./dom.js";
import { valueText } from "./format.js";
import { colourAt, extentOf } from "./colormap.js";
import { DASHES } from "./model.js";

const REGIMES = "bars along the bottom, from strong to faint: perfect scaling, diminishing returns, no further gain";

/** The entries, and where the value of line i is written. `toggle(i)` says whether it is shown now. */
export function legendEntries(panel, colour, hidden, toggle) {
  const { lines, marks = [], strips = [], paths = [], heat } = panel;
  const values = new Map();
  const paint = (role) => colour[role] ?? role;
  const items = [];
  if (heat) items.push(colourBar(heat), ...Object.values(heat.missing).map((kind) => element("li", {}, patch(paint(kind.role)), kind.label)));
  // What can be chosen comes first; on paper it is drawn last, above the rest.
  const order = lines.map((line, i) => [line, i]).sort(([a], [b]) => Boolean(b.pick) - Boolean(a.pick));
  order.forEach(([line, i]) => {
    if (!line.label || line.unlisted || line.end) return; // a line that is named at its end needs no entry
    const value = element("span", { class: "value" });
    values.set(i, value);
    items.push(element("li", {}, lineEntry(line, paint, value, !hidden.has(i), () => toggle(i))));
  });
  for (const path of paths) items.push(element("li", {}, swatch(path, paint, colour), path.label));
  for (const mark of marks) {
    if (mark.listed) items.push(element("li", {}, swatch({ dash: "dash", ...mark }, paint, colour), mark.listed));
  }
  if (strips.length) items.push(element("li", { class: "hint" }, REGIMES));
  return { items, values };

  function lineEntry(line, tint, value, shown, flip) {
    const picture = swatch(line, tint, colour);
    const button = element("button", { type: "button", class: "entry", "aria-pressed": String(shown) }, picture, line.label, value);
    button.addEventListener("click", () => button.setAttribute("aria-pressed", String(flip())));
    return button;
  }
}

function swatch({ role, dash, points, width }, paint, colour) {
  const canvas = element("canvas", { class: "swatch", width: 52, height: 20, "aria-hidden": "true" });
  const ctx = canvas.getContext("2d");
  ctx.strokeStyle = paint(role);
  ctx.lineWidth = 4;
  ctx.setLineDash((DASHES[dash ?? "solid"] ?? []).map((d) => 2 * d));
  ctx.beginPath();
  ctx.moveTo(0, 10);
  ctx.lineTo(52, 10);
  if (width !== 0) ctx.stroke();
  if (points) {
    ctx.setLineDash([]);
    ctx.beginPath();
    ctx.arc(26, 10, 6, 0, 7);
    ctx.fillStyle = colour.surface;
    ctx.fill();
    ctx.lineWidth = 3;
    ctx.stroke();
  }
  return canvas;
}

/** A patch of plain colour. */
function patch(fill) {
  const canvas = element("canvas", { class: "swatch", width: 52, height: 20, "aria-hidden": "true" });
  canvas.getContext("2d").fillStyle = fill;
  canvas.getContext("2d").fillRect(0, 0, 52, 20);
  return canvas;
}

function colourBar(heat) {
  const [low, high] = extentOf(heat.rows);
  const bar = element("canvas", { class: "colourbar", width: 160, height: 12, "aria-hidden": "true" });
  const ctx = bar.getContext("2d");
  for (let i = 0; i < 160; i += 1) {
    ctx.fillStyle = colourAt(i / 159);
    ctx.fillRect(i, 0, 1, 12);
  }
  return element("li", { class: "bar" }, `${heat.label}: ${valueText(low)}`, bar, valueText(high));
}
