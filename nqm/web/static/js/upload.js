// Files of measured networks. A file is sent to the server once, and is part of the link in compressed form.

import { get, post, send as give, stream, text } from "./api.js";
import { DEFAULTS, mostBatch, pack, state, unpack } from "./state.js";
import { isMonitored, readNoise } from "./cards/training.js";
import { offer } from "./save.js";

const FORGOTTEN = "problem.spectrum";
const EXAMPLE = "examples/digits.json";
const EXAMPLE_LOGS = "examples/runs.csv";
const LONGEST = 60_000; // characters of a link; what is longer stays on the server, and its link with it
const SHORT = { steps: "1000", batch: "32" }; // how far a measurement at a checkpoint reaches
const KEPT = "id:";
const ids = new Map(); // packed content -> id on the server
let complain = () => {};

export function startUploads(onerror) {
  complain = onerror;
}

/** Open files that were dropped or chosen together. Several are logs, to which one law is fitted. */
export async function openFiles(files, update) {
  const all = [...files];
  if (all.length === 1) return openFile(all[0], update);
  try {
    const logs = await Promise.all(all.map(async (file) => ({ name: file.name, text: await file.text() })));
    await openFile(new File([JSON.stringify({ logs })], "forecast.json", { type: "application/json" }), update);
  } catch (error) {
    complain(error);
  }
}

/** Send a file, and make it the problem; the file of a monitor has a noise scale, for which there is a view. */
export async function openFile(file, update) {
  try {
    if (await isMonitored(file)) return await readNoise(file, update);
    const answer = await submit(file, file.name);
    const packed = await pack(JSON.stringify(answer.file));
    const data = packed.length > LONGEST ? `${KEPT}${answer.id}` : packed;
    ids.set(data, answer.id);
    const opened = { data, name: answer.name, file: answer.kind, examples: answer.fit ? String(answer.fit.examples) : "" };
    if (answer.kind === "forecast") return update({ ...opened, ...logged(answer) });
    update({ ...opened, view: "network", ...reachable(answer), ...fitting({ ...state(), ...opened }) });
  } catch (error) {
    complain(error);
  }
}

/** The state in which a forecast is shown first: the largest rate of its logs, over the steps of the longest. */
function logged({ lr, batch_size, steps, loss, floor }) {
  const target = Math.max(loss, floor + 0.01 * Math.abs(floor));
  const batch = batch_size ?? 1; // stands for that of the logs, if they do not say it
  const text = (value) => String(Number(value.toPrecision(6)));
  return {
    view: "runs", kind: "quadratic", label_noise: "", grid: "linear", o: ["SGD()"], run: `SGD(lr=${text(lr)})`, batch: String(batch),
    steps: String(steps), target: text(target), sizes: (batch_size ? [0.5, 1, 2] : [1]).map((factor) => text(factor * batch)).join(","),
  }; // prettier-ignore
}

/** Steps and batch sizes for a measurement at a checkpoint, unless somebody has chosen others. Batches are drawn from its examples. */
function fitting(of) {
  const most = mostBatch(of);
  const chosen = Object.fromEntries(Object.entries(SHORT).map(([name, short]) => [name, of[name] === DEFAULTS[name] ? short : of[name]]));
  const sizes = of.examples && of.sizes === DEFAULTS.sizes ? `2^0..2^${Math.floor(Math.log2(most))}` : of.sizes;
  return { ...chosen, batch: Number(chosen.batch) > most ? String(most) : chosen.batch, sizes };
}

function submit(file, name) {
  return give(`/api/upload?name=${encodeURIComponent(name)}`, file, { "Content-Type": "application/octet-stream" });
}

export async function openExample(update, view = "network") {
  try {
    const content = await get(EXAMPLE);
    await openFile(new File([JSON.stringify(content)], "digits.json", { type: "application/json" }), (changes) => update({ ...changes, view }));
  } catch (error) {
    complain(error);
  }
}

/** Open three short logs of a language model. */
export async function openLogs(update) {
  try {
    await openFile(new File([await text(EXAMPLE_LOGS)], "runs.csv", { type: "text/csv" }), update);
  } catch (error) {
    complain(error);
  }
}

/** Another target, if the current one is above the initial loss of a measured network. */
function reachable(answer) {
  if (Number(state().target) < answer.initial_loss) return {};
  return { target: String(Number((answer.initial_loss / 4).toPrecision(2))) };
}

/** The kind of gradient noise as fields of a request; noise of fixed variance is the default. */
function noiseOf({ kind, label_noise }) {
  if (kind === "quadratic") return {};
  return label_noise ? { kind, label_noise } : { kind };
}

/** The file of a state as the commands read it; null without one, or if it is not in the link. */
export function fileOf({ data, name }) {
  if (!data || data.startsWith(KEPT) || !name.endsWith(".json")) return null;
  return { name, save: async () => offer(new Blob([`${await unpack(data)}\n`], { type: "application/json" }), name) };
}

/** Ask about the problem. If the server does not have the file, or has dropped it, it is sent again. */
export async function ask(path, of, body, signal, heard = null) {
  const send = heard ? (text) => stream(path, text, signal, heard) : (text) => post(path, text, signal);
  const about = (spectrum) => send({ problem: { spectrum, ...noiseOf(of) }, ...body });
  if (!of.data) return about(of.spectrum);
  const kept = of.data.startsWith(KEPT);
  let id = kept ? of.data.slice(KEPT.length) : ids.get(of.data);
  if (id) {
    try {
      return await about({ upload: id });
    } catch (error) {
      if (kept || error.field !== FORGOTTEN) throw error;
    }
  }
  const name = of.name || "network.json";
  id = (await submit(new File([await unpack(of.data)], name), name)).id;
  ids.set(of.data, id);
  return about({ upload: id });
}

/** Ask about the spectrum itself, regardless of the kind of noise. */
export function askSpectrum(path, of, body, signal) {
  return ask(path, { ...of, kind: "quadratic" }, body, signal);
}
