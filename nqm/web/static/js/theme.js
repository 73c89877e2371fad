// Light and dark colours. They are custom properties of the style sheet, and pictures read them from there.

const KEY = "nqm-theme";
const NAMES = ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "ink", "muted", "grid", "edge", "beyond", "soft", "surface", "accent"];

/** The colours of the current theme by role. */
export function colours() {
  const style = getComputedStyle(document.documentElement);
  const found = Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  return { ...found, dark: isDark() };
}

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Follow the system until the button is pressed; from then on this browser remembers the choice. */
export function startTheme(button, redraw) {
  const chosen = remembered();
  if (chosen) document.documentElement.dataset.theme = chosen;
  const show = () => {
    button.setAttribute("aria-pressed", String(isDark()));
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", isDark() ? "Switch to light colours" : "Switch to dark colours");
  };
  button.addEventListener("click", () => {
    const next = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem(KEY, next);
    } catch {
      // If the browser stores nothing, the theme still changes.
    }
    show();
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    show();
    redraw();
  });
  show();
}

function remembered() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}
