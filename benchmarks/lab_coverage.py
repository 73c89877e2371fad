"""How often the intervals of ``nqm lab compare`` hold the truth: ``python -m benchmarks.lab_coverage`` simulates studies.

The truth is the critical batch size of the exactly tuned steps at the batch sizes of the study. Two studies of the same
optimizer that differ in their luck alone are two equal optimizers, of which "holds" must not be said.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.lab_simulated import FAMILIES, SPECTRA, landscape_of, simulated, study_of
from nqm.lab.compare.curves import MEASURED, Curve, critical, curves_of
from nqm.lab.compare.verdicts import order
from nqm.lab.results import points_of
from nqm.show.verdict import Verdict

SIZES = {4: (64, 256, 1024, 4096), 6: (64, 128, 256, 512, 1024, 2048), 8: tuple(2**k for k in range(5, 13))}
"""Batch sizes of simulated studies, by their number."""

HYPERBOLAS = {
    "chosen on": ((150.0, 520.0), (400.0, 150.0), (60.0, 1500.0)),
    "others": ((250.0, 300.0), (100.0, 900.0), (80.0, 60.0)),
}
"""Curves with a given scatter: fewest steps, and the batch size at which the steps are twice that. The first three chose the form
of the intervals; the others only measure it."""


@dataclass(frozen=True)
class Coverage:
    """What simulated studies of one kind gave: for each definition whether the interval holds the truth; scatter; verdicts."""

    covered: dict[str, np.ndarray]
    scatter: np.ndarray
    holds: np.ndarray


def coverage(
    family: str, spectrum: str, sizes: tuple[int, ...], scatter: float, studies: int, **budget: int
) -> Coverage:
    """Simulate pairs of studies; both count for coverage, and each pair for the verdict on equal optimizers."""
    tuned = np.array([landscape_of(spectrum, family, size).optimum() for size in sizes])
    truth = {name: critical(np.array(sizes, dtype=float), tuned, name) for name in MEASURED}
    return _counted(
        truth,
        ([_curve(family, spectrum, sizes, scatter, 2 * luck + i, budget) for i in (0, 1)] for luck in range(studies)),
    )


def direct(hyperbola: tuple[float, float], sizes: tuple[int, ...], scatter: float, studies: int) -> Coverage:
    """The same for curves of which the scatter of tuned steps between searches is given, and nothing is searched."""
    B = np.array(sizes, dtype=float)
    steps = hyperbola[0] * (1 + hyperbola[1] / B)
    truth = {name: critical(B, steps, name) for name in MEASURED}
    return _counted(truth, ([_scattered(B, steps, scatter, 2 * luck + i) for i in (0, 1)] for luck in range(studies)))


def _counted(truth: Mapping[str, np.ndarray], pairs: Iterable[list[Curve]]) -> Coverage:
    """How often the intervals of curves hold the truth, and how often the two of a pair are told apart."""
    covered, scatters, holds = {name: [] for name in MEASURED}, [], []
    for pair in pairs:
        for curve in pair:
            scatters.append(curve.scatter)
            for name in MEASURED:
                found = curve.critical_batch_size(name)
                covered[name].append(found.low <= truth[name] <= found.high)
        holds.append(order(pair[0], pair[1], "2x").verdict is Verdict.holds)
    return Coverage({name: np.array(hits) for name, hits in covered.items()}, np.array(scatters), np.array(holds))


def joined(parts: Sequence[Coverage]) -> Coverage:
    """Several kinds of studies, counted as one."""
    covered = {name: np.concatenate([part.covered[name] for part in parts]) for name in MEASURED}
    scatters, holds = (np.concatenate([getattr(part, field) for part in parts]) for field in ("scatter", "holds"))
    return Coverage(covered, scatters, holds)


def _scattered(batch_sizes: np.ndarray, tuned: np.ndarray, scatter: float, luck: int) -> Curve:
    """A curve of three searches whose steps scatter around the tuned ones."""
    rng, count, name = np.random.default_rng([luck, len(batch_sizes)]), len(batch_sizes), f"optimizer {luck}"
    steps = tuned[:, None] * np.exp(scatter * rng.normal(size=(count, 3)))
    repeats = tuple(tuple(np.array([one]) for one in own) for own in steps)
    best = tuple(np.array([one]) for one in steps.min(axis=1))
    return Curve(name, batch_sizes, steps.min(axis=1), best, ({},) * count, ((),) * count, name, name, repeats)


def _curve(
    family: str, spectrum: str, sizes: tuple[int, ...], scatter: float, luck: int, budget: dict[str, int]
) -> Curve:
    study = study_of(family, sizes, seed=10**6 * luck, **budget)
    (found,) = curves_of(points_of(simulated(study, spectrum, scatter, luck)))
    return replace(found, name=f"{family} {luck}", label=f"{family} {luck}")


def shown(found: Coverage) -> str:
    """The shares in words."""
    shares = ", ".join(f"{name} {hits.mean():4.0%}" for name, hits in found.covered.items())
    scatter = f"searches scatter {np.median(found.scatter):.3f}"
    return f"{scatter}: {shares} covered of {len(found.scatter)}; equal pairs told apart {found.holds.mean():4.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=20, help="pairs of studies of each kind")
    parser.add_argument(
        "--direct", action="store_true", help="curves with a given scatter of searches, without searches"
    )
    parser.add_argument("--family", choices=FAMILIES, action="append")
    parser.add_argument("--spectrum", choices=SPECTRA, action="append")
    parser.add_argument("--scatter", type=float, action="append")
    parser.add_argument("--sizes", type=int, choices=SIZES, action="append")
    asked = parser.parse_args()
    scatters = asked.scatter or ((0.05, 0.1, 0.2) if asked.direct else (0.0, 0.1, 0.2))
    kinds = [(count, scatter) for count in asked.sizes or SIZES for scatter in scatters]
    if asked.direct:
        for what, hyperbolas in HYPERBOLAS.items():
            for count, scatter in kinds:
                found = joined([direct(one, SIZES[count], scatter, asked.studies) for one in hyperbolas])
                print(f"{what:9} {count} batch sizes, given scatter {scatter:.2f}, {shown(found)}", flush=True)
        return
    for family in asked.family or FAMILIES:
        for spectrum in asked.spectrum or SPECTRA:
            for count, scatter in kinds:
                found = shown(coverage(family, spectrum, SIZES[count], scatter, asked.studies))
                print(
                    f"{family:17} {spectrum:10} {count} batch sizes, seeds scatter {scatter:.2f}, {found}", flush=True
                )


if __name__ == "__main__":
    main()
