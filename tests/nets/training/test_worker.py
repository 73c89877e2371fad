"""Trials on real networks: the same alone and in a stack, how they end, and what is refused before they start."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from models import cnn, mlp

from nqm import EMA, SGD
from nqm.nets.training import groups
from nqm.nets.training.groups import evaluation_steps
from nqm.nets.training.loop import walk
from nqm.nets.training.metrics import FIRST_PIECE, Metric, shuffled
from nqm.nets.training.rules.kfac import KFACRule
from nqm.nets.training.stacks import Draws
from nqm.nets.training.tasks import task_of
from nqm.nets.training.trial import SLACK, Result, Trial
from nqm.nets.training.worker import check_trial, run_trials
from nqm.nets.workloads import WORKLOADS, network_of, workload
from nqm.text.imports import UserCodeError
from nqm.types import Wrong


def trial(optimizer: str = "SGD", **changes: Any) -> Trial:
    usual: dict[str, Any] = {
        "workload": "digits", "options": {"examples": 400}, "settings": {"lr": 0.5}, "averages": (), "batch_size": 16,
        "metric": "train_loss", "target": 0.5, "max_steps": 60, "growth": 0.1, "seed": 0,
    }  # fmt: skip
    return Trial(optimizer=optimizer, **{**usual, **changes})


def curves_agree(one: Result, other: Result, digits: float = 1e-4) -> None:
    assert (one.key, one.outcome, one.steps, one.times) == (other.key, other.outcome, other.steps, other.times)
    for name, curve in one.curves.items():
        assert curve == pytest.approx(other.curves[name], rel=digits, nan_ok=True)


@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        ("SGD", [{"lr": 0.03}, {"lr": 0.3}, {"lr": 0.6}]),
        ("HeavyBall", [{"lr": 0.02, "momentum": 0.9}, {"lr": 0.2, "momentum": 0.5}, {"lr": 1e5, "momentum": 0.9}]),
        ("Adam", [{"lr": 0.003}, {"lr": 0.01, "beta2": 0.99}, {"lr": 0.02}]),
        ("KFAC", [{"lr": 0.1, "damping": 0.1}, {"lr": 0.05, "damping": 0.1}, {"lr": 0.2, "damping": 0.1, "factor_period": 3}]),
    ],
    ids=["SGD", "HeavyBall", "Adam", "KFAC"],
)  # fmt: skip
def test_stacked_trials_end_as_they_do_alone(optimizer: str, settings: list[dict[str, float]]) -> None:
    """Steps, outcomes and curves; float32 sums in another order, over sixty steps, leave four digits."""
    trials = [trial(optimizer, settings=s, seed=k // 2, averages=(0.9,)) for k, s in enumerate(settings)]
    together, alone = run_trials(trials, stacking="always"), run_trials(trials, stacking="never")
    for one, other in zip(together, alone, strict=True):
        curves_agree(one, other)
        assert other.how == "plain"
    assert together[0].how == ("stacked(2)" if optimizer == "KFAC" else "stacked(3)")  # periods set the third apart
    assert len({len(one.times) for one in together}) > 1  # some left the stack before others


def test_the_choice_by_the_clock_is_made_once_and_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[tuple[str, int]] = []

    def seconds(task: Any, method: Any, trials: Any, stacking: str) -> float:
        timed.append((stacking, len(trials)))
        return {"always": 1.0, "never": 2.0 if trials[0].batch_size == 16 else 0.5}[stacking]

    monkeypatch.setattr(groups, "_seconds", seconds)
    monkeypatch.setattr(groups, "_PAYS", {})
    small = [trial(settings={"lr": lr}, target=0.0, max_steps=2) for lr in (0.1, 0.2, 0.3)]
    large = [trial(settings={"lr": lr}, target=0.0, max_steps=2, batch_size=8) for lr in (0.1, 0.2, 0.3)]
    assert [result.how for result in run_trials(small)] == ["stacked(3)"] * 3
    assert [result.how for result in run_trials(large)] == ["plain"] * 3
    run_trials(small)
    assert timed == [("always", 4), ("never", 4)] * 2


def test_both_ways_are_timed_for_real(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_PAYS", {})
    run_trials([trial(settings={"lr": lr}, target=0.0, max_steps=2) for lr in (0.1, 0.2)])
    assert len(groups._PAYS) == 1


def test_outcomes() -> None:
    reached, late, stopped, diverged, failed = run_trials(
        [
            trial(averages=(0.5,)), trial(target=0.001), trial(target=0.001, limit=7), trial(settings={"lr": 1e6}),
            trial("HeavyBall"),
        ]
    )  # fmt: skip
    assert reached.outcome == "reached"
    assert reached.steps["raw"] == reached.times[-1] or reached.steps["ema(0.5)"] == reached.times[-1]
    assert reached.curves["raw"][0] == pytest.approx(2.4, abs=0.3)
    assert (late.outcome, late.steps["raw"], late.times[-1]) == ("out_of_steps", None, 60)
    assert (stopped.outcome, stopped.times[-1]) == ("stopped", 7)
    assert "well behind a better trial" in stopped.message
    assert diverged.outcome == "diverged"
    assert "the loss is" in diverged.message
    assert len(diverged.times) < 10
    assert failed.outcome == "failed"
    assert "HeavyBall needs a value of momentum" in failed.message


def test_a_limit_changes_nothing_before_it() -> None:
    whole, cut = run_trials([trial()])[0], run_trials([trial(limit=12)])[0]
    assert cut.times[-1] == 12
    shared = [t for t in cut.times if t in whole.times]
    for t in shared:
        assert cut.curves["raw"][cut.times.index(t)] == whole.curves["raw"][whole.times.index(t)]


def test_averages_are_those_of_ema() -> None:
    """The read-out is nqm's EMA: it starts at the first weights, and its start is not taken out."""
    task, target = task_of("digits", {"examples": 400}), 0.0
    (result,) = run_trials([trial(averages=(0.5, 0.95), target=target, max_steps=10, growth=0.0)])
    for decay in (0.5, 0.95):
        draws = Draws(400, [0])
        batches: Any = lambda size, draws=draws: draws(size)[0]  # noqa: E731
        path = walk(task.network.at(task.start(0)), EMA(SGD(0.5), decay), 16, range(11), batches=batches)
        wanted = [task.metric("train_loss")(theta[None], target)[0][0] for _, theta in path]
        assert result.curves[f"ema({decay})"] == pytest.approx(wanted, rel=1e-5)


