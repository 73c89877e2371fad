// Problems to begin with, each with a line on what it stands for.

import { DEFAULTS } from "./state.js";

const FRESH = { kind: DEFAULTS.kind, label_noise: DEFAULTS.label_noise, data: "", name: "", sizes: DEFAULTS.sizes };

export const PRESETS = [
  {
    id: "paper", name: "The paper's",
    line: "10,000 directions whose curvature falls as 1/i, with noise in proportion: the instance of Zhang et al. (2019).",
    changes: { ...FRESH, spectrum: DEFAULTS.spectrum, target: "0.01" },
  },
  {
    id: "language", name: "Language model",
    line: "A million directions that matter a little each, and much noise: the loss falls as a slow power of the steps. A caricature, not a fit.",
    changes: { ...FRESH, spectrum: "power_law(1000000, exponent=1.1, noise=10)", target: "1" },
  },
  {
    id: "image", name: "Image classifier",
    line: "A few steep directions and little noise: large batches pay only with momentum. A caricature, not a fit.",
    changes: { ...FRESH, spectrum: "power_law(10000, exponent=1.5, noise=0.1)", target: "0.01" },
  },
  {
    id: "noiseless", name: "No noise",
    line: "Full gradients: the batch size does not matter, and what is left is curvature.",
    changes: { ...FRESH, spectrum: "power_law(10000, noise=0)", target: "0.01" },
  },
]; // prettier-ignore

/** The preset that a state is, or null. */
export function presetOf(state) {
  const same = (changes) => ["spectrum", "kind", "data"].every((key) => changes[key] === state[key]);
  return PRESETS.find(({ changes }) => same(changes)) ?? null;
}
