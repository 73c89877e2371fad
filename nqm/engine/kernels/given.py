"""What the loop of `following` is given: named tuples of arrays, which numba compiles and which NumPy takes as they are.

This module does not import numba, so that whoever builds these tuples need not load it. Numba's cache on disk refers to the
classes by name: after a class was renamed, delete the ``.nbi`` files in ``__pycache__``.
"""

from __future__ import annotations

from typing import NamedTuple

from ...types import Array


class Stretch(NamedTuple):
    """Steps on a line: step t has ``G = G0 + pace[t] G1`` and ``b = b0 + pace[t] b1``, and noise of variance ``loud[t]``."""

    G0: Array
    G1: Array
    b0: Array
    b1: Array
    pace: Array
    loud: Array


class Modes(NamedTuple):
    """The modes of a quadratic: curvatures, and the weights with which its loss sums second moments over modes."""

    h: Array
    signal: Array
    noise: Array
    offset: float  # loss at the minimum


class State(NamedTuple):
    """The state of every mode, which a loop changes in place."""

    x: Array  # (slot, mode): path without noise
    N: Array  # (slot, slot, mode): covariance that noise has added
    extra: Array  # curvature along which noise moves, minus the curvature h


class BendPieces(NamedTuple):
    """The function phi: cubics between knots, slope 1 above the last knot, an exponential below the first; see `bent`."""

    knots: Array
    cubics: Array  # row i: coefficients of (q - knots[i])^3, ^2, ^1 and ^0
    slope: float  # slope of phi at the first knot
    least: float  # value of phi at the first knot


class ByLoss(NamedTuple):
    """A positive function of the loss, by its values at losses in rising order; logarithms are interpolated between them."""

    losses: Array
    values: Array


class CurvatureByLoss(NamedTuple):
    """How the curvature along which noise moves follows the loss, and how noise then slows the signal."""

    kappa: ByLoss  # largest curvature at a loss, over that at the checkpoint
    own: Array  # curvature of each mode at the checkpoint
    most: Array  # largest curvature that is possible at each step
    slowing: float
    least_kept: float
    pull: float  # share of the way to the curvature of the present loss that curvature goes in a step
