// Menus for an optimizer, its wrappers and its numbers. The text beside them shows the same optimizer.

import { argument, layers, nest, parseCall, printTidy, withArgument } from "./grammar.js";
import { bases, optimizer, start, understood, wrappers } from "./catalogue.js";
import { element, labelled, menu, numberField } from "./dom.js";
import { showWrong } from "./report.js";

/** The tree of a text, or null if only the server can read it. */
export function readTree(text) {
  try {
    return understood(parseCall(text));
  } catch {
    return null;
  }
}

/** Rows of menus for a text; every change calls `onchange(text)`. With `all`, every number is set. */
export function composer(text, onchange, { all = false, prefix = "composer" } = {}) {
  const tree = readTree(text);
  if (!tree) return element("p", { class: "note" }, "The menus cannot show this text; correct it above.");
  const list = layers(tree);
  const say = (next) => onchange(printTidy(nest(next)));
  const rows = list.map((layer, i) => layerRow(layer, i, list, say, all, `${prefix}-${i}`));
  return element("div", {}, ...rows, wrapMenu(list, say, all, `${prefix}-wrap`));
}

function layerRow(layer, i, list, say, all, id) {
  const innermost = i === list.length - 1;
  const others = innermost ? bases() : wrappers();
  const replace = (next) => say(list.map((one, k) => (k === i ? next : one)));
  const choose = menu(
    others.map((one) => [one.name, one.name]),
    layer.name,
    (name) => replace(changed(layer, name, all)),
    { id, "aria-label": innermost ? "Optimizer" : `Wrapper ${i + 1}` },
  );
  choose.dataset.term = layer.name;
  const drop = innermost
    ? element("span", {})
    : element("button", { class: "icon", type: "button", "aria-label": `Take ${layer.name} away`, onclick: () => say(list.filter((one, k) => k !== i)) }, "×");
  const numbers = all ? [] : optimizer(layer.name).parameters.map((p) => valueField(p, layer, replace, `${id}-${p.name}`));
  return element(
    "div",
    { class: "layer" },
    element("span", { class: "of" }, i ? "of" : ""),
    choose,
    drop,
    numbers.length ? element("div", { class: "values" }, ...numbers) : null,
  );
}

function valueField(parameter, layer, replace, id) {
  const value = argument(layer, parameter.name);
  const set = (text) => replace(withArgument(layer, parameter.name, text.trim() || null));
  if (parameter.scale === "choice") {
    const options = [["", "default"], ...parameter.choices.map((one) => [JSON.stringify(one), one])];
    return labelled(parameter.name, menu(options, value ?? "", set), parameter.name, id);
  }
  const placeholder = parameter.default === null ? "free" : String(parameter.default);
  return labelled(parameter.name, numberField(value ?? "", set, { placeholder, onwrong: showWrong }), parameter.name, id);
}

function wrapMenu(list, say, all, id) {
  const options = [["", "Wrap in …"], ...wrappers().map((one) => [one.name, one.name])];
  const choose = menu(options, "", (name) => name && say([changed({ args: [] }, name, all), ...list]), {
    id,
    "aria-label": "Wrap the optimizer in another",
  });
  return element("div", { class: "wrap" }, choose);
}

/** Replace an optimizer by another, and keep the numbers of parameters that both have. */
function changed(layer, name, all) {
  const one = optimizer(name);
  const kept = one.parameters
    .map((p) => ({ name: p.name, value: argument(layer, p.name) ?? (all && p.default === null ? start(p) : undefined) }))
    .filter((arg) => arg.value !== undefined);
  const inner = layer.args.filter((arg) => arg.name === "inner");
  return { name, args: one.wraps ? [...inner, ...kept] : kept };
}

/** Every parameter of an optimizer with its layer, the innermost last, and a function that sets it. */
export function parametersOf(tree) {
  const list = layers(tree);
  return list.flatMap((layer, i) =>
    optimizer(layer.name).parameters.map((parameter) => ({
      parameter,
      value: argument(layer, parameter.name),
      with: (text) => printTidy(nest(list.map((one, k) => (k === i ? withArgument(layer, parameter.name, text) : one)))),
    })),
  );
}

/** Unique names of the parameters, as the library has them: with their path if two layers share a name. */
export function uniqueNames(tree) {
  const found = layers(tree).flatMap((layer, depth) =>
    optimizer(layer.name).parameters.map((p) => ({ name: p.name, path: [...Array(depth).fill("inner"), p.name].join("."), parameter: p })),
  );
  const count = (name) => found.filter((one) => one.name === name).length;
  return found.map((one) => ({ ...one, name: count(one.name) > 1 ? one.path : one.name }));
}

/** Every parameter of a text by its unique name. */
export function named(text) {
  const tree = readTree(text);
  if (!tree) return [];
  const names = uniqueNames(tree);
  return parametersOf(tree).map((one, i) => ({ ...one, name: names[i].name }));
}

/** The text with these numbers in full; text from the server has six digits, which are too few near the edge of stability. */
export function withValues(text, values) {
  return Object.entries(values).reduce((now, [name, value]) => {
    const one = typeof value === "number" ? named(now).find((found) => found.name === name) : null;
    return one ? one.with(String(value)) : now;
  }, text);
}

/** The same optimizer without learning rates, momenta and decays, for tuning. */
export function freed(tree) {
  const list = layers(tree).map((layer) => ({
    name: layer.name,
    args: layer.args.filter(({ name }) => name === "inner" || !tunable(optimizer(layer.name).parameters.find((p) => p.name === name))),
  }));
  return printTidy(nest(list));
}

export const tunable = (p) => p && p.default === null && !p.whole && (p.scale === "log" || p.scale === "memory");
