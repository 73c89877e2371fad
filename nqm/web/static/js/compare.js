// A pinned setting beside the current one: its lines in the figure, and the difference in words.

import { capital, change } from "./words.js";

/** The figure with the lines of a pinned one of the same view, faint, in panels of the same name. */
export function withPinned(figure, pinned) {
  const panels = figure.panels.map((panel, i) => {
    const other = pinned.panels[i];
    if (!other || panel.heat || other.title !== panel.title || other.x.scale !== panel.x.scale || other.y.scale !== panel.y.scale) return panel;
    const lines = other.lines.filter((line) => line.end || line.pick).map((line) => ({
      ...line, label: `pinned: ${line.label}`, dash: "dot", width: 1.4, points: false, pick: false, end: undefined, unlisted: true, series: undefined,
    })); // prettier-ignore
    return { ...panel, lines: [...lines, ...panel.lines] };
  });
  return { ...figure, panels };
}

/**
 * The difference in words. Measures are {name, x, y, unit, words}: numbers y at x, which are compared where both have the same x
 * by the mean of their ratios' logarithms.
 */
export function difference(now, then) {
  const parts = now.flatMap(({ name, x, y, unit, words }) => {
    const other = then.find((one) => one.name === name);
    const logs = x.flatMap((at, i) => {
      const k = other ? other.x.indexOf(at) : -1;
      return k >= 0 && y[i] > 0 && other.y[k] > 0 ? [Math.log(y[i] / other.y[k])] : [];
    });
    if (!logs.length) return [];
    const ratio = Math.exp(logs.reduce((a, b) => a + b, 0) / logs.length);
    const words_ = change(1, ratio, words);
    return [`${name}: ${words_ === "as many" ? `the same ${unit}` : words_.endsWith("many") ? `${words_} ${unit}`.replace("many", words ? "much" : "many") : `${words_} ${unit}`}`];
  });
  return parts.length ? `Against the pinned setting, ${parts.join("; ")}.` : `${capital("nothing")} here can be compared with the pinned setting.`;
}
