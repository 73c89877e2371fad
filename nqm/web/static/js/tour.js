// Three guided examples. Each step is a text about what to see, and changes of the state that show it.

import { byId, element } from "./dom.js";
import { DEFAULTS } from "./state.js";
import { openExample } from "./upload.js";

const SWEEP = { spectrum: DEFAULTS.spectrum, data: "", name: "", target: "0.01", sizes: "2^2..2^20" };

const QUARTER = "0.029"; // of the loss that the sample can still lose

const TOURS = [
  {
    name: "Momentum and batch size",
    what: "When does momentum help, and how far does it move the critical batch size?",
    steps: [
      ["SGD, tuned at every batch size. Up to some hundred examples, twice the batch halves the steps: this is perfect scaling. Beyond the critical batch size the curve flattens, because the learning rate has reached the edge of stability.", { ...SWEEP, view: "steps", o: ["SGD()"] }],
      ["SGD beside heavy ball. At small batches the two nearly agree; at large batches heavy ball still scales where SGD has stopped. The dashed lines mark where each takes twice the steps of perfect scaling.", { ...SWEEP, view: "steps", o: ["SGD()", "HeavyBall()"] }],
      ["The reason: the best effective learning rate of SGD levels off at the edge of stability. Momentum allows larger effective rates. Its best value falls as the batch grows: less noise needs less memory.", { ...SWEEP, view: "settings", o: ["SGD()", "HeavyBall()"] }],
      ["One batch size in detail: a map over learning rate and momentum. The best cells lie along an edge, beyond which noise keeps the loss above the target. Along this edge a smaller learning rate can be replaced by a larger momentum. Choose a cell to see its loss.", { ...SWEEP, view: "map", run: "HeavyBall(lr=0.5, momentum=0.9)", batch: "4096", x: "lr", y: "momentum", xrange: "", yrange: "" }],
    ],
  },
  {
    name: "Averaging instead of decay",
    what: "At small batches, averaging the weights has the same effect as lowering the learning rate.",
    steps: [
      ["A constant learning rate at a small batch: the signal soon vanishes, but the noise floor keeps the loss above the target.", { ...SWEEP, view: "loss", run: "SGD(lr=0.5)", batch: "64", steps: "100000", grid: "log" }],
      ["The same learning rate with an exponential moving average of the weights: the noise floor falls to about a ninth, which is below the target.", { ...SWEEP, view: "loss", run: "EMA(SGD(lr=0.5), decay=0.9999)", batch: "64", steps: "100000", grid: "log" }],
      ["The alternative: lower the learning rate during training. The loss ends far below that of the constant rate. Press Best for these steps for the exact optimum, then drag a piece to see how much it matters.", { ...SWEEP, view: "schedule", run: "SGD(lr=1.5)", batch: "64", steps: "20000", pieces: "10", schedule: "Schedule([12000, 4000, 2000, 2000], [1, 0.4, 0.15, 0.03])" }],
      ["All batch sizes: averaging is better where noise dominates, and equals SGD where it does not. An average of heavy ball is best at both ends.", { ...SWEEP, view: "steps", o: ["SGD()", "EMA(SGD())", "EMA(HeavyBall())"] }],
    ],
  },
  {
    name: "Reading your own network",
    what: "From a checkpoint to its critical batch size, for a small network on handwritten digits.",
    steps: [
      ["nqm fit measures how the signal and the noise of the gradient are distributed over the curvature of a network at a checkpoint. This is the sample; open your own file under Problem. The noise scale is a first guess at a useful batch size.", { view: "network", run: "HeavyBall(lr=0.05, momentum=0.9)", batch: "32", steps: "1000" }, true],
      ["The measured problem in place of the paper's: tuned steps to a quarter of the remaining loss. The critical batch sizes show how large the batch can get before returns diminish.", { view: "steps", o: ["SGD()", "HeavyBall()", "EMA(SGD())"], sizes: "2^0..2^10", target: QUARTER }],
      ["One setting on the measured problem. Move the learning rate, or press Tune. The command and the lines of Python below give the same numbers in your own scripts.", { view: "loss", run: "HeavyBall(lr=0.05, momentum=0.9)", batch: "32", steps: "5000" }],
    ],
  },
];

export function startTours(update) {
  const list = byId("example-list");
  const box = byId("tour");
  const menu = byId("examples");
  const show = async (tour, at) => {
    const [text, changes, sample] = tour.steps[at];
    menu.open = false;
    if (sample) await openExample(update);
    update({ kind: DEFAULTS.kind, label_noise: DEFAULTS.label_noise, ...changes });
    const go = (to, words, kind) => element("button", { class: kind, type: "button", onclick: () => show(tour, to) }, words);
    const close = element("button", { class: "quiet", type: "button", onclick: () => (box.hidden = true) }, "Close");
    box.hidden = false;
    box.replaceChildren(
      element("h2", {}, `${tour.name} (${at + 1} of ${tour.steps.length})`),
      element("p", {}, text),
      element("div", { class: "buttons" }, at > 0 ? go(at - 1, "Back", "quiet") : null, at + 1 < tour.steps.length ? go(at + 1, "Next", "strong") : null, close),
    );
    box.querySelector(".strong, .quiet")?.focus();
  };
  for (const tour of TOURS) {
    list.append(element("li", {}, element("button", { type: "button", onclick: () => show(tour, 0) }, tour.name, element("small", {}, tour.what))));
  }
  document.addEventListener("pointerdown", (event) => {
    if (!menu.contains(event.target)) menu.open = false;
  });
}
