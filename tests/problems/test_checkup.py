"""`check_optimizer` passes every optimizer of the package, and finds what is planted in one of a user's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from catalogue import ROWS, SAMPLED

from nqm import (
    SGD,
    Averaging,
    Diagnosis,
    HeavyBall,
    Optimizer,
    Quadratic,
    Spectrum,
    Wrong,
    check_optimizer,
    decay,
    follow,
    free,
    rate,
)
from nqm.optimizers.base import fill, parameters
from nqm.problems import checkup

EXACT = ["shapes", "modes", "steps", "change", "sampling", "stability", "edge"]


@dataclass(frozen=True)
class Ball(Optimizer):
    """Heavy ball whose parts can be replaced."""

    lr: float = rate()
    momentum: float = decay()
    breaks: Callable[..., Any] = field(default=lambda G, b, t: (G, b), compare=False)
    rule: Callable[..., Any] = field(default=lambda v: v, compare=False)
    edges: float = 2.0

    def system(self, h: Any, t: int) -> Any:
        lr, momentum = self.lr, self.momentum
        return self.breaks([[-lr * h, momentum], [-lr * h, momentum - 1]], [-lr, -lr], t)

    def initial(self) -> Any:
        return [1.0, 0.0]

    def readout(self, t: int) -> Any:
        return [1.0, 0.0]

    def begin(self, theta: Any, geometry: Any) -> Any:
        return theta, 0.0 * theta

    def update(self, state: Any, g: Any, t: int) -> Any:
        v = self.rule(self.momentum * state[1] - self.lr * g)
        return state[0] + v, v

    def edge(self, h: Any) -> Any:
        return self.edges * (1 + self.momentum) / h


def failed(found: list[Diagnosis]) -> list[str]:
    return [d.check for d in found if d.passed is False]


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_every_linear_optimizer_passes(row: Optimizer) -> None:
    found = check_optimizer(row)
    assert [d.check for d in found] == EXACT
    assert failed(found) == []
    skipped = [d.check for d in found if d.passed is None]
    assert skipped == ([] if row.at_horizon(100).cycle else ["stability"])


@pytest.mark.slow
@pytest.mark.parametrize("row", SAMPLED.values(), ids=SAMPLED.keys())
def test_every_sampled_optimizer_passes(row: Optimizer) -> None:
    found = check_optimizer(row)
    assert [d.check for d in found] == ["system", "sampling", "mean field"]
    assert failed(found) == []


def test_a_family_gets_usual_values() -> None:
    assert [d.check for d in check_optimizer(HeavyBall()) if d.passed] == EXACT
    assert [d.check for d in check_optimizer(Ball()) if d.passed] == EXACT


PLANTED: dict[str, tuple[Ball, str, str]] = {
    "noise enters otherwise": (
        Ball(0.2, 0.9, breaks=lambda G, b, t: (G, [b[0], 0.0])),
        "sampling",
        "standard errors apart",
    ),
    "momentum of another size": (
        Ball(0.2, 0.9, rule=lambda v: 0.97 * v),
        "sampling",
        "one of the two is not the method",
    ),
    "edge too large": (Ball(0.2, 0.9, edges=500.0), "edge", "within 64 times"),
    "edge too small": (Ball(0.2, 0.9, edges=0.02), "edge", "within 64 times"),
    "wrong shape": (Ball(0.2, 0.9, breaks=lambda G, b, t: (G[:1], b)), "shapes", "2 rows of 2 entries"),
    "branch on h": (
        Ball(0.2, 0.9, breaks=lambda G, b, t: (G, b) if G[0][0] < -0.01 else (G, [0, 0])),
        "modes",
        "no if",
    ),
    "dependence on t": (Ball(0.2, 0.9, breaks=lambda G, b, t: (G, [b[0] / (1 + t), b[1]])), "steps", "must say so"),
    "A": (
        Ball(0.2, 0.9, breaks=lambda G, b, t: ([[1 + G[0][0], 0.9], [G[1][0], 0.9]], b)),
        "change",
        "G = A - I, not A",
    ),
}


@pytest.mark.parametrize(("optimizer", "check", "match"), PLANTED.values(), ids=PLANTED.keys())
def test_what_is_planted_is_found(optimizer: Ball, check: str, match: str) -> None:
    found = check_optimizer(optimizer)
    assert failed(found) == [check]
    assert match in next(d.message for d in found if d.check == check)


@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_a_wrong_limit_of_stability_is_found(factor: float) -> None:
    found = checkup._stability(Ball(momentum=0.9), 3.8 * factor)
    assert found.passed is False
    assert checkup._stability(Ball(momentum=0.9), 3.8).passed


def test_a_run_that_is_not_the_plain_loop_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = checkup.plain_losses
    monkeypatch.setattr(checkup, "plain_losses", lambda *given: right(*given) * (1 + 1e-8))
    assert failed(check_optimizer(HeavyBall(momentum=0.9))) == ["edge"]


def test_the_plain_loop_is_the_closed_form() -> None:
    # SGD: E[theta^2] after t steps is r^2t + lr^2 (1 - r^2t) / (1 - r^2) with r = 1 - lr h.
    r = 1 - 0.5 * checkup.MODES
    moments = [r ** (2 * t) + 0.25 * (1 - r ** (2 * t)) / (1 - r**2) for t in (1, 2, 3)]
    np.testing.assert_allclose(checkup.plain_losses(SGD(0.5), 3), [checkup.MODES @ m / 2 for m in moments], rtol=1e-13)


def test_a_pace_that_is_not_that_of_the_system_is_found() -> None:
    @dataclass(frozen=True)
    class Average(Averaging):
        late: int = 1000  # the step from which pace is wrong

        def joined(self, G: Any, b: Any, t: int) -> Any:
            row, noise = follow(G, b, self.inner.readout(t + 1))
            c = self.pace(t) * (0.5 if t >= self.late else 1.0)
            return [*([*g, 0.0] for g in G), [*(c * e for e in row), -c]], [*b, c * noise]

        def same_until(self, t: int) -> float:
            return t + 1

        @property
        def cycle(self) -> int:
            return 0

        def pace(self, t: Any) -> Any:
            return 1 / (t + 1)

    assert failed(check_optimizer(Average(SGD(0.5)))) == []
    found = check_optimizer(Average(SGD(0.5), late=8))
    assert failed(found) == ["edge"]
    assert "see that pace is that of system" in found[-1].message


def test_without_an_update_rule_the_comparison_is_skipped() -> None:
    @dataclass(frozen=True)
    class Stated(Optimizer):
        eta: float = rate()

        def system(self, h: Any, t: int) -> Any:
            return [[-self.eta * h]], [-self.eta]

        def initial(self) -> Any:
            return [1.0]

        def readout(self, t: int) -> Any:
            return [1.0]

    found = {d.check: d for d in check_optimizer(Stated())}
    assert found["sampling"].passed is None
    assert "write its method update" in found["sampling"].message
    assert found["stability"].passed is None
    assert "no single parameter lr" in found["stability"].message


RETURNS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "weights alone": (lambda state: state[0], "must return a tuple of 2, as its argument state is, got ndarray"),
    "too few": (lambda state: state[:1], "must return a tuple of 2, as its argument state is, got tuple of 1"),
    "a sum": (lambda state: (state[0].sum(), state[1]), "must return weights of the shape that they have in state"),
}


@pytest.mark.parametrize(("returns", "match"), RETURNS.values(), ids=RETURNS.keys())
def test_an_update_rule_that_returns_no_state_is_a_fault(returns: Callable[[Any], Any], match: str) -> None:
    class Slip(Ball):
        def update(self, state: Any, g: Any, t: int) -> Any:
            return returns(super().update(state, g, t))

    found = {d.check: d for d in check_optimizer(Slip(0.2, 0.9))}
    assert found["sampling"].passed is False
    assert match in found["sampling"].message
    with pytest.raises(Wrong, match=f"Slip: update.*{match}") as caught:
        Quadratic(Spectrum([1.0, 0.1])).sample(Slip(0.2, 0.9), 4, 3)
    assert caught.value.argument == "optimizer"


def test_what_is_no_optimizer_is_refused() -> None:
    with pytest.raises(Wrong, match="needs an optimizer such as"):
        check_optimizer(0.1)  # type: ignore[arg-type]


def test_what_the_users_code_raises_is_raised_as_it_is() -> None:
    def broken(G: Any, b: Any, t: int) -> Any:
        raise KeyError("theirs")

    with pytest.raises(KeyError, match="theirs"):
        check_optimizer(Ball(breaks=broken))


def test_its_own_values_are_used() -> None:
    given = Ball(0.3, 0.5)
    assert checkup.example_of(given) == given
    assert all(p.value is not free for p in parameters(checkup.example_of(fill(given, {"lr": free}))).values())
