// What the user can choose, from /api/describe. Menus, sliders and explanations are built from it.

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

/** The names of a constructor's arguments in order; the first of a wrapper is the optimizer inside. */
function namesOf(name) {
  const one = byName.get(name);
  return one ? [...(one.wraps ? ["inner"] : []), ...one.parameters.map((parameter) => parameter.name)] : null;
}

/** The call with all arguments named, or null if menus cannot show it because a name is unknown. */
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

/** The first value of a parameter that is not set: a safe learning rate, a memory of ten steps. */
export function start(parameter) {
  if (parameter.default !== null) return String(parameter.default);
  if (parameter.scale === "choice") return JSON.stringify(parameter.choices[0]);
  if (parameter.scale === "memory") return "0.9";
  if (parameter.scale === "log") return parameter.whole ? "5" : "0.1";
  return "0.5";
}

/** The sentence that explains a term of the page, or null. */
export function sentence(term) {
  if (Object.hasOwn(described?.terms ?? {}, term)) return described.terms[term]; // not what every object has, such as constructor
  if (byName.has(term)) return byName.get(term).sentence;
  for (const one of described?.optimizers ?? []) {
    for (const parameter of one.parameters) if (parameter.name === term) return parameter.sentence;
  }
  return null;
}
