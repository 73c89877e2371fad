// The script of the one-file page: it draws the figure, and shows how to get the same numbers.

import { element } from "./dom.js";
import { drawFigure } from "./figure.js";
import { together } from "./script.js";

function view(data) {
  if (data.theme) document.documentElement.dataset.theme = data.theme;
  const box = element("div", { class: "figure" });
  const scripts = [data.commands.map(({ command }) => command).join("\n"), together(data.commands.map(({ python }) => python))];
  const code = scripts.filter(Boolean).map((text) => element("pre", {}, text));
  const notes = (data.figure.notes ?? []).map((note) => element("p", { class: "note" }, note));
  document.getElementById("onefile").append(
    element("h1", {}, data.figure.title),
    ...(data.sentence ? [element("p", { class: "sentence" }, data.sentence)] : []),
    box,
    ...notes,
    element("p", { class: "note" }, data.origin),
    element("h2", {}, "The same numbers from nqm"),
    ...code,
  );
  drawFigure(box, data.figure);
}

const held = document.getElementById("data");
if (held) view(JSON.parse(held.textContent));
