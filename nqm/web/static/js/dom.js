// Elements are made without HTML strings, so that text from a server or a link is never read as markup.

/** An element: element("button", {class: "quiet", onclick: f, "aria-label": "..."}, "text", child, ...). */
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && typeof value !== "string") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const byId = (id) => document.getElementById(id);

let serial = 0;

/** A new id, which connects a label with its control. */
export function freshId(prefix) {
  serial += 1;
  return `${prefix}-${serial}`;
}

/** A control with its label above it. */
export function labelled(label, control, term = null, id = null) {
  control.id = id ?? (control.id || freshId("control"));
  const name = element("label", { for: control.id }, label);
  if (term) name.dataset.term = term;
  return element("div", { class: "field" }, name, control);
}

/** Rebuild the content of a box, and keep the focus where it was. */
export function rebuild(box, ...children) {
  const id = box.contains(document.activeElement) ? document.activeElement.id : "";
  const open = new Set([...box.querySelectorAll("details[open]")].map((node) => node.id));
  box.replaceChildren(...children.flat().filter(Boolean));
  for (const node of box.querySelectorAll("details")) if (open.has(node.id)) node.open = true;
  if (id) byId(id)?.focus();
}

/** A text field that reports its text on Enter or when it loses the focus. If `needed`, an emptied field gets its old text back. */
export function textField(value, onchange, { needed = false, ...attributes } = {}) {
  const node = element("input", { type: "text", autocomplete: "off", spellcheck: "false", ...attributes });
  let kept = value;
  node.value = value;
  node.addEventListener("focus", () => (kept = node.value));
  node.addEventListener("change", () => {
    const text = node.value.trim();
    if (needed && !text) node.value = kept;
    else onchange(text);
    kept = node.value;
  });
  return node;
}

const NUMBER = /^([\d.eE+\-*/^() ]+|inf)$/; // what the server reads as one, and nothing that could pass for two

/** A text field for a number. Other text is refused at once, because it could change the meaning of a constructor. */
export function numberField(value, onchange, { onwrong, ...attributes }) {
  const check = (text) => {
    const fine = !text || NUMBER.test(text);
    if (!fine) onwrong(Object.assign(new Error(`'${text}' is not a number; write one such as 0.1, 2^10 or 1 - 2^-7`), { input: node.id }));
    else if (node.getAttribute("aria-invalid")) onwrong(null);
    if (fine) onchange(text);
  };
  const node = textField(value, check, attributes);
  return node;
}

/** Put a value into a field, unless the user is typing in it. */
export function put(node, value) {
  if (node && document.activeElement !== node && node.value !== value) node.value = value;
}

/** A select from [value, text] pairs. */
export function menu(options, value, onchange, attributes = {}) {
  const node = element("select", { ...attributes, onchange: () => onchange(node.value) });
  for (const [key, text] of options) node.append(element("option", { value: key, selected: key === value }, text));
  return node;
}

/** A button that copies text to the clipboard and says so. */
export function copyButton(text, what) {
  const button = element("button", { class: "quiet copy", type: "button", "aria-label": `Copy ${what}` }, "Copy");
  button.addEventListener("click", async () => {
    const wanted = typeof text === "function" ? await text() : text;
    const done = await copy(wanted);
    button.textContent = done ? "Copied" : "Press Ctrl+C";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return button;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without permission or a secure context (another host serves the page), the old command still copies.
    const area = element("textarea", { class: "offscreen" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
