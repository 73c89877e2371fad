"""What the fit of a network says about a study of it: tuned steps to the study's target, by the exact engine.

SGD, heavy ball, Nesterov and averages of them are predicted as they are. Adam is predicted as heavy ball behind H^-p, with
the p that the fit measured; K-FAC and others have no power of H that a fit knows, and are not predicted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...nets.fitting.advice import quadratic_at
from ...nets.fitting.model import Fit
from ...optimizers import EMA, SGD, HeavyBall, Nesterov, Optimizer, Preconditioned
from ...search.sweeps import Sweep, sweep
from ...types import Wrong
from .curves import Curve

LINEAR: dict[str, type[Any]] = {"SGD": SGD, "HeavyBall": HeavyBall, "Nesterov": Nesterov}
Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Predicted:
    """Predicted sweeps by the name of the measured curve, and sentences on what could not be predicted or compared."""

    sweeps: Mapping[str, Sweep]
    notes: tuple[str, ...]

    def errors(self, curves: Sequence[Curve]) -> dict[str, float]:
        """Median over batch sizes of predicted over measured steps, by name."""
        found = {}
        for curve in curves:
            if curve.name in self.sweeps:
                ratio = self.sweeps[curve.name].steps / curve.steps
                if np.isfinite(ratio).any():
                    found[curve.name] = float(np.nanmedian(ratio))
        return found

    def table(self) -> list[dict[str, Any]]:
        """One row for each optimizer and batch size."""
        return [{"optimizer": name, **row} for name, found in self.sweeps.items() for row in found.table()]


def predicted(
    fit: Fit, target: float, curves: Sequence[Curve], *, metric: str = "train_loss", start: int = 0, workload: str = "",
    fixed: Mapping[str, Mapping[str, Any]] | None = None, progress: Progress | None = None,
) -> Predicted:  # fmt: skip
    """Tuned steps to the target of a study, for those of its optimizers that a fit can speak about.

    Parameters
    ----------
    workload : what the study trains; a fit of another network is refused.
    start : steps that the trainings of the study were past their first weights when they began.
    fixed : by optimizer, settings that the study did not search; they are not tuned here either.
    """
    notes = []
    network = fit.provenance.network
    if workload and network and ":" not in workload and network != workload:
        raise Wrong(f"the fit is of {network!r} and the study trains {workload!r}; fit that one")
    if metric != "train_loss":
        return Predicted({}, (f"a fit predicts the training loss, and the study measures {metric}",))
    if target >= fit.loss:
        notes.append(f"the target {target:g} is not below the loss at the fit's checkpoint, {fit.loss:.4g}")
        return Predicted({}, tuple(notes))
    found = quadratic_at(fit, target)
    if isinstance(found, str):
        return Predicted({}, (found,))
    problem, goal = found
    step = fit.provenance.step or 0
    if step != start:
        notes.append(
            f"the study's trainings begin at step {start} and the fit was made at step {step}: compare the shapes and the "
            "critical batch sizes, not the steps"
        )
    sweeps = {}
    for i, curve in enumerate(curves):
        family = family_of(curve, fit, (fixed or {}).get(curve.label, {}))
        if isinstance(family, str):
            notes.append(family)
        else:
            sweeps[curve.name] = sweep(problem, family, curve.batch_sizes.tolist(), target=goal)
        if progress:
            progress(i + 1, len(curves))
    return Predicted(sweeps, tuple(notes))


def family_of(curve: Curve, fit: Fit, fixed: Mapping[str, Any]) -> Optimizer | str:
    """The optimizer of the exact engine that stands for a measured one, or why there is none."""
    inner = _family(curve.optimizer, fit, fixed)
    if isinstance(inner, str):
        return f"{curve.name} is not predicted: {inner}"
    return EMA(inner) if curve.averaged else inner


def _family(name: str, fit: Fit, fixed: Mapping[str, Any]) -> Optimizer | str:
    if name in LINEAR:
        kept = {k: float(v) for k, v in fixed.items() if k in ("lr", "momentum")}
        return LINEAR[name](**kept)
    if name in ("Adam", "AdamW", "RMSProp"):
        power, _ = fit.adam_power
        if not 0 < power < 1:
            return f"the fit's power of H for its preconditioner is {power:.2g}"
        return Preconditioned(SGD() if name == "RMSProp" else HeavyBall(**_momentum(fixed)), round(power, 2))
    return "a fit knows no power of the curvature that stands for it"


def _momentum(fixed: Mapping[str, Any]) -> dict[str, float]:
    value = fixed.get("beta1", math.nan)
    return {"momentum": float(value)} if math.isfinite(value) else {}
