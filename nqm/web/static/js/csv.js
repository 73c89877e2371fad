// A CSV or TSV file as a table of text.

const MOST_ROWS = 20_000;

/** {columns, rows} of a file with one line of names; an error says what is missing. */
export function readCsv(text, name = "") {
  const lines = text.replace(/^\uFEFF/, "").split(/\r?\n/).filter((line) => line.trim() && !line.startsWith("#"));
  if (lines.length < 2) throw new Error(`The file ${name} has no rows: a first line with the names of columns and a line for each point are needed`);
  if (lines.length > MOST_ROWS) throw new Error(`The file ${name} has ${lines.length.toLocaleString("en")} lines; measured points may have ${MOST_ROWS.toLocaleString("en")}`);
  const mark = [",", "\t", ";"].reduce((best, one) => (lines[0].split(one).length > lines[0].split(best).length ? one : best));
  const [columns, ...rows] = lines.map((line) => cells(line, mark));
  return { columns: columns.map((column) => column.trim()), rows: rows.map((row) => columns.map((_, i) => row[i] ?? "")) };
}

/** The cells of a line; quotes hold separators, and two quotes are one. */
function cells(line, mark) {
  const found = [];
  let [cell, quoted] = ["", false];
  for (let i = 0; i < line.length; i += 1) {
    const c = line[i];
    if (quoted && c === '"' && line[i + 1] === '"') {
      cell += '"';
      i += 1;
    } else if (c === '"') quoted = !quoted;
    else if (c === mark && !quoted) {
      found.push(cell);
      cell = "";
    } else cell += c;
  }
  return [...found, cell];
}
