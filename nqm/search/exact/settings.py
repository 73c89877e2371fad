"""The numbers that steer a search for the best settings of an optimizer by exact losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Effort(NamedTuple):
    """How hard a search looks for other basins, and how much it holds in memory."""

    points: int  # A cloud has this many settings for each parameter.
    clouds: int  # This many further clouds follow, each drawn around the best settings of those before it.
    numbers: int  # The arrays of one pass hold at most this many numbers, settings times nodes.


class FitSettings(NamedTuple):
    """One round of a local search, which fits a quadratic to a cloud of points. Compiled loops take this object as it is.

    The measurements are those described at `SearchSettings`.
    """

    flat: float = 1e-3
    """A curvature below this part of the largest counts as that, so that a flat direction has a minimum. Half and
    twice as much made 2 and 1 of 57 answers better, by 0.6% at most, and none worse."""
    long: float = 12.0
    """A cloud is at most this many times as long as wide. With 6 one of 57 answers was 13% better, with 24 one was 3%
    better; none was worse."""
    wall: float = 50.0
    """A value that lies further than this above the lowest of its cloud counts as this far. With 25 and with 100 one
    of 57 answers was 0.6% better, and none worse."""
    shrink: float = 0.35
    """A cloud shrinks by this factor. With 0.175 two of 57 answers were worse, by 5% at most; with 0.7 two were
    better, by 14% at most, for 1.5 times the CPU time."""
    furthest: float = 2.0
    """The centre of a cloud moves by at most this many of its sizes in a round. With 1 two of 57 answers were better,
    by 3% at most; with 4 one was 1% worse and one 0.6% better."""
    ridge: float = 1e-9
    """This part of the weights is added to the diagonal of the normal equations, which points pressed against a bound
    would make singular. With half and twice as much no answer changed by more than 0.11%."""


@dataclass(frozen=True)
class SearchSettings:
    """A search: a scan of the whole box, local searches by clouds of settings, and horizons that shrink to the answer.

    Lengths are in units of the search box (`Kind.coordinate`): a factor of 2 in a learning rate far from the edge of
    stability, or in the memory 1 / (1 - momentum).

    Each field was varied by ``python -m benchmarks.settings search``: 57 searches with SGD, heavy ball, Nesterov and an EMA of
    heavy ball, at four batch sizes, on the paper's instance, a steeper power law and 20 modes with equal noise. An answer
    counts as worse or better from 0.1% on. Three of the 57 ask for the least loss of heavy ball after 150 steps without noise.
    Their basins are so sharp that any change may move them, and wherever the answers that changed were looked up they were
    these three. CPU times are ratios within one run on a busy machine, known to about 15%. In 230 other searches for a target
    on the paper's instance, with batch sizes 2^2 to 2^24, the steps were never more than 0.1% and one step above the best of
    a dozen kinds of search.
    """

    seed: int = 20190704
    """Seed of the clouds that are drawn at random, so that a search gives the same answer every time. With seed 1 one
    of 57 answers was 1.1% worse and two were better; with seed 2 two were better, by 3% at most."""
    scan_points: int = 48
    """The scan of p parameters has this many settings times p^2. With 24 two of 57 answers were better, by 21% at
    most; with 96 one was 0.1% better, for 1.09 times the CPU time."""
    walked_points: int = 24
    """The scan has this many settings if every step must be walked, because all steps of the optimizer differ. With
    12 and 48 two tuned Schedule-Free SGD had the same answers."""
    walked_steps: int = 2**20
    """The longest horizon of an optimizer whose steps are walked. It bounds the time of a hopeless search, and
    changed none of two answers when halved or doubled."""
    face_points: int = 24
    """Each face of the box where a momentum, a decay or the start of an average is 0 has this many settings. With 12
    all of 57 answers were the same; with 48 two were better, by 3% at most."""
    apart: float = 3.0
    """Starts from a scan have at least this distance, because a valley can have several basins along it. With 1.5 one
    of 57 answers was 24% better, with 6 two were better, by 3% at most."""
    scan_starts: int = 1
    """Local searches start from this many points of a scan, and one more for each parameter. With 2 all of 57 answers
    were the same."""
    wide: float = 2.0
    """Size of the first cloud of a local search from a scan, about the spacing of the scan. With 1 and with 4 two of
    57 answers were worse, by 10% at most, and one was 3% better."""
    near: float = 0.25
    """Size of the first cloud around the best setting of another horizon. With half and twice as much all of 57
    answers were the same."""
    nearer: float = 0.0625
    """Size of the first cloud around the best point of a larger cloud. With half as much two of 57 answers were
    better, by 0.6% at most; with twice as much all were the same."""
    last: tuple[float, ...] = (0.06, 0.015)
    """Sizes of the first clouds of the last local searches. With the first alone one of 57 answers was 0.6% worse,
    for 0.88 times the CPU time; with a third, of 0.004, all were the same."""
    last_shrink: float = 0.1
    """The last local searches end at this part of their first size. With 0.2 one of 57 answers was 0.3% worse, with
    0.05 all were the same."""
    bracketed: float = 0.3
    """Size of the cloud at which a local search ends that only asks whether a horizon is long enough. With half and
    twice as much all of 57 answers were the same."""
    followed: float = 0.05
    """Size of the cloud at which a local search ends that follows a basin to a shorter horizon. With half and twice
    as much all of 57 answers were the same, for 1.02 and 0.91 times the CPU time."""
    sharp: float = 0.01
    """Size of the cloud at which any other local search ends. With half as much one of 57 answers was 5% worse and
    one 0.6% better, with twice as much one was 0.6% better."""
    rounds: int = 24
    """A local search has at most this many rounds. With 12 and 48 all of 57 answers were the same."""
    points_per_term: int = 2
    """A cloud has this many points for each coefficient of the quadratic that is fitted to it. With 1 two of 57
    answers were worse, by 4% at most, and one 3% better, for 0.79 times the CPU time; with 4 one was 3% worse and one
    0.6% better, for 1.15 times the CPU time."""
    fit: FitSettings = FitSettings()
    close: float = 1e-3
    """Relative error of loss or steps at which a horizon counts as found. The loss curve of a setting then leads to
    its horizon, up to errors of second order. With half as much two of 57 answers were better, by 0.6% at most; with
    twice as much one was 5% worse."""
    landed: float = 1.25e-4
    """Relative error of the step at which a setting reaches the target, while horizons shrink. With half and twice as
    much all of 57 answers were the same, for 1.06 and 0.98 times the CPU time."""
    land_slope: float = 1.5
    """A setting is expected to land at a distance, in log steps, of this many times the log of its loss over the
    target. With half and twice as much all of 57 answers were the same, for 0.96 and 0.99 times the CPU time."""
    land_flat: float = 1e-6
    """Where the log of the loss changes by less than this between two trial steps, such as on a loss that has become 0 or
    lies just below the target for long, the next trial step is twice as far away."""
    land_bisect: int = 3
    """One in this many trial steps bisects the bracket, the others take false position. With 2 and 6 all of 57
    answers were the same."""
    cloud: float = 1.5
    """Half-width of the widest part of a cloud that looks for other basins. With 0.75 one of 57 answers was worse, by
    5%, and one better, by 0.6%; with 3 two of 57 answers were better, by 3% at most."""
    octaves: float = 4.0
    """Such a cloud has all widths down to 2^-octaves of the widest, along each axis independently. With 2 one of 57
    answers was better, by 0.1%; with 8 three of 57 answers were worse, by 117% at most."""
    elite: int = 8
    """One in this many settings of a cloud shapes the next cloud. With 4 one of 57 answers was better, by 3%; with 16
    two of 57 answers were better, by 3% at most."""
    elite_width: float = 2.0
    """The next cloud is this many times as wide as the settings that shape it. With 1 one of 57 answers was worse, by
    5%, and two better, by 0.6% at most; with 4 two of 57 answers were worse, by 1.1% at most, and one better, by
    0.6%."""
    elite_least: float = 1e-4
    """The next cloud has at least this width along each axis, because the settings that shape it may lie in a plane.
    With 5e-5 and 0.0002 all of 57 answers were the same."""
    starts: int = 4
    """This many local searches start from the best settings of such clouds. With 2 and 8 all of 57 answers were the
    same."""
    jump: int = 4
    """The horizon goes down by the number of settings of a cloud at the target, divided by this. With 2 one of 57
    answers was better, by 1.5%; with 8 all were the same."""
    added: tuple[int, ...] = (1, 1, 2, 4, 8, 16)
    """Steps that are added in turn where a setting just misses the target on all modes. With (1,) and (1, 2, 8) all
    of 57 answers were the same."""
    bound: float = 1e-6
    """A parameter within this part of its range from an end is reported at its bound. No answer depends on it."""
    whole_bound: float = 0.05
    """The same for a parameter that is a whole number, in units of the box, because rounding keeps it from its
    bound."""
    separable: Effort = Effort(points=128, clouds=4, numbers=32768)
    """The effort where signal and noise separate. With 64 points at long horizons, 20 of 230 searches on the paper's
    instance were more than 0.1% above the best known. Half as many points made one of 57 answers 1.0% worse and one
    0.6% better, for 0.8 times the CPU time; twice as many made two better, by 0.6% at most. With 2 clouds all were
    the same, for 0.7 times the CPU time; with 8 clouds three were better, by 3% at most, for 1.1 times. Half and
    twice as many numbers made no difference."""
    coupled: Effort = Effort(points=48, clouds=1, numbers=8192)
    """The effort where they do not separate, as on least squares. Losses cost a hundred times as much there, and the
    noise of other modes blurs sharp basins. Half and twice as many points, 2 clouds, and half and twice as many
    numbers gave the same four answers of SGD and heavy ball on 300 modes."""


SETTINGS = SearchSettings()
