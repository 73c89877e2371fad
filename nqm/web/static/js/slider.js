// A slider with the number beside it, on the scale of what it sets.

import { backward, forward, plain } from "./format.js";
import { element, numberField, put } from "./dom.js";
import { showWrong } from "./report.js";

const STOPS = 1000;

/**
 * A slider and a field for one number; `onmove(text)` while it moves and when something is typed.
 * The field takes whatever the server reads (2^10, 1 - 2^-7); the slider then stays where it was.
 */
export function slider({ id, label, term, scale, low, high, whole, value, onmove, format = plain, digits = 4 }) {
  const to = forward[scale];
  const from = backward[scale];
  const place = (v) => Math.round((STOPS * (to(v) - to(low))) / (to(high) - to(low)));
  const range = element("input", { type: "range", min: "0", max: String(STOPS), id, "aria-label": label });
  const field = numberField(value, (next) => onmove(next), { id: `${id}-text`, "aria-label": `${label}, as text`, needed: true, onwrong: showWrong });
  const text = (v) => format(whole ? Math.round(v) : v, digits);
  const show = (next) => {
    put(field, next);
    const number = Number(next);
    if (Number.isFinite(number) && next !== "") range.value = String(place(Math.min(high, Math.max(low, number))));
    range.setAttribute("aria-valuetext", next);
  };
  range.addEventListener("input", () => {
    const next = text(from(to(low) + (Number(range.value) / STOPS) * (to(high) - to(low))));
    field.value = next;
    range.setAttribute("aria-valuetext", next);
    onmove(next);
  });
  show(value);
  const name = element("label", { for: id }, label);
  if (term) name.dataset.term = term;
  return { node: element("div", { class: "slider" }, name, range, field), show };
}
