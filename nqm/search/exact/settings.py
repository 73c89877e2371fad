"""The numbers that steer a search for the best settings, each with what it does and, where known, why it has its value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """How hard to look for other basins, and how much to hold in memory."""

    points: int
    """Settings of a cloud for each parameter."""
    clouds: int
    """Further clouds, each shaped by the best of those before it."""
    numbers: int
    """Settings times nodes of the arrays of one pass."""


SEPARABLE = Effort(points=128, clouds=4, numbers=32768)
"""Where signal and noise separate. With 64 points and 2 clouds one in twenty tuned heavy balls was more than 0.1% above the
best known, and 20 of 230 searches on the paper's instance were at long horizons."""

COUPLED = Effort(points=48, clouds=1, numbers=8192)
"""Where they do not, as on least squares. Losses cost a hundred times as much there, their blocks of time take up memory,
and the noise of other modes blurs sharp basins."""


@dataclass(frozen=True)
class SearchSettings:
    """A search: a scan of the whole box, local searches by clouds of settings, and horizons that shrink to the answer.

    Lengths are in units of the search box (`Kind.coordinate`): a factor of 2 in a learning rate far from the edge of
    stability, or in the memory 1 / (1 - momentum). Together these settings were never more than 0.1% and one step above
    the best of a dozen kinds of search, in 230 searches on the paper's instance with batch sizes 2^2 to 2^24.
    """

    seed: int = 20190704
    """Seed of the clouds that are drawn at random, so that a search gives the same answer every time."""
    scan_points: int = 48
    """Settings of the scan for p parameters, times p^2."""
    walked_points: int = 24
    """Settings of the scan if every step has to be walked, as the steps of the optimizer all differ."""
    walked_steps: int = 2**20
    """The longest horizon of such an optimizer."""
    face_points: int = 24
    """Settings of the scan on each face of the box where a momentum, a decay or a beginning is 0 and so does nothing."""
    apart: float = 3.0
    """Least distance between the starts that are taken from a scan: a valley can have several basins along it."""
    wide: float = 2.0
    """First cloud of a local search that starts from the scan: the spacing of the scan."""
    near: float = 0.25
    """First cloud of a local search that starts from the best setting of another horizon: the shift between close ones."""
    nearer: float = 0.0625
    """First cloud of a local search that starts from the best of a larger cloud."""
    last: tuple[float, ...] = (0.06, 0.015)
    """First clouds of the last local searches, which end at a tenth of that."""
    bracketed: float = 0.3
    """Cloud at which a local search ends that only asks whether a horizon is long enough."""
    followed: float = 0.05
    """Cloud at which a local search ends that follows a basin to a shorter horizon."""
    sharp: float = 0.01
    """Cloud at which any other local search ends."""
    close: float = 1e-3
    """Relative error of loss or steps at which a horizon counts as found: a setting's own curve then leads to its horizon, up
    to errors of second order."""
    cloud: float = 1.5
    """Half-width of the widest part of a cloud that looks for other basins."""
    octaves: float = 4.0
    """Such a cloud has all widths down to 2^-octaves of the widest, along each axis by itself."""
    elite: int = 8
    """One in so many settings of a cloud shapes the next, which is twice as wide as they are."""
    starts: int = 4
    """Local searches from the best settings of such clouds."""
    jump: int = 4
    """A search goes down by one step for each so many settings of a cloud that were below the target."""
    added: tuple[int, ...] = (1, 1, 2, 4, 8, 16)
    """Steps that are added one after the other where a setting just misses the target on the full spectrum."""


SETTINGS = SearchSettings()
