// Explanations of terms, shown on hover and on focus.

import { sentence } from "./catalogue.js";
import { byId } from "./dom.js";

// Terms that only the page uses; /api/describe has the others.
const OWN = {
  exponent: "How quickly curvature falls from one direction to the next: the i-th curvature is i to the power of minus this number.",
  noise_exponent: "How quickly gradient noise falls from one direction to the next; if empty, as quickly as the curvature (C = H).",
  noise_kind: "Whether the gradient noise has a fixed variance, or is that of minibatches of a linear regression, which falls with the loss.",
  noise_level: "A factor that multiplies the variance of the gradient noise.",
  dimension: "How many directions, or parameters, the problem has.",
  sizes: "Batch sizes to tune for: a range such as 2^2..2^20, or a list such as 4,16,64.",
  tune: "Search learning rates, momenta and decays for the fewest steps to the target at this batch size.",
  constructor: "The optimizer as you would write it in Python or on the command line; parameters that are omitted are tuned.",
  setting: "One optimizer with every hyper-parameter set; the views Loss over steps, Schedule and Phase map use it.",
  bound: "A lower bound on the steps of any method, from the noise in the gradients.",
  multiplier: "The factor that multiplies the learning rate of the setting during this piece.",
  devices: "The devices on which the training runs at present, each with its own part of the batch.",
  per_device: "The examples of each step on one device; the batch size is this number times the devices.",
  seconds: "The seconds that one step takes with these devices and this batch.",
  training_steps: "The steps that the whole training takes at the present batch size.",
  noise_interval: "The ends of the interval of the noise scale, as nqm watch and nqm fit print them; leave them empty if you do not know them.",
  other_seconds: "The seconds of a step with another batch on each of the same devices. They tell what a step costs beside its examples.",
  horizon: "The number of steps of the run.",
  goal: "The loss of the network itself, below that of its checkpoint; the Target loss of the other views is above the minimum of its quadratic.",
};

export function explain(term) {
  return sentence(term) ?? (Object.hasOwn(OWN, term) ? OWN[term] : null);
}

/** One box shows all explanations: of an element with data-term on hover, and of a label when its control has the focus. */
export function startTerms() {
  const box = byId("hint");
  const hide = () => {
    box.hidden = true;
  };
  const show = (node) => {
    const text = explain(node.dataset.term);
    if (!text) return hide();
    box.textContent = text;
    box.hidden = false;
    const at = node.getBoundingClientRect();
    const wide = box.offsetWidth;
    const left = Math.min(Math.max(8, at.left), innerWidth - wide - 8);
    const above = at.top - box.offsetHeight - 8;
    box.style.left = `${left}px`;
    box.style.top = `${above > 8 ? above : at.bottom + 8}px`;
  };
  const termOf = (target) => {
    if (!(target instanceof Element)) return null;
    const own = target.closest("[data-term]");
    if (own) return own;
    return target.id ? document.querySelector(`label[for="${CSS.escape(target.id)}"][data-term]`) : null;
  };
  document.addEventListener("pointerover", (event) => {
    const own = event.target instanceof Element ? event.target.closest("[data-term]") : null;
    if (own) show(own);
    else if (!termOf(document.activeElement)) hide();
  });
  document.addEventListener("focusin", (event) => {
    const node = termOf(event.target);
    // A control that is clicked needs no explanation; with the keyboard there is no hover, so focus shows it.
    if (node && event.target.matches(":focus-visible")) {
      show(node);
      event.target.setAttribute("aria-describedby", "hint");
    } else hide();
  });
  document.addEventListener("focusout", hide);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });
  addEventListener("scroll", hide, { passive: true });
}
