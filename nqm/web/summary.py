"""What a problem is made of, for people: its size, its noise, where both lie over curvature, and the fit behind it."""

from __future__ import annotations

import math

import numpy as np

from ..engine.run import number, numbers
from ..engine.spectrum import Spectrum
from ..nets.estimates import Measure
from ..nets.fitting.model import Fit
from ..optimizers import SGD
from ..problems.base import decades
from ..problems.quadratic import Quadratic
from .bodies import Given
from .limits import SERVER


def summary(given: Given) -> dict[str, object]:
    """The numbers of ``nqm spectrum --json``, noise scales at the start, nodes and bands to draw, and the fit."""
    spectrum = given.problem.spectrum
    start = Quadratic(spectrum).run(SGD(1.0), math.inf, [0])
    return {
        **spectrum.summary(),
        "noise_scale": number(start.noise_scale[0]),
        "curvature_noise_scale": number(start.curvature_noise_scale[0]),
        "nodes_shown": _nodes(spectrum),
        "bands": _bands(spectrum),
        "fit": None if given.fit is None else _fitted(given.fit),
    }


def _nodes(spectrum: Spectrum) -> dict[str, list[object]]:
    """Nodes from the largest curvature down, evenly in the log of their place where there are too many."""
    order = np.argsort(-spectrum.h, kind="stable")
    if len(order) > SERVER.nodes_shown:
        order = order[np.unique(np.rint(np.geomspace(1, len(order), SERVER.nodes_shown)).astype(int)) - 1]
    return {name: numbers(getattr(spectrum, name)[order]) for name in ("h", "c", "s", "count")}


def _bands(spectrum: Spectrum) -> dict[str, list[object]]:
    edges, which = decades(spectrum.h)
    masses = {"signal": spectrum.signal_mass, "noise": spectrum.noise_mass, "count": spectrum.count}
    return {"edges": numbers(edges), **{name: numbers(which @ mass) for name, mass in masses.items()}}


def _fitted(fit: Fit) -> dict[str, object]:
    measures = {name: getattr(fit, name) for name in ("signal", "noise", "density")}
    descent = fit.descent and {"steps": numbers(fit.descent.steps), "loss": numbers(fit.descent.loss)}
    return {
        **fit.to_dict(),
        "top": {name: numbers(values) for name, values in fit.top.items()},
        **{name: None if measure is None else _measured(measure) for name, measure in measures.items()},
        "descent": descent,
    }


def _measured(measure: Measure) -> dict[str, list[object]]:
    """Nodes with weights that sum to the mean over probes."""
    return {"h": numbers(measure.h), "weight": numbers(measure.weight / measure.probes)}
