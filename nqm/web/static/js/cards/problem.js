// The card of the problem: its spectrum, its noise, and the target.

import { element, labelled, menu, rebuild, textField } from "../dom.js";
import { argument, parseCall, printCall, withArgument, withNames } from "../grammar.js";
import { slider } from "../slider.js";
import { plain } from "../format.js";
import { PRESETS, presetOf } from "../presets.js";
import { DEFAULTS, state as now } from "../state.js";
import { askSpectrum, openFiles, openExample, openLogs } from "../upload.js";

const PAPER = DEFAULTS.spectrum;
const BINNED = "power_law(10000).binned(100)";
const LAW = ["d", "exponent", "noise_exponent", "start_exponent", "scale", "noise", "start"];
const KINDS = [
  ["paper", "Paper's: 10,000 modes, C = H"],
  ["binned", "Paper's notebook: 100 bins"],
  ["law", "Power law"],
  ["file", "Measured network (file)"],
  ["text", "Constructor text"],
];
const NOISES = [
  ["quadratic", "Fixed variance, as in the paper"],
  ["least_squares", "Minibatches of a regression"],
];
const FEW = "16,256,4096,65536"; // a regression takes about ten times as long to tune
const SLOW = "An exact linear regression. It takes longer to tune. Phase maps and best schedules need fixed variance.";

export class ProblemCard {
  constructor(box, update) {
    this.box = box;
    this.update = update;
    this.shape = null;
    this.wish = null; // a kind that was chosen but changes nothing yet, such as a file before it is opened
  }

  kind(state) {
    if (state.data) return "file";
    if (state.spectrum === BINNED) return "binned";
    if (this.wish) return this.wish;
    const call = law(state.spectrum);
    if (!call) return "text";
    return call.args.every(({ name, value }) => name === "noise" || (name === "d" && value === "10000")) ? "paper" : "law";
  }

  show(state, views) {
    const kind = this.kind(state);
    const shape = `${kind} ${state.kind} ${state.name} ${JSON.stringify(views)}`;
    if (shape === this.shape) {
      this.parts.forEach((sync) => sync(state));
      return;
    }
    this.shape = shape;
    this.parts = [];
    const heading = element("h2", { id: "problem-heading" }, views.file === "runs" ? "Logs" : views.file ? "Network" : "Problem");
    if (views.file) return rebuild(this.box, heading, this.fileField(state, views.file));
    rebuild(this.box, heading, this.presets(state), this.chooser(kind), ...this.inside(kind, state), ...(views.own ? [] : this.noise(state)), ...this.goal(state, views));
  }

