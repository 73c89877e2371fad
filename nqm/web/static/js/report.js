// What stands around the figure: facts, tables, commands, errors.

import { byId, copyButton, element } from "./dom.js";
import { valueText } from "./format.js";
import { together } from "./script.js";

const INPUTS = {
  target: "target-text", best: "steps-text", peak: "setting-lr-0-text", batch_sizes: "sizes", batch_size: "batch-text", steps: "steps-text", schedule: "schedule-text",
  optimizer: "setting-text", "problem.spectrum": "spectrum-text", "problem.kind": "noise-kind", "problem.label_noise": "label-noise-text", x: "map-xrange", y: "map-yrange", "x.low": "map-xrange", "x.high": "map-xrange", "y.low": "map-yrange", "y.high": "map-yrange",
  noise_scale: "noise-text", low: "noise-low", high: "noise-high", devices: "devices-text", per_device: "per-device-text", seconds: "seconds-text",
  training_steps: "training-steps-text", other_per_device: "other-per-device", other_seconds: "other-seconds", text: "noise-file",
}; // prettier-ignore

export function showFacts(facts, summary) {
  const boxes = facts.map(({ name, value, note, term, wide, warn }) => {
    const label = element("div", { class: "name" }, element("span", term ? { tabindex: "0" } : {}, name));
    if (term) label.firstChild.dataset.term = term;
    return element("div", { class: `fact${wide ? " wide" : ""}${warn ? " warn" : ""}` }, label, element("div", { class: "number" }, value), note ? element("div", { class: "name" }, note) : null);
  });
  byId("facts").replaceChildren(...boxes, ...(summary ? [table(summary)] : []));
}

/** Hundreds of rows are made when somebody looks, not at every move. */
export function showTables(make) {
  const box = byId("numbers");
  const fill = () => byId("tables").replaceChildren(...(box.open ? make().map(table) : []));
  box.ontoggle = fill;
  fill();
}

/** A table; ``remarks`` holds for each cell the sentence that explains it, or nothing. */
function table({ caption, columns, rows, roles, remarks }) {
  const cell = (value, i, row) => {
    const remark = remarks?.[row][i];
    const shown = typeof value === "string" ? value : valueText(value);
    const text = remark ? element("abbr", { title: remark, tabindex: "0" }, shown) : shown;
    const dot = i === 0 && roles ? [element("span", { class: `dot ${roles[row]}`, "aria-hidden": "true" }), " "] : [];
    return element("td", typeof value === "string" ? { class: "text" } : {}, ...dot, text);
  };
  const head = element("tr", {}, ...columns.map((name) => element("th", { scope: "col" }, name)));
  const body = rows.map((row, k) => element("tr", {}, ...row.map((value, i) => cell(value, i, k))));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, element("table", {}, element("caption", {}, caption), element("thead", {}, head), element("tbody", {}, ...body)));
}

/** The command line and the Python lines that give the same answer, and the file that they read: {name, save}. */
export function showCode(answers, file = null) {
  const block = (title, text) => element("div", { class: "code-block" }, element("h3", {}, title), element("div", { class: "code-block" }, element("pre", {}, element("code", {}, text)), copyButton(text, title.toLowerCase())));
  const commands = answers.map((answer) => answer.command).filter(Boolean).join("\n");
  const python = together(answers.map((answer) => answer.python));
  byId("code").replaceChildren(
    element("h2", { id: "code-heading" }, commands ? "The same answer from a terminal and from Python" : "The same answer from Python"),
    ...(commands ? [block("Command line", commands)] : []),
    block("Python", python),
    ...(file ? [element("p", { class: "note" }, `Both read ${file.name}. `, element("button", { class: "quiet", type: "button", id: "save-file", onclick: file.save }, `Save ${file.name}`))] : []),
  );
}

/** What a view needs before it can answer. It is no error, and looks like none. */
export class Invitation extends Error {}

/** Show errors in one place, and mark the fields that they are about. */
export function showErrors(errors) {
  for (const node of document.querySelectorAll('[aria-invalid="true"]')) node.removeAttribute("aria-invalid");
  for (const node of document.querySelectorAll(".problem-text")) node.remove();
  const box = byId("error");
  box.hidden = !errors.length;
  box.classList.toggle("invitation", errors.length > 0 && errors.every((error) => error instanceof Invitation));
  box.textContent = errors.map((error) => sentence(error.message)).join(" ");
  for (const error of errors) {
    const input = inputOf(error);
    input?.setAttribute("aria-invalid", "true");
    input?.closest(".field, .slider, .family-head")?.after(element("p", { class: "problem-text" }, sentence(error.message)));
  }
}

/** Show an error that the page finds itself, before a request; null removes it. */
export function showWrong(error) {
  showErrors(error ? [error] : []);
}

/** The input that an error is about: that of the wrong number, or else that of the text that contains it. */
function inputOf({ input, field, argument }) {
  const holder = { "problem.spectrum": "law", optimizer: "setting" }[field];
  const own = argument && holder ? document.querySelector(`input[type="text"][id^="${holder}-${argument}-"]`) : null;
  return own ?? byId(input ?? INPUTS[field] ?? "");
}

/** The error as a sentence, with paths of fields replaced by words. */
function sentence(text) {
  const words = text.replace(/^(?:[a-z]+\.)*[a-z_]+(?= )/, (path) => path.split(".").at(-1).replaceAll("_", " "));
  const whole = /^\w+:/.test(words) ? words : words.charAt(0).toUpperCase() + words.slice(1);
  return /[.!?]$/.test(whole) ? whole : `${whole}.`;
}
