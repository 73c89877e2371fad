"""What each number that steers a search is worth: ``python -m benchmarks.settings search [--field NAME] [--other]``.

One settings object at a time (search, rates, hits, maps, races), every field is set to neighbouring values, and a fixed set
of questions is answered with each. A line says how many answers became worse or better than with the value in use, by
how much at most, and the CPU time as a multiple of that with the value in use. Answers are steps or losses, so lower is
better. ``--other`` asks other problems, batch sizes and seeds: a value that is chosen on the one set is checked on the other.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices here are tiny: more threads only spin

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Any

import numpy as np

from nqm import (
    EMA,
    SGD,
    Adam,
    Axis,
    HeavyBall,
    LeastSquares,
    Lookahead,
    Nesterov,
    Polyak,
    Quadratic,
    ScheduleFree,
    Spectrum,
    cosine,
    optimal_schedule,
    phase_map,
    steps_to_target,
    tune,
)  # fmt: skip
from nqm.search.answer import Goal, Sampling
from nqm.search.exact.settings import SETTINGS
from nqm.search.races.ladder import RaceTuner
from nqm.search.races.settings import STANDARD
from nqm.search.settings import HIT_SETTINGS, MAP_SETTINGS, RATE_SETTINGS

Case = Callable[[], Any]  # answers one question by a number, or several by an array


@dataclass(frozen=True)
class Questions:
    """The questions that are put to one settings object, and how its fields are varied."""

    settings: Any
    usual: Callable[[bool], list[Case]]  # with True, the other set
    tolerance: float  # Answers within this part of each other count as equal.
    special: dict[str, Callable[[bool], list[Case]]] = field(default_factory=dict)  # questions of single fields
    values: dict[str, tuple[Any, ...]] = field(default_factory=dict)  # values of fields that are not halved and doubled


def spectra(other: bool) -> list[tuple[Quadratic, float]]:
    """Three problems with a target each: the paper's, a steeper one, and one of few modes with much noise on all of them."""
    if other:
        few = Spectrum(np.geomspace(0.01, 1, 12), c=np.full(12, 0.1))
        laws = Spectrum.power_law(3000), Spectrum.power_law(300, exponent=0.5)
        return [(Quadratic(laws[0]), 0.02), (Quadratic(laws[1]), 1.0), (Quadratic(few), 0.02)]
    few = Spectrum(np.geomspace(0.001, 1, 20), c=np.full(20, 0.3))
    laws = Spectrum.power_law(10_000), Spectrum.power_law(1000, exponent=1.5)
    return [(Quadratic(laws[0]), 0.01), (Quadratic(laws[1]), 0.02), (Quadratic(few), 0.05)]


def tuned(other: bool) -> list[Case]:
    """Tuned steps to a target, and tuned losses for a budget."""
    optimizers = (SGD(), HeavyBall(), Nesterov(), EMA(HeavyBall()))
    sizes = (2**6, 2**13, 2**22) if other else (2**3, 2**10, 2**14, math.inf)
    cases: list[Case] = []
    for (problem, target), optimizer, size in product(spectra(other), optimizers, sizes):
        cases.append(lambda p=problem, o=optimizer, b=size, t=target: tune(p, o, b, t).steps)
        if size > 2**8 and optimizer == HeavyBall():
            cases.append(lambda p=problem, o=optimizer, b=size: tune(p, o, b, steps=150).loss)
    return cases


def tuned_by_walking(other: bool) -> list[Case]:
    problem = Quadratic(Spectrum.power_law(300 if other else 100))
    sizes = (2**5, 2**9) if other else (2**4, 2**10)
    return [lambda b=size: tune(problem, ScheduleFree(), b, 0.1).steps for size in sizes]


def tuned_on_least_squares(other: bool) -> list[Case]:
    problem = LeastSquares(Spectrum.power_law(500 if other else 300), 0.1)
    return [lambda b=size, o=o: tune(problem, o, b, 0.05).steps for size in (2**4, 2**8) for o in (SGD(), HeavyBall())]


def scheduled(other: bool) -> list[Case]:
    """Steps of the best schedules to a target, and losses of the best for a budget."""
    problems, (few, many), (small, large) = (
        spectra(other),
        (4, 12) if other else (3, 10),
        (2**7, 2**13) if other else (2**6, 2**12),
    )
    noisy = problems[2][0], problems[2][1] / 5
    asked: list[tuple[tuple[Quadratic, float], Any, float, int]] = [
        (problems[0], SGD(), small, few),
        (problems[1], SGD(), large, many),
        (problems[1], Nesterov(), small, few),
        (problems[1], HeavyBall(), small, few),
        *((noisy, o, size, few) for o in (HeavyBall(), Nesterov()) for size in (small, 4 * small)),
    ]
    return [
        *(lambda p=p, t=t, o=o, b=b, n=n: optimal_schedule(p, o, b, t, pieces=n).steps for (p, t), o, b, n in asked),
        *(lambda o=o: optimal_schedule(noisy[0], o, small, steps=300, pieces=8).loss for o in (SGD(), Nesterov())),
    ]


