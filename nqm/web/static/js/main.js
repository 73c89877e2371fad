// The explorer: its state is turned into requests, and the answers are drawn.

import { Latest, get, isAbort } from "./api.js";
import { learn } from "./catalogue.js";
import { DEFAULTS, fromHash, link, state, subscribe, update } from "./state.js";
import { byId, element } from "./dom.js";
import { buildTabs, share, startPin, startUndo } from "./actions.js";
import { drawFigure } from "./figure.js";
import { Invitation, showCode, showErrors, showFacts, showTables } from "./report.js";
import { copyPicture, save } from "./save.js";
import { showAbout, showHeadline } from "./explain.js";
import { startTerms } from "./terms.js";
import { Timeline } from "./timeline.js";
import { startTheme } from "./theme.js";
import { startTours } from "./tour.js";
import { difference, withPinned } from "./compare.js";
import { ask, fileOf, openFiles, startUploads } from "./upload.js";
import { withValues } from "./composer.js";
import { ProblemCard } from "./cards/problem.js";
import { FamiliesCard } from "./cards/families.js";
import { SettingCard } from "./cards/setting.js";
import { TrainingCard } from "./cards/training.js";
import { steps } from "./views/steps.js";
import { loss } from "./views/loss.js";
import { settings } from "./views/settings.js";
import { schedule } from "./views/schedule.js";
import { map } from "./views/map.js";
import { network } from "./views/network.js";
import { runs } from "./views/runs.js";
import { batch } from "./views/batch.js";
import { advice } from "./views/advice.js";
import { Overlay } from "./overlay.js";

const VIEWS = [steps, loss, settings, schedule, map, network, advice, runs, batch];
const FORMATS = ["png", "svg", "csv", "json", "html"];
const CHOICES = ["kind", "file", "x", "y", "run", "critical", "limits", "shape", "goal", "advised", "data", "rate", "pieces", "max_rate", "cells", "grid"]; // state that the controls above a figure show
const SETTLE = 250; // ms between the last move of a slider and the exact request
const WAIT = 30; // ms between two looks at whether the last quick answer has come
const PATIENCE = 2000; // ms that a quick answer may take before a newer request replaces it

// What the page shows at the moment; downloads and tests read it.
const nqm = { shown: null, timings: [], busy: true, state, update };
window.nqm = nqm;

const questions = new Latest();
const searches = new Latest();
let figure = null;
let moved = 0; // when the user last changed something
let asked = 0; // when the quick request that is on its way was sent; 0 if there is none
let again = false; // whether another quick request follows it
let settling = null;
let cards = [];
let timeline = null;
const overlay = new Overlay(() => nqm.shown && draw(nqm.shown.answers, nqm.shown.state), (error) => showErrors(error ? [error] : []));
let pinned = null; // the answers for the pinned setting, and the view that they belong to

const viewOf = (of) => VIEWS.find((view) => view.id === of.view) ?? steps;

async function start() {
  startTheme(byId("theme"), () => nqm.shown && draw(nqm.shown.answers, nqm.shown.state));
  byId("share").addEventListener("click", share);
  byId("reset").addEventListener("click", () => update({ ...DEFAULTS, o: [...DEFAULTS.o], view: state().view }));
  timeline = new Timeline(byId("timeline"), (step, loss) => figure?.mark(step, loss));
  startUndo();
  startPin(change);
  const narrow = matchMedia("(max-width: 980px)");
  const fold = () => (byId("drawer").open = !narrow.matches);
  narrow.addEventListener("change", fold);
  fold();
  buildTabs(VIEWS, (view) => change({ view }));
  buildDownloads();
  blank(true);
  say("Starting …", true);
  try {
    learn(await get("/api/describe"));
  } catch (error) {
    showErrors([error]);
    say("", false);
    return;
  }
  cards = [
    ["problem", new ProblemCard(byId("problem"), change), (wanted) => !wanted.training],
    ["families", new FamiliesCard(byId("families"), change), (wanted) => wanted.families],
    ["setting", new SettingCard(byId("setting"), change, tune), (wanted) => wanted.setting || wanted.next || wanted.family || wanted.batch],
    ["training", new TrainingCard(byId("training"), change), (wanted) => wanted.training],
  ];
  startTerms();
  startUploads((error) => showErrors([error]));
  startDrops();
  startTours(change);
  subscribe(onChange);
  showView();
  refresh();
}

/** Every change by the user goes through here. The time until it is visible is measured from this moment. */
function change(changes) {
  moved = performance.now();
  if (Object.keys(changes).length) update(changes);
  else showCards(state());
}

function onChange(next, changed) {
  // Views keep their parts of the state consistent even while they are not shown. This function is then called again.
  const adapted = Object.assign({}, ...VIEWS.map((one) => one.adapt?.(next, changed)));
  if (Object.keys(adapted).length) update(adapted);
  next = state();
  if (changed.has("view")) {
    showView();
    scrollTo(0, 0);
  }
  else if (CHOICES.some((key) => changed.has(key))) showControls(next);
  showCards(next);
  viewOf(next).edit?.(byId("editor"), next, change);
  refreshed(changed);
}

