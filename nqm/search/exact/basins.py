"""Basins of a horizon: local searches for the least loss after t steps, and clouds that look for deeper basins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

import numpy as np

from ...types import Array
from .family import Family, O
from .losses import Losses, log_loss
from .minimise import Basin, minimise
from .settings import SETTINGS


@dataclass(frozen=True)
class Catch:
    """What a cloud caught: a point at or below the target, if there is one, and how many there were."""

    u: Array | None
    count: int


class Basins(Generic[O]):
    """The least losses of a family's settings at one batch size, horizon by horizon."""

    def __init__(self, losses: Losses[O]) -> None:
        self.losses, self.family = losses, losses.family

    def minima(self, t: int, starts: list[Array], radius: float, sharp: float = SETTINGS.sharp) -> list[Basin]:
        """The basins that local searches from these starts end in, deepest first."""
        low, high = self.family.low, self.family.high
        return minimise(lambda U: log_loss(self.losses.at(U, t)), starts, radius, low, high, sharp)

    def sharpen(self, t: int, u: Array, radius: float) -> Array:
        """The best setting near u after t steps, by one of the last local searches."""
        return self.minima(t, [u], radius, radius / 10)[0].u

    def deepest(self, t: int, starts: list[Array]) -> Array:
        """The point of least loss after t steps: other basins are looked for until none is deeper."""
        best, rng = self.minima(t, starts, SETTINGS.wide)[0], np.random.default_rng(SETTINGS.seed)
        while len(self.family) > 1 and best.loss > 0:
            found = self.below(t, (1 - SETTINGS.close) * best.loss, self.around(best.u), rng).u
            if found is None:
                break
            best = self.minima(t, [found], SETTINGS.nearer)[0]
        u = best.u
        for radius in SETTINGS.last:
            u = self.sharpen(t, u, radius)
        return u

    def around(self, u: Array) -> Array:
        """A cloud of points about u, of all widths along each axis by itself."""
        p = len(u)
        spread = Family.spread(self.losses.effort.points * p, 2 * p)
        return u + (2 * spread[:, :p] - 1) * (SETTINGS.cloud * 2.0 ** (-SETTINGS.octaves * spread[:, p:]))

    def below(self, t: int, target: float, points: Array, rng: np.random.Generator, brief: bool = False) -> Catch:
        """A point at or below the target after t steps: in this cloud and, unless ``brief``, in clouds that are shaped by
        the best so far and twice as wide, and in local searches from the best of all.
        """
        if t < 1:
            return Catch(None, 0)
        goal, cloud = np.log(target), self.family.inside(points)
        values = log_loss(self.losses.at(cloud, t))
        for _ in range(0 if brief else self.losses.effort.clouds):
            if values.min() <= goal:
                break
            again = self.family.inside(
                self._shaped(cloud[np.argsort(values)[: len(points) // SETTINGS.elite]], rng, points)
            )
            more = log_loss(self.losses.at(again, t))
            cloud, values = np.vstack([cloud, again]), np.append(values, more)
            if more.min() > goal:
                best = list(cloud[np.argsort(values)[: SETTINGS.starts]])
                basin = self.minima(t, best, SETTINGS.nearer)[0]
                if basin.loss <= target:
                    return Catch(basin.u, 1)
        count = int(np.count_nonzero(values <= goal))
        return Catch(cloud[np.argmin(values)] if count else None, count)

    @staticmethod
    def _shaped(elite: Array, rng: np.random.Generator, like: Array) -> Array:
        """A cloud as large as ``like``, with the mean of the elite and twice its spread."""
        covariance = np.cov(elite.T) + 1e-8 * np.eye(like.shape[1])  # the elite may lie in a plane
        return elite.mean(0) + rng.normal(size=like.shape) @ (2 * np.linalg.cholesky(covariance)).T
