// What there is to choose, as /api/describe says it: menus, sliders and explanations are built from this.

import { withNames } from "./grammar.js";

let described = null;
let byName = new Map();

export function learn(answer) {
  described = answer;
  byName = new Map(answer.optimizers.map((one) => [one.name, one]));
}

export const known = () => described;
export const optimizer = (name) => byName.get(name);
export const bases = () => described.optimizers.filter((one) => !one.wraps);
export const wrappers = () => described.optimizers.filter((one) => one.wraps);

/** Names of a constructor's arguments in order; a wrapper's first is the optimizer it holds. */
function namesOf(name) {
  const one = byName.get(name);
  return one ? [...(one.wraps ? ["inner"] : []), ...one.parameters.map((parameter) => parameter.name)] : null;
}

/** A call whose arguments all have names and whose optimizers all exist; null where menus cannot show it. */
export function understood(call) {
  const named = withNames(call, namesOf);
  let fine = true;
  const check = (one) => {
    const names = namesOf(one.name);
    if (!names) fine = false;
    for (const { name, value } of one.args) {
      if (!names?.includes(name)) fine = false;
      if (typeof value !== "string") check(value);
    }
  };
  check(named);
  return fine ? named : null;
}

/** Where a parameter starts when nobody has set it: a rate that is safe, a memory of ten steps. */
export function start(parameter) {
  if (parameter.default !== null) return String(parameter.default);
  if (parameter.scale === "choice") return JSON.stringify(parameter.choices[0]);
  if (parameter.scale === "memory") return "0.9";
  if (parameter.scale === "log") return parameter.whole ? "5" : "0.1";
  return "0.5";
}

/** A sentence for a word of the page. */
export function sentence(term) {
  if (described?.terms?.[term]) return described.terms[term];
  if (byName.has(term)) return byName.get(term).sentence;
  for (const one of described?.optimizers ?? []) {
    for (const parameter of one.parameters) if (parameter.name === term) return parameter.sentence;
  }
  return null;
}