function refreshed(changed) {
  if (changed.has("view") || changed.has("pin") || [...changed].some((key) => viewOf(state()).uses.includes(key))) refresh(changed);
}

/** A file may be dropped anywhere. */
function startDrops() {
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    if (event.defaultPrevented || !event.dataTransfer.files[0]) return;
    event.preventDefault();
    const own = viewOf(state()).openFile;
    if (own) own(event.dataTransfer.files[0], change);
    else openFiles(event.dataTransfer.files, change);
  });
}

/** The answers for the pinned setting in the current view; null if they cannot be had. The page remembers them. */
async function askPinned(view, of, signal) {
  const then = { ...fromHash(of.pin), view: of.view, data: of.data, name: of.name };
  try {
    return { pin: of.pin, view: view.id, then, answers: await view.ask(then, signal, () => {}, false) };
  } catch (error) {
    if (isAbort(error)) throw error;
    return null;
  }
}

/** The figure with the pinned one in it, and the difference in words. */
function compared(view, model, answers, of) {
  const box = byId("compared");
  const shown = of.pin && pinned?.pin === of.pin && pinned.view === view.id;
  box.hidden = !shown || !view.measures;
  if (!shown) return model;
  if (view.measures) box.textContent = difference(view.measures(answers), view.measures(pinned.answers));
  return withPinned(model, view.figure(pinned.answers, pinned.then));
}

