"""One page of all claims: Markdown beside its pictures, and HTML that holds them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...show import html
from ...show.numbers import brief
from ...show.tables import header, markdown, some
from ...show.verdict import JUDGED
from .collect import Checked

TITLE = "The claims of Zhang et al. (2019), measured"
ABOUT = (
    "Each statement is that of Which Algorithmic Choices Matter at Which Batch Sizes? Insights From a Noisy Quadratic "
    "Model (NeurIPS 2019, arXiv 1907.04164), of a work that it cites, of a later work that is named with it, or what its "
    "figures suggest, in our words. Every number was measured when this page was written, every verdict follows from the "
    "number and the tolerance beside it, and random numbers are seeded."
)
ROWS = 12  # The page shows at most this many rows of a claim's table; --json has them all.
VERBS = (("holds", "hold"), ("holds", "hold"), ("does", "do"))  # One claim, and several, under each verdict.


def write(checked: Sequence[Checked], folder: Path, note: str = "") -> None:
    """Write ``claims.md`` and ``claims.html``, with a note after the summary; the pictures are in the folder already."""
    (folder / "claims.md").write_text(as_markdown(checked, note), encoding="utf-8")
    (folder / "claims.html").write_text(as_html(checked, folder, note), encoding="utf-8")


def summary(checked: Sequence[Checked]) -> str:
    """How many claims hold, hold with qualifications, and do not hold."""
    counts = [sum(c.measured.verdict is v for c in checked) for v in JUDGED]
    held, partly, failed = (f"{n} {one if n == 1 else more}" for n, (one, more) in zip(counts, VERBS, strict=True))
    claims = "1 claim" if len(checked) == 1 else f"{len(checked)} claims"
    return f"Of {claims}, {held}, {partly} with qualifications and {failed} not."


def entries(one: Checked) -> list[tuple[str, str]]:
    """What the page says of a claim after its statement: pairs of a name and a text."""
    found = one.measured
    number, tolerance = f"{brief(found.number)}: {found.what}", f"{brief(found.tolerance)}: {found.reason}"
    rows = [("measured", found.told), ("number", number), ("tolerance", tolerance), ("verdict", found.sentence)]
    if one.turned:
        rows.append(("turned", f"if {one.claim.turned_by}: {brief(one.turned.number)}, {one.turned.sentence}"))
    return rows


def as_markdown(checked: Sequence[Checked], note: str = "") -> str:
    rows = [(f"[{c.claim.name}](#{c.claim.name})", brief(c.measured.number), c.measured.sentence) for c in checked]
    parts = [f"# {TITLE}", ABOUT, f"{summary(checked)} {note}".rstrip(), markdown(["claim", "number", "verdict"], rows)]
    for one in checked:
        said = "\n".join(f"- {name}: {f'**{text}**' if name == 'verdict' else text}" for name, text in entries(one))
        names = header(one.measured.table)
        parts += [f"## {one.claim.name}", f"> {one.claim.statement}", f"Said {one.claim.source}.", said]
        rows = [[row.get(name) for name in names] for row in some(one.measured.table, ROWS)]
        parts += [f"![{one.claim.title}]({one.claim.name}.png)", markdown(names, rows), *filter(None, [_more(one)])]
    return "\n\n".join(parts) + "\n"


def as_html(checked: Sequence[Checked], folder: Path, note: str = "") -> str:
    """The page as one HTML file that holds its pictures."""
    overview = [
        {"claim": html.Marked(c.claim.name, section=c.claim.name), "number": brief(c.measured.number),
         "verdict": html.Marked(c.measured.sentence, c.measured.verdict.name)}
        for c in checked
    ]  # fmt: skip
    about = [html.paragraph(ABOUT), html.paragraph(f"{summary(checked)} {note}".rstrip()), html.table(overview)]
    return html.page(TITLE, *about, *(_html_section(one, folder) for one in checked))


def _html_section(one: Checked, folder: Path) -> str:
    style = one.measured.verdict.name
    said = [(name, html.Marked(text, style) if name == "verdict" else text) for name, text in entries(one)]
    return html.section(
        one.claim.title, html.quote(one.claim.statement), html.paragraph(f"Said {one.claim.source}.", "quiet"),
        html.entries(said), html.picture((folder / f"{one.claim.name}.png").read_bytes(), one.claim.title),
        html.table(some(one.measured.table, ROWS)), html.paragraph(_more(one), "quiet"), name=one.claim.name,
    )  # fmt: skip


def _more(one: Checked) -> str:
    total = len(one.measured.table)
    return f"{ROWS} of {total} rows; nqm claims {one.claim.name} --json has all." if total > ROWS else ""
