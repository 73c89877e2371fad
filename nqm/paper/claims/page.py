"""One page of all claims: Markdown beside its pictures, and HTML that holds them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...show import html
from ...show.numbers import brief
from ...show.tables import header, markdown, some
from ...show.verdict import Verdict
from .base import OWN, PAPER
from .collect import Checked

TITLE = "The claims of Zhang et al. (2019), measured"
ABOUT = (
    "The paper is Which Algorithmic Choices Matter at Which Batch Sizes? Insights From a Noisy Quadratic Model (NeurIPS 2019, "
    "arXiv 1907.04164). Statements are in our words, and each says whose it is: the paper's, that of another work, or our own. "
    "Every number was measured when this page was written, every verdict follows from the number and the tolerance beside it, and "
    "random numbers are seeded. Not tested means that a measurement cannot decide the statement, whatever its number. An identity "
    "is true by definition, and its measurement checks the code."
)
ROWS = 12  # The page shows at most this many rows of a claim's table; --json has them all.
VERBS = {
    Verdict.holds: ("holds", "hold", ""), Verdict.partly: ("holds", "hold", " with qualifications"),
    Verdict.fails: ("does not hold", "do not hold", ""), Verdict.untested: ("is not tested", "are not tested", ""),
}  # fmt: skip
"""What is said of one claim, and of several, under each verdict."""


def write(checked: Sequence[Checked], folder: Path, note: str = "") -> None:
    """Write ``claims.md`` and ``claims.html``, with a note after the summary; the pictures are in the folder already."""
    (folder / "claims.md").write_text(as_markdown(checked, note), encoding="utf-8")
    (folder / "claims.html").write_text(as_html(checked, folder, note), encoding="utf-8")


def summary(checked: Sequence[Checked]) -> str:
    """How many claims of the paper, of other works and of our own hold, hold with qualifications, do not hold, and are not tested."""
    return " ".join(_counted(whose, group) for whose, group in grouped(checked).items())


def grouped(checked: Sequence[Checked]) -> dict[str, list[Checked]]:
    """The claims by whose they are, without empty groups."""
    groups = {"of the paper": [], "of other works": [], "of our own": []}
    for one in checked:
        whose = {PAPER: "of the paper", OWN: "of our own"}.get(one.claim.origin, "of other works")
        groups[whose].append(one)
    return {whose: group for whose, group in groups.items() if group}


def _counted(whose: str, group: Sequence[Checked]) -> str:
    parts = []
    for verdict, (single, several, more) in VERBS.items():
        if found := [one for one in group if one.measured.verdict is verdict]:
            same = sum(bool(one.claim.identity) for one in found)
            which = f" ({same} {'is an identity' if same == 1 else 'are identities'})" if same else ""
            parts.append(f"{len(found)} {single if len(found) == 1 else several}{more}{which}")
    *first, last = parts
    claims = "1 claim" if len(group) == 1 else f"{len(group)} claims"
    return f"Of {claims} {whose}, {' and '.join([', '.join(first), last] if first else [last])}."


def entries(one: Checked) -> list[tuple[str, str]]:
    """What the page says of a claim after its statement: pairs of a name and a text."""
    found = one.measured
    number, tolerance = f"{brief(found.number)}: {found.what}", f"{brief(found.tolerance)}: {found.reason}"
    rows = [("measured", found.told), ("number", number), ("tolerance", tolerance), ("verdict", found.sentence)]
    if one.claim.identity:
        rows.append(("identity", f"{one.claim.identity}; the measurement checks the code"))
    if one.turned:
        rows.append(("turned", f"if {one.claim.turned_by}: {brief(one.turned.number)}, {one.turned.sentence}"))
    return rows


def as_markdown(checked: Sequence[Checked], note: str = "") -> str:
    rows = [
        (f"[{c.claim.name}](#{c.claim.name})", c.claim.origin, brief(c.measured.number), c.measured.sentence)
        for c in in_order(checked)
    ]
    overview = markdown(["claim", "said by", "number", "verdict"], rows)
    parts = [f"# {TITLE}", ABOUT, f"{summary(checked)} {note}".rstrip(), overview]
    for one in in_order(checked):
        said = "\n".join(f"- {name}: {f'**{text}**' if name == 'verdict' else text}" for name, text in entries(one))
        names = header(one.measured.table)
        parts += [f"## {one.claim.name}", f"> {one.claim.statement}", one.claim.said, said]
        rows = [[row.get(name) for name in names] for row in some(one.measured.table, ROWS)]
        parts += [f"![{one.claim.title}]({one.claim.name}.png)", markdown(names, rows), *filter(None, [_more(one)])]
    return "\n\n".join(parts) + "\n"


def as_html(checked: Sequence[Checked], folder: Path, note: str = "") -> str:
    """The page as one HTML file that holds its pictures."""
    overview = [
        {"claim": html.Marked(c.claim.name, section=c.claim.name), "said by": c.claim.origin,
         "number": brief(c.measured.number), "verdict": html.Marked(c.measured.sentence, c.measured.verdict.name)}
        for c in in_order(checked)
    ]  # fmt: skip
    about = [html.paragraph(ABOUT), html.paragraph(f"{summary(checked)} {note}".rstrip()), html.table(overview)]
    return html.page(TITLE, *about, *(_html_section(one, folder) for one in in_order(checked)))


def in_order(checked: Sequence[Checked]) -> list[Checked]:
    """The paper's claims first, then those of other works, then our own."""
    return [one for group in grouped(checked).values() for one in group]


def _html_section(one: Checked, folder: Path) -> str:
    style = one.measured.verdict.name
    said = [(name, html.Marked(text, style) if name == "verdict" else text) for name, text in entries(one)]
    return html.section(
        one.claim.title, html.quote(one.claim.statement), html.paragraph(one.claim.said, "quiet"),
        html.entries(said), html.picture((folder / f"{one.claim.name}.png").read_bytes(), one.claim.title),
        html.table(some(one.measured.table, ROWS)), html.paragraph(_more(one), "quiet"), name=one.claim.name,
    )  # fmt: skip


def _more(one: Checked) -> str:
    total = len(one.measured.table)
    return f"{ROWS} of {total} rows; nqm claims {one.claim.name} --json has all." if total > ROWS else ""
