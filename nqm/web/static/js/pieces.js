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

const DECAY = 0.2; // the part of WSD in which the rate falls
const FALLS = [[0.5, 1], [0.3, 0.3], [0.2, 0.1]]; // of the step schedule: parts of the run, each with its multiplier
const WARMUP_PIECES = 4;

const warm = (steps) => (steps ? `warmup(${steps}) + ` : "");

/** Usual shapes of a schedule: the multiplier at a part of the run, and the text for a number of steps, of which some warm up. */
export const SHAPES = {
  cosine: { name: "Cosine", at: (part) => (1 + Math.cos(Math.PI * part)) / 2, text: (steps, first) => `${warm(first)}cosine(${steps - first})` },
  wsd: { name: "WSD", at: (part) => Math.min(1, (1 - part) / DECAY), text: (steps, first) => `wsd(${steps}, ${first}, ${Math.max(1, Math.round(DECAY * (steps - first)))})` },
  linear: { name: "Linear", at: (part) => 1 - part, text: (steps, first) => `${warm(first)}linear(${steps - first})` },
  step: { name: "Step", at: (part) => (part < FALLS[0][0] ? FALLS[0][1] : part < FALLS[0][0] + FALLS[1][0] ? FALLS[1][1] : FALLS[2][1]), text: stepText },
};

function stepText(steps, first) {
  const ends = [FALLS[0][0], FALLS[0][0] + FALLS[1][0], 1].map((part) => Math.round(part * (steps - first)));
  const pieces = FALLS.map(([, lr], i) => ({ length: ends[i] - (ends[i - 1] ?? 0), lr })).filter(({ length }) => length > 0);
  return warm(first) + printPieces({ lengths: pieces.map(({ length }) => length), lr: pieces.map(({ lr }) => lr) });
}

/** A run as pieces to drag: the warm-up in a few, and the rest in `count` of equal length, each at the mean of its rates over `peak`. */
export function piecesOfRun({ steps, rates }, first, count, peak) {
  const last = steps.at(-1);
  const [rise, rest] = [first ? equalPieces(first, WARMUP_PIECES).lengths : [], equalPieces(last - first, count).lengths];
  let end = 0;
  const lr = [...rise, ...rest].map((length, i) => {
    const from = end;
    end += length;
    if (i < rise.length) return (from + end) / 2 / first;
    const inside = rates.filter((_, k) => steps[k] > from && steps[k] <= end);
    const nearest = steps.findIndex((step) => step > from);
    return (inside.length ? inside.reduce((a, b) => a + b, 0) / inside.length : rates[nearest]) / peak;
  });
  return { lengths: [...rise, ...rest], lr };
}

/** A usual shape as pieces of equal length, each at the multiplier of its middle. */
export function shaped(name, steps, count) {
  const pieces = equalPieces(steps, count);
  const n = pieces.lengths.length;
  return { lengths: pieces.lengths, lr: pieces.lr.map((_, i) => Number(SHAPES[name].at((i + 0.5) / n).toPrecision(4))) };
}