def hits(other: bool) -> list[Case]:
    """First hits of losses that swing, flip their sign, repeat in cycles or change at every step."""
    cases: list[Case] = []
    plain = (SGD(1.9), HeavyBall(0.05, 0.99), Nesterov(0.3, 0.99))
    wrapped = (EMA(HeavyBall(0.1, 0.9), 0.999), Lookahead(HeavyBall(0.1, 0.9), 0.5, 5))
    for i, (problem, target) in enumerate(spectra(other)):
        for optimizer in plain + wrapped * (i > 0):
            for size in (2**10, 2**16, math.inf):
                for until in ("first", "settled"):
                    cases.append(
                        lambda p=problem, o=optimizer, b=size, t=target, u=until: (
                            steps_to_target(p, o, b, t, max_steps=10**5, until=u).steps
                        )
                    )
        cases.append(lambda p=problem, t=target: steps_to_target(p, SGD(1.0), 2**12, t, cosine(20_000)).steps)
    return cases


def hits_of_averages(other: bool) -> list[Case]:
    sizes = (2**9, 2**13) if other else (2**8, 2**12)
    return [
        lambda p=p, t=t, b=b: steps_to_target(p, Polyak(SGD(0.5), 0.5), b, t).steps for p, t in spectra(other) for b in sizes
    ]  # fmt: skip


def hits_on_least_squares(other: bool) -> list[Case]:
    problem = LeastSquares(Spectrum.power_law(3000 if other else 2000), 0.1)
    return [lambda b=size: steps_to_target(problem, HeavyBall(0.01, 0.9), b, 0.1).steps for size in (2**6, 2**10)]


def maps(other: bool) -> list[Case]:
    """Steps of every cell; a cell that misses a swing through the target has more of them."""
    n, low = (14, 0.02) if other else (16, 0.01)
    lr, momentum, size = Axis("lr", low, 2, n), Axis("momentum", 0, 0.995, n), Axis("batch_size", 16, 2**16, n)
    return [
        *(lambda p=p, t=t: phase_map(p, HeavyBall(), lr, momentum, 2**12, target=t).steps for p, t in spectra(other)),
        *(lambda p=p, t=t: phase_map(p, Nesterov(), lr, momentum, 2**20, target=t).steps for p, t in spectra(other)),
        *(lambda p=p, t=t: phase_map(p, SGD(), lr, size, target=t).steps for p, t in spectra(other)),
    ]


