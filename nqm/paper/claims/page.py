"""One page of all claims: Markdown beside its pictures, and HTML that holds them."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from pathlib import Path

from ...show.numbers import shown
from ...show.tables import header, markdown
from ...show.verdict import JUDGED
from .collect import Checked

TITLE = "The claims of Zhang et al. (2019), measured"
ABOUT = (
    "Each statement is that of Which Algorithmic Choices Matter at Which Batch Sizes? Insights From a Noisy Quadratic "
    "Model (NeurIPS 2019, arXiv 1907.04164), of a work it leans on, or what its figures suggest, in our words. Every "
    "number was measured when this page was written, every verdict follows from the number and the tolerance beside it, "
    "and random numbers are seeded."
)
ROWS = 12  # of a claim's table on the page; --json has them all
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { line-height: 1.2; } h2 { margin: 3rem 0 .5rem; border-top: 1px solid #ddd; padding-top: 1.5rem; }
table { border-collapse: collapse; font-size: .9rem; width: 100%; } .wide { overflow-x: auto; }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #eee; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
img { max-width: 100%; width: 40rem; display: block; margin: 1rem 0; }
blockquote { margin: .5rem 0; padding-left: 1rem; border-left: 3px solid #0072B2; font-size: 1.1rem; }
dt { font-weight: 600; float: left; clear: left; width: 6.5rem; } dd { margin: 0 0 .4rem 7rem; }
.holds { color: #00664b; } .partly { color: #8a5a00; } .fails { color: #b03a00; } .v { font-weight: 600; }
.source, .tolerance { color: #666; }
"""


def write(checked: Sequence[Checked], folder: Path, note: str = "") -> list[Path]:
    """Write ``claims.md`` and ``claims.html``, with a note after the summary; the pictures are in the folder already."""
    paths = [folder / "claims.md", folder / "claims.html"]
    paths[0].write_text(as_markdown(checked, note), encoding="utf-8")
    paths[1].write_text(as_html(checked, folder, note), encoding="utf-8")
    return paths


def summary(checked: Sequence[Checked]) -> str:
    """How many hold."""
    held, partly, failed = (sum(c.measured.verdict is v for c in checked) for v in JUDGED)
    claims = "1 claim" if len(checked) == 1 else f"{len(checked)} claims"
    return f"Of {claims} {held} hold, {partly} within limits, {failed} not."


def entries(one: Checked) -> list[tuple[str, str]]:
    """What is said of a claim after its statement: name and text."""
    found = one.measured
    rows = [
        ("measured", found.told),
        ("number", f"{found.number:.3g}: {found.what}"),
        ("tolerance", f"{found.tolerance:.3g}: {found.reason}"),
        ("verdict", found.sentence),
    ]
    if one.turned:
        rows.append(("turned", f"if {one.claim.turned_by}: {one.turned.number:.3g}, {one.turned.sentence}"))
    return rows


def as_markdown(checked: Sequence[Checked], note: str = "") -> str:
    rows = [(f"[{c.claim.name}](#{c.claim.name})", f"{c.measured.number:.3g}", c.measured.sentence) for c in checked]
    parts = [f"# {TITLE}", ABOUT, f"{summary(checked)} {note}".rstrip(), markdown(["claim", "number", "verdict"], rows)]
    for one in checked:
        said = "\n".join(
            f"- {name}: {'**' + text + '**' if name == 'verdict' else text}" for name, text in entries(one)
        )
        parts += [
            f"## {one.claim.name}",
            f"> {one.claim.statement}",
            f"Said {one.claim.source}.",
            said,
            f"![{one.claim.title}]({one.claim.name}.png)",
            _table(one),
        ]
    return "\n\n".join(parts) + "\n"


def _table(one: Checked) -> str:
    names = header(one.measured.table)
    text = markdown(names, [[row.get(name) for name in names] for row in _shown(one)])
    return f"{text}\n\n{_more(one)}" if _more(one) else text


def as_html(checked: Sequence[Checked], folder: Path, note: str = "") -> str:
    rows = "".join(
        f'<tr><td><a href="#{c.claim.name}">{c.claim.name}</a></td><td class="n">{c.measured.number:.3g}</td>'
        f'<td class="{c.measured.verdict.name}">{html.escape(c.measured.sentence)}</td></tr>\n'
        for c in checked
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{TITLE}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{STYLE}</style>\n</head>\n<body>\n'
        f"<h1>{TITLE}</h1>\n<p>{html.escape(ABOUT)}</p>\n<p>{html.escape(f'{summary(checked)} {note}'.rstrip())}</p>\n"
        f"<table>\n<tr><th>claim</th><th>number</th><th>verdict</th></tr>\n{rows}</table>\n"
        + "".join(_html_section(one, folder) for one in checked)
        + "</body>\n</html>\n"
    )


def _html_section(one: Checked, folder: Path) -> str:
    picture = base64.b64encode((folder / f"{one.claim.name}.png").read_bytes()).decode("ascii")
    verdict = f"v {one.measured.verdict.name}"
    said = "".join(
        f'<dt>{name}</dt><dd class="{verdict if name == "verdict" else name}">{html.escape(text)}</dd>\n'
        for name, text in entries(one)
    )
    names = header(one.measured.table)
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    rows = "".join("<tr>" + "".join(_cell(row.get(name)) for name in names) + "</tr>\n" for row in _shown(one))
    return (
        f'<h2 id="{one.claim.name}">{html.escape(one.claim.title)}</h2>\n'
        f'<blockquote>{html.escape(one.claim.statement)}</blockquote>\n<p class="source">Said '
        f"{html.escape(one.claim.source)}.</p>\n<dl>\n{said}</dl>\n"
        f'<img alt="{html.escape(one.claim.title)}" src="data:image/png;base64,{picture}">\n'
        f'<div class="wide"><table>\n<tr>{head}</tr>\n{rows}</table></div>\n<p class="source">{_more(one)}</p>\n'
    )


def _cell(value: object) -> str:
    kind = "" if isinstance(value, str) else ' class="n"'
    return f"<td{kind}>{html.escape(shown(value))}</td>"


def _shown(one: Checked) -> list[dict]:
    """The rows of a table that a page has room for, evenly spaced with the first and the last."""
    table = one.measured.table
    if len(table) <= ROWS:
        return table
    return [table[round(i * (len(table) - 1) / (ROWS - 1))] for i in range(ROWS)]


def _more(one: Checked) -> str:
    total = len(one.measured.table)
    return f"{ROWS} of {total} rows; nqm claims {one.claim.name} --json has all." if total > ROWS else ""
