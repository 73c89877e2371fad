// The figure as one HTML file that needs no server: data, drawing code and style sheet are inside it.

import { element } from "./dom.js";

// In the order of their dependencies. Their names do not clash, so they can form one script.
const PARTS = ["format.js", "theme.js", "dom.js", "colormap.js", "model.js", "script.js", "paint.js", "legend.js", "figure.js", "viewer.js"];

/** The page of what is shown; `origin` is a sentence on the problem and the version. */
export async function pageOf(shown, origin) {
  const here = new URL(".", import.meta.url);
  const read = async (path) => (await fetch(new URL(path, here))).text();
  const [library, look, page, chart] = await Promise.all(
    ["../vendor/uplot/uPlot.iife.min.js", "../css/theme.css", "../css/figure.css", "../vendor/uplot/uPlot.min.css"].map(read),
  );
  const code = joined(await Promise.all(PARTS.map(read)));
  const { figure, commands, link, sentence } = shown;
  const data = { figure, commands, link, sentence, origin, theme: document.documentElement.dataset.theme ?? "" };
  const title = element("title", {}, `${figure.title} – nqm`).outerHTML; // the element escapes the text
  return [
    '<!doctype html><html lang="en"><head><meta charset="utf-8">',
    '<meta name="viewport" content="width=device-width, initial-scale=1">',
    `${title}<style>${chart}\n${look}\n${page}</style></head>`,
    '<body class="onefile"><main id="onefile"></main>',
    `<script type="application/json" id="data">${inScript(JSON.stringify(data))}</script>`,
    `<script>${inScript(library)}</script><script>${inScript(code)}</script></body></html>\n`,
  ].join("\n");
}

/** Modules as one script: imports are removed, and exports become plain names. */
function joined(sources) {
  const bare = sources.map((source) => source.replace(/^import[^;]*;\n/gm, "").replace(/^export /gm, ""));
  return `"use strict";\n{\n${bare.join("\n")}\n}`;
}

/** Escape characters that would end a script element; JSON and JavaScript strings read them back unchanged. */
const inScript = (text) => text.replace(/<(?=\/script|!--)/gi, "\\u003c");
