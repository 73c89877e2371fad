// The card of one setting: an optimizer with every number set, its sliders, batch size and steps, or what a view needs of these:
// views = {setting, family, next, batch, steps}. `family` is an optimizer that is tuned elsewhere, `next` the run of a forecast.

import { element, labelled, rebuild, textField } from "../dom.js";
import { composer, freed, parametersOf, readTree, tunable } from "../composer.js";
import { layers } from "../grammar.js";
import { start } from "../catalogue.js";
import { slider } from "../slider.js";
import { plain } from "../format.js";
import { mostBatch } from "../state.js";

export class SettingCard {
  constructor(box, update, tune) {
    this.box = box;
    this.update = update;
    this.tune = tune;
    this.shape = null;
  }

  show(state, views) {
    const tree = readTree(state.run);
    const shape = `${tree ? layers(tree).map((layer) => layer.name).join(" ") : "?"} ${JSON.stringify(views)} ${mostBatch(state)}`;
    this.state = state;
    if (shape === this.shape) {
      this.parts.forEach((sync) => sync(state));
      return;
    }
    this.shape = shape;
    this.parts = [];
    const heading = element("h2", { id: "setting-heading" }, views.next ? "Next run" : "Setting");
    if (!views.next) heading.dataset.term = "setting";
    const whole = views.setting || views.family;
    rebuild(
      this.box, heading, whole ? this.text(state) : null, ...(tree ? this.sliders(tree, views) : []), whole ? this.menus(state) : null,
      ...this.running(state, views), views.setting ? this.buttons(tree) : null,
    ); // prettier-ignore
  }

  text(state) {
    const field = textField(state.run, (run) => this.update({ run }), { needed: true, class: "code", id: "setting-text", "aria-label": "Optimizer, constructor text" });
    field.dataset.term = "constructor";
    this.parts.push((next) => field !== document.activeElement && (field.value = next.run));
    return element("div", { class: "field" }, field);
  }

  menus(state) {
    const box = element("div", {});
    let shown = null;
    const sync = (next) => {
      if (shown === next.run) return;
      shown = next.run;
      rebuild(box, composer(next.run, (run) => this.update({ run }), { all: true, prefix: "setting-menu" }));
    };
    sync(state);
    this.parts.push(sync);
    return element("details", { class: "compose", id: "setting-menus" }, element("summary", {}, "Compose"), box);
  }

  sliders(tree, views) {
    const wanted = shown(views);
    return parametersOf(tree).flatMap(({ parameter }, i) => {
      if (parameter.scale === "choice" || !wanted(parameter)) return [];
      const find = () => parametersOf(readTree(this.state.run))[i];
      const part = slider({
        id: `setting-${parameter.name}-${i}`, label: views.next ? "Peak learning rate" : parameter.name, term: parameter.name, scale: parameter.scale,
        low: parameter.low, high: parameter.high, whole: parameter.whole, value: find().value ?? start(parameter),
        onmove: (text) => {
          const run = find().with(text);
          this.state = { ...this.state, run };
          this.update({ run });
        },
        format: precise(parameter.scale),
      }); // prettier-ignore
      this.parts.push((next) => {
        this.state = next;
        if (readTree(next.run)) part.show(find().value ?? start(parameter));
      });
      return [part.node];
    });
  }

  running(state, views) {
    const batch = views.batch && slider({
      id: "batch", label: "Batch size", term: "batch_size", scale: "log2", low: 1, high: mostBatch(state), whole: true, value: state.batch,
      onmove: (text) => this.update({ batch: text }),
    }); // prettier-ignore
    const steps = views.steps && slider({
      id: "steps", label: "Steps", term: "horizon", scale: "log", low: 10, high: 1e7, whole: true, value: state.steps, digits: 2,
      onmove: (text) => this.update({ steps: text }),
    }); // prettier-ignore
    this.parts.push((next) => batch && batch.show(next.batch), (next) => steps && steps.show(next.steps));
    return [batch, steps].filter(Boolean).map(({ node }) => node);
  }

  buttons(tree) {
    const button = element("button", { class: "strong", type: "button", id: "tune", onclick: () => this.tune(freed(readTree(this.state.run))) }, "Tune at this batch size");
    button.dataset.term = "tune";
    button.disabled = !tree;
    return element("div", { class: "buttons" }, button);
  }
}

/** Which parameters have a slider: the peak of a forecast's run, those of a family that are not tuned, or all. */
function shown({ setting, family, next }) {
  if (setting) return () => true;
  if (next) return ({ name }) => name === "lr";
  return (parameter) => Boolean(family) && !tunable(parameter);
}

/** The text of a decay; near 1 it needs the digits after the nines. */
function precise(scale) {
  if (scale !== "memory") return plain;
  return (value) => {
    const nines = Math.max(0, Math.floor(-Math.log10(Math.max(1 - value, 1e-12))));
    return String(Number(value.toFixed(3 + nines)));
  };
}