def raced(other: bool) -> list[Case]:
    """Exact steps of the settings of linear optimizers that races find, and the measured steps of Adam."""
    laws = Spectrum.power_law(2000 if other else 1000), Spectrum.power_law(100 if other else 300, exponent=1.5)
    problems, seeds = [(Quadratic(laws[0]), 0.2), (Quadratic(laws[1]), 0.1)], (3, 4) if other else (0, 1)
    sizes = (2**7, 2**13) if other else (2**8, 2**14)

    def steps(which: int, optimizer: Any, size: float) -> float | None:
        problem, target = problems[which]
        # With a quarter of the work, which doubles standard errors.
        quick = replace(STANDARD, race_work=STANDARD.race_work // 4, measured_work=STANDARD.measured_work // 4)
        found = RaceTuner(problem, optimizer, Sampling(seed=seeds[which]), quick).solve(Goal.of(size, target))
        return steps_to_target(problem, found.optimizer, size, target).steps if optimizer.linear else found.steps

    asked = [
        (0, HeavyBall(), 1),
        (0, Adam(), 1),
        (1, SGD(), 0),
        (1, HeavyBall(), 0),
        (1, HeavyBall(), 1),
        (1, Adam(), 0),
    ]
    return [lambda i=i, o=o, j=j: steps(i, o, sizes[j]) for i, o, j in asked]


QUESTIONS = {
    "search": Questions(
        SETTINGS,
        tuned,
        1e-3,
        {
            **dict.fromkeys(("walked_points", "walked_steps"), tuned_by_walking),
            **dict.fromkeys(("coupled.points", "coupled.clouds", "coupled.numbers"), tuned_on_least_squares),
        },
        {"seed": (1, 2), "land_bisect": (2, 6), "last": ((0.06,), (0.06, 0.015, 0.004)), "added": ((1,), (1, 2, 8))},
    ),
    "rates": Questions(
        RATE_SETTINGS,
        scheduled,
        1e-3,
        values={"seed": (1, 2), "bisect": (2, 6), "bottoms": ((), (1.0,), (1.0, 0.3, 0.1)), "growth": (1e4, 5e5, 2e6, 1e8)},
    ),
    "hits": Questions(
        HIT_SETTINGS,
        hits,
        0.0,
        {
            **dict.fromkeys(("horizon_ratio", "longest_horizon"), hits_of_averages),
            **dict.fromkeys(("most_coupled", "fewer_nodes"), hits_on_least_squares),
        },
        {"leaf_level": (4, 5, 7, 8), "flips": (-0.9, -0.1), "horizon_ratio": (1.002, 1.1), "fewer_nodes": (0.01, 2.0)},
    ),
    "maps": Questions(MAP_SETTINGS, maps, 0.0, values={"dense_bits": (4, 6), "sparse_bits": (2, 4)}),
    "races": Questions(
        STANDARD,
        raced,
        0.02,
        values={
            **dict.fromkeys(("max_steps", "long_steps", "patience", "finalists", "huge_batch"), ()),  # no question meets these
            "first_seed": (1, 2), "stalled": (0.9, 0.999), "floor_growth": (1.2, 2.0), "floor_checks": (3, 8),
            "max_log2_points": (6, 8), "wide_log2": (3, 5), "narrow_log2": (1, 3), "dense_log2": (1, 3), "retries": (1, 4),
            "shrink": (0.5, 0.85), "caution": (0.9, 1.0), "proof_limit": (1, 4), "max_threads": (1, 2),
        },
    ),
}  # fmt: skip


def neighbours(value: Any) -> tuple[Any, ...]:
    """Half and twice a number, or every number of a tuple."""
    if isinstance(value, tuple):
        return tuple(type(value)(scaled(v, factor) for v in value) for factor in (0.5, 2))
    return scaled(value, 0.5), scaled(value, 2)


def scaled(value: float, factor: float) -> float:
    return max(1, round(value * factor)) if isinstance(value, int) else value * factor


def variations(questions: Questions) -> Iterator[tuple[str, Any]]:
    """Every field with each of its neighbouring values; the fields of an object within the settings have a dot in their name."""
    for part in fields(questions.settings):
        value = getattr(questions.settings, part.name)
        inner = {f"{part.name}.{n}": v for n, v in value._asdict().items()} if hasattr(value, "_asdict") else {}
        for name, number in inner.items() or [(part.name, value)]:
            for new in questions.values.get(name, neighbours(number)):
                if new != number:
                    yield name, new


@contextmanager
def varied(settings: Any, name: str, value: Any) -> Iterator[None]:
    """The one settings object that the whole package reads, with another value of a field."""
    outer, _, inner = name.partition(".")
    before = getattr(settings, outer)
    object.__setattr__(settings, outer, before._replace(**{inner: value}) if inner else value)
    try:
        yield
    finally:
        object.__setattr__(settings, outer, before)


def answered(cases: list[Case]) -> tuple[np.ndarray, float]:
    """The answers to all questions, infinite where there is none, and the CPU seconds that they took."""
    start, found = time.process_time(), []
    for case in cases:
        answer = np.array(case(), dtype=float).ravel()
        found.append(np.where(np.isnan(answer), np.inf, answer))
    return np.concatenate(found), time.process_time() - start


def compared(answers: np.ndarray, before: np.ndarray, tolerance: float) -> str:
    """How answers differ from those with the values in use."""
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(answers == before, 1.0, answers / before)
    worse, better = ratio > 1 + tolerance, ratio < 1 / (1 + tolerance)
    finite = ratio[np.isfinite(ratio) & (ratio > 0)]
    mean = math.exp(float(np.log(finite).mean())) - 1 if len(finite) else math.nan
    return (
        f"worse {worse.sum():3d} of {len(ratio)} (at most {ratio.max() - 1:+8.2%})   "
        f"better {better.sum():3d} (at most {ratio.min() - 1:+8.2%})   mean {mean:+7.3%}"
    )


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.settings", description=__doc__)
    parser.add_argument("object", choices=QUESTIONS)
    parser.add_argument("--field", action="append", help="vary these fields alone")
    parser.add_argument("--value", action="append", help="set them to these numbers")
    parser.add_argument("--other", action="store_true", help="ask the other set of questions")
    asked = parser.parse_args(arguments)
    questions = QUESTIONS[asked.object]
    chosen = [(name, new) for name, new in variations(questions) if not asked.field or name in asked.field]
    if asked.value:
        chosen = [(name, type(new)(float(text))) for name, new in chosen for text in asked.value]
    base: dict[Callable[[bool], list[Case]], tuple[np.ndarray, float]] = {}
    cases: dict[Callable[[bool], list[Case]], list[Case]] = {}
    for name, value in dict.fromkeys(chosen):
        asking = questions.special.get(name, questions.usual)
        if asking not in cases:
            cases[asking] = asking(asked.other)
            answered(cases[asking])  # nodes are made and loops compiled
            base[asking] = answered(cases[asking])
            print(f"{asking.__name__}: {len(cases[asking])} questions, {base[asking][1]:.1f} s of CPU", flush=True)
        before, seconds = base[asking]
        with varied(questions.settings, name, value):
            answers, spent = answered(cases[asking])
        line = compared(answers, before, questions.tolerance)
        print(f"{name + ' = ' + str(value):44} {line}   CPU {spent / seconds:5.2f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
