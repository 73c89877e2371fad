"""How often the intervals of ``nqm lab compare`` hold the truth: ``python -m benchmarks.lab_coverage`` simulates studies.

The truth is the critical batch size of the exactly tuned steps at the batch sizes of the study. Two studies of the same
optimizer that differ in their luck alone are two equal optimizers, of which "holds" must not be said.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.lab_simulated import FAMILIES, SPECTRA, landscape_of, simulated, study_of
from nqm.lab.compare.curves import MEASURED, Curve, critical, curves_of
from nqm.lab.compare.verdicts import order
from nqm.lab.results import points_of
from nqm.show.verdict import Verdict

SIZES = {4: (64, 256, 1024, 4096), 6: (64, 128, 256, 512, 1024, 2048), 8: tuple(2**k for k in range(5, 13))}
"""Batch sizes of simulated studies, by their number."""


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
    covered, scatters, holds = {name: [] for name in MEASURED}, [], []
    for luck in range(0, 2 * studies, 2):
        pair = [_curve(family, spectrum, sizes, scatter, luck + i, budget) for i in (0, 1)]
        for curve in pair:
            scatters.append(curve.scatter)
            for name in MEASURED:
                found = curve.critical_batch_size(name)
                covered[name].append(found.low <= truth[name] <= found.high)
        holds.append(order(*pair, "2x").verdict is Verdict.holds)
    return Coverage({name: np.array(hits) for name, hits in covered.items()}, np.array(scatters), np.array(holds))


def _curve(
    family: str, spectrum: str, sizes: tuple[int, ...], scatter: float, luck: int, budget: dict[str, int]
) -> Curve:
    study = study_of(family, sizes, seed=10**6 * luck, **budget)
    (found,) = curves_of(points_of(simulated(study, spectrum, scatter, luck)))
    return replace(found, name=f"{family} {luck}", label=f"{family} {luck}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=20, help="pairs of studies of each kind")
    parser.add_argument("--family", choices=FAMILIES, action="append")
    parser.add_argument("--spectrum", choices=SPECTRA, action="append")
    parser.add_argument("--scatter", type=float, action="append")
    parser.add_argument("--sizes", type=int, choices=SIZES, action="append")
    parser.add_argument("--trials", type=int)
    parser.add_argument("--refine", type=int)
    parser.add_argument("--searches", type=int)
    asked = parser.parse_args()
    budget = {name: value for name in ("trials", "refine", "searches") if (value := getattr(asked, name)) is not None}
    for family in asked.family or FAMILIES:
        for spectrum in asked.spectrum or SPECTRA:
            for count in asked.sizes or SIZES:
                for scatter in asked.scatter or (0.0, 0.1, 0.2):
                    found = coverage(family, spectrum, SIZES[count], scatter, asked.studies, **budget)
                    shares = ", ".join(f"{name} {hits.mean():4.0%}" for name, hits in found.covered.items())
                    print(
                        f"{family:17} {spectrum:10} {count} batch sizes, seeds scatter {scatter:.2f}, searches scatter "
                        f"{np.median(found.scatter):.3f}: {shares} covered; equal pairs told apart {found.holds.mean():4.1%}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
