// What stands above every view: tabs, Pin, Undo, Redo and Copy link.

import { byId, element } from "./dom.js";
import { link, redo, state, subscribe, toHash, undo, undoable } from "./state.js";

/** A tab for each view, to be reached by arrow keys; a click calls `open(id)`. */
export function buildTabs(views, open) {
  const tabs = views.map((view) => {
    const tab = element("button", { type: "button", role: "tab", "aria-controls": "main", id: `tab-${view.id}`, onclick: () => open(view.id) }, view.tab);
    tab.dataset.view = view.id;
    return tab;
  });
  byId("tabs").replaceChildren(...tabs);
  byId("tabs").addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const at = tabs.indexOf(document.activeElement);
    const next = tabs[(at + by + tabs.length) % tabs.length];
    next.focus();
    next.click();
  });
}

/** Pin the current setting, or take the pin away. */
export function startPin(change) {
  const button = byId("pin");
  button.addEventListener("click", () => change({ pin: state().pin ? "" : toHash({ ...state(), pin: "", data: "", name: "" }) }));
  const show = () => {
    button.setAttribute("aria-pressed", String(Boolean(state().pin)));
    button.textContent = state().pin ? "Unpin" : "Pin";
  };
  subscribe(show);
  show();
}

/** Buttons and keys that take changes back; inside a text field the keys belong to the field. */
export function startUndo() {
  byId("undo").addEventListener("click", undo);
  byId("redo").addEventListener("click", redo);
  const show = () => {
    byId("undo").disabled = !undoable().undo;
    byId("redo").disabled = !undoable().redo;
  };
  subscribe(show);
  show();
  addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z" || event.target.matches?.('input[type="text"], textarea')) return;
    event.preventDefault();
    if (event.shiftKey) redo();
    else undo();
  });
}

/** Copy a link to what is shown. */
export async function share() {
  const button = byId("share");
  try {
    await navigator.clipboard.writeText(link());
    button.textContent = "Link copied";
  } catch {
    button.textContent = "Copy from the address bar";
  }
  setTimeout(() => (button.textContent = "Copy link"), 1500);
}
