// Colours of a map; dark means few steps. The colours are matplotlib's viridis (public domain), which suits colour-blind readers.

const STOPS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];
const RGB = STOPS.map((hex) => [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16)));

/** The colour of a number between 0 and 1. */
export function colourAt(place) {
  const x = Math.min(1, Math.max(0, place)) * (RGB.length - 1);
  const i = Math.min(RGB.length - 2, Math.floor(x));
  const mixed = RGB[i].map((low, k) => Math.round(low + (x - i) * (RGB[i + 1][k] - low)));
  return `rgb(${mixed.join(",")})`;
}

/** The minimum and maximum of the cells that have a number. */
export function extentOf(rows) {
  const known = rows.flat().filter((v) => v !== null && Number.isFinite(v));
  return known.length ? [Math.min(...known), Math.max(...known)] : [1, 10];
}
