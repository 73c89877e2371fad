// Three guided examples: each step is a link's worth of state, and a sentence on what to see.

import { byId, element } from "./dom.js";
import { DEFAULTS } from "./state.js";
import { openExample } from "./upload.js";

const SWEEP = { spectrum: DEFAULTS.spectrum, data: "", name: "", target: "0.01", sizes: "2^2..2^20" };

const TOURS = [
  {
    name: "Momentum and batch size",
    what: "When does momentum help, and how far does it move the critical batch size?",
    steps: [
      ["Plain SGD, tuned at every batch size. Up to a few hundred examples twice the batch halves the steps: perfect scaling. Beyond its critical batch size the curve bends, because the learning rate has met the end of stability.", { ...SWEEP, view: "steps", o: ["SGD()"] }],
      ["With momentum the two nearly agree at small batches and part at large ones: heavy ball goes on scaling where SGD has stopped. The dashed lines mark where each leaves perfect scaling.", { ...SWEEP, view: "steps", o: ["SGD()", "HeavyBall()"] }],
      ["Why: the best effective learning rate of SGD levels off at the end of stability. Momentum reaches larger effective rates, and its best value rises with the batch size.", { ...SWEEP, view: "settings", o: ["SGD()", "HeavyBall()"] }],
      ["The same at one batch size: a map over learning rate and momentum. The best cells lie along the edge beyond which noise holds the loss above the target; along it learning rate and momentum trade against each other. Choose a cell to see its loss.", { ...SWEEP, view: "map", run: "HeavyBall(lr=0.5, momentum=0.9)", batch: "4096", x: "lr", y: "momentum", xrange: "", yrange: "" }],
    ],
  },
  {
    name: "Averaging instead of decay",
    what: "An average of the weights does at small batches what lowering the learning rate does.",
    steps: [
      ["A constant learning rate at a small batch: the signal is forgotten quickly, but noise holds the loss at its floor, above the target.", { ...SWEEP, view: "loss", run: "SGD(lr=0.5)", batch: "64", steps: "100000", grid: "log" }],
      ["The same learning rate with an exponential moving average of the weights: the floor sinks to about a ninth, below the target, and the learning rate was not touched.", { ...SWEEP, view: "loss", run: "EMA(SGD(lr=0.5), decay=0.9999)", batch: "64", steps: "100000", grid: "log" }],
      ["The other way: cut the learning rate as training goes on. It ends far below the constant rate. Press Best for these steps for the exact optimum, then drag a piece to see what it is worth.", { ...SWEEP, view: "schedule", run: "SGD(lr=1.5)", batch: "64", steps: "20000", pieces: "10", schedule: "Schedule([12000, 4000, 2000, 2000], [1, 0.4, 0.15, 0.03])" }],
      ["Over batch sizes: averaging wins where noise dominates, and joins SGD where it does not. Add momentum to the average to win at both ends.", { ...SWEEP, view: "steps", o: ["SGD()", "EMA(SGD())", "EMA(HeavyBall())"] }],
    ],
  },
  {
    name: "Reading your own network",
    what: "From a checkpoint to its critical batch size: the sample is a small network on handwritten digits.",
    steps: [
      ["nqm fit measures a network at a checkpoint: where gradient signal and gradient noise sit over curvature. This is the sample; open your own file under Problem. The noise scale is a first guess at a useful batch size.", { view: "network", run: "HeavyBall(lr=0.05, momentum=0.9)", batch: "32", steps: "1000" }, true],
      ["The measured problem in place of the paper's: tuned steps to a quarter of the remaining loss. How large may the batch get before returns diminish?", { view: "steps", o: ["SGD()", "HeavyBall()", "EMA(SGD())"], sizes: "2^0..2^14" }],
      ["One setting on your network. Move the learning rate, or press Tune; the command and the Python lines below give the same numbers in your own scripts.", { view: "loss", run: "HeavyBall(lr=0.05, momentum=0.9)", batch: "32", steps: "5000" }],
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
