"""Claim: Adam's best learning rate rises with batch size and falls again. It falls only if curvature couples Adam's coordinates."""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy.special import erf

from ...optimizers import Adam
from ...show.chart import GREY, PALETTE, Figure, Line, Panel, chart
from ...show.numbers import brief, percent
from ...show.tables import Table, column, distinct
from ...show.verdict import Verdict
from ...types import Array, unknown
from ..instance import PaperStudy
from .base import Measured
from .lr_linear_then_flat import slopes

STATEMENT = (
    "Adam's best learning rate rises as the square root of the batch size, and falls again beyond a peak near the gradient "
    "noise scale."
)
ORIGIN = "Li et al. (2024)"
SOURCE = "Surge phenomenon in optimal learning rate and batch size scaling"
TURN = ("the axes of the curvature are not Adam's coordinates", {"axes": "random"})
TOLERANCE = 0.05
SLOPE_TOLERANCE = 0.05
NEAR = 10**0.5  # A peak is near the noise scale within this factor: the order of magnitude.
ONE_STEP, TUNED = "sign descent, one step", "Adam, tuned to the target"
AXES = {"coordinates": "Adam's coordinates", "random": "random"}
NOISES = ("coordinates", "curvature")
BATCH_SIZES = tuple(2.0**k for k in range(0, 21, 2))
POINTS, SEED = 256, 0  # Number of sampled weights, each with its own noise, and the seed.


def measure(
    study: PaperStudy, axes: Literal["coordinates", "random"] = "coordinates",
    noise: Literal["coordinates", "curvature"] = "coordinates", dim: int = 1000, distance: float = 1 / 64,
) -> Measured:  # fmt: skip
    """Best learning rate against batch size: of one step of sign descent, and of Adam tuned to the target.

    Sign descent is Adam with beta1 = beta2 = eps = 0. At the gradient mu with noise of covariance C / B let s = sign(mu + eps).
    A step lr s changes the loss by -lr mu's + lr^2 s'Hs / 2, so the best rate is E[mu's] / E[s'Hs]. If the axes of H are the
    coordinates, s'Hs = tr H whatever the batch size, and the best rate cannot fall. Otherwise s'Hs grows as signs of different
    coordinates become less random. Tuning needs a mean field, which Adam has only if the axes of H are its coordinates.

    Parameters
    ----------
    axes : the axes of the curvature: Adam's coordinates, or a random rotation of them.
    noise : the axes of the noise, which is independent between coordinates, or has C = H whatever the axes of the curvature.
    dim : number of modes of the one step, with h = 1/i; on a coordinate the noise has the variance of its curvature.
    distance : standard deviation of the weights at which the one step is taken; it is 1 at the start.
    """
    if axes not in AXES:
        raise unknown("axes", axes, AXES)
    if noise not in NOISES:
        raise unknown("noise", noise, NOISES)
    h = 1 / np.arange(1.0, dim + 1)
    lr, scale = one_step(h, axes, noise, distance)
    rates = {ONE_STEP: (np.array(BATCH_SIZES), lr)}
    if axes == "coordinates":
        found = study.sweep(Adam())
        rates[TUNED] = found.batch_sizes, found.lr
    table = [
        {"case": case, "batch_size": float(size), "lr": float(lr)}
        for case, (sizes, lrs) in rates.items() for size, lr in zip(sizes, lrs, strict=True)
    ]  # fmt: skip
    first = {case: float(slopes(*pair)[0]) for case, pair in rates.items()}
    falls = {case: 1 - float(lrs[-1] / lrs.max()) for case, (_, lrs) in rates.items()}
    peak = peak_of(*rates[ONE_STEP])
    rises = all(abs(slope - 0.5) <= SLOPE_TOLERANCE for slope in first.values())
    fell, near = falls[ONE_STEP] > TOLERANCE, 1 / NEAR <= peak / scale <= NEAR
    told = "; ".join(f"{case}: slope {first[case]:.3f}, fall {percent(falls[case])}" for case in rates)
    return Measured(
        table, falls[ONE_STEP], "share by which the best rate of one step falls from its peak to the largest batch size",
        f"Slope of log lr over log B at the smallest batch sizes, and fall from the largest rate to the last: {told}. The rate of "
        f"one step is largest at B = {peak:,.0f}; the noise scale tr(HC) / g'Hg is {brief(scale)}.",
        TOLERANCE, "the loss is flat around its best rate, so a smaller fall would be lost in the tuning",
        Verdict.of(rises, fell and near), _within(first, falls[ONE_STEP] if fell else None),
        "" if fell and near else f"the axes of the curvature are {AXES[axes]}: {_fall(falls[ONE_STEP], peak)}",
    )  # fmt: skip


def draw(table: Table) -> Figure:
    panels = []
    for case, color in zip(distinct(table, "case"), PALETTE, strict=False):
        sizes, rates = (column(table, c, case=case) for c in ("batch_size", "lr"))
        ends = sizes[0], sizes[0] * (rates.max() / rates[0]) ** 2
        root = Line(ends, [rates[0], rates.max()], "proportional to sqrt B", GREY, ":", 1.0)
        lines = [root, Line(sizes, rates, "best learning rate", color, marker="o")]
        panels.append(Panel(lines, "batch size", "best learning rate", "log2", "log2", case, "lower right"))
    return chart(panels)


def one_step(h: Array, axes: str, noise: str, distance: float) -> tuple[Array, float]:
    """The best learning rate of one step of sign descent at each batch size, on average over weights, and the noise scale."""
    rng, d = np.random.default_rng(SEED), len(h)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0] if axes == "random" else np.eye(d)
    own = basis**2 @ h  # the curvature of each coordinate, which is also the variance of its noise
    mu = (distance * rng.standard_normal((POINTS, d)) * h) @ basis.T
    z = rng.standard_normal((POINTS, d))
    eps = (z * np.sqrt(h)) @ basis.T if noise == "curvature" else z * np.sqrt(own)
    found = []
    for size in BATCH_SIZES:
        s = np.sign(mu + eps / np.sqrt(size))
        gain = (mu * erf(mu * np.sqrt(size / (2 * own)))).sum(-1).mean()
        found.append(gain / ((s @ basis) ** 2 @ h).mean())
    trace = float(h @ h if noise == "curvature" else own @ own)
    return np.array(found), trace / (distance**2 * float((h**3).sum()))


def peak_of(sizes: Array, rates: Array) -> float:
    """The batch size at which rates are largest, by a parabola through the logarithms of the three points around it."""
    i = int(np.argmax(rates))
    if i in (0, len(rates) - 1):
        return float(sizes[i])
    a, b, _ = np.polyfit(np.log(sizes[i - 1 : i + 2] / sizes[i]), np.log(rates[i - 1 : i + 2]), 2)
    return float(sizes[i] * np.exp(-b / (2 * a)))


def _fall(fall: float, peak: float) -> str:
    return f"the best rate falls by {percent(fall)} from B = {peak:,.0f} on" if fall else "the best rate never falls"


def _within(slope: dict[str, float], fall: float | None) -> str:
    rise = f"{max(abs(s - 0.5) for s in slope.values()):.2g} of slope 1/2 at small batch sizes"
    return rise if fall is None else f"{rise}, and a fall of {percent(fall)}"
