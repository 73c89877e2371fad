"""Studies whose trainings are simulated by the exact engine: the lab's own planning code, with a known optimum and known luck.

A training of the simulation takes the steps that the exact engine computes for its settings, times exp(scatter z), with a
standard normal z for each setting and seed. So the true optimum is what `nqm.tune` finds, and a study takes a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from nqm import EMA, SGD, HeavyBall, Nesterov, Optimizer, Quadratic, Spectrum, steps_to_target, tune
from nqm.lab import Entry, Result, Space, Study, Trial
from nqm.lab.plan import Cell, cells
from nqm.nets.training.trial import RAW, SLACK

MAX_STEPS = 100_000  # No simulated training takes more steps.
MODES = np.arange(1.0, 41)
SPECTRA = {
    "paper": Spectrum.power_law(1000).binned(24),
    "steep": Spectrum(MODES**-1.5),
    "outliers": Spectrum(np.r_[1, 0.3, 0.1, 0.03 / MODES[:12]], count=np.r_[1, 2, 4, np.full(12, 8)]),
    "flat noise": Spectrum(MODES**-1.2, c=MODES**-0.6, count=2),
    "gentle": Spectrum(np.arange(1.0, 101) ** -1.0),
    "two scales": Spectrum(
        np.r_[MODES[:8] ** -0.5, 0.02 * MODES[:16] ** -0.5], count=np.r_[np.ones(8), np.full(16, 4)]
    ),
}
"""Spectra by name. The first four chose the numbers of the search; the last two only measure it."""
CHOSEN_ON = ("paper", "steep", "outliers", "flat noise")
NODES = 401  # The number of exact values of a landscape of one setting.
TARGET_SHARE = 0.003  # The target is this share of the loss before the first step.

Make = Callable[..., Optimizer]
FAMILIES: dict[str, tuple[dict[str, Space], Make, Optimizer]] = {
    "SGD": ({"lr": Space(0.01, 4)}, SGD, SGD()),
    "HeavyBall": ({"lr": Space(0.001, 4), "momentum": Space(0, 0.998, "1-x")}, HeavyBall, HeavyBall()),
    "Nesterov": ({"lr": Space(0.001, 4), "momentum": Space(0, 0.998, "1-x")}, Nesterov, Nesterov()),
    "AveragedHeavyBall": (
        {"lr": Space(0.01, 4), "momentum": Space(0, 0.98, "1-x"), "decay": Space(0.3, 0.997, "1-x")},
        lambda lr, momentum, decay: EMA(HeavyBall(lr, momentum), decay),
        EMA(HeavyBall()),
    ),
}
"""For each optimizer the box that is searched, the optimizer with given settings, and the optimizer with free settings."""


@dataclass(frozen=True)
class Landscape:
    """Steps of an optimizer to a target at a batch size as a function of its settings, by the exact engine."""

    spectrum: str
    family: str
    batch_size: int
    known: dict[str, tuple[float, bool]] = field(default_factory=dict, compare=False)

    @property
    def problem(self) -> Quadratic:
        return Quadratic(SPECTRA[self.spectrum])

    @property
    def target(self) -> float:
        return TARGET_SHARE * self.problem.initial_loss

    def optimum(self) -> float:
        """The fewest steps that any setting in the box takes, as far as `nqm.tune` finds them."""
        found = tune(self.problem, FAMILIES[self.family][2], self.batch_size, self.target)
        return math.inf if found.steps is None else found.steps

    def steps(self, settings: Mapping[str, float]) -> tuple[float, bool]:
        """Steps at these settings, infinity if the target is not reached, and whether the training diverges.

        With one setting, they are interpolated between `NODES` exact values, whose neighbours differ by less than 2%.
        """
        box = FAMILIES[self.family][0]
        if len(box) > 1:
            return self._exact(settings)
        ((name, space),) = box.items()
        place = space.where(settings[name]) * (NODES - 1)
        left = min(int(place), NODES - 2)
        (a, lost), (b, also_lost) = (self._exact({name: space.at(k / (NODES - 1))}) for k in (left, left + 1))
        part = place - left
        if math.isinf(a) or math.isinf(b):
            return (a, lost) if part < 0.5 else (b, also_lost)
        return math.exp((1 - part) * math.log(a) + part * math.log(b)), False

    def _exact(self, settings: Mapping[str, float]) -> tuple[float, bool]:
        key = repr(sorted(settings.items()))
        if key not in self.known:
            made = FAMILIES[self.family][1](**settings)
            hit = steps_to_target(self.problem, made, self.batch_size, self.target, max_steps=MAX_STEPS)
            self.known[key] = (math.inf if hit.steps is None else hit.steps), hit.outcome.name == "diverged"
        return self.known[key]


def _whole(steps: float) -> float:
    """Steps as a training takes them: a whole number, and one at least."""
    return steps if math.isinf(steps) else max(1.0, round(steps))


def evaluated(steps: float, growth: float) -> float:
    """The first step of these or more at which a training evaluates its metric; infinity if there is none."""
    grid = evaluations(growth)
    place = int(np.searchsorted(grid, steps - 1e-9))
    return float(grid[place]) if place < len(grid) else math.inf


@cache
def evaluations(growth: float) -> np.ndarray:
    """Steps at which a training evaluates its metric: 1, 2, ..., then each later by a fraction."""
    steps = [1]
    while steps[-1] < MAX_STEPS:
        steps.append(max(steps[-1] + 1, math.ceil(steps[-1] * (1 + growth) - 1e-9)))
    return np.array([*steps[:-1], MAX_STEPS], dtype=float)


@cache
def landscape_of(spectrum: str, family: str, batch_size: int) -> Landscape:
    """The landscape, whose exact values are computed once in a process."""
    return Landscape(spectrum, family, batch_size)


def trained(landscape: Landscape, trial: Trial, scatter: float, luck: int) -> Result:
    """The result of a simulated training; ``luck`` is the number of the simulated study."""
    steps, diverged = landscape.steps(trial.settings)
    if diverged:
        return Result(trial.key, "diverged", {RAW: None}, {}, [], 0.0, "diverged", "simulated")
    z = np.random.default_rng([luck, trial.seed, int(trial.key[:12], 16)]).normal()
    late = evaluated(_whole(steps * math.exp(scatter * z)), trial.growth)
    found = int(late) if late <= trial.steps_allowed else None
    outcome = "reached" if found else "out_of_steps" if trial.limit is None else "stopped"
    return Result(trial.key, outcome, {RAW: found}, {}, [], 0.0, outcome, "simulated")


def study_of(family: str, batch_sizes: tuple[int, ...], seed: int = 0, **budget: int) -> Study:
    """A study of one optimizer; ``budget`` are its ``trials``, ``refine``, ``searches`` and ``seeds``."""
    entry = Entry(family, FAMILIES[family][0])
    plain = Study(
        "simulated", "simulated", 0.1, batch_sizes, {family: entry}, max_steps=MAX_STEPS, seed=seed, points="fresh", widen=False,
        worker="simulated:none",
    )  # fmt: skip
    changes: dict[str, Any] = dict(budget)
    return replace(plain, **changes)


def raced(results: list[Result]) -> list[Result]:
    """The results of a first round, whose trials stop at `SLACK` times the steps of the first that arrives."""
    arrived = [steps for result in results if (steps := result.steps[RAW]) is not None]
    limit = math.ceil(SLACK * min(arrived, default=MAX_STEPS))
    stopped = {"outcome": "stopped", "steps": {RAW: None}, "message": "stopped"}
    return [replace(result, **stopped) if (result.steps[RAW] or 0) > limit else result for result in results]


def finished(cell: Cell, landscape: Landscape, scatter: float, luck: int) -> Cell:
    """The cell, brought to its end by simulated trainings; the first round races as that of a real worker does."""
    known: dict[str, Result] = {}
    while cell.round:
        results = [trained(landscape, trial, scatter, luck) for trial in cell.round]
        if not cell.done:
            results = raced(results)
        known |= {result.key: result for result in results}
        cell.advance(known)
    return cell


def simulated(study: Study, spectrum: str, scatter: float, luck: int) -> list[Cell]:
    """All cells of a simulated study."""
    (family,) = study.optimizers
    return [finished(cell, landscape_of(spectrum, family, cell.batch_size), scatter, luck) for cell in cells(study)]