def test_seeds_decide_start_and_order() -> None:
    first, same, other = run_trials([trial(), trial(), trial(seed=1)], stacking="never")
    assert first.curves == same.curves
    assert first.curves["raw"][0] != other.curves["raw"][0]


def test_evaluation_steps_grow() -> None:
    assert list(evaluation_steps(0.0, 5)) == [1, 2, 3, 4, 5]
    found = list(evaluation_steps(0.02, 3000))
    assert found[:3] == [1, 2, 3]
    assert found[-1] == 3000
    assert all(b <= max(a + 1, math.ceil(1.02 * a)) for a, b in itertools.pairwise(found))


@pytest.mark.parametrize("make", [mlp, cnn], ids=["mlp", "cnn"])
@pytest.mark.parametrize("errors", [False, True], ids=["loss", "error"])
@pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])
def test_a_metric_near_the_target_is_over_all_the_data(make: Any, errors: bool, together: bool) -> None:
    network = make()
    data = tuple(t.repeat(40, *(1,) * (t.ndim - 1)) for t in network.data)
    metric = Metric(network, shuffled(data), errors)
    theta = torch.stack([network.theta, 1.5 * network.theta])
    for (got, loss), row in zip(metric(theta, math.inf, together), theta, strict=True):
        out, labels = network.output(row, network.data), network.data[1]
        wanted = float((out.argmax(1) != labels).double().mean()) if errors else float(network.loss(out, labels))
        assert got == pytest.approx(wanted, rel=1e-9)
        assert loss == pytest.approx(float(network.loss(out, labels)), rel=1e-9)


