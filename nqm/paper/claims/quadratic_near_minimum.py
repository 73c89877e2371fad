"""Claim: near its minimum a smooth loss is a quadratic.

SGD on logistic regression is compared with the noisy quadratic model that has the same curvature and noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...engine.spectrum import Spectrum
from ...optimizers import SGD
from ...problems.quadratic import Quadratic
from ...show.chart import PALETTE, Figure, Line, Panel, chart
from ...show.numbers import percent
from ...show.tables import Table, column
from ...show.verdict import Verdict
from ...types import Array
from ..drawing import level
from .base import PAPER, Measured

STATEMENT = "Near its minimum a smooth loss is a quadratic, and SGD on it behaves as on the noisy quadratic model."
ORIGIN = PAPER
SOURCE = "on why a quadratic"
TURN = ("the start is far from the minimum", {"distances": (16.0, 8.0)})
DISTANCES = (4.0, 2.0, 1.0, 0.5, 0.25, 0.125)
TOLERANCE = 0.05


def measure(
    distances: Sequence[float] = DISTANCES, replicas: int = 400, steps: int = 40, examples: int = 200, seed: int = 0
) -> Measured:
    """Largest relative gap over a run between the mean loss of minibatch SGD on logistic regression and the model's loss.

    The batch size is 8 / distance^2, so that the noise shrinks together with the distance of the start.

    Parameters
    ----------
    distances : distances of the start from the minimum.
    replicas : number of independent runs that are averaged.
    steps : length of each run.
    examples : number of examples of the data set, with six features each.
    seed : seed of the data and of the minibatches.
    """
    rng = np.random.default_rng(seed)
    loss = Logistic.made(rng, examples)
    start = rng.standard_normal(len(loss.minimum))
    start /= np.linalg.norm(start)
    table = [
        {"distance": r, "step": int(t), "real": real, "model": model, "stderr": stderr, "gap": real / model - 1}
        for r in distances
        for t, real, model, stderr in _compare(loss, r * start, max(1, round(8 / r**2)), steps, replicas, rng)
    ]
    gaps = {r: float(np.abs(column(table, "gap", distance=r)).max()) for r in distances}
    near = min(distances)
    last, error = (
        gaps[near],
        float((column(table, "stderr", distance=near) / column(table, "model", distance=near)).max()),
    )
    told = ", ".join(f"{percent(gap)} at {r:g}" for r, gap in gaps.items())
    return Measured(
        table, last, f"largest relative gap in the loss at distance {near:g}",
        f"Largest relative gap between the mean loss of {replicas} runs of {steps} steps and the model with the Hessian and the "
        f"gradient noise of the minimum, by distance of the start: {told}. The standard error of the last is {percent(error)}.",
        TOLERANCE, "third derivatives leave a gap of first order in the distance, some percent at 1/8 for features of order 1",
        Verdict.of(last <= TOLERANCE), f"{percent(last)} at distance {near:g}",
        f"the start is far away: the gap is {percent(last)} at distance {near:g}",
    )  # fmt: skip


def draw(table: Table) -> Figure:
    distances = np.unique(column(table, "distance"))
    gap = np.array([np.abs(column(table, "gap", distance=r)).max() for r in distances])
    lines = [Line(distances, gap, "largest gap over a run", PALETTE[0], marker="o"), level(distances, TOLERANCE)]
    return chart([Panel(lines, "distance of the start from the minimum", "relative gap in the loss", "log2", "log")])


@dataclass(frozen=True)
class Logistic:
    """Mean of log(1 + exp(-y x'theta)) over a data set, with its minimum, the Hessian and the gradient noise there."""

    X: Array  # The features of each example times its label, +1 or -1.
    minimum: Array
    H: Array
    noise: Array  # The gradient of each example at the minimum.

    @classmethod
    def made(cls, rng: np.random.Generator, examples: int, dim: int = 6) -> Logistic:
        features = rng.standard_normal((examples, dim)) / np.sqrt(np.arange(1, dim + 1))
        truth = rng.standard_normal(dim)
        labels = np.where(rng.random(examples) < _sigmoid(features @ truth), 1.0, -1.0)
        X = features * labels[:, None]
        theta = np.zeros(dim)
        for _ in range(50):  # Newton's method converges to rounding in far fewer steps.
            p = _sigmoid(-(X @ theta))
            theta = theta + np.linalg.solve((X.T * (p * (1 - p))) @ X, X.T @ p)
        p = _sigmoid(-(X @ theta))
        return cls(X, theta, (X.T * (p * (1 - p))) @ X / examples, -p[:, None] * X)

    def loss(self, theta: Array) -> Array:
        """The loss minus its minimum."""
        return np.logaddexp(0.0, -(theta @ self.X.T)).mean(-1) - np.logaddexp(0.0, -(self.minimum @ self.X.T)).mean()

    def gradient(self, theta: Array, share: Array) -> Array:
        """The gradient of a minibatch in which each example has its share."""
        return -(share * _sigmoid(-(theta @ self.X.T))) @ self.X

    def model(self, offset: Array) -> Quadratic:
        """The noisy quadratic in the Hessian's eigenvectors; only the diagonal of the noise matters to the loss."""
        h, U = np.linalg.eigh(self.H)
        return Quadratic(Spectrum(h, c=((self.noise @ U) ** 2).mean(0), s=(offset @ U) ** 2))


def _compare(
    loss: Logistic, offset: Array, batch_size: int, steps: int, replicas: int, rng: np.random.Generator
) -> list[tuple[int, float, float, float]]:
    """Step, loss of logistic regression, loss of the model, and standard error, at some steps.

    The quadratic is sampled too, with the same minibatches. The mean *difference* of the two losses is added to the exact
    loss of the quadratic, because it has a far smaller error than the mean loss itself.
    """
    lr = 1 / float(np.linalg.eigvalsh(loss.H)[-1])
    N = len(loss.X)
    theta = np.tile(loss.minimum + offset, (replicas, 1))
    z = np.tile(offset, (replicas, 1))
    times = [t for t in (1, 2, 5, 10, 20, 40, 80) if t <= steps]
    exact = loss.model(offset).run(SGD(lr), batch_size, times).loss
    found = []
    for t in range(1, steps + 1):
        share = rng.multinomial(batch_size, np.full(N, 1 / N), size=replicas) / batch_size
        theta = theta - lr * loss.gradient(theta, share)
        z = z - lr * (z @ loss.H + share @ loss.noise)
        if t in times:
            apart = loss.loss(theta) - ((z @ loss.H) * z).sum(-1) / 2
            model = float(exact[times.index(t)])
            found.append((t, model + float(apart.mean()), model, float(apart.std(ddof=1) / np.sqrt(replicas))))
    return found


def _sigmoid(x: Array) -> Array:
    return 0.5 * (1 + np.tanh(x / 2))
