"""The optimizers that are sampled only: against their textbook loops, one number at a time; and what every rule promises."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from catalogue import ROWS, SAMPLED

import nqm
from nqm import (
    EMA,
    SGD,
    Adam,
    AdamW,
    Clipped,
    DiagonalPreconditioned,
    DriftingPreconditioned,
    EstimatedPreconditioned,
    HeavyBall,
    Nesterov,
    NormalisedSGD,
    Optimizer,
    Preconditioned,
    Quadratic,
    RMSProp,
    Sign,
    Spectrum,
    constant,
    free,
)
from nqm.optimizers.base import fill, free_parameters, parameters
from nqm.sampling.bases import Geometry
from nqm.text.objects import parse_optimizer

H = np.array([1.0, 0.5, 0.11, 0.02])
FEW = Spectrum(H, c=[1.0, 0.3, 0.2, 0.1], s=[1.0, 2.0, 0.5, 1.0])
STEPS = 12
SAME = 1e-12  # two orders of the same few dozen operations

rows = pytest.mark.parametrize("row", SAMPLED.values(), ids=SAMPLED.keys())
every = pytest.mark.parametrize("row", (ROWS | SAMPLED).values(), ids=(ROWS | SAMPLED).keys())


def gradients(seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=(STEPS, 3, 4))  # steps, replicas, parameters


def moved(row: Optimizer, theta: Any, steps: Any, geometry: Any = None) -> Any:
    """The weights reported after each step with given gradients."""
    row = row.at_horizon(len(steps))
    state = row.begin(theta, geometry or Geometry(H, gradient=lambda w: 0.1 + 0.0 * w))
    found = []
    for t, g in enumerate(steps):
        state = row.update(state, g, t)
        found.append(row.report(state, t + 1))
    return np.array(found)


# Textbook loops: one weight at a time, in the words of the PyTorch documentation.


def adam(lr: float, b1: float, b2: float, eps: float, decay: float = 0.0) -> Any:
    def rule(theta: float, gs: list[float]) -> Iterator[float]:
        m = v = 0.0
        for t, g in enumerate(gs, start=1):
            theta -= lr * decay * theta
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
            theta -= lr * (m / (1 - b1**t)) / (math.sqrt(v / (1 - b2**t)) + eps)
            yield theta

    return rule


def rmsprop(lr: float, alpha: float, eps: float, momentum: float) -> Any:
    def rule(theta: float, gs: list[float]) -> Iterator[float]:
        v = buffer = 0.0
        for g in gs:
            v = alpha * v + (1 - alpha) * g**2
            buffer = momentum * buffer + g / (math.sqrt(v) + eps)
            theta -= lr * buffer
            yield theta

    return rule


def sign(lr: float, momentum: float) -> Any:
    def rule(theta: float, gs: list[float]) -> Iterator[float]:
        m = 0.0
        for g in gs:
            m = momentum * m + (1 - momentum) * g
            theta -= math.copysign(lr, m)
            yield theta

    return rule


BY_WEIGHT = {
    Adam(0.05, 0.9): adam(0.05, 0.9, 0.999, 1e-8),
    Adam(0.02, 0.5, 0.9, 1e-3): adam(0.02, 0.5, 0.9, 1e-3),
    AdamW(0.04, 0.8, 0.99, 1e-6, 0.1): adam(0.04, 0.8, 0.99, 1e-6, 0.1),
    RMSProp(0.01, 0.9, 1e-4, 0.7): rmsprop(0.01, 0.9, 1e-4, 0.7),
    RMSProp(0.02): rmsprop(0.02, 0.99, 1e-8, 0.0),
    Sign(0.02, 0.9): sign(0.02, 0.9),
}


@pytest.mark.parametrize(("optimizer", "rule"), BY_WEIGHT.items(), ids=map(str, BY_WEIGHT))
def test_rule_is_the_textbook_loop(optimizer: Optimizer, rule: Callable[..., Any]) -> None:
    theta, gs = np.random.default_rng(1).normal(size=(3, 4)), gradients()
    found = moved(optimizer, theta, gs)
    for i, j in np.ndindex(theta.shape):
        expected = list(rule(float(theta[i, j]), gs[:, i, j].tolist()))
        assert np.abs(found[:, i, j] - expected).max() < SAME


@pytest.mark.parametrize("optimizer", [o for o in BY_WEIGHT if not isinstance(o, Sign)], ids=str)
def test_rule_is_that_of_torch(optimizer: Adam | AdamW | RMSProp) -> None:
    torch = pytest.importorskip("torch")
    start, gs = np.random.default_rng(1).normal(size=(3, 4)), gradients()
    theta = torch.tensor(start, requires_grad=True)
    if isinstance(optimizer, RMSProp):
        theirs = torch.optim.RMSprop(
            [theta], optimizer.lr, alpha=optimizer.alpha, eps=optimizer.eps, momentum=optimizer.momentum
        )
    else:
        decay = {"weight_decay": optimizer.weight_decay} if isinstance(optimizer, AdamW) else {}
        kind = torch.optim.AdamW if decay else torch.optim.Adam
        theirs = kind([theta], optimizer.lr, (optimizer.beta1, optimizer.beta2), optimizer.eps, **decay)
    for g, mine in zip(gs, moved(optimizer, start, gs), strict=True):
        theta.grad = torch.tensor(g)
        theirs.step()
        assert np.abs(mine - theta.detach().numpy()).max() < SAME


def test_rules_with_a_norm_are_their_textbook_loops() -> None:
    start, gs = np.random.default_rng(1).normal(size=(3, 4)), gradients()
    for i in range(3):
        theta, m = start[i].copy(), np.zeros(4)
        clipped, velocity = start[i].copy(), np.zeros(4)
        for t, g in enumerate(gs[:, i]):
            m = 0.8 * m + 0.2 * g
            theta = theta - 0.1 * m / np.linalg.norm(m)
            velocity = 0.7 * velocity + g * min(1.0, 1.5 / np.linalg.norm(g))
            clipped = clipped - 0.2 * velocity
            assert np.abs(moved(NormalisedSGD(0.1, 0.8), start, gs)[t, i] - theta).max() < SAME
            assert np.abs(moved(Clipped(HeavyBall(0.2, 0.7), 1.5), start, gs)[t, i] - clipped).max() < SAME
    sizes = np.linalg.norm(gs, axis=-1)
    assert (sizes > 1.5).any()
    assert (sizes < 1.5).any()


def test_preconditioners_that_drift_are_their_textbook_loops() -> None:
    start, gs = np.random.default_rng(1).normal(size=(3, 4)), gradients()
    ways = [DriftingPreconditioned(HeavyBall(0.2, 0.8), 0.5, 0.4, 5, order) for order in ("before", "after")]
    before, after, m_before, m_after = start, start, 0.0, 0.0
    for t, g in enumerate(gs):
        P = H ** (-0.5 * (1 + 0.4 * math.sin(2 * math.pi * t / 5)))
        m_before = 0.8 * m_before + P * g
        before = before - 0.2 * m_before
        m_after = 0.8 * m_after + g
        after = after - 0.2 * P * m_after
        for way, expected in zip(ways, (before, after), strict=True):
            assert np.abs(moved(way, start, gs)[t] - expected).max() < SAME


def test_before_and_after_momentum_differ_only_when_it_drifts() -> None:
    problem = Quadratic(Spectrum.power_law(50))

    def gap(drift: float) -> float:
        pair = [DriftingPreconditioned(HeavyBall(0.1, 0.9), 0.5, drift, 40, order) for order in ("before", "after")]
        before, after = (problem.sample(o, 16, 60, replicas=30, rotation=1).loss for o in pair)
        return float(np.abs(before / after - 1).max())

    assert gap(0.0) < 1e-12
    assert gap(0.5) > 1e-2
    fixed = problem.sample(Preconditioned(HeavyBall(0.1, 0.9), 0.5), 16, 60, replicas=30).loss
    still = problem.sample(DriftingPreconditioned(HeavyBall(0.1, 0.9), 0.5, 0.0), 16, 60, replicas=30).loss
    assert np.abs(still / fixed - 1).max() < 1e-13


def test_the_diagonal_of_a_rotated_matrix_hardly_preconditions() -> None:
    problem = Quadratic(Spectrum.power_law(200))
    whole, diagonal = Preconditioned(SGD(0.5), 0.5), DiagonalPreconditioned(SGD(0.5), 0.5)
    best, same = (problem.sample(o, 1024, [100], replicas=20).loss[0] for o in (whole, diagonal))
    assert same == best
    turned = problem.sample(diagonal, 1024, [100], replicas=20, rotation=2).loss[0]
    assert turned > 3 * best
    assert problem.sample(whole, 1024, [100], replicas=20, rotation=2).loss[0] == pytest.approx(best, rel=1e-11)


def test_an_estimated_preconditioner_comes_to_the_true_one() -> None:
    spectrum = Spectrum(H, s=1e-6)  # so close to the minimum that gradients are noise, whose second moment is c = h
    problem, true = Quadratic(spectrum), Preconditioned(SGD(0.3), 0.5)

    def off(examples: int) -> float:
        estimate = EstimatedPreconditioned(SGD(0.3), 0.5, examples, 0.0)
        loss, exact = (problem.sample(o, 4, [30], replicas=400).loss[0] for o in (estimate, true))
        return abs(loss / exact - 1)

    assert off(1) > 0.1
    assert off(4000) < 0.1
    rough = EstimatedPreconditioned(SGD(0.3), 0.5, 4, 0.2)
    gs = np.full((1, 1, 4), 1.0)
    geometry = Geometry(H, gradient=lambda w: 2.0 + 0.0 * w)
    assert np.abs(moved(rough, np.zeros((1, 4)), gs, geometry) + 0.3 / math.sqrt(4.2)).max() < SAME


@rows
def test_modes_move_alone_if_they_say_so(row: Optimizer) -> None:
    theta, gs = np.random.default_rng(1).normal(size=(3, 4)), gradients()
    whole = moved(row, theta, gs)
    alone = [
        moved(row, theta[:, k : k + 1], gs[..., k : k + 1], Geometry(H[k : k + 1], gradient=lambda w: 0.1 + 0.0 * w))
        for k in range(4)
    ]
    assert (np.abs(whole - np.concatenate(alone, -1)).max() < SAME) == row.elementwise


@pytest.mark.parametrize(
    ("name", "invariant"),
    [("adam", False), ("sign", False), ("rmsprop", False), ("normalised_momentum", True), ("clipped_heavy_ball", True)],
)
def test_which_rules_do_not_mind_a_rotation(name: str, invariant: bool) -> None:
    problem = Quadratic(FEW)
    plain = problem.sample(SAMPLED[name], 4, 30, replicas=50).loss
    turned = problem.sample(SAMPLED[name], 4, 30, replicas=50, rotation=4).loss
    assert (np.abs(turned / plain - 1).max() < 1e-11) == invariant


class Bare:
    """An array that knows only operators, abs, powers and a sum over its last axis: no NumPy function will take it."""

    __array_ufunc__ = None

    def __init__(self, value: Any) -> None:
        self.value = np.asarray(value)
        self.value.flags.writeable = False  # nothing is changed in place

    def sum(self, axis: int, keepdims: bool) -> Bare:
        assert axis == -1
        assert keepdims
        return Bare(self.value.sum(-1, keepdims=True))

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("a NumPy function was called")


def _operator(name: str) -> Any:
    def apply(self: Bare, *others: Any) -> Bare:
        plain = [o.value if isinstance(o, Bare) else o for o in others]
        return Bare(getattr(self.value, name)(*plain))

    return apply


for _name in (
    "add",
    "radd",
    "sub",
    "rsub",
    "mul",
    "rmul",
    "truediv",
    "rtruediv",
    "pow",
    "neg",
    "abs",
    "lt",
    "gt",
    "eq",
):
    setattr(Bare, f"__{_name}__", _operator(f"__{_name}__"))


class BareGeometry(Geometry):
    """The same for preconditioners."""

    def precondition(self, g: Any, power: Any) -> Any:
        return g * Bare(self.h**-power)

    def preconditioned(self, power: Any) -> BareGeometry:
        return BareGeometry(self.h ** (1 - power), gradient=self.gradient)

    @property
    def diagonal(self) -> Any:  # type: ignore[override]
        return Bare(self.h)


@every
def test_any_array_library_will_do(row: Optimizer) -> None:
    theta, gs = np.random.default_rng(1).normal(size=(3, 4)), gradients()
    row = row.at_horizon(STEPS)
    state = row.begin(Bare(theta), BareGeometry(H, gradient=lambda w: 0.1 + 0.0 * w))
    for t, g in enumerate(gs):
        row.point(state, t)
        state = row.update(state, Bare(g), t)
    assert np.abs(row.report(state, STEPS).value - moved(row, theta, gs)[-1]).max() < 1e-14


@rows
def test_settings_at_once_are_settings_one_by_one(row: Optimizer) -> None:
    theta, gs = np.random.default_rng(1).normal(size=(3, 4)), gradients()
    name = next(n for n, p in parameters(row).items() if p.path[-1] == "lr")
    rates = np.array([0.01, 0.07])
    both = moved(fill(row, {name: rates[:, None, None]}), np.broadcast_to(theta, (2, 3, 4)), gs[:, None])
    for i, lr in enumerate(rates):
        assert np.abs(both[:, i] - moved(fill(row, {name: float(lr)}), theta, gs)).max() < SAME


RULES_ALONE = {name: row for name, row in SAMPLED.items() if not row.has_mean_field}


@pytest.mark.parametrize("row", RULES_ALONE.values(), ids=RULES_ALONE.keys())
def test_verbs_refuse_a_rule_without_a_mean_field_and_say_what_to_use_instead(row: Optimizer) -> None:
    problem = Quadratic(FEW)
    assert not row.linear
    for verb in (
        lambda: problem.run(row, 4, 10),
        lambda: problem.floor(row, 4),
        lambda: problem.losses(row, 10, 1),
        lambda: nqm.steps_to_target(problem, row, 4, 0.1),
        lambda: nqm.optimal_schedule(problem, row, 4, steps=10),
    ):
        with pytest.raises(
            ValueError, match=r"neither exact moments nor a mean field; use problem.sample .* tune or sweep"
        ):
            verb()


@rows
def test_only_linear_optimizers_have_a_stability_limit(row: Optimizer) -> None:
    with pytest.raises(ValueError, match="not linear"):
        Quadratic(FEW).stability_limit(row)


@rows
def test_runs_are_sampled(row: Optimizer) -> None:
    problem = Quadratic(FEW)
    run = problem.sample(row, 64, [0, 5, 60], replicas=300)
    assert run.outcome.ok
    assert run.loss[-1] < 0.5 * run.loss[0]
    assert problem.sample(row, 64, [0, 5, 60], replicas=300, workers=1).loss.tolist() == run.loss.tolist()
    with pytest.raises(ValueError, match="free"):
        problem.sample(fill(row, {next(iter(parameters(row))): free}), 4, 10)


@rows
def test_name_is_the_constructor_and_is_parsed(row: Optimizer) -> None:
    assert eval(str(row), {name: getattr(nqm, name) for name in nqm.__all__}) == row
    assert parse_optimizer(str(row)) == row


@pytest.mark.parametrize("made", [Adam, AdamW, RMSProp])
def test_defaults_are_those_of_pytorch_and_the_learning_rate_is_free(made: type[Optimizer]) -> None:
    torch = pytest.importorskip("torch")
    theirs = inspect.signature(getattr(torch.optim, made.__name__.replace("RMSProp", "RMSprop")))
    defaults = {name: p.default for name, p in theirs.parameters.items()}
    defaults |= dict(zip(("beta1", "beta2"), defaults.get("betas", ()), strict=False))
    assert list(free_parameters(made())) == ["lr"]
    ours = {name: p.value for name, p in parameters(made()).items() if name != "lr"}
    assert ours == {name: defaults[name] for name in ours}
    assert not free_parameters(made(0.001))  # type: ignore[call-arg]
    Quadratic(FEW).sample(made(0.001), 4, 3, replicas=2)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Clipped(SGD)", ["lr", "norm"]),
        ("AdamW(weight_decay=free)", ["lr", "weight_decay"]),
        ("AdamW(0.1, free)", ["beta1"]),
        ('Adam(beta1="free")', ["lr", "beta1"]),
        ("EMA(RMSProp(momentum=free), decay=0.9)", ["lr", "momentum"]),
    ],
)
def test_a_parameter_is_free_by_name(text: str, names: list[str]) -> None:
    found = parse_optimizer(text)
    assert list(free_parameters(found)) == names
    assert parse_optimizer(str(found)) == found
    assert eval(str(found), {name: getattr(nqm, name) for name in nqm.__all__}) == found


def test_free_is_one_object_and_its_name_stands_for_it() -> None:
    assert Adam(beta1="free").beta1 is free
    assert Adam(beta1="free") == Adam(beta1=free)
    assert str(Adam(beta1=free)) == "Adam(beta1=free)"
    assert str(EMA(SGD(), "free")) == "EMA(SGD())"  # its default
    with pytest.raises(ValueError, match="beta1 must be"):
        Adam(beta1="fre")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"lr, beta1 of Adam\(beta1=free\) is free"):
        Quadratic(FEW).sample(Adam(beta1=free), 4, 3)


def test_a_choice_is_read_from_text() -> None:
    assert parse_optimizer("DriftingPreconditioned(SGD, order='after')").order == "after"


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("Adam(lr=0)", "lr must be positive"),
        ("Adam(0.1, 1)", r"beta1 must be in \[0, 1\)"),
        ("Adam(0.1, eps=-1)", "eps must be zero or positive"),
        ("Clipped(SGD(0.1), 0)", "norm must be positive"),
        ("Clipped(0.1)", "inner must be an optimizer"),
        ("DriftingPreconditioned(SGD, order='during')", "order must be"),
        ("EstimatedPreconditioned(SGD, examples=0.5)", "examples must be a whole number"),
        ("Nonlinear()", "no optimizer 'Nonlinear'"),
        ("SGD('fast')", "lr must be positive"),
    ],
)
def test_wrong_values_are_refused_by_name(text: str, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        parse_optimizer(text)


def test_norms_need_every_mode() -> None:
    nodes = Quadratic(Spectrum.power_law(10**7))
    for row in (NormalisedSGD(0.1), EMA(Clipped(SGD(0.1), 1.0), 0.9)):
        with pytest.raises(ValueError, match="takes a norm over all parameters, is sampled mode by mode"):
            nodes.sample(row, 4, 10)
    assert nodes.sample(Adam(0.1, 0.9), 4, 10, replicas=4).outcome.ok
    with pytest.raises(ValueError, match="at most 2,000 modes"):
        nodes.sample(Adam(0.1, 0.9), 4, 10, rotation=1)


@pytest.mark.parametrize("inner", [EMA(SGD(0.1), 0.9), Nesterov(0.1, 0.5), Preconditioned(SGD(0.1), 0.5)], ids=str)
def test_a_preconditioner_after_momentum_needs_a_plain_optimizer(inner: Optimizer) -> None:
    with pytest.raises(ValueError, match="needs SGD or HeavyBall inside"):
        DriftingPreconditioned(inner, 0.5, 0.5, order="after")


def test_preconditioners_nest_in_the_eigenbasis() -> None:
    problem, once = Quadratic(Spectrum.power_law(30)), Preconditioned(SGD(0.5), 0.5)
    nested = [DiagonalPreconditioned(once, 0.5), Preconditioned(once, 0.5)]
    first, second = (problem.sample(o, 16, [40]).loss[0] for o in nested)
    assert first == pytest.approx(second, rel=1e-12)


def test_what_is_estimated_behind_a_preconditioner_is_seen_through_it() -> None:
    geometry = Geometry(np.array([1.0, 0.01])).knowing(lambda w: w)
    behind = geometry.preconditioned(0.5)
    assert behind.gradient is not None
    np.testing.assert_allclose(behind.gradient(np.array([[2.0, 3.0]])), [[2.0, 30.0]])
    one, same = (EstimatedPreconditioned(SGD(0.5), 0.5, examples=n) for n in (8, 8.0))
    problem = Quadratic(Spectrum.power_law(5))
    assert problem.sample(one, 4, [5]).loss[0] == problem.sample(same, 4, [5]).loss[0]


def test_a_schedule_of_momentum_is_one_of_beta1() -> None:
    problem, half = Quadratic(Spectrum.power_law(5)), constant(20, 0.5).on("momentum")
    planned = problem.sample(Adam(0.1, 0.8), 4, 20, half).loss
    np.testing.assert_allclose(planned, problem.sample(Adam(0.1, 0.4), 4, 20).loss, rtol=1e-12)
