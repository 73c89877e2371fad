// Numbers and optimizers in sentences.

import { valueText } from "./format.js";

const NAMES = {
  "SGD()": "plain SGD",
  "HeavyBall()": "momentum",
  "Nesterov()": "Nesterov's momentum",
  "EMA(SGD())": "averaged SGD",
  "EMA(HeavyBall())": "averaged momentum",
};

/** An optimizer in a sentence. */
export const spoken = (label) => (Object.hasOwn(NAMES, label) ? NAMES[label] : short(label));

/** An optimizer beside its curve: without empty brackets. */
export const short = (label) => label.replaceAll("()", "");

/** A sentence begins with a capital letter. */
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** A number to three digits, and a whole one from 10 on. */
export const about = (value) => valueText(value < 10 ? Number(value.toPrecision(2)) : Math.round(Number(value.toPrecision(3))));

/** How many times: "59 times", "1.3 times". */
export const times = (ratio) => `${ratio >= 10 ? valueText(Math.round(ratio)) : Number(ratio.toPrecision(2))} times`;

/** A change from one number to another: "34% fewer", "twice as many" is "2 times as many". */
export function change(from, to, [less, more] = ["fewer", "more"]) {
  if (!(from > 0) || !(to >= 0)) return null;
  const part = to / from - 1;
  if (Math.abs(part) < 0.005) return "as many";
  if (to >= 2 * from) return `${times(to / from)} as many`;
  return `${Math.max(1, Math.round(100 * Math.abs(part)))}% ${part < 0 ? less : more}`;
}
