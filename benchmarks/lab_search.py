"""How close the searches of ``nqm lab`` come to the optimum: ``python -m benchmarks.lab_search`` simulates them.

``--studies N`` simulates N searches at each batch size and spectrum, and ``--family NAME`` one optimizer only.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

from benchmarks.lab_simulated import CHOSEN_ON, FAMILIES, SPECTRA, landscape_of, simulated, study_of
from nqm.lab.results import point

BATCH_SIZES = (128, 512, 2048)
SCATTERS = (0.0, 0.1, 0.2)


@dataclass(frozen=True)
class Closeness:
    """How close searches came: steps over optimum, and trainings, of each simulated cell."""

    excess: np.ndarray
    trainings: np.ndarray

    def within(self, factor: float = 1.1) -> float:
        """The share of cells whose setting takes at most ``factor`` times the optimum's steps."""
        return float(np.mean(self.excess <= factor))


def closeness(family: str, spectra: tuple[str, ...], scatter: float, studies: int, **budget: int) -> Closeness:
    """Simulate searches on some spectra at some batch sizes; the steps are the exact ones of the setting that was found."""
    excess, trainings = [], []
    for spectrum in spectra:
        for size in BATCH_SIZES:
            landscape = landscape_of(spectrum, family, size)
            optimum = landscape.optimum()
            for luck in range(studies):
                study = study_of(family, (size,), seed=10**6 * luck, **budget)
                found = simulated(study, spectrum, scatter, luck)
                chosen = point(found, family).trial
                excess.append(landscape.steps(chosen.settings)[0] / optimum if chosen else np.inf)
                trainings.append(sum(len(list(cell.trials())) for cell in found))
    return Closeness(np.array(excess), np.array(trainings))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=5)
    parser.add_argument("--family", choices=FAMILIES, action="append")
    parser.add_argument("--scatter", type=float, action="append")
    parser.add_argument("--trials", type=int)
    parser.add_argument("--refine", type=int)
    parser.add_argument("--searches", type=int)
    asked = parser.parse_args()
    budget = {name: value for name in ("trials", "refine", "searches") if (value := getattr(asked, name)) is not None}
    others = tuple(name for name in SPECTRA if name not in CHOSEN_ON)
    for family in asked.family or FAMILIES:
        for scatter in asked.scatter or SCATTERS:
            for what, spectra in (("chosen on", CHOSEN_ON), ("others", others)):
                found = closeness(family, spectra, scatter, asked.studies, **budget)
                print(
                    f"{family:15} {len(FAMILIES[family][0])} settings, scatter {scatter:.2f}, {what:9} {len(found.excess):4} cells: "
                    f"{found.within():4.0%} within 10%, {found.within(1.2):4.0%} within 20%, "
                    f"nine of ten within {np.quantile(found.excess, 0.9):.3f}; {found.trainings.mean():.0f} trainings",
                    flush=True,
                )


if __name__ == "__main__":
    main()
