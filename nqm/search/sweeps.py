"""Sweeps over batch size: tuned steps at each, critical batch size, regimes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from ..engine.readable import Tabular
from ..engine.run import Method, number, numbers
from ..engine.spectrum import Spectrum
from ..optimizers import SGD
from ..optimizers.base import Averaging, Optimizer, Written, as_optimizer, nested, parameters
from ..problems.base import (
    MAX_STEPS,
    AnyLaw,
    Problem,
    check_batch_size,
    check_steps,
    is_number,
    require_problem,
)
from ..problems.bounds import bayes_bound, conjugate_gradient_steps, knee, paper_bound
from ..sampling.bases import Rotation
from ..types import Array, Progress, Wrong
from .answer import PLAIN, Goal, Sampling, Tuned, check_goal
from .bend import LOWER, NEAR_CROSSING, NEARLY, SETTLED_EXAMPLES, ScalingCurve, enters_of
from .exact.tuning import tuner
from .races.ladder import RaceTuner

if TYPE_CHECKING:
    from ..show.chart import OnAxes

Definition = Literal["2x", "20%", "ratio", "knee"]
DEFINITIONS: dict[Definition, str] = {
    "2x": "steps are twice perfect scaling",
    "20%": "steps exceed perfect scaling by 20%",
    "ratio": "fewest examples over fewest steps, Emin / Smin",
    "knee": "closed form tr(P^-1 C) / (2 max(h / P) target)",
}
DEFAULT_DEFINITION: Definition = "2x"  # the definition of a critical batch size if none is named
EXCESS: dict[Definition, float] = {"2x": 2.0, "20%": 1.2}
MOST_ADDED = 10  # batch sizes that a sweep adds at most, to know its critical batch sizes to 1%
FURTHER_WALKS = 2.0  # where every step is computed, an added point may take this many times the steps of any given one
NO_KNEE = "there is a closed form only for SGD, alone or behind a fixed preconditioner, without momentum and averages"
DEFAULT_BATCH_SIZES = tuple(2**e for e in range(2, 21, 2))


@dataclass(frozen=True, eq=False, repr=False)
class Sweep(Tabular):
    """Tuned steps to a target over batch sizes.

    ``batch_sizes`` are those that were asked for, and every array has one number for each of them. ``added`` has the points
    that the sweep tuned besides, at batch sizes of its own, so that its critical batch sizes do not depend on those that were
    asked for. At a batch size that did not reach the target, steps and settings are NaN and ``messages`` says why. ``examples``
    are NaN if a batch size is no number of examples, as in a forecast from logs without batch sizes. Perfect scaling takes the
    fewest examples of any point, asked for or added, at every batch size. ``smallest_steps`` are the tuned steps without noise.
    ``method`` says how steps were found: "exact", by "mean field", or "sampled". ``steps_stderr`` has the standard errors of
    sampled steps, and is None otherwise.
    """

    family: Optimizer  # With the free parameters that were tuned at each batch size.
    target: float
    batch_sizes: Array
    steps: Array
    examples: Array
    optimizers: tuple[Optimizer | None, ...]
    lr: Array
    effective_lr: Array
    at_bound: tuple[tuple[str, ...], ...]
    messages: tuple[str, ...]
    smallest_steps: float
    spectrum: Spectrum | None  # None if no lower bounds on the steps are known
    steps_stderr: Array | None = None
    method: Method = "exact"
    added: tuple[Tuned[Optimizer], ...] = ()
    found_bend: ScalingCurve | None = None  # If None, as for measured points, it is that of the points.

    @cached_property
    def bend(self) -> ScalingCurve:
        """The tuned steps from which critical batch sizes are read."""
        return self.found_bend or ScalingCurve.of(
            self.batch_sizes, self.examples / self.batch_sizes, self.smallest_steps, stderr=self.steps_stderr
        )

    @property
    def label(self) -> str:
        return str(self.family)

    @property
    def power(self) -> float:
        """The power of the preconditioner, which the closed forms need."""
        return self.family.preconditioning

    def _brief(self) -> str:
        critical = self.critical_batch_size()
        bend = f", critical batch size {shown_size(critical)}" if math.isfinite(critical) else ""
        return f"{self.label} to loss {self.target:g}, {course(self.batch_sizes, self.steps)}{bend}"

    def _notes(self) -> list[str]:
        return list(dict.fromkeys(m for m, T in zip(self.messages, self.steps, strict=True) if math.isnan(T)))

    def critical_batch_size(self, definition: Definition = DEFAULT_DEFINITION) -> float:
        """Batch size beyond which returns diminish, by a stated definition (`DEFINITIONS`); NaN if there is none.

        A sweep of a known problem finds it to 1%, whatever batch sizes were asked for. `remarks` says why it is NaN, or how
        rough it is.
        """
        if definition not in DEFINITIONS:
            raise Wrong(f"definition must be one of {', '.join(DEFINITIONS)}, got {definition!r}", "definition")
        if definition == "knee":
            *wrappers, inner = nested(self.family)
            plain = (
                self.family.linear and isinstance(inner, SGD) and not any(isinstance(w, Averaging) for w in wrappers)
            )
            return knee(self.spectrum, self.target, self.power) if plain and self.spectrum is not None else math.nan
        if self.bend.level:
            return math.nan
        return self.bend.ratio if definition == "ratio" else self.bend.crossing(EXCESS[definition]).value

    def remarks(self) -> dict[Definition, str]:
        """For each definition whose critical batch size is missing or not good to 1%: why, or how rough, and what to add."""
        found: dict[Definition, str] = {}
        for definition in ("2x", "20%", "ratio"):
            if remark := self._doubt(definition):
                found[definition] = remark
        if math.isnan(self.critical_batch_size("knee")):
            found["knee"] = NO_KNEE if self.spectrum is not None else "there is no closed form for this problem"
        return found

    def _doubt(self, definition: Definition) -> str:
        """Why a critical batch size is missing, or how rough it is; empty if it is good."""
        bend, factor = self.bend, EXCESS.get(definition)
        if not np.isfinite(self.steps).any() and not self.added:
            return "no batch size reached the target"
        if np.isnan(self.examples).all():
            return "not known: the batch size of this problem is no number of examples"
        if not len(bend):
            return "not known: no finite batch size reached the target"
        if bend.level:
            first = f"from batch size {shown_size(bend.sizes[0])} on"
            return f"not known: {first}, larger batches save less than a fifth of the steps"
        # Batch sizes that somebody trains at are at least 1; others stand for the limit of small ones.
        more = bend.next_size(() if factor is None else (factor,), least=1.0)
        add = "" if more is None else f"; add {shown_size(more)}"
        if factor is None and not self.smallest_steps > 0:
            return "not known: this problem has no run without noise"
        parts, left = list[str](), bend.lower()
        if factor is not None:
            found = bend.crossing(factor)
            if math.isnan(found.value):
                below = f"steps stay below {factor:g} times perfect scaling"
                return f"not known: up to batch size {shown_size(bend.sizes[-1])} {below}{add}"
            if not found.known:
                parts.append(f"between {shown_size(found.low)} and {shown_size(found.high)}")
            elif bend.close > NEAR_CROSSING:
                parts.append(f"good to {bend.close:.0%}, because steps were sampled")
        if left > max(LOWER, SETTLED_EXAMPLES):
            parts.append(
                f"other batch sizes may need {left:.1%} fewer examples" if left < 1 else "it has one batch size"
            )
        return f"rough: {', and '.join(parts)}{add}" if parts else ""

    def regimes(self) -> dict[str, tuple[float, float]]:
        """Batch sizes of the three regimes: perfect scaling (within 20%), diminishing returns, maximal data parallelism.

        The last begins where steps come within 20% of the fewest possible. NaN where no batch size reached the target.
        """
        sizes = self.batch_sizes[np.isfinite(self.steps)]
        if not len(sizes):
            return dict.fromkeys(("perfect", "diminishing", "maximal"), (math.nan, math.nan))
        first, last = float(sizes[0]), float(sizes[-1])
        leave, arrive = self.critical_batch_size("20%"), self.bend.arrival(NEARLY).value
        leave = last if math.isnan(leave) else min(max(leave, first), last)
        arrive = last if math.isnan(arrive) else min(max(arrive, leave), last)
        return {"perfect": (first, leave), "diminishing": (leave, arrive), "maximal": (arrive, last)}

    def perfect_scaling(self) -> Array:
        """Steps at each batch size with the fewest examples of the sweep; NaN if no batch size reached the target."""
        return (self.bend.fewest if len(self.bend) else math.nan) / self.batch_sizes

    def bounds(self) -> dict[str, Any]:
        """Fewest steps by the paper's bound and the Bayes bound at each batch size, and of conjugate gradients without noise.

        They are NaN where the problem has no such bounds.
        """
        if self.spectrum is None:
            unknown = np.full(len(self.batch_sizes), math.nan)
            return {"paper": unknown, "bayes": unknown, "conjugate_gradients": math.nan}
        return {
            "paper": np.array([paper_bound(self.spectrum, self.target, B) for B in self.batch_sizes]),
            "bayes": np.array([bayes_bound(self.spectrum, self.target, B) for B in self.batch_sizes]),
            "conjugate_gradients": conjugate_gradient_steps(self.spectrum, self.target, self.power),
        }

    def table(self) -> list[dict[str, Any]]:
        """One row for each batch size, in rising order; None where there is no number, and ``added`` as in the class."""
        columns = {"batch_size": self.batch_sizes, "steps": self.steps, "steps_stderr": self.steps_stderr}
        columns |= {"examples": self.examples, "lr": self.lr, "effective_lr": self.effective_lr}
        rows = [
            {
                **{name: number(column[i]) for name, column in columns.items() if column is not None},
                **_settings(o), "optimizer": str(o) if o else None, "at_bound": " ".join(self.at_bound[i]),
                "message": self.messages[i], "added": False,
            }
            for i, o in enumerate(self.optimizers)
        ]  # fmt: skip
        return sorted(rows + [self._added_row(point) for point in self.added], key=lambda row: row["batch_size"])

    def _added_row(self, point: Tuned[Optimizer]) -> dict[str, Any]:
        known = parameters(point.optimizer) if point.steps is not None else {}
        error = {} if self.steps_stderr is None else {"steps_stderr": number(point.stderr)}
        return {
            "batch_size": point.batch_size, "steps": point.steps, **error, "examples": number(point.examples),
            "lr": number(known["lr"].value) if "lr" in known else None,
            "effective_lr": number(point.optimizer.effective_lr) if known else None,
            **_settings(point.optimizer if known else None), "optimizer": str(point.optimizer) if known else None,
            "at_bound": " ".join(point.at_bound), "message": point.message, "added": True,
        }  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "target": self.target,
            **{n: numbers(getattr(self, n)) for n in ("batch_sizes", "steps", "examples", "lr", "effective_lr")},
            "steps_stderr": None if self.steps_stderr is None else numbers(self.steps_stderr),
            "optimizers": [str(o) if o else None for o in self.optimizers],
            "at_bound": [list(names) for names in self.at_bound],
            "messages": list(self.messages),
            "smallest_steps": number(self.smallest_steps),
            "critical_batch_size": {d: number(self.critical_batch_size(d)) for d in DEFINITIONS},
            "remarks": dict(self.remarks()),
            "regimes": {name: numbers(ends) for name, ends in self.regimes().items()},
            "method": self.method,
            "added": [self._added_row(point) for point in self.added],
        }

    def plot(self, path: str | None = None, *, ax: OnAxes | None = None) -> Any:
        """Steps against batch size; a matplotlib figure, written to ``path`` if given."""
        from ..show.plots import plot_sweeps

        return plot_sweeps([self], path, ax=ax)


def _settings(optimizer: Optimizer | None) -> dict[str, Any]:
    """The settings of an optimizer as columns of a table, besides the learning rate."""
    return {n: number(p.value) for n, p in (parameters(optimizer) if optimizer else {}).items() if n != "lr"}


def shown_size(size: float) -> str:
    return f"{float(f'{size:.3g}'):,.10g}"


def course(batch_sizes: Array, steps: Array) -> str:
    """A line with the first and last steps over batch sizes; steps are NaN where the target was not reached."""
    found = steps[np.isfinite(steps)]
    ends = f"batch sizes {batch_sizes[0]:,.10g} to {batch_sizes[-1]:,.10g}"
    if not len(found):
        return f"{ends}: none reached it"
    missed = "" if len(found) == len(steps) else f", {len(steps) - len(found)} of {len(steps)} did not reach it"
    return f"{ends}: {found[0]:,.0f} -> {found[-1]:,.0f} steps{missed}"


def excess_at(batch_sizes: Array, examples: Array, factor: float) -> Array:
    """The batch size at which examples first exceed ``factor`` times their minimum, interpolated in logs; NaN if nowhere.

    Curves lie along the last axis of ``examples``, and what is not finite is omitted.

    >>> B = np.array([8.0, 16, 32])
    >>> excess_at(B, np.array([[1.0, 1, 4], [1, 2, 4]]), 2).round(1).tolist()
    [22.6, 16.0]
    """
    examples = np.asarray(examples, dtype=float)
    known = np.isfinite(examples)
    least = np.min(examples, axis=-1, initial=math.inf, where=known)
    first = np.argmin(np.where(known, examples, math.inf), axis=-1)
    found, before, place = (np.full(examples.shape[:-1], math.nan) for _ in range(3))
    with np.errstate(all="ignore"):  # What is not above the factor is computed as well, and not taken.
        for i, B in enumerate(batch_sizes):
            excess = examples[..., i] / least
            part = np.log(factor / before) / np.log(excess / before)
            above = known[..., i] & (excess > factor) & (first < i) & np.isnan(found)
            found = np.where(above, place * (B / place) ** part, found)
            before, place = (np.where(known[..., i], now, old) for now, old in ((excess, before), (B, place)))
    return found


@overload
def sweep(
    problem: Problem, optimizer: Written, batch_sizes: Sequence[float] | Array | None = None, target: float | None = None, *,
    max_steps: int = MAX_STEPS, noise: AnyLaw = "gaussian", seed: int = 0, rotation: Rotation = None,
    sampled: bool = False, most_added: int = MOST_ADDED, progress: Progress | None = None,
) -> Sweep: ...  # fmt: skip
@overload
def sweep(
    problem: Problem, optimizer: Sequence[Written], batch_sizes: Sequence[float] | Array | None = None,
    target: float | None = None, *, max_steps: int = MAX_STEPS, noise: AnyLaw = "gaussian", seed: int = 0,
    rotation: Rotation = None, sampled: bool = False, most_added: int = MOST_ADDED, progress: Progress | None = None,
) -> list[Sweep]: ...  # fmt: skip
def sweep(
    problem: Problem, optimizer: Written | Sequence[Written], batch_sizes: Sequence[float] | Array | None = None,
    target: float | None = None, *, max_steps: int = MAX_STEPS, noise: AnyLaw = "gaussian", seed: int = 0,
    rotation: Rotation = None, sampled: bool = False, most_added: int = MOST_ADDED, progress: Progress | None = None,
) -> Sweep | list[Sweep]:  # fmt: skip
    """Tune an optimizer's free parameters at each batch size, and at some more that its critical batch sizes need.

    Parameters
    ----------
    optimizer : one optimizer, whose `Sweep` is returned; or a list of optimizers, for a list of their sweeps in the same order.
    batch_sizes : powers of four from 4 to 2^20 if omitted.
    target : the loss to reach, below the initial loss of the problem.
    max_steps : the longest run that is considered, also at the batch sizes that the sweep adds.
    noise, seed, rotation, sampled : as in `tune`.
    most_added : the sweep tunes at up to this many batch sizes of its own (``Sweep.added``), until its critical batch sizes are
        good to 1%; 0 for none, and then they depend on ``batch_sizes``.

    >>> from nqm import HeavyBall, Quadratic, SGD, Spectrum
    >>> found = sweep(Quadratic(Spectrum.power_law(10_000)), [SGD(), HeavyBall()], [2**10, 2**12], target=0.01)
    >>> [[round(T, -2) for T in one.steps.tolist()] for one in found]
    [[10400.0, 7800.0], [5000.0, 1300.0]]
    >>> [round(one.critical_batch_size(), -1) for one in found]
    [1240.0, 55880.0]
    """
    if target is None:
        raise Wrong("sweep needs a target loss: sweep(problem, optimizer, batch_sizes, target)", "target")
    require_problem(problem, "sweep")
    target, sizes = check_goal(problem, target), sorted_sizes(batch_sizes)
    one = isinstance(optimizer, str) or not isinstance(optimizer, Sequence)
    given: Sequence[Written] = (
        [optimizer] if isinstance(optimizer, str) or not isinstance(optimizer, Sequence) else optimizer
    )
    optimizers = [as_optimizer(each) for each in given]
    if not optimizers:
        raise Wrong("give at least one optimizer, such as SGD()", "optimizer")
    samplings = [Sampling.of(one, noise, seed, rotation, sampled) for one in optimizers]
    every = [
        Sweeping(problem, one, sizes, target, max_steps, s, most_added)
        for one, s in zip(optimizers, samplings, strict=True)
    ]
    found = [one.whole(part_of(progress, i, len(every))) for i, one in enumerate(every)]
    return found[0] if one else found


def part_of(progress: Progress | None, i: int, parts: int) -> Progress | None:
    """The progress of part ``i`` of as many parts, of which each counts the same."""
    return None if progress is None else lambda done, total: progress(i * total + done, parts * total)


def sorted_sizes(batch_sizes: Sequence[float] | Array | None) -> Array:
    """Batch sizes in rising order and without duplicates; the default ones for None."""
    given = DEFAULT_BATCH_SIZES if batch_sizes is None else batch_sizes
    if is_number(given):
        raise Wrong(
            f"batch_sizes must be a list of batch sizes, got {given!r}; the target comes after it", "batch_sizes"
        )
    sizes = np.array(sorted({check_batch_size(B) for B in given}))
    if not len(sizes):
        raise Wrong("batch_sizes must not be empty", "batch_sizes")
    return sizes


class Sweeping:
    """A sweep that is being made: first at the batch sizes that were asked for, then at those that it adds."""

    def __init__(
        self, problem: Problem, optimizer: Optimizer, sizes: Array, target: float, max_steps: int = MAX_STEPS,
        sampling: Sampling = PLAIN, most_added: int = MOST_ADDED,
    ) -> None:  # fmt: skip
        self.problem, self.optimizer, self.sizes, self.target, self.max_steps = (
            problem,
            optimizer,
            sizes,
            target,
            max_steps,
        )
        self.most_added = check_steps(most_added, argument="most_added")
        self.solver = tuner(problem, optimizer, sampling)
        self.races = isinstance(self.solver, RaceTuner)
        self.found: list[Tuned[Optimizer]] = []
        self._enters: dict[float, float] = {}  # by batch size

    def points(self) -> Iterator[tuple[Tuned[Optimizer], int]]:
        """The points as they are found, each with the expected number of them.

        A target reached at one batch size is reached at larger ones, so each point starts from one at a smaller batch size.
        Races are shortest without noise, and begin there.
        """
        noiseless = self.races or self.problem.noiseless
        order = [math.inf, *self.sizes[::-1]] if self.races else [*self.sizes, *([math.inf] if noiseless else [])]
        most = len(order) + (self.most_added if self.problem.counts_examples else 0)
        last: Tuned[Optimizer] | None = None
        for B in order:
            last = self._tuned(B, last if last is not None and last.steps is not None else None)
            yield last, most
        for _ in range(most - len(order)):
            if (size := self._next_size()) is None:
                break
            yield self._tuned(size, self._neighbour(size)), most

    def whole(self, progress: Progress | None = None) -> Sweep:
        """The sweep, when all its points have been found."""
        if progress:
            progress(0, len(self.sizes) + 1)
        for done, (_, most) in enumerate(self.points(), 1):
            if progress and done < most:
                progress(done, most)
        if progress:
            progress(len(self.found), len(self.found))
        return self.answer()

    def answer(self) -> Sweep:
        """The sweep of the points found so far, which include all that were asked for."""
        bend = self.bend() if self.problem.counts_examples else None
        return assembled(self.problem, self.optimizer, self.target, self.sizes, self.found, bend)

    def bend(self) -> ScalingCurve:
        finite = [a for a in self.found if math.isfinite(a.batch_size)]
        teeth = self.problem.size_limits == (0.0, math.inf)
        for point in finite if teeth else ():
            if point.batch_size not in self._enters:
                self._enters[point.batch_size] = enters_of(self.solver, self.problem, point, self.target)
        sizes = np.array([point.batch_size for point in finite])
        steps, errors = (np.array([getattr(a, name) for a in finite], dtype=float) for name in ("steps", "stderr"))
        enters = np.array([self._enters[size] for size in sizes.tolist()]) if teeth else None
        fewest = fewest_steps(self.optimizer, self.found)
        return ScalingCurve.of(sizes, steps, fewest, enters, errors if self.races else None)

    def _next_size(self) -> float | None:
        longest, steps = (
            float(min(self.max_steps, self.problem.max_steps)),
            [a.steps for a in self.found if a.steps is not None],
        )
        if self.solver.walks and steps:
            longest = min(longest, FURTHER_WALKS * max(steps))
        ends = float(self.sizes[0]), float(self.sizes[-1])
        return self.bend().next_size(tuple(EXCESS.values()), longest, ends, *self.problem.size_limits)

    def _tuned(self, batch_size: float, near: Tuned[Optimizer] | None) -> Tuned[Optimizer]:
        self.found.append(self.solver.solve(Goal.of(batch_size, self.target, max_steps=self.max_steps), near))
        return self.found[-1]

    def _neighbour(self, size: float) -> Tuned[Optimizer] | None:
        """The point from which the search at an added batch size starts: the nearest larger one in a race, or else smaller one."""
        reached = [a for a in self.found if a.steps is not None]
        if self.races:
            return min((a for a in reached if a.batch_size > size), key=lambda a: a.batch_size, default=None)
        return max((a for a in reached if a.batch_size < size), key=lambda a: a.batch_size, default=None)


def fewest_steps(optimizer: Optimizer, answers: Sequence[Tuned[Optimizer]]) -> float:
    """The tuned steps without noise; NaN if they are not known."""
    limit = [a.steps for a in answers if math.isinf(a.batch_size)]
    fewest = float(limit[0]) if limit and limit[0] is not None else math.nan
    if optimizer.linear:
        return fewest
    # A search that is not exact may find fewer steps with noise than without.
    steps = np.array([math.nan if a.steps is None else a.steps for a in answers])
    return float(np.fmin.reduce(steps.astype(float), initial=fewest))


def assembled(
    problem: Problem, optimizer: Optimizer, target: float, sizes: Array, answers: Sequence[Tuned[Optimizer]],
    bend: ScalingCurve | None = None,
) -> Sweep:  # fmt: skip
    """The sweep of these answers, one for each batch size, one without noise if the problem has one, and any that were added."""
    known_sizes = {answer.batch_size: answer for answer in answers}
    found = [known_sizes[size] for size in sizes.tolist()]
    asked = {*sizes.tolist(), math.inf}
    added = sorted((a for a in answers if a.batch_size not in asked), key=lambda a: a.batch_size)
    optimizers = tuple(None if a.steps is None else a.optimizer for a in found)
    known = [{} if o is None else parameters(o) for o in optimizers]
    steps, errors = (np.array([getattr(a, name) for a in found], dtype=float) for name in ("steps", "stderr"))
    return Sweep(
        family=optimizer, target=target, batch_sizes=sizes, steps=steps,
        examples=steps * sizes if problem.counts_examples else np.full(len(sizes), math.nan),
        optimizers=optimizers, lr=np.array([float(of["lr"].value) if "lr" in of else math.nan for of in known]),
        effective_lr=np.array([math.nan if o is None else float(o.effective_lr) for o in optimizers]),
        at_bound=tuple(a.at_bound for a in found), messages=tuple(a.message for a in found),
        smallest_steps=fewest_steps(optimizer, answers), spectrum=problem.spectrum if problem.noiseless else None,
        steps_stderr=errors if found[0].method == "sampled" else None, method=found[0].method, added=tuple(added),
        found_bend=bend,
    )  # fmt: skip