  /** Buttons for problems to begin with, and what the chosen one stands for. */
  presets(state) {
    const line = element("p", { class: "note" });
    const buttons = PRESETS.map(({ id, name, changes }) => element("button", { class: "chip", type: "button", id: `preset-${id}`, onclick: () => this.begin(changes) }, name));
    const sync = (next) => {
      const chosen = presetOf(next);
      buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(PRESETS[i] === chosen)));
      line.textContent = chosen?.line ?? "";
    };
    sync(state);
    this.parts.push(sync);
    return element("div", { class: "presets", role: "group", "aria-label": "Problems to begin with" }, ...buttons, line);
  }

  begin(changes) {
    this.wish = null;
    this.update(changes);
  }

  chooser(kind) {
    return labelled("Spectrum", menu(KINDS, kind, (next) => this.choose(next)), "spectrum", "spectrum-kind");
  }

  choose(kind) {
    this.wish = kind === "paper" || kind === "binned" ? null : kind;
    this.shape = null;
    const { data, sizes } = now();
    const fresh = { data: "", name: "", sizes: data ? DEFAULTS.sizes : sizes }; // batch sizes of a network end at its examples
    if (kind !== "file") this.update({ spectrum: kind === "binned" ? BINNED : PAPER, ...fresh });
    this.update({}); // the card is drawn anew in any case
  }

  inside(kind, state) {
    if (kind === "law") return this.lawFields(state);
    if (kind === "paper") return fixed(state) ? this.lawFields(state).slice(-1) : []; // its noise alone
    if (kind === "file") return [this.fileField(state)];
    if (kind !== "text") return [];
    const field = textField(state.spectrum, (spectrum) => this.update({ spectrum }), { needed: true, class: "code" });
    this.parts.push((next) => field !== document.activeElement && (field.value = next.spectrum));
    return [labelled("Constructor", field, null, "spectrum-text")];
  }

  lawFields(state) {
    const call = law(state.spectrum);
    const set = (name, text) => this.update({ spectrum: printCall(withArgument(law(state.spectrum) ?? call, name, text)) });
    const current = (name, of) => argument(law(of.spectrum) ?? call, name);
    const make = (name, label, term, low, high, scale, fallback) => {
      const value = (of) => current(name, of) ?? fallback(of);
      const part = slider({
        id: `law-${name}`, label, term, scale, low, high, whole: name === "d", value: value(state), digits: 3,
        onmove: (text) => {
          state = { ...state, spectrum: printCall(withArgument(law(state.spectrum) ?? call, name, text)) };
          set(name, text);
        },
      }); // prettier-ignore
      this.parts.push((next) => {
        state = next;
        part.show(value(next));
      });
      return part.node;
    };
    const shape = [
      make("d", "Dimension d", "dimension", 10, 1e12, "log", () => "10000"),
      make("exponent", "Curvature exponent", "exponent", 0.25, 3, "linear", () => "1"),
    ];
    if (!fixed(state)) return shape; // its noise follows from the rest
    return [
      ...shape,
      make("noise_exponent", "Noise exponent", "noise_exponent", 0, 3, "linear", (of) => current("exponent", of) ?? "1"),
      make("noise", "Noise level", "noise_level", 0.01, 100, "log", () => "1"),
    ];
  }

  fileField(state, view = "") {
    const input = element("input", { type: "file", multiple: true, accept: ".json,.npz,.csv,.tsv,.jsonl", id: "file", class: "offscreen", "aria-label": "Logs, or a file made by nqm fit, nqm spectrum or nqm forecast" });
    input.addEventListener("change", () => {
      if (input.files.length) openFiles(input.files, this.update);
      input.value = ""; // so that a file can be opened again when it has grown
    });
    const sample = view === "runs" ? ["Use the sample: three runs", openLogs] : ["Use the sample: digits.json", (update) => openExample(update, view || "network")];
    const box = element(
      "div",
      { class: "drop" },
      state.name ? element("p", {}, element("strong", {}, state.name)) : "Drop logs of training (CSV, trainer_state.json), all at once, or a file made by nqm fit, nqm spectrum or nqm forecast, or choose them.",
      element("p", {}, input, element("label", { class: "quiet", for: "file" }, state.name ? "Choose another file" : "Choose a file")),
      element("p", {}, element("button", { class: "quiet", type: "button", id: "sample", onclick: () => sample[1](this.update) }, sample[0])),
    );
    box.addEventListener("dragover", (event) => {
      event.preventDefault();
      box.classList.add("over");
    });
    box.addEventListener("dragleave", () => box.classList.remove("over"));
    box.addEventListener("drop", (event) => {
      event.preventDefault();
      box.classList.remove("over");
      if (event.dataTransfer.files.length) openFiles(event.dataTransfer.files, this.update);
    });
    return element("div", { class: "field" }, box);
  }

  /** The menu of the kind of gradient noise, with the label noise of a regression. */
  noise(state) {
    const choose = labelled("Gradient noise", menu(NOISES, state.kind, (kind) => this.chooseNoise(kind, state)), "noise_kind", "noise-kind");
    this.parts.push((next) => (state = next));
    if (fixed(state)) return [choose];
    const labels = slider({
      id: "label-noise", label: "Label noise", term: "label_noise", scale: "log", low: 0.001, high: 1000, value: state.label_noise, digits: 3,
      onmove: (text) => this.update({ label_noise: text }), format: plain,
    }); // prettier-ignore
    this.parts.push((next) => labels.show(next.label_noise));
    return [choose, element("p", { class: "note" }, SLOW), labels.node];
  }

  /** The first value of the label noise: the gradient noise of the spectrum in total, which gives the same problem near its minimum. */
  async chooseNoise(kind, { sizes, ...state }) {
    if (kind === "quadratic") return this.update({ kind, label_noise: "", ...(sizes === FEW ? { sizes: DEFAULTS.sizes } : {}) });
    const fewer = sizes === DEFAULTS.sizes ? { sizes: FEW } : {};
    const found = await askSpectrum("/api/spectrum", state, {}).catch(() => null); // a wrong spectrum is complained of elsewhere
    this.update({ kind, label_noise: found ? plain(found.noise_trace / found.trace, 3) : "1", ...fewer });
  }

  goal(state, views) {
    if (views.goal) return []; // a view that has a goal of its own
    const target = slider({
      id: "target", label: "Target loss", term: "target", scale: "log", low: 1e-4, high: 3, value: state.target, digits: 3,
      onmove: (text) => this.update({ target: text }), format: plain,
    }); // prettier-ignore
    this.parts.push((next) => target.show(next.target));
    if (!views.sizes) return [target.node];
    const sizes = textField(state.sizes, (text) => this.update({ sizes: text }), { needed: true });
    this.parts.push((next) => sizes !== document.activeElement && (sizes.value = next.sizes));
    return [target.node, labelled("Batch sizes", sizes, "sizes", "sizes")];
  }
}

const fixed = (state) => state.kind !== "least_squares";

function law(text) {
  try {
    const call = parseCall(text);
    return call.name === "power_law" ? withNames(call, () => LAW) : null;
  } catch {
    return null;
  }
}
