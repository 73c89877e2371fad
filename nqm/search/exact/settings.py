"""The numbers that steer a search for the best settings, each with what it does and, where known, why it has its value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """How hard to look for other basins, and how much to hold in memory."""

    points: int  # Settings of a cloud for each parameter.
    clouds: int  # Further clouds, each shaped by the best of those before it.
    numbers: int  # Settings times nodes of the arrays of one pass.


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

    seed: int = 20190704  # Seed of the clouds drawn at random, so that a search gives the same answer every time.
    scan_points: int = 48  # Settings of the scan for p parameters, times p^2.
    walked_points: int = 24  # Settings of the scan if every step is walked, as the optimizer's steps all differ.
    walked_steps: int = 2**20  # The longest horizon of such an optimizer.
    face_points: int = 24  # Settings on each face of the box where a momentum, a decay or a beginning is 0.
    apart: float = 3.0  # Least distance between starts from a scan: a valley can have several basins along it.
    # First clouds of local searches:
    wide: float = 2.0  # from the scan, whose spacing it is;
    near: float = 0.25  # from the best setting of another horizon, as that shifts between close ones;
    nearer: float = 0.0625  # from the best of a larger cloud;
    last: tuple[float, ...] = (0.06, 0.015)  # of the last ones, which end at a tenth of that.
    # Clouds at which a local search ends:
    bracketed: float = 0.3  # one that only asks whether a horizon is long enough;
    followed: float = 0.05  # one that follows a basin to a shorter horizon;
    sharp: float = 0.01  # any other.
    # Relative error of loss or steps at which a horizon counts as found: a setting's own curve then leads to its horizon,
    # up to errors of second order.
    close: float = 1e-3
    cloud: float = 1.5  # Half-width of the widest part of a cloud that looks for other basins.
    octaves: float = 4.0  # Such a cloud has all widths down to 2^-octaves of the widest, along each axis by itself.
    elite: int = 8  # One in so many settings of a cloud shapes the next, which is twice as wide as they are.
    starts: int = 4  # Local searches from the best settings of such clouds.
    jump: int = 4  # A search goes down by one step for each so many settings of a cloud that were below the target.
    added: tuple[int, ...] = (1, 1, 2, 4, 8, 16)  # Steps added in turn where the full spectrum just misses.


SETTINGS = SearchSettings()
