// The card of optimizers to compare: each has a line of constructor text, and menus that change it.

import { element, rebuild, textField } from "../dom.js";
import { composer } from "../composer.js";

const MOST = 6;
const NEXT = ["Nesterov()", "Preconditioned(SGD(), power=0.5)", "EMA(HeavyBall())", "Lookahead(SGD())", "ScheduleFree()", "SGD()"];

export class FamiliesCard {
  constructor(box, update) {
    this.box = box;
    this.update = update;
    this.shown = null;
  }

  show(state) {
    const key = JSON.stringify(state.o);
    if (key === this.shown) return;
    this.shown = key;
    const rows = state.o.map((text, i) => this.row(text, i, state.o));
    const more = element("button", { class: "quiet", type: "button", id: "family-add", onclick: () => this.add(state.o) }, "Add an optimizer");
    more.disabled = state.o.length >= MOST;
    const heading = element("h2", { id: "families-heading" }, "Optimizers, tuned");
    rebuild(this.box, heading, ...rows, element("div", { class: "buttons" }, more));
  }

  row(text, i, all) {
    const set = (next) => this.update({ o: all.map((one, k) => (k === i ? next : one)) });
    const field = textField(text, set, { needed: true, class: "code", id: `family-${i}-text`, "aria-label": `Optimizer ${i + 1}, constructor text` });
    field.dataset.term = "constructor";
    const drop = element("button", { class: "icon", type: "button", "aria-label": `Remove ${text}`, onclick: () => this.update({ o: all.filter((one, k) => k !== i) }) }, "×");
    drop.disabled = all.length < 2;
    const menus = element("details", { class: "compose", id: `family-${i}-menus` }, element("summary", {}, "Compose"), composer(text, set, { prefix: `family-${i}` }));
    const head = element("div", { class: "family-head" }, element("span", { class: `dot c${i}`, "aria-hidden": "true" }), field, drop);
    return element("div", { class: "family" }, head, menus);
  }

  add(all) {
    const fresh = NEXT.find((one) => !all.includes(one)) ?? "SGD()";
    this.update({ o: [...all, fresh] });
  }
}
