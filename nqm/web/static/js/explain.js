// What stands beside every figure: the sentence that it amounts to, and what you see, why, and what to try.

import { byId, element } from "./dom.js";

/** Show the sentence of a figure; an empty one is hidden. */
export function showHeadline(text) {
  const box = byId("headline");
  if (box.textContent !== text) box.textContent = text;
  box.hidden = !text;
}

/** Show three short texts about a view; `tries` are [words, changes] for buttons that show what the words say. */
export function showAbout({ see, why, tries }, update) {
  const button = ([words, changes]) => element("button", { class: "quiet", type: "button", onclick: () => update(changes) }, words);
  const part = (title, ...content) => element("div", {}, element("dt", {}, title), element("dd", {}, ...content));
  byId("about").replaceChildren(part("What you see", see), part("Why", why), part("Try this", ...tries.map(button)));
}
