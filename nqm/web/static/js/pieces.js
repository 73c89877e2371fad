// The pieces of a schedule to text and back: Schedule([100, 300], [1, 0.1]) is 100 steps at the full rate and 300 at a tenth.

import { plain } from "./format.js";

const FORM = /^Schedule\(\s*\[([^\]]*)\]\s*,\s*(?:lr\s*=\s*)?\[([^\]]*)\]\s*\)$/;

/** {lengths, lr}, or null for a schedule that is not written as pieces. */
export function readPieces(text) {
  const found = FORM.exec(text.trim());
  if (!found) return null;
  const [lengths, lr] = found.slice(1).map((list) => list.split(",").map(Number));
  const fine = lengths.length === lr.length && lengths.every((n) => Number.isInteger(n) && n > 0) && lr.every((v) => v >= 0);
  return fine ? { lengths, lr } : null;
}

export function printPieces({ lengths, lr }) {
  return `Schedule([${lengths.join(", ")}], [${lr.map((v) => plain(v, 4)).join(", ")}])`;
}

/** Pieces of equal length at the full rate. */
export function equalPieces(steps, count) {
  const most = Math.max(1, Math.min(count, steps));
  const ends = Array.from({ length: most + 1 }, (_, i) => Math.round((i * steps) / most));
  return { lengths: ends.slice(1).map((end, i) => end - ends[i]), lr: Array(most).fill(1) };
}

/** The same pieces, stretched to another number of steps. */
export function stretched({ lengths, lr }, steps) {
  const total = lengths.reduce((a, b) => a + b, 0);
  if (total === steps || steps < lengths.length) return { lengths, lr };
  let past = 0;
  let before = 0;
  const next = lengths.map((n, i) => {
    past += n;
    const left = lengths.length - 1 - i; // each later piece needs a step
    const end = Math.min(steps - left, Math.max(before + 1, Math.round((past * steps) / total)));
    const length = end - before;
    before = end;
    return length;
  });
  return { lengths: next, lr };
}

/** The pieces with another multiplier for piece i. */
export function raised({ lengths, lr }, i, value) {
  return { lengths, lr: lr.map((v, k) => (k === i ? value : v)) };
}

/** The pieces with the end of piece i moved by some steps; the next piece gets shorter or longer. */
export function moved({ lengths, lr }, i, by) {
  if (i + 1 >= lengths.length) return { lengths, lr };
  const shift = Math.max(1 - lengths[i], Math.min(lengths[i + 1] - 1, Math.round(by)));
  return { lengths: lengths.map((n, k) => (k === i ? n + shift : k === i + 1 ? n - shift : n)), lr };
}

/** The pieces with piece i split in two halves. */
export function halved({ lengths, lr }, i) {
  if (lengths[i] < 2) return { lengths, lr };
  const first = Math.floor(lengths[i] / 2);
  const spread = (list, pair) => [...list.slice(0, i), ...pair, ...list.slice(i + 1)];
  return { lengths: spread(lengths, [first, lengths[i] - first]), lr: spread(lr, [lr[i], lr[i]]) };
}

/** The pieces without piece i, whose steps go to a neighbour. */
export function merged({ lengths, lr }, i) {
  if (lengths.length < 2) return { lengths, lr };
  const to = i > 0 ? i - 1 : 1;
  return { lengths: lengths.map((n, k) => (k === to ? n + lengths[i] : n)).filter((n, k) => k !== i), lr: lr.filter((v, k) => k !== i) };
}

/** Usual shapes of a schedule: the multiplier at a part of the run. */
export const SHAPES = {
  cosine: { name: "Cosine", at: (part) => (1 + Math.cos(Math.PI * part)) / 2 },
  wsd: { name: "WSD", at: (part) => Math.min(1, (1 - part) / 0.2) },
  linear: { name: "Linear", at: (part) => 1 - part },
  step: { name: "Step", at: (part) => (part < 0.5 ? 1 : part < 0.8 ? 0.3 : 0.1) },
};

/** A usual shape as pieces of equal length, each at the multiplier of its middle. */
export function shaped(name, steps, count) {
  const pieces = equalPieces(steps, count);
  const n = pieces.lengths.length;
  return { lengths: pieces.lengths, lr: pieces.lr.map((_, i) => Number(SHAPES[name].at((i + 0.5) / n).toPrecision(4))) };
}
