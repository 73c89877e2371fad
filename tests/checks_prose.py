"""Numbers in the table of docs/evidence.md of tests on real networks, from the files of docs/checks: more of `prose.NUMBERS`.

Such a file is written by a command that docs/nets.md or docs/predicted.md names. After one was written again, the test says which
number the sentence should have.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from computed import ROOT, digits_fit, errors
from prose import EVIDENCE, Prose

from nqm.search.sweeps import excess_at

Rows = list[dict[str, Any]]

NEAR_EDGE = 0.74  # rates above this share of the largest stable one are told apart
WITHIN = 1.3  # factor within which steps count as predicted
CHECKED = ("digits", "fashion_mlp", "fashion_cnn", "mnist_cnn")  # in the order of the EVIDENCE
YOUNG = ("moby_transformer_2", "cifar_resnet8_20")  # soon after initialisation
SETTLED = "cifar_resnet8_2000"  # after its curvature has grown
STUDIED = ("SGD", "EMA(SGD)", "HeavyBall")


@cache
def rows_of(name: str) -> Rows:
    """A file of docs/checks, with numbers as numbers."""
    with (ROOT / "docs" / "checks" / f"{name}.csv").open() as file:
        return [{key: _value(text) for key, text in row.items()} for row in csv.DictReader(file)]


def _value(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def off(rows: Rows, steps: float | None = None) -> np.ndarray:
    """Errors of predicted losses in percent, after so many steps, or after any."""
    kept = [row for row in rows if steps in (None, row["steps"])]
    return np.array([100 * abs(row["predicted"] / row["trained"] - 1) for row in kept])


def inside(rows: Rows) -> int:
    """How many real losses are inside their intervals."""
    return sum(row["low"] <= row["trained"] <= row["high"] for row in rows)


def unseen() -> list[Rows]:
    """The networks on which the model was not chosen, at rates below the edge of stability."""
    kept = [row for row in rows_of("prediction") if row["excess"] < NEAR_EDGE and not row["short"]]
    names = dict.fromkeys(row["network"] for row in kept if not row["chosen_on"])
    return [[row for row in kept if row["network"] == name] for name in names]


def adamw(name: str) -> Rows:
    """What was checked of AdamW on a workload."""
    return [row for row in rows_of("adamw") if row["workload"] == name]


def past_the_edge() -> Rows:
    """What was checked past the edge of stability."""
    return [row for row in rows_of("prediction") if row["excess"] > 1 and not row["short"]]


def medians(networks: list[Rows], steps: int) -> list[float]:
    """The smallest and the largest median error of a network."""
    found = [float(np.median(off(rows, steps))) for rows in networks]
    return [min(found), max(found)]


def ratios(name: str, *optimizers: str) -> np.ndarray:
    """Predicted over measured steps to the target."""
    return np.array([row["predicted"] / row["steps"] for row in rows_of(name) if row["optimizer"] in optimizers])


def near(values: np.ndarray) -> list[int]:
    """How many ratios are within `WITHIN`, and how many there are."""
    return [int(np.sum((values >= 1 / WITHIN) & (values <= WITHIN))), len(values)]


def critical_pair(name: str, optimizer: str) -> Iterator[float]:
    """The batch size at which measured steps are twice those of perfect scaling, and that at which predicted steps are."""
    mine = [row for row in rows_of(name) if row["optimizer"] == optimizer]
    sizes = np.array([row["batch_size"] for row in mine])
    for column in ("steps", "predicted"):
        yield float(excess_at(sizes, sizes * np.array([row[column] for row in mine]), 2.0))


def advised(adamw: bool) -> Rows:
    """The settings that advice recommended, with their trainings."""
    return [row for row in rows_of("advice") if row["family"] == "best" and ("adamw" in row["workload"]) == adamw]


def kept_promises(adamw: bool) -> np.ndarray:
    """Real over promised steps of the settings that advice recommended."""
    return np.array([row["steps"] / row["promised"] for row in advised(adamw)])


def share_in_band() -> float:
    """Percent of the trainings of advice that arrived inside its band."""
    rows = advised(False)
    return 100 * sum(row["inside"] for row in rows) / sum(row["trainings"] for row in rows)


def medians_of(names: tuple[str, ...], steps: int, rates: tuple[float, float]) -> Callable[[], list[float]]:
    """The median errors of workloads at rates in this range over the largest curvature, as a function."""
    return lambda: [float(np.median(errors(name, steps, *rates))) for name in names]


CHECKS_NUMBERS = [
    Prose(
        EVIDENCE, "| median error {}%, {}%, {}% and {}%; worst setting {}% |",
        lambda: [
            *medians_of(CHECKED, 1000, (0.0, 0.5))(),
            max(errors(name, 1000).max() for name in CHECKED),
        ],
    ),
    Prose(EVIDENCE, "median error {}%, {}%, {}% and {}% after 1,000 steps", medians_of(CHECKED, 1000, (0.5, 2.0))),
    Prose(
        EVIDENCE, "| median error {}% and {}%, at worst {}% and {}% after any number of steps; {} and {} of {} real losses "
        "are inside the 90% intervals |",
        lambda: [
            *(np.median(off(rows_of(name), 300)) for name in YOUNG), *(off(rows_of(name)).max() for name in YOUNG),
            *(inside(rows_of(name)) for name in YOUNG), len(rows_of(YOUNG[0])),
        ],
    ),
    Prose(
        EVIDENCE, "| median error {}%, at worst {}% after any number of steps; {} of {} real losses are inside |",
        lambda: [
            np.median(off(rows_of(SETTLED), 300)), off(rows_of(SETTLED)).max(), inside(rows_of(SETTLED)), len(rows_of(SETTLED)),
        ],
    ),
    Prose(
        EVIDENCE, "{} checkpoints of five small networks, at which the model was not chosen, batch sizes of {} to {} |",
        lambda: [len(unseen()), *(limit(row["batch_size"] for rows in unseen() for row in rows) for limit in (min, max))],
    ),
    Prose(
        EVIDENCE, "| median error at a checkpoint {}% to {}% after 300 steps, {}% to {}% after 1,000; the {} above 4% are "
        "checkpoints of one MLP",
        lambda: [
            *medians(unseen(), 300), *medians(unseen(), 1000), sum(np.median(off(rows, 1000)) > 4 for rows in unseen()),
        ],
    ),
    Prose(
        EVIDENCE, "{}% of {} real losses are inside the 90% intervals |",
        lambda: [100 * sum(map(inside, unseen())) / sum(map(len, unseen())), sum(map(len, unseen()))],
    ),
    Prose(
        EVIDENCE, "| rough: median error {}% after 100 steps and {}% after 1,000; {}% of {} real losses are inside the intervals, "
        "which are wide |",
        lambda: [
            *(np.median(off(past_the_edge(), steps)) for steps in (100, 1000)),
            100 * inside(past_the_edge()) / len(past_the_edge()), len(past_the_edge()),
        ],
    ),
    Prose(
        EVIDENCE, "| median error {}%, {}%, {}% and {}%; worst setting {}%; {} of {} real losses",
        lambda: [
            *(np.median(off(adamw(name), 300)) for name in CHECKED), off(rows_of("adamw"), 300).max(),
            inside(rows_of("adamw")), len(rows_of("adamw")),
        ],
    ),
    Prose(
        EVIDENCE, "| digits: {} to {} times the measured steps, {} of {} cells within 1.3 times; CNN: {} to {} times, {} of {} |",
        lambda: [
            x for name in ("predicted", "fashion_checkpoint") for found in [ratios(name, *STUDIED)]
            for x in (found.min(), found.max(), *near(found))
        ],
    ),
    Prose(
        EVIDENCE, "| {} to {} times the measured steps, {} of {} cells within 1.3 times |",
        lambda: [ratios("predicted", "Adam").min(), ratios("predicted", "Adam").max(), *near(ratios("predicted", "Adam"))],
    ),
    Prose(
        EVIDENCE, "| {} of {} arrived within 1.3 times the promised steps, the latest after {} times; the band, which should hold "
        "80% of trainings, held {}%. AdamW: {} of {} |",
        lambda: [
            *near(kept_promises(False)), kept_promises(False).max(), share_in_band(), *near(kept_promises(True)),
        ],
    ),
    Prose(
        EVIDENCE, "| digits: SGD measured {}, predicted {}; averaged SGD {} and {}; heavy ball {} and {}. CNN: SGD {} and {}; "
        "averaged SGD {} and {} |",
        lambda: [
            *(x for name in STUDIED for x in critical_pair("predicted", name)),
            *(x for name in STUDIED[:2] for x in critical_pair("fashion_checkpoint", name)),
        ],
    ),
    Prose(
        EVIDENCE, "On the digits checkpoint it is {}, where SGD's critical batch size was measured at {} |",
        lambda: [digits_fit().noise_scale.value, next(critical_pair("predicted", "SGD"))],
        0.01, slow=True, needs="torch",
    ),
]  # fmt: skip