def test_a_metric_far_above_the_target_is_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of("digits", {})
    metric, theta = Metric(task.network, task.network.data), task.start(0)[None]
    seen: list[int] = []
    losses = task.network.example_losses
    monkeypatch.setattr(task.network, "example_losses", lambda out, y: seen.append(len(out)) or losses(out, y))
    exact = metric(theta)[0][0]
    assert sum(seen) == 1797
    seen.clear()
    far, near = metric(theta, 0.1)[0][0], metric(theta, exact - 1e-6)[0][0]
    assert seen[0] == FIRST_PIECE
    assert sum(seen[1:]) == 1797
    assert near == exact
    assert far == pytest.approx(exact, abs=0.2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"optimizer": "SDG"}, "no optimizer 'SDG'"),
        ({"settings": {"lr": 0.0}}, "lr must be positive"),
        ({"settings": {"lr": 0.1, "beta": 1}}, "no setting 'beta'"),
        ({"target": math.nan}, "target must be a finite number"),
        ({"metric": "loss"}, "metric must be one of train_loss"),
        ({"metric": "val_error", "target": 2.0}, "share of errors"),
        ({"averages": (1.0,)}, "decays in"),
        ({"workload": "digit"}, "no workload 'digit'"),
        ({"options": {"example": 4}}, "no option 'example'; it has examples"),
        ({"options": {"examples": 0}}, "examples must be a whole number"),
        ({"options": {"examples": "abc"}}, r"options\.examples must be a whole number of at least 2, got 'abc'"),
        ({"options": {"examples": 5000}}, "examples is 5,000, and the data of digits has 1,797"),
        ({"target": -1.0}, "target is -1, and the loss of digits is never below 0"),
        ({"options": {"examples": 40, "replacement": False}, "batch_size": 41}, "shuffled epochs have no such"),
        ({"options": {}, "batch_size": 10**9}, "there are 1,797 examples: .* 556,483 times; take a batch of at most 28,752"),
        ({"options": {}, "metric": "val_loss"}, "digits holds out its last 297"),
        ({"workload": "nowhere:f"}, "cannot import 'nowhere'"),
    ],
    ids=["optimizer", "lr", "setting", "target", "metric", "share", "averages", "workload", "option", "examples",
         "text", "too_many", "negative", "epochs", "batch",
         "held_out", "module"],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_training(changes: dict[str, Any], said: str) -> None:
    optimizer = changes.pop("optimizer", "SGD")
    with pytest.raises(ValueError, match=said):
        check_trial(trial(optimizer, **changes))


def test_validation_is_on_held_out_examples() -> None:
    task = task_of("digits", {"examples": 1000})
    check_trial(trial(options={"examples": 1000}, metric="val_error", target=0.1))
    metric = task.metric("val_error")
    assert metric.examples == 297
    found = workload("digits")
    assert found.val is not None
    held, rows = found.val(1000)[0], found.data(1797)[0]
    assert len(held) == 297
    assert torch.corrcoef(torch.stack([held.flatten(), rows[1500:].flatten()]))[0, 1] > 0.9999
    (result,) = run_trials([trial(options={"examples": 1000}, metric="val_error", target=0.2, max_steps=100)])
    assert result.outcome == "reached"
    assert all(0 <= value <= 1 for value in result.curves["raw"])


def test_every_workload_says_whether_it_holds_out() -> None:
    assert [name for name in WORKLOADS if workload(name).val is None] == []