function showView() {
  const view = viewOf(state());
  byId("figure-heading").textContent = view.title;
  showAbout(view.about, change);
  document.title = `${view.tab} – nqm explorer`;
  for (const tab of byId("tabs").children) {
    const on = tab.dataset.view === view.id;
    tab.setAttribute("aria-selected", String(on));
    tab.tabIndex = on ? 0 : -1;
    if (on) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  searches.cancel();
  byId("editor").hidden = !view.edit;
  showControls(state());
  showCards(state());
  if (view.edit) view.edit(byId("editor"), state(), change);
}

function showControls(of) {
  const box = byId("view-controls");
  const held = box.contains(document.activeElement) ? document.activeElement.id : "";
  box.replaceChildren(...(viewOf(of).controls?.(of, change, search) ?? []).filter(Boolean));
  if (held) byId(held)?.focus();
}

function showCards(of) {
  const view = viewOf(of);
  const wanted = typeof view.cards === "function" ? view.cards(of) : view.cards;
  for (const [id, card, belongs] of cards) {
    byId(id).hidden = !belongs(wanted);
    if (belongs(wanted)) card.show(of, wanted);
  }
}

/** Send the requests of the view. While a slider moves, quick views send quick requests, and an exact one when it rests. */
function refresh(changed = new Set(["view"])) {
  const view = viewOf(state());
  const moving = Boolean(view.quick?.(state())) && !["view", "pin", "o", "sizes", "critical", "limits", "rate"].some((key) => changed.has(key));
  clearTimeout(settling);
  if (!moving) return run(view, false);
  settling = setTimeout(() => rest(view), SETTLE);
  if (underway()) again = true; // its answer arrives soon; waiting for it lets the picture follow the slider
  else run(view, true); // an exact answer that is on its way is out of date
}

/** Whether a quick answer is on its way and may still take its time. */
const underway = () => asked > 0 && performance.now() - asked < PATIENCE;

/** The slider rests: ask for the exact answer, after the quick ones that are on their way. */
function rest(view) {
  if (underway()) settling = setTimeout(() => rest(view), WAIT);
  else run(view, false);
}

async function run(view, moving) {
  const of = state();
  const signal = questions.next();
  const began = performance.now();
  const since = moved || began;
  asked = moving ? began : 0;
  again = false;
  nqm.busy = true;
  if (!moving) {
    const stale = Boolean(nqm.shown) && link(nqm.shown.state) !== link(of);
    say(stale ? "Computing … what is dimmed is the last answer." : "Computing …", true);
    byId("view").classList.toggle("stale", stale);
  }
  const progress = (answers) => !signal.aborted && answers.some(Boolean) && draw(answers, of);
  progress.say = (words) => !signal.aborted && say(words, true);
  try {
    const answers = await view.ask(of, signal, progress, moving);
    if (signal.aborted) return;
    const answered = performance.now();
    if (of.pin && !moving) pinned = await askPinned(view, of, signal);
    if (signal.aborted) return;
    draw(answers, of);
    finished(view, answers, { began, since, answered }, moving);
  } catch (error) {
    if (isAbort(error) || signal.aborted) return;
    if (!moving) failed(error); // the exact request follows, and says what is wrong
  }
  asked = 0;
  if (again && viewOf(state()) === view) run(view, true);
}

function finished(view, answers, { began, since, answered }, moving) {
  const errors = view.errors?.(answers) ?? [];
  showErrors(errors);
  const now = performance.now();
  const done = errors.length ? "Not everything was answered." : `${method(answers)}, in ${took(now - began)}.`;
  say(moving ? "Following …" : done, moving);
  nqm.busy = moving;
  // The picture is on the screen after the next frame.
  requestAnimationFrame(() => nqm.timings.push({ view: view.id, moving, server: answered - began, draw: now - answered, answer: now - began, ms: performance.now() - since }));
}

/** A time in words: milliseconds, or seconds if it was long. */
const took = (ms) => (ms < 10_000 ? `${Math.round(ms)} ms` : `${Math.round(ms / 1000)} s`);

/** How the answers were found: the least exact way among them. */
function method(answers) {
  const used = new Set(answers.flatMap((answer) => [answer?.method, ...(answer?.sweeps ?? []).map((sweep) => sweep.method)]));
  return used.has("sampled") ? "Sampled" : used.has("mean field") ? "By mean field" : used.has("law") ? "By the law" : "Exact";
}

function failed(error) {
  showErrors([error]);
  say(error instanceof Invitation ? "" : "No answer.", false);
  nqm.busy = false;
  if (nqm.shown?.view === viewOf(state()).id) return byId("view").classList.add("stale");
  figure?.destroy(); // it belongs to another view
  figure = nqm.shown = null;
  byId("figure").replaceChildren();
  byId("view").classList.remove("stale");
  blank(true);
}

/** Hide or show everything below the figure, which is empty without a figure. */
function blank(nothing) {
  for (const id of ["facts", "downloads", "code", "numbers"]) byId(id).hidden = nothing;
  if (nothing) showHeadline("");
  if (nothing) timeline.show(null);
}

function draw(answers, of) {
  const view = viewOf(of);
  const model = overlay.over(compared(view, view.figure(answers, of), answers, of));
  figure?.destroy();
  byId("figure").classList.toggle("pair", Boolean(view.pair) && model.panels.length !== 3);
  byId("figure").classList.toggle("triple", Boolean(view.pair) && model.panels.length === 3);
  byId("view").classList.remove("stale");
  figure = drawFigure(byId("figure"), { ...model, panels: model.panels.filter((panel) => !panel.edited) }, view.pick ? (...at) => pick(view, answers, model, at) : null);
  const commands = (view.commands?.(answers) ?? answers).filter((answer) => answer?.python);
  showHeadline(view.headline?.(answers, of) ?? "");
  timeline.show(view.timeline?.(answers) ?? null);
  showFacts(view.facts?.(answers, of) ?? [], view.summary?.(answers));
  showTables(() => view.tables?.(answers, of) ?? []);
  showCode(commands, viewOf(of).cards.training ? null : fileOf(of));
  blank(false);
  showCards(state()); // a card may depend on what the answer said
  nqm.shown = { view: view.id, figure: model, answers, state: of, commands: commands.map(({ command, python }) => ({ command, python })), link: link(of), sentence: byId("headline").textContent };
}

function pick(view, answers, model, at) {
  const changes = view.pick(answers, model, ...at, state());
  if (changes) change(changes);
}

/** Run a search that a button started, and apply the changes that it returns. */
async function search(question) {
  const signal = searches.next();
  say("Searching …", true);
  nqm.busy = true;
  try {
    const { changes, message } = await question(signal);
    if (signal.aborted) return;
    if (changes) change(changes);
    else showErrors([new Error(message)]);
    if (!changes || !nqm.busy) say(message ?? "", false);
  } catch (error) {
    if (!isAbort(error)) failed(error);
  }
}

function tune(family) {
  search(async (signal) => {
    const of = state();
    const found = await ask("/api/tune", of, { optimizer: family, batch_size: of.batch, target: of.target }, signal);
    if (found.steps === null) return { message: found.message };
    const { steps: count, examples, loss: reached, batch_size, ...values } = found; // the rest are hyper-parameters
    return { changes: { run: withValues(found.optimizer, values) }, message: found.message };
  });
}

function say(text, busy) {
  const box = byId("status");
  box.textContent = text;
  box.classList.toggle("busy", busy);
  byId("figure").setAttribute("aria-busy", String(busy));
}

function buildDownloads() {
  const names = { html: "One-file page" };
  const buttons = FORMATS.map((kind) => {
    const get = () => nqm.shown && save(kind, nqm.shown).catch((error) => showErrors([error]));
    return element("button", { class: "quiet", type: "button", id: `save-${kind}`, onclick: get }, names[kind] ?? kind.toUpperCase());
  });
  const copy = element("button", { class: "quiet", type: "button", id: "copy-picture" }, "Copy picture");
  copy.addEventListener("click", async () => {
    const done = nqm.shown && (await copyPicture(nqm.shown).then(() => true, () => false));
    copy.textContent = done ? "Picture copied" : "Not allowed; download the PNG";
    setTimeout(() => (copy.textContent = "Copy picture"), 2000);
  });
  byId("downloads").replaceChildren("To send:", copy, ...buttons, ...overlay.buttons());
}

start();
