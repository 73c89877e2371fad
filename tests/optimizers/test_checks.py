"""An optimizer that contradicts itself is refused at its first use, with a sentence that says what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from catalogue import ROWS, SAMPLED

from nqm import (
    EMA,
    SGD,
    Averaging,
    Axis,
    HeavyBall,
    LeastSquares,
    Lookahead,
    Optimizer,
    Quadratic,
    Spectrum,
    Wrapper,
    Wrong,
    decay,
    free,
    optimal_schedule,
    phase_map,
    rate,
    steps_to_target,
    sweep,
    tune,
)
from nqm.optimizers import checks
from nqm.optimizers.base import fill, parameters

PROBLEM = Quadratic(Spectrum.power_law(20))


@dataclass(frozen=True)
class Plain(Optimizer):
    """Heavy ball, sound; the classes below break one statement each."""

    lr: float = rate()
    momentum: float = decay()

    def system(self, h: Any, t: int) -> Any:
        lr, momentum = self.lr, self.momentum
        return [[-lr * h, momentum], [-lr * h, momentum - 1]], [-lr, -lr]

    def initial(self) -> Any:
        return [1.0, 0.0]

    def readout(self, t: int) -> Any:
        return [1.0, 0.0]


def planted(name: str, **methods: Any) -> type[Plain]:
    """A class like `Plain` with other methods."""
    return dataclass(frozen=True)(type(name, (Plain,), {"__annotations__": {}, **methods}))


def _system(change: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, h, t: change(self, h, t, *Plain.system(self, h, t))


def _as_A(self: Any, h: Any, t: int, G: Any, b: Any) -> Any:
    return [[e + (i == j) for j, e in enumerate(row)] for i, row in enumerate(G)], b


def _branch(self: Any, h: Any, t: int, G: Any, b: Any) -> Any:
    return (G, b) if h < 0.5 else ([[-0.5 * h * self.lr, 0.0], [0.0, -1.0]], b)


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "depends on t": (
        {"system": _system(lambda s, h, t, G, b: (G, [b[0] / (t + 1), b[1]]))},
        r"system\(h, 1\) differs .* same_until\(0\) = inf",
    ),
    "depends on t late": (
        {"system": _system(lambda s, h, t, G, b: (G, [b[0] * (2 if t >= 500 else 1), b[1]]))},
        r"system\(h, 1000\) differs",
    ),
    "forgets the cycle": (
        {"system": _system(lambda s, h, t, G, b: (G, [b[0] * (1 + t % 2), b[1]])), "same_until": lambda s, t: t + 1},
        r"cycle = 1 and repeats_from = 0 say",
    ),
    "forgets same_until": (
        {"system": _system(lambda s, h, t, G, b: (G, [b[0] * (1 + t % 2), b[1]])), "cycle": property(lambda s: 2)},
        r"same_until\(0\) = inf says",
    ),
    "read-out depends on t": ({"readout": lambda s, t: [1.0, 0.5**t]}, r"readout\(1\) differs .* steady = True"),
    "too few rows": ({"system": _system(lambda s, h, t, G, b: (G[:1], b))}, r"2 slots, so .* rows of \[2\] and 2 in b"),
    "too long rows": ({"system": _system(lambda s, h, t, G, b: ([[*row, 0.0] for row in G], b))}, r"rows of \[3, 3\]"),
    "b too short": ({"system": _system(lambda s, h, t, G, b: (G, b[:1]))}, "and 1 in b"),
    "no pair": ({"system": _system(lambda s, h, t, G, b: G[0][0])}, "must return G, a list of rows, and b"),
    "entry of another shape": (
        {"system": _system(lambda s, h, t, G, b: ([[np.diag(G[0][0]), 0.0], G[1]], b))},
        r"numbers or arrays like h, of shape \(1,\), got shape \(1, 1\)",
    ),
    "entry not real": (
        {"system": _system(lambda s, h, t, G, b: ([[1j * G[0][0], 0.0], G[1]], b))},
        "must be real numbers or arrays of them, got array",
    ),
    "entry of text": ({"system": _system(lambda s, h, t, G, b: (G, ["-lr", b[1]]))}, "real numbers .* got '-lr'"),
    "entry not finite": (
        {"system": _system(lambda s, h, t, G, b: ([[G[0][0] * np.nan, 0.0], G[1]], b))},
        r"is not finite at h = 1e-16",
    ),
    "read-out too short": ({"readout": lambda s, t: [1.0]}, r"readout\(1\) must have 2 entries; it has 1"),
    "gradient point too long": (
        {"gradient_point": lambda s, t: [1.0, 0.0, 0.0]},
        r"gradient_point\(0\) must have 2 entries",
    ),
    "A instead of A - I": ({"system": _system(_as_A)}, r"grows by a factor of 2 .* G = A - I, not A"),
    "A in the row of the velocity": (
        {"system": _system(lambda s, h, t, G, b: ([G[0], [G[1][0], s.momentum]], b))},
        "not A: .* momentum - 1",
    ),
    "branches on h": ({"system": _system(_branch)}, r"fails for an array of them \(ValueError: .* no if"),
    "branches on the first mode": (
        {"system": _system(lambda s, h, t, G, b: _branch(s, h[0], t, G, b))},
        "mixes the modes of an array",
    ),
}
mistakes = pytest.mark.parametrize(("methods", "match"), MISTAKES.values(), ids=MISTAKES.keys())


@mistakes
def test_a_mistake_is_refused_with_its_name(methods: dict[str, Any], match: str) -> None:
    wrong = planted("Mistaken", **methods)
    with pytest.raises(Wrong, match=f"^Mistaken: .*{match}") as caught:
        PROBLEM.run(wrong(0.1, 0.9), 4, 10)
    assert caught.value.argument == "optimizer"
    with pytest.raises(Wrong, match=r"^Mistaken: "):  # again, and inside a wrapper, and as a family
        PROBLEM.run(EMA(wrong(0.1, 0.9), 0.9), 4, 10)
    with pytest.raises(Wrong, match=r"^Mistaken: "):
        tune(PROBLEM, wrong(), 4, 0.1)


VERBS: dict[str, Callable[[type[Plain]], object]] = {
    "run": lambda C: PROBLEM.run(C(0.1, 0.9), 4, 10),
    "losses": lambda C: PROBLEM.losses(C(0.1, 0.9), 10, 4),
    "moments": lambda C: PROBLEM.moments(C(0.1, 0.9), 10, 4),
    "floor": lambda C: PROBLEM.floor(C(0.1, 0.9), 4),
    "stability_limit": lambda C: PROBLEM.stability_limit(C(momentum=0.9)),
    "least squares": lambda C: LeastSquares(Spectrum.power_law(20)).run(C(0.1, 0.9), 4, 10),
    "steps_to_target": lambda C: steps_to_target(PROBLEM, C(0.1, 0.9), 64, 0.5),
    "tune": lambda C: tune(PROBLEM, C(momentum=0.5), 64, 0.5),
    "sweep": lambda C: sweep(PROBLEM, C(momentum=0.5), [64], target=0.5),
    "optimal_schedule": lambda C: optimal_schedule(PROBLEM, C(0.1, 0.5), 4, steps=10, pieces=2),
    "phase_map": lambda C: phase_map(PROBLEM, C(), Axis("lr", 0.1, 0.5, 2), Axis("momentum", 0.1, 0.5, 2), 64, target=0.5),
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())
def test_every_verb_with_exact_moments_refuses_it_and_takes_a_sound_one(verb: Callable[[type[Plain]], object]) -> None:
    verb(planted("Sound"))
    with pytest.raises(Wrong, match="G = A - I, not A"):
        verb(planted("Doubled", system=_system(_as_A)))


@pytest.mark.parametrize("row", [*ROWS.values(), *SAMPLED.values()], ids=[*ROWS, *SAMPLED])
def test_the_catalogue_is_sound(row: Optimizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_sound", set())
    checks.require_consistent(row)
    checks.require_consistent(fill(row, dict.fromkeys(parameters(row), free)))
    settings = {name: np.array([[p.value], [p.value]]) for name, p in parameters(row).items() if not p.kind.structural}
    checks.require_consistent(fill(row, settings))


def test_a_class_is_looked_at_once() -> None:
    calls: list[int] = []

    def system(self: Any, h: Any, t: int) -> Any:
        calls.append(t)
        return Plain.system(self, h, t)

    counted = planted("Counted", system=system)
    checks.require_consistent(counted(0.1, 0.9))
    assert len(calls) > 30
    calls.clear()
    for momentum in (0.5, 0.9):
        checks.require_consistent(counted(0.2, momentum))
    assert calls == []
    checks.require_consistent(EMA(counted(0.2, 0.5), 0.5))  # another pair of classes, of which one is known
    assert calls


def test_a_wrapper_that_hides_the_steps_of_what_it_holds_is_refused() -> None:
    @dataclass(frozen=True)
    class Hiding(Wrapper):
        def system(self, h: Any, t: int) -> Any:
            return self.inner.system(h, t)

        def initial(self) -> Any:
            return self.inner.initial()

        def readout(self, t: int) -> Any:
            return self.inner.readout(t)

        @property
        def cycle(self) -> int:
            return 1

    PROBLEM.run(Hiding(HeavyBall(0.1, 0.9)), 4, 10)
    with pytest.raises(Wrong, match=r"^Hiding: system\(h, 2\) differs from system\(h, 0\)"):
        PROBLEM.run(Hiding(Lookahead(SGD(0.1), 0.5, 3)), 4, 10)


def test_a_wrapper_whose_own_row_is_that_of_A_is_refused() -> None:
    @dataclass(frozen=True)
    class Doubling(Averaging):
        def joined(self, G: Any, b: Any, t: int) -> Any:
            return [*([*row, 0.0] for row in G), [*(0.1 for _ in b), 0.9]], [*b, 0.0]

        @property
        def cycle(self) -> int:
            return 0  # where the read-out tells, and not the eigenvalues

    with pytest.raises(Wrong, match=r"^Doubling: .* factor of 2"):
        PROBLEM.run(Doubling(SGD(0.1)), 4, 10)


def test_what_the_users_code_raises_is_raised_as_it_is() -> None:
    def system(self: Any, h: Any, t: int) -> Any:
        raise ZeroDivisionError("theirs")

    with pytest.raises(ZeroDivisionError, match="theirs"):
        PROBLEM.run(planted("Failing", system=system)(0.1, 0.9), 4, 10)


def test_an_optimizer_may_be_meant_for_small_curvatures_alone() -> None:
    def system(self: Any, h: Any, t: int) -> Any:
        return [[-self.lr * h, 0.0], [0.0, -1.0]], [-self.lr * np.sqrt(2 - h), 0.0]  # no number at h = 30

    assert PROBLEM.run(planted("Small", system=system)(0.1, 0.9), 4, 10).outcome.ok


def test_no_optimizer_inherits_from_one_that_can_be_made() -> None:
    import inspect

    from nqm.text.objects import KNOWN_OPTIMIZERS

    for made in KNOWN_OPTIMIZERS.values():
        bases = [base for base in made.__mro__[1:] if issubclass(base, Optimizer)]
        assert all(inspect.isabstract(base) for base in bases), made
        assert len([base for base in made.__bases__ if issubclass(base, Optimizer)]) == 1, made
