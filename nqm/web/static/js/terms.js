// A sentence for each word, on hover and on focus.

import { sentence } from "./catalogue.js";
import { byId } from "./dom.js";

// Words of the page itself, which the engine does not know of.
const OWN = {
  spectrum: "How the curvatures of the loss are distributed: few steep directions and many flat ones.",
  curvature: "How steeply the loss bends along a direction, h; training is fast where it is large.",
  exponent: "How quickly curvature falls from one direction to the next: the i-th is i to the minus this power.",
  noise_exponent: "How quickly gradient noise falls over directions; the same as the curvature's, C = H, if left out.",
  noise_kind: "Whether a gradient's noise has the same variance everywhere, or is that of minibatches of a linear regression and falls with the loss.",
  noise_level: "Factor on the variance of the gradient noise of a single example.",
  dimension: "How many directions, or parameters, the problem has.",
  sizes: "Batch sizes to tune for: a range such as 2^2..2^20, or a list such as 4,16,64.",
  tune: "Search learning rates, momenta and decays for the fewest steps to the target at this batch size.",
  constructor: "The optimizer as you would write it in Python or on the command line; whatever is left out is tuned.",
  setting: "One optimizer with every hyper-parameter set, as Loss over steps, Schedule and Phase map use it.",
  bound: "Steps below which no method can be, given the noise in the gradients.",
  regimes: "Batch sizes where twice the batch halves the steps, where it helps less and less, and where it no longer helps.",
  pieces: "Into how many stretches of equal length the schedule is cut.",
  multiplier: "What the setting's learning rate is multiplied by during this piece.",
  horizon: "How many steps are run.",
};

export function explain(term) {
  return sentence(term) ?? OWN[term] ?? null;
}

/** One box for all explanations. A word with data-term shows its own; labels show theirs when their control has focus. */
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
    // A mouse that goes for a control knows what it wants; the keyboard has no hover.
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