OWN = """
import torch
from torch import nn
from torch.nn import functional as F
from nqm import SGD
from nqm.nets import Network
from nqm.nets.workloads.base import Workload

x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))

def network():
    torch.manual_seed(0)
    return Network(nn.Linear(3, 1), F.mse_loss, (x, x.sum(1, keepdim=True)))

def task():
    return Workload("own", lambda n: (x[:n], x[:n].sum(1, keepdim=True)), lambda: nn.Linear(3, 1), examples=32,
                    optimizer=SGD(0.1), batch_size=4, steps=1, loss=F.mse_loss,
                    val=lambda n: (x[n:], x[n:].sum(1, keepdim=True)))

def number():
    return 3
"""


def test_a_workload_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_workload.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    shared = {"options": {}, "settings": {"lr": 0.2}, "target": 0.01, "batch_size": 8}
    for name, metric in (("network", "train_loss"), ("task", "train_loss"), ("task", "val_loss")):
        one = trial(workload=f"own_workload:{name}", metric=metric, **shared)
        check_trial(one)
        assert run_trials([one])[0].outcome == "reached", name
    with pytest.raises(ValueError, match=r"returned int; it must return an nqm\.nets\.Network or a Workload"):
        check_trial(trial(workload="own_workload:number", **shared))
    with pytest.raises(ValueError, match="no held-out examples"):
        check_trial(trial(workload="own_workload:network", metric="val_loss", **shared))
    with pytest.raises(ValueError, match="errors can be counted only if"):
        check_trial(trial(workload="own_workload:task", metric="val_error", **{**shared, "target": 0.1}))
    with pytest.raises(ValueError, match="start is for workloads"):
        check_trial(trial(workload="own_workload:network", **{**shared, "options": {"start": 8}}))
    for name in ("network", "task"):
        check_trial(trial(workload=f"own_workload:{name}", **{**shared, "options": {"examples": 8}}))
        with pytest.raises(
            Wrong, match=r"examples is 65, and the data of .* has 64: ask for at most as many"
        ) as caught:
            check_trial(trial(workload=f"own_workload:{name}", **{**shared, "options": {"examples": 65}}))
        assert caught.value.argument == "examples"


FAILING = """
import torch
from torch import nn
from torch.nn import functional as F
from nqm import SGD
from nqm.nets.workloads.base import Workload

x = torch.ones(64, 3)

def data(n):
    return x[:n], x[:n, :1]

def broken(*_):
    raise RuntimeError("mine")

class Late(nn.Linear):
    calls = 0

    def forward(self, x):
        Late.calls += 1
        if Late.calls > 100:
            raise RuntimeError("late")
        return super().forward(x)

def made(data=data, model=lambda: nn.Linear(3, 1), val=data):
    return Workload("mine", data, model, 32, SGD(0.1), 4, 1, F.mse_loss, val=val)

def without_data(): return made(data=broken)
def without_model(): return made(model=broken)
def without_val(): return made(val=broken)
def late(): return made(model=lambda: Late(3, 1))
"""


@pytest.mark.parametrize("part", ["data", "model", "val"])
def test_an_exception_in_a_function_of_a_users_workload_is_theirs(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"failing_{part}.py").write_text(FAILING)
    monkeypatch.chdir(tmp_path)
    text = f"failing_{part}:without_{part}"
    one = trial(workload=text, metric="val_loss", options={}, settings={"lr": 0.2})
    message = rf"{part} of the workload mine failed with RuntimeError: mine \(failing_{part}.py, line 14\)"
    with pytest.raises(UserCodeError, match=message) as told:
        check_trial(one)
    assert 'raise RuntimeError("mine")' in told.value.traceback
    assert "nqm" not in told.value.traceback.replace(str(tmp_path), "")
    if part != "val":
        with pytest.raises(UserCodeError, match=message):
            network_of(text)


def test_a_users_model_that_fails_in_training_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "failing_late.py").write_text(FAILING)
    monkeypatch.chdir(tmp_path)
    one = trial(workload="failing_late:late", options={}, settings={"lr": 1e-6}, target=0.0, max_steps=1000)
    (found,) = run_trials([one], stacking="never")
    assert found.outcome == "failed"
    assert "failed with RuntimeError: late (failing_late.py, line 22)" in found.message


