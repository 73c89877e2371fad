"""How a search goes on: held against a search that is written as one plain loop."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from statistics import median
from typing import Any

import pytest
from lab_studies import small
from lab_workers import run_trials, train

from nqm.lab import Result, Study, Trial
from nqm.lab.plan import SEARCH, Cell
from nqm.lab.results import point
from nqm.lab.space import points
from nqm.lab.work import raced
from nqm.nets.training.trial import FEASIBLE, SLACK


def cell(study: Study, label: str = "SGD", size: int = 16, **extra: Any) -> Cell:
    return Cell(study, label, size, **extra)


def finish(one: Cell, train: Any = train) -> Cell:
    """Bring a cell to its end."""
    known: dict[str, Result] = {}
    while one.round:
        known |= {trial.key: train(trial) for trial in one.round}
        one.advance(known)
    return one


def search(study: Study, label: str, size: int) -> list[tuple[Trial, Result]]:
    """The same search without any machinery: points in order, a limit for each block of them."""
    entry, done, taken = study.optimizers[label], [], 0
    sequence = list(islice(points([dict(entry.box)], (study.seed, 0)), study.most_trials(label)))
    while True:
        feasible = sum(r.outcome in FEASIBLE for _, r in done)
        count = min(study.round, study.first_trials(label) - feasible, study.most_trials(label) - taken)
        if count <= 0:
            return done
        hits: dict[str, list[int]] = {"raw": [], "ema": []}
        for _, r in done:
            for name, steps in r.steps.items():
                if steps is not None:
                    hits[name[:3]].append(steps)
        groups = ["raw", "ema"] if entry.averages else ["raw"]
        limit = math.ceil(SLACK * max(min(hits[g]) for g in groups)) if all(hits[g] for g in groups) else None
        for settings in sequence[taken : taken + count]:
            trial = study.trial(label, size, settings, limit=limit)
            done.append((trial, train(trial)))
        taken += count


@pytest.mark.parametrize("label", ["SGD", "HeavyBall"])
@pytest.mark.parametrize("size", [4, 16, 64])
def test_search_is_the_plain_loop(label: str, size: int) -> None:
    study = small(trials=13)
    found = finish(cell(study, label, size))
    assert found.done == search(study, label, size)
    assert found.feasible == 13
    assert found.phase == "done"


def test_best_is_the_smallest_of_all_steps() -> None:
    found = finish(cell(small(), "HeavyBall"))
    for name, prefix in (("HeavyBall", "raw"), ("EMA(HeavyBall)", "ema")):
        steps = [s for _, r in found.done for k, s in r.steps.items() if k.startswith(prefix) and s is not None]
        assert found.best[name].steps == min(steps)
    assert found.best["HeavyBall"].decay is None
    assert found.best["EMA(HeavyBall)"].decay in (0.9, 0.99)


def test_confirmed_with_fresh_seeds_alone() -> None:
    found = finish(cell(small(seed=7), "HeavyBall"))
    for name, pairs in found.confirmed.items():
        best = found.best[name]
        assert [t.seed for t, _ in pairs] == [8, 9, 10]
        assert all(t.settings == best.trial.settings for t, _ in pairs)
        assert all(t.averages == (() if best.decay is None else (best.decay,)) for t, _ in pairs)
        assert all(t.limit == 4 * best.steps for t, _ in pairs)
    assert finish(cell(small(seeds=0))).confirmed == {}


def test_points_are_the_same_at_every_batch_size_unless_fresh() -> None:
    first = lambda size, **how: cell(small(**how), size=size).round or []  # noqa: E731
    assert [t.settings for t in first(4)] == [t.settings for t in first(64)]
    assert [t.settings for t in first(4, points="fresh")] != [t.settings for t in first(64, points="fresh")]
    assert [t.settings for t in first(4)] != [t.settings for t in first(4, seed=1)]


def test_infeasible_trials_do_not_count() -> None:
    study = small(optimizers={"SGD": {"lr": {"low": 0.5, "high": 8}}})  # half of it diverges
    found = finish(cell(study))
    assert found.feasible == 6
    assert found.count("diverged") > 2
    hopeless = finish(cell(small(optimizers={"SGD": {"lr": {"low": 2, "high": 8}}})))
    assert (hopeless.feasible, len(hopeless.done)) == (0, 30)  # five tries for each
    assert hopeless.best == {}
    assert hopeless.phase == "done"


def test_a_round_that_fails_as_a_whole_ends_the_cell() -> None:
    found = finish(cell(small(optimizers={"SGD": {"lr": {"low": 0.1, "high": 1}, "broken": True}})))
    assert len(found.done) == 4
    assert found.broken == "it broke"


def test_nothing_to_search_is_one_trial() -> None:
    found = finish(cell(small(optimizers={"SGD": {"lr": 0.3}})))
    assert len(found.done) == 1
    assert found.at_edge("SGD") == {}


def test_limits_only_save_work() -> None:
    """The best is the same when every trial runs to its end."""
    study = small(trials=20)
    free = finish(cell(study, "HeavyBall"), lambda trial: train(Trial.from_dict(trial.to_dict() | {"limit": None})))
    limited = finish(cell(study, "HeavyBall"))
    assert {n: (b.steps, b.trial.settings) for n, b in free.best.items()} == {
        n: (b.steps, b.trial.settings) for n, b in limited.best.items()
    }
    assert any(r.outcome == "stopped" for _, r in limited.done)


NARROW = {"SGD": {"lr": {"low": 1e-4, "high": 0.01}}}  # the best is some thirty times larger


def test_a_best_at_the_edge_is_told_and_widened() -> None:
    study = small(widen=True, optimizers=NARROW, trials=16, round=8)
    before = finish(cell(replace(study, widen=False)))
    assert before.at_edge("SGD") == {"lr": "high"}
    found = finish(cell(study))
    highs = [round(box["lr"].high, 4) for box in found.boxes]
    assert highs == [0.01, 0.04, 0.16, 0.64, 2.56][: len(highs)]
    assert len(highs) >= 4
    assert found.at_edge("SGD") == {}
    assert 0.16 < found.best["SGD"].trial.settings["lr"] < 1
    assert found.done[: len(before.done)] == before.done  # earlier trials stay and count
    assert found.feasible == 16 + 8 * (len(highs) - 1)


def steps_of(law: Callable[[float], float]) -> Callable[[Trial], Result]:
    """Trainings whose steps are a function of the learning rate, scattered by 10% over seeds."""

    def run(trial: Trial) -> Result:
        z = random.Random(f"{trial.seed} {trial.settings}").gauss(0, 0.1)
        steps = round(law(trial.settings["lr"]) * math.exp(z))
        arrived = steps <= trial.steps_allowed
        late = "stopped" if trial.limit else "out_of_steps"
        return Result(
            trial.key, "reached" if arrived else late, {"raw": steps if arrived else None}, {}, [], 0.0, "", "plain"
        )

    return run


@pytest.mark.parametrize("refine", [0, 12])
def test_a_flat_setting_is_no_edge_and_a_slope_is_followed_to_its_end(refine: int) -> None:
    """Above 1 steps are level, or fall by a factor of two for each factor of four, down to the minimum at 30."""
    study = small(widen=True, optimizers={"SGD": {"lr": {"low": 0.01, "high": 0.5}}}, trials=16, refine=refine, seeds=5)
    flat = lambda lr: 300 / min(lr, 1.0) ** 0.5  # noqa: E731
    slope = lambda lr: 300 * max(lr / 30, 30 / lr) ** 0.5  # noqa: E731
    level, down = (finish(cell(study), steps_of(law)) for law in (flat, slope))
    assert len(level.boxes) <= 4 < len(down.boxes)
    assert level.at_edge("SGD") == down.at_edge("SGD") == {}
    assert 10 < down.best["SGD"].trial.settings["lr"] < 90


@pytest.mark.parametrize("refine", [0, 12])
def test_a_widened_search_is_repeated_from_its_results_alone(refine: int) -> None:
    """As after an interruption: another cell that knows all results ends in the same place, and asks for no other trial."""
    study = small(widen=True, optimizers=NARROW, trials=16, refine=refine)
    found = finish(cell(study))
    assert len(found.boxes) > 3
    again, known = cell(study), {trial.key: train(trial) for trial in found.trials()}
    again.advance(known)
    assert again.round is None
    ended = [[(trial.key, result.steps) for trial, result in one.done] for one in (again, found)]
    assert ended[0] == ended[1]
    assert (again.best, again.flat, set(again.fresh)) == (found.best, found.flat, set(found.fresh))


def test_what_was_confirmed_in_a_narrower_box_stands_unless_the_wider_one_is_better() -> None:
    study = small(widen=True, optimizers={"SGD": {"lr": {"low": 0.01, "high": 0.5}}}, trials=16, seeds=5)
    rising = lambda lr: 300 * max(0.49 / lr, (lr / 0.49) ** 0.02)  # noqa: E731
    found = finish(cell(study), steps_of(rising))
    narrow = finish(cell(replace(study, widen=False)), steps_of(rising))
    assert narrow.at_edge("SGD") == {"lr": "high"}
    assert len(found.boxes) > 1
    then, now = (median(r.steps["raw"] or math.inf for _, r in c.confirmed["SGD"]) for c in (narrow, found))
    assert now <= then


@pytest.mark.parametrize(("low", "high"), [(1e-4, 1e-3), (40, 400)])
def test_a_range_in_which_nothing_arrives_is_left(low: float, high: float) -> None:
    """Rates at which no training diverges are too low, rates at which all do are too high."""
    study = small(widen=True, optimizers={"SGD": {"lr": {"low": low, "high": high}}}, trials=8, max_steps=400)
    assert finish(cell(replace(study, widen=False))).best == {}
    found = finish(cell(study))
    assert 0.01 < found.best["SGD"].trial.settings["lr"] < 2
    assert found.at_edge("SGD") == {}


def test_widening_ends() -> None:
    study = small(widen=True, optimizers={"SGD": {"lr": {"low": 1e-11, "high": 1e-10}}}, trials=16, max_steps=10**13)
    found = finish(cell(study))
    assert len(found.boxes) == 1 + SEARCH.widenings
    assert found.at_edge("SGD") == {"lr": "high"}


def test_a_target_that_takes_no_training_is_said() -> None:
    at_once = lambda trial: Result(trial.key, "reached", {"raw": 0}, {}, [], 0.0, "", "plain")  # noqa: E731
    told = point([finish(cell(small()), at_once)], "SGD").message
    assert told == f"the metric is at {small().target:g} or below before the first step: choose a lower target"


def test_races_find_the_same_best_for_less() -> None:
    study = small(trials=20, round=20)
    for label in ("SGD", "HeavyBall"):
        first = cell(study, label).round or []
        seen: list[tuple[int, int]] = []

        def run(trials: Sequence[Trial], seen: list[tuple[int, int]] = seen) -> list[Result]:
            seen.append((len(trials), trials[0].steps_allowed))
            return run_trials(trials, stacking="auto")

        quick, whole = raced(run, first), run_trials(first, stacking="auto")
        assert [r.key for r in quick] == [t.key for t in first]
        for name in first[0].readouts[:1]:
            assert min(r.steps[name] or 10**9 for r in quick) == min(r.steps[name] or 10**9 for r in whole)
        assert [steps for _, steps in seen] == [SEARCH.first_steps * 4**i for i in range(len(seen))]
        assert sum(n * steps for n, steps in seen) < 0.2 * len(first) * study.max_steps


def test_a_race_that_no_one_ends_goes_to_the_last_step() -> None:
    first = cell(small(target=1e-9, max_steps=100)).round or []
    seen: list[int] = []

    def run(trials: Sequence[Trial]) -> list[Result]:
        seen.append(trials[0].steps_allowed)
        return run_trials(trials, stacking="auto")

    found = raced(run, first)
    assert seen == [32, 100]
    assert {r.outcome for r in found} <= {"out_of_steps", "diverged"}


def test_a_setting_that_was_lucky_once_does_not_stand() -> None:
    """The soonest trial of the search never arrives again: the next one is confirmed and stands."""
    study = small(trials=6, round=6, seeds=3)
    steps = {round(t.settings["lr"], 9): 10 + k for k, t in enumerate(cell(study).round or [])}
    lucky = min(steps, key=steps.__getitem__)

    def run(trial: Trial) -> Result:
        lr, fresh = round(trial.settings["lr"], 9), trial.seed != study.seed
        found = None if fresh and lr == lucky else steps[lr] + fresh
        return Result(trial.key, "reached" if found else "stopped", {"raw": found}, {}, [], 0.0, "", "plain")

    found = finish(cell(study), run)
    assert found.best["SGD"].steps == 11
    assert [result.steps["raw"] for _, result in found.confirmed["SGD"]] == [12, 12, 12]

    def all_lucky(trial: Trial) -> Result:
        late = steps[round(trial.settings["lr"], 9)] * (3 if trial.seed != study.seed else 1)
        return Result(trial.key, "reached", {"raw": late}, {}, [], 0.0, "", "plain")

    found = finish(cell(study), all_lucky)
    assert found.best["SGD"].steps == 10  # none is borne out, so the least median stands
    assert len(list(found.trials())) == 6 + 3 * 3


@pytest.mark.parametrize(("lucky", "widened"), [("end", False), ("inside", True)])
def test_a_range_is_widened_where_what_stands_lies_at_its_end(lucky: str, widened: bool) -> None:
    """Not where only a trial does that was lucky in the search; and what is said to be at an end is what is widened."""
    study = small(widen=True, optimizers={"SGD": {"lr": {"low": 0.01, "high": 1}}}, trials=16, round=16, seeds=3)
    rates = sorted(trial.settings["lr"] for trial in cell(study).round or [])
    soonest = {"end": (rates[-1], rates[8]), "inside": (rates[8], rates[-1])}[lucky]

    def run(trial: Trial) -> Result:
        lr, fresh = trial.settings["lr"], trial.seed != study.seed
        steps = {soonest[0]: None if fresh else 10, soonest[1]: 11}.get(lr, 20)
        return Result(trial.key, "reached" if steps else "stopped", {"raw": steps}, {}, [], 0.0, "", "plain")

    found = finish(cell(study), run)
    assert found.best["SGD"].trial.settings["lr"] == soonest[1]
    assert len(found.boxes) - 1 == widened
    assert finish(cell(replace(study, widen=False)), run).at_edge("SGD") == ({"lr": "high"} if widened else {})
    assert found.flat.get("SGD", set()) == ({("lr", "high")} if widened else set())  # all others take 20 steps
