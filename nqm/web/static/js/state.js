// The state of the page, which is kept in its address, so that a link reproduces a figure.

import { Trail } from "./trail.js";

export const DEFAULTS = {
  view: "steps",
  spectrum: "power_law(10000)",
  kind: "quadratic", // of gradient noise: a fixed variance, or "least_squares"
  label_noise: "", // of least squares; what the spectrum says if empty
  target: "0.01",
  sizes: "2^2..2^20",
  o: ["SGD()", "HeavyBall()", "EMA(SGD())"],
  critical: "2x",
  limits: "", // "shown" if bounds and regimes are drawn
  rate: "effective_lr",
  run: "HeavyBall(lr=0.05, momentum=0.9)",
  batch: "256",
  steps: "100000",
  grid: "log",
  schedule: "",
  shape: "", // of the next run after those of a log: "cosine", ..., or "best"
  goal: "", // the training loss for which advice is asked; halfway down the descent of the fit if empty
  advised: "", // "own" if advice is about the optimizer of the setting alone
  pieces: "10",
  max_rate: "", // of best schedules: a number, "paper" or "inf"; if empty, the loss on the way is bounded instead
  x: "lr",
  y: "momentum",
  xrange: "",
  yrange: "",
  cells: "48",
  noise: "1000", // the noise scale of a training, and the ends of its interval
  noise_low: "",
  noise_high: "",
  devices: "8",
  per_device: "32",
  seconds: "0.2",
  training_steps: "100000",
  other_per_device: "", // a second batch per device, with its seconds per step
  other_seconds: "",
  pin: "", // the state that is compared with, as an address
  data: "", // a measured spectrum, packed, so that a link outlives the server's memory
  name: "", // of the file it came from
  file: "", // what it is: a "fit", a "forecast" or a "spectrum"
  examples: "", // of the network of a fit
};

const LISTS = new Set(["o"]);
const MOST = 6; // optimizers side by side: as many as there are colours

const LARGEST_BATCH = 2 ** 20;

/** The largest batch size to choose: all examples of a measured network. */
export const mostBatch = (of) => (of.data && Number(of.examples)) || LARGEST_BATCH;

/** Whether a network was measured. A link of an earlier version does not say it. */
export const isFit = (of) => Boolean(of.data) && ["fit", ""].includes(of.file);

let current = fromHash(location.hash);
const listeners = new Set();
let writing = null;
const trail = new Trail(current);

export const state = () => current;

/** Call `listener(next, changed keys)` whenever the state changes. */
export function subscribe(listener) {
  listeners.add(listener);
}

/** Change the state. A change of view is an entry in the browser's history; the move of a slider is not. */
export function update(changes) {
  const next = { ...current, ...changes };
  const changed = differences(next);
  if (!changed.length) return;
  trail.record(next, changed, performance.now());
  become(next, changed);
}

function differences(next) {
  return Object.keys(next).filter((key) => JSON.stringify(next[key]) !== JSON.stringify(current[key]));
}

function become(next, changed) {
  current = next;
  remember(changed.includes("view"));
  for (const listener of listeners) listener(current, new Set(changed));
}

/** Take the last change back, whatever made it; and make it again. */
export function undo() {
  const next = trail.undo();
  if (next) become(next, differences(next));
}

export function redo() {
  const next = trail.redo();
  if (next) become(next, differences(next));
}

export const undoable = () => ({ undo: trail.past.length > 0, redo: trail.future.length > 0 });

export function link(of = current) {
  return `${location.origin}${location.pathname}${toHash(of)}`;
}

/** The address of a state: only values that differ from the defaults, readable where possible. */
export function toHash(of) {
  const parts = [];
  for (const [key, value] of Object.entries(of)) {
    if (!(key in DEFAULTS) || JSON.stringify(value) === JSON.stringify(DEFAULTS[key])) continue;
    for (const one of LISTS.has(key) ? value : [value]) parts.push(`${key}=${encode(one)}`);
  }
  return `#${parts.join("&")}`;
}

export function fromHash(hash) {
  const found = { ...DEFAULTS, o: [...DEFAULTS.o] };
  const lists = {};
  for (const part of hash.replace(/^#/, "").split("&")) {
    const at = part.indexOf("=");
    const key = part.slice(0, at);
    if (at < 1 || !(key in DEFAULTS)) continue;
    const value = decode(part.slice(at + 1));
    if (LISTS.has(key)) lists[key] = [...(lists[key] ?? []), value].slice(0, MOST);
    else found[key] = value;
  }
  return { ...found, ...lists };
}

const encode = (text) => encodeURIComponent(text).replace(/%20/g, "+").replace(/%2C/g, ",").replace(/%3D/g, "=").replace(/%5E/g, "^");

function decode(text) {
  try {
    return decodeURIComponent(text.replace(/\+/g, " "));
  } catch {
    return text; // a stray percent sign is what it is
  }
}

function remember(place) {
  clearTimeout(writing);
  const write = () => history[place ? "pushState" : "replaceState"](null, "", toHash(current));
  if (place) write();
  else writing = setTimeout(write, 150); // browsers refuse hundreds of addresses a second
}

/** Back, Forward, or an address that was typed: the address is there already, and is not written again. */
function visit() {
  clearTimeout(writing);
  const next = fromHash(location.hash);
  const changed = differences(next);
  if (!changed.length) return;
  trail.record(next, changed, performance.now());
  current = next;
  for (const listener of listeners) listener(current, new Set(changed));
}

history.scrollRestoration = "manual"; // another view begins at its top
addEventListener("popstate", visit);
addEventListener("hashchange", visit);

/** Text compressed for an address, and back. */
export async function pack(text) {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

export async function unpack(packed) {
  try {
    return await inflated(packed);
  } catch {
    throw new Error("The link is damaged: the file in it cannot be read. Ask for the link again, or open the file itself");
  }
}

function inflated(packed) {
  const binary = atob(packed.replace(/-/g, "+").replace(/_/g, "/"));
  const bytes = Uint8Array.from(binary, (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"))).text();
}
