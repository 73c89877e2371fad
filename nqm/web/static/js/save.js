// Downloads: the picture, its numbers, and a page that works without a server.

import { svgOf } from "./svg.js";
import { rowsOf } from "./model.js";
import { colours } from "./theme.js";
import { element } from "./dom.js";
import { pageOf } from "./onefile.js";
import { known } from "./catalogue.js";

const LONGEST_LINK = 600; // letters of a link on a picture; one with a file in it is longer
const SCALE = 2; // pixels of a PNG for each of its SVG

/** Save the shown figure; `shown` is {figure, answers, state, commands, link}. */
export async function save(kind, shown) {
  const name = `nqm-${shown.state.view}`;
  const svg = () => pictureOf(shown);
  if (kind === "svg") return offer(new Blob([svg()], { type: "image/svg+xml" }), `${name}.svg`);
  if (kind === "png") return offer(await raster(svg()), `${name}.png`);
  if (kind === "csv") return offer(new Blob([csv(rowsOf(shown.figure))], { type: "text/csv" }), `${name}.csv`);
  if (kind === "json") return offer(new Blob([jsonOf(shown)], { type: "application/json" }), `${name}.json`);
  return offer(new Blob([await pageOf(shown, originOf(shown))], { type: "text/html" }), `${name}.html`);
}

/** The picture with what a reader needs who did not make it: its sentence, its problem, the version, and the link. */
export function pictureOf(shown) {
  const { figure, sentence, link } = shown;
  const origin = [originOf(shown), link.length > LONGEST_LINK ? "" : link].filter(Boolean);
  return svgOf(figure, colours(), { sentence, origin });
}

/** The problem and the version of nqm that a figure comes from. */
function originOf({ figure, state }) {
  const problem = figure.about ?? (state.data ? state.name : `${state.spectrum}${state.kind === "quadratic" ? "" : `, ${state.kind.replace("_", " ")}`}`);
  return `Problem: ${problem}. nqm ${known()?.version ?? ""}.`;
}

/** Put the picture on the clipboard. */
export async function copyPicture(shown) {
  const picture = raster(pictureOf(shown)); // a promise: the clipboard must be asked while the click is fresh
  await navigator.clipboard.write([new ClipboardItem({ "image/png": picture })]);
}

/** The answers of the server and the requests for them. */
export function jsonOf({ answers, state, commands, link }) {
  const { data, ...asked } = state;
  return `${JSON.stringify({ view: state.view, link, state: asked, commands, answers }, null, 1)}\n`;
}

function csv(rows) {
  const cell = (value) => (/[",\n]/.test(String(value)) ? `"${String(value).replace(/"/g, '""')}"` : String(value));
  return `${rows.map((row) => row.map(cell).join(",")).join("\n")}\n`;
}

async function raster(svg) {
  const url = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = element("canvas", { width: image.naturalWidth * SCALE, height: image.naturalHeight * SCALE });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((done) => canvas.toBlob(done, "image/png"));
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** Offer a file for download. */
export function offer(blob, name) {
  const url = URL.createObjectURL(blob);
  const anchor = element("a", { href: url, download: name });
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
