"""What the fit of a network says about a study of it: tuned steps to the study's target, by the exact engine.

The steps are medians of first hits, looked at as often as the study looks at its own. SGD, heavy ball, Nesterov and averages
of them are predicted as they are. Adam and AdamW are predicted by a fit in their metric, which predicts nothing else; by any other
fit Adam is predicted as heavy ball with the preconditioner H^-p, with the p that the fit measured. K-FAC in a study is not predicted,
and others for which a fit knows no such p are not either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...nets.fitting.arrivals import arrivals_of, quadratic_at
from ...nets.fitting.model import Fit
from ...optimizers import EMA, SGD, Adam, AdamW, HeavyBall, Optimizer, Preconditioned, RMSProp
from ...optimizers.base import fill, parameters
from ...search.sweeps import Sweep
from ...types import Progress, Wrong
from ..space import Setting, optimizer_of
from ..study import Study
from .curves import Curve

BEHIND_POWER: dict[type[Optimizer], type[SGD | HeavyBall]] = {Adam: HeavyBall, AdamW: HeavyBall, RMSProp: SGD}
"""The optimizer that, with the preconditioner H^-p, predicts each of these."""


@dataclass(frozen=True, eq=False)
class Predicted:
    """Predicted sweeps by the name of the measured curve, and sentences on what could not be predicted or compared."""

    sweeps: Mapping[str, Sweep]
    notes: tuple[str, ...]

    def errors(self, curves: Sequence[Curve]) -> dict[str, float]:
        """Median over batch sizes of predicted over measured steps, by name."""
        ratios = {
            c.name: self.sweeps[c.name].steps / np.where(np.isfinite(c.steps), c.steps, np.nan)
            for c in curves
            if c.name in self.sweeps
        }
        return {name: float(np.nanmedian(ratio)) for name, ratio in ratios.items() if np.isfinite(ratio).any()}


def predicted(
    fits: Sequence[Fit], study: Study, curves: Sequence[Curve], progress: Progress | None = None
) -> Predicted:
    """Tuned steps to the target of a study, for those of its optimizers that one of the fits can predict.

    A fit in the metric of an optimizer goes before one without. A fit of another network is refused. Settings that the study fixes
    are not tuned here either.
    """
    told = [what_is_missing(fit, study) for fit in fits]
    usable = sorted(
        (fit for fit, missing in zip(fits, told, strict=True) if not missing), key=lambda fit: fit.metric is None
    )
    notes = [note for missing in told for note in missing]
    for fit in usable:
        step, start = fit.provenance.step or 0, int(study.options.get("start", 0))
        if step != start:
            apart = f"the study's trainings begin at step {start} and the fit was made at step {step}"
            notes.append(f"{apart}: compare the shapes and the critical batch sizes, not the steps")
    sweeps = dict[str, Sweep]()
    for i, curve in enumerate(curves):
        fixed, sizes = study.optimizers[curve.label].fixed, curve.batch_sizes.tolist()
        families = [(fit, family_of(curve, fit, fixed)) for fit in usable]
        chosen = next(((fit, family) for fit, family in families if not isinstance(family, str)), None)
        if chosen is not None:
            sweeps[curve.name] = arrivals_of(*chosen, sizes, study.target, growth=study.growth, searched=True).first
        elif families:
            notes.append(str(families[-1][1]))
        if progress:
            progress(i + 1, len(curves))
    return Predicted(sweeps, tuple(dict.fromkeys(notes)))


def what_is_missing(fit: Fit, study: Study) -> tuple[str, ...]:
    """Why a fit predicts nothing of a study: one sentence, or none if it does."""
    network, workload, target = fit.provenance.network, study.workload, study.target
    if network and ":" not in workload and network != workload:
        raise Wrong(f"the fit is of {network!r} and the study trains {workload!r}; fit that one", argument="fit")
    if study.metric != "train_loss":
        return (f"a fit predicts the training loss, and the study measures {study.metric}",)
    if target >= fit.loss:
        return (f"the target {target:g} is not below the loss at the fit's checkpoint, {fit.loss:.4g}",)
    found = quadratic_at(fit, target)
    return (found,) if isinstance(found, str) else ()


def family_of(curve: Curve, fit: Fit, fixed: Mapping[str, Setting]) -> Optimizer | str:
    """The optimizer of the exact engine that predicts a measured one, or a sentence that says why there is none."""
    known = optimizer_of(curve.optimizer)
    if curve.optimizer == "KFAC":
        return f"{curve.name} is not predicted: a study of K-FAC is not compared with a fit in its metric yet"
    if fit.metric is not None:
        if type(known) is not type(fit.metric.optimizer) or curve.averaged:
            return f"{curve.name} is not predicted: the fit is in the metric of {fit.metric.optimizer}"
        return type(fit.metric.optimizer)(**{name: float(value) for name, value in fixed.items()})
    if known is not None and known.linear:
        found = fill(known, {setting: float(fixed[setting]) for setting in parameters(known) if setting in fixed})
    elif known is None or type(known) not in BEHIND_POWER:
        return f"{curve.name} is not predicted: a fit knows no power of the curvature that stands for it"
    elif not 0 < (power := fit.adam_power[0]) < 1:
        return f"{curve.name} is not predicted: the fit's power of H for its preconditioner is {power:.2g}"
    else:
        descent, momentum = BEHIND_POWER[type(known)](), float(fixed.get("beta1", math.nan))
        if math.isfinite(momentum) and "momentum" in parameters(descent):
            descent = fill(descent, {"momentum": momentum})
        found = Preconditioned(descent, round(power, 2))
    return EMA(found) if curve.averaged else found
