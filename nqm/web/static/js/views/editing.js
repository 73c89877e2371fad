// The schedule editor in a view: it stays in place while the figure below it is redrawn.

import { element } from "../dom.js";
import { ScheduleEditor } from "../editor.js";

export class Editing {
  /** Show pieces in a box; a drag calls `onchange(pieces)`. Without pieces the box has these words, or nothing. */
  show(box, pieces, onchange, words = "") {
    if (!this.editor) {
      this.inner = element("div", {});
      this.editor = new ScheduleEditor(this.inner, (next) => this.tell(next));
    }
    this.tell = onchange;
    if (this.inner.parentNode !== box) box.replaceChildren(this.inner);
    if (pieces) this.editor.show(pieces);
    else this.inner.replaceChildren(...(words ? [element("p", { class: "note" }, words)] : []));
  }
}
