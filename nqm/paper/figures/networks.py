"""Real networks: steps to a loss against batch size as studies measured them, and the paper's findings on both sides."""

from __future__ import annotations

from ...lab.compare import Topic, by_topic, read_curves
from ...lab.compare.plots import OPEN, open_marks
from ...show.chart import BLACK, PALETTE, Figure, Line, Panel, chart
from ...show.tables import Table, column, distinct, markdown
from ...show.verdict import Finding
from ..claims import claim
from ..instance import PaperStudy
from ..network_studies import CLAIM_OF, TITLES, names, table_of

TITLE = "Real networks beside the model"
CAPTION = (
    "Steps to a target loss against batch size, every optimizer tuned at every batch size by nqm lab. The studies come with "
    "the package and were not run for this report."
)

WIDTH, HEIGHT = 3.0, 3.0  # Inches of a panel.
COLUMNS = 3  # Panels of a row.


def data(study: PaperStudy | None = None) -> Table:
    """The tables of all studies that come with the package."""
    return [{"study": name, **row} for name in names() for row in table_of(name)]


def draw(table: Table) -> Figure:
    """One panel for each study, an optimizer in one colour in all of them; what decides nothing is hollow."""
    every = distinct(table, "optimizer")
    colors = {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(every)}
    panels = []
    for name in distinct(table, "study"):
        own = [row for row in table if row["study"] == name]
        lines = [
            Line(column(own, "batch_size", optimizer=o), column(own, "steps", optimizer=o), o, colors[o], marker="o")
            for o in distinct(own, "optimizer")
        ]
        lines += [mark for curve in read_curves(own) for mark in open_marks(curve, colors[curve.name])]
        panels.append(
            Panel(lines, "batch size", "steps to the target", "log2", "log2", legend="none", title=TITLES[name])
        )
    shown = {line.label for panel in panels for line in panel.lines}
    key = [Line([], [], name, colors[name], marker="o") for name in every]
    key += [Line([], [], text, BLACK, "", marker=m, hollow=True) for m, text in OPEN.items() if text in shown]
    size = (WIDTH * COLUMNS, HEIGHT * -(-len(panels) // COLUMNS))
    return chart(panels, size=size, columns=COLUMNS, key=key)


def findings(table: Table, study: PaperStudy) -> list[Finding]:
    """The findings of every study, each with the name of its network."""
    return [
        Finding(f"{TITLES[name]}: {one.says}", one.measured, one.verdict)
        for name, topics in _judged(table).items()
        for found in topics.values()
        for one in found
    ]


def tables(table: Table, study: PaperStudy) -> str:
    """Each finding of the paper: what the model says, and what the networks say."""
    judged = _judged(table)
    rows = []
    for topic in Topic:
        model = claim(CLAIM_OF[topic]).finding(study)
        on = [f"{TITLES[name]}: {_verdicts(found[topic])}" for name, found in judged.items() if found[topic]]
        rows.append((topic.value, f"{model.verdict.value}. {model.measured}", "; ".join(on) or "not measured"))
    return markdown(["the paper's finding", "on the noisy quadratic model", "on networks"], rows)


def _judged(table: Table) -> dict[str, dict[Topic, list[Finding]]]:
    """The findings of each study by topic."""
    return {
        name: by_topic(read_curves([row for row in table if row["study"] == name])) for name in distinct(table, "study")
    }


def _verdicts(found: list[Finding]) -> str:
    """The verdicts of a topic in a study, each once."""
    return ", ".join(dict.fromkeys(one.verdict.value for one in found))