def test_an_exception_in_a_workload_of_ours_is_not_told_as_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: int) -> Any:
        raise OSError("no network")

    broken.__module__ = "nqm.nets.workloads.digits"
    with pytest.raises(OSError, match="no network"):
        replace(workload("digits"), data=broken).network()


def test_large_batches_are_accumulated() -> None:
    """A batch above the chunk of the workload goes in pieces and steps as one."""
    big = [trial(batch_size=5000, settings={"lr": lr}, max_steps=3, target=0.0) for lr in (0.3, 0.4)]
    together, alone = run_trials(big, stacking="always"), run_trials(big, stacking="never")
    assert [result.how for result in (together[0], alone[0])] == ["stacked(2), accumulated(3)", "plain, accumulated(3)"]
    for one, other in zip(together, alone, strict=True):
        curves_agree(one, other)


def test_wrong_stacking_is_named() -> None:
    with pytest.raises(ValueError, match="stacking must be 'auto', 'always' or 'never'"):
        run_trials([], stacking="sometimes")  # type: ignore[arg-type]


@pytest.mark.parametrize("stacking", ["always", "never"])
def test_trials_of_one_seed_race_and_those_of_others_do_not(stacking: str) -> None:
    """The first is as far as without rivals; a slower one of its seed stops there, one of another seed goes on."""
    fast, slow = {"lr": 0.6}, {"lr": 0.1}
    alone = run_trials([trial("SGD", settings=fast, seed=0, max_steps=300)], stacking=stacking)[0]  # type: ignore[arg-type]
    raced = run_trials(
        [
            trial("SGD", settings=fast, seed=0, max_steps=300),
            trial("SGD", settings=slow, seed=0, max_steps=300),
            trial("SGD", settings=slow, seed=1, max_steps=300),
        ],
        stacking=stacking,  # type: ignore[arg-type]
    )
    assert raced[0].steps == alone.steps
    assert [result.outcome for result in raced] == ["reached", "stopped", "reached"]
    first = raced[0].steps["raw"] or 0
    assert SLACK * first <= raced[1].times[-1] < SLACK * first * 1.2  # looks are a tenth apart
    assert raced[1].times[-1] < raced[2].times[-1]
    assert "behind another trial" in raced[1].message


def test_trials_begin_at_the_checkpoint_of_a_fit() -> None:
    task, fitted = task_of("digits", {"start": 50}), workload("digits").network(50)
    assert torch.equal(task.start(0), fitted.theta)
    assert torch.equal(task.start(0), task.start(1))
    found = run_trials([trial("SGD", settings={"lr": 1e-6}, options={"start": 50}, target=0.5 + fitted.full_loss())])[0]
    assert found.outcome == "reached"
    with pytest.raises(ValueError, match="start must be a whole number"):
        check_trial(trial("SGD", settings={"lr": 0.3}, options={"start": -1}))


@pytest.mark.parametrize("stacking", ["always", "never"])
def test_a_training_that_blows_up_between_two_looks_has_diverged(
    stacking: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K-FAC draws targets from the model's outputs, from which nothing can be drawn then; a neighbour in the stack goes on."""
    whole = KFACRule.precondition

    def blown(rule: KFACRule, g: torch.Tensor) -> torch.Tensor:
        d = whole(rule, g)
        d[0, :] = math.nan if rule.seen == 3 else d[0]
        return d

    monkeypatch.setattr(KFACRule, "precondition", blown)
    trials = [
        trial("KFAC", settings={"lr": 0.1, "damping": d}, growth=30.0, max_steps=25, target=1.0) for d in (0.1, 0.2)
    ]
    first, other = run_trials(trials, stacking=stacking)
    assert (first.outcome, first.times) == ("diverged", [0, 1, 25])
    assert "the loss is nan at step 25" in first.message
    assert other.outcome == "reached"
    assert other.how == ("stacked(2)" if stacking == "always" else "plain")
