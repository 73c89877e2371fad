"""The numbers that steer optimal schedules, first hits and maps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RateSettings:
    """A search for the learning rates of a schedule: first guesses, descents by L-BFGS, and horizons that shrink.

    A tolerance is the relative change of the log loss at which a descent ends. Each field was varied by ``python -m
    benchmarks.settings rates``: eight schedules for a target and two for a budget, with 3 to 10 pieces, of SGD, heavy ball
    and Nesterov, on the paper's instance, a steeper power law and 20 modes with equal noise. An answer counts as worse or
    better from 0.1% on. CPU times are known to about 15%. Most fields make no difference to these ten, which take a third of a
    second each. Searches with hardly any noise or with fifty pieces have more basins and take some seconds each; ``patience``,
    ``rough`` and the fields of moves were chosen on such ones (docs/design.md), before the moves were added the others were varied.
    """

    seed: int = 20190704
    """Seed of the first guesses that are drawn at random, so that a search gives the same answer every time. With two
    other seeds all of 10 answers were the same; in another set of 10, with three pieces of heavy ball at batch size
    2^12 on the paper's instance, one was 0.6% better with one of them."""
    first_pieces: int = 8
    """Schedules of up to this many pieces have first guesses of their own; finer ones start from coarser ones. With 4
    all of 10 answers were the same, for 0.91 times the CPU time."""
    patience: int = 3
    """First guesses are drawn until this many in a row have led to no lower loss. With 2 all of 10 answers were the
    same, for 0.92 times the CPU time, but two of seven that have sharp basins were worse, by 26% at most."""
    patience_short: int = 8
    """The same under the bound on the loss, where pieces are so short that rates beyond the edge of stability pay. With 3 one of
    three basins of 3 pieces of 6 steps was found, the worst by 11%; with 6 the best of 25 starts of another search."""
    swinging: int = 16
    """Pieces are so short if they have fewer steps than this."""
    lower: float = 1e-3
    """A loss counts as lower from this fraction on. With 0.0005 and 0.002 all of 10 answers were the same."""
    kept: int = 2
    """This many of the best schedules are followed to the next finer one. With 1 and 4 all of 10 answers were the
    same."""
    rough: float = 1e-6
    """Tolerance of the descents that choose among first guesses. It was 1e-5, with which all of 10 answers were the
    same, but descents ended early where pieces are short: of two schedules of 50 pieces for 300 steps, one was 4% worse
    and one 0.1%."""
    good: float = 1e-7
    """Tolerance of the descents that look for the horizon. With 5e-8 and 2e-7 all of 10 answers were the same."""
    sharp: float = 1e-9
    """Tolerance of the last descent for a budget of steps. With 5e-10 and 2e-9 all of 10 answers were the same."""
    slope: float = 1e-8
    """A descent also ends where no derivative of the log loss is larger than this. With 5e-9 and 2e-8 all of 10
    answers were the same."""
    first_part: float = 0.5
    """The first schedules are searched at this part of the steps of the best constant rate. With 0.25 and 1 all of 10
    answers were the same."""
    near: float = 3e-3
    """A coarse schedule has its horizon once its log loss is this little below that of the target. With 0.0015 and
    0.006 all of 10 answers were the same."""
    close: float = 1e-4
    """The finest schedule has its horizon once its log loss is this little below that of the target. With 5e-5 and
    0.0002 all of 10 answers were the same."""
    shorter: float = 0.02
    """Other basins are looked for at a horizon that is shorter by this fraction. With 0.01 and 0.04 all of 10 answers
    were the same."""
    bolder: float = 2.0
    """Where one was found, the horizon is next cut by this many times the fraction. With 1 and 4 all of 10 answers
    were the same."""
    horizons: int = 30
    """Newton's method tries at most this many horizons. With 15 and 60 all of 10 answers were the same."""
    stretch: float = 0.02
    """The slope of log loss over log steps is measured with this fraction of the steps added. With 0.01 and 0.04 all
    of 10 answers were the same."""
    flattest: float = -0.2
    """A flatter slope than this counts as this, because Newton's method would jump too far. With -0.1 and -0.4 all of
    10 answers were the same."""
    furthest: float = 1.2
    """The log of the horizon moves by at most this much at a time. With 0.6 and 2.4 all of 10 answers were the
    same."""
    bisect: int = 3
    """One in this many horizons bisects the bracket, because Newton's method may creep. With 2 and 6 all of 10
    answers were the same."""
    top: float = 0.9
    """The falling first guesses begin at this fraction of the edge of stability. With 0.45 and 1.8 all of 10 answers
    were the same."""
    bottoms: tuple[float, ...] = (1.0, 0.1)
    """The falling first guesses end at these multiples of the best constant rate. With () and (1.0,) and (1.0, 0.3,
    0.1) all of 10 answers were the same."""
    spread: float = 2.0
    """Standard deviation of the shared parameters of random first guesses, in their search coordinate. With 1 and 4
    all of 10 answers were the same."""
    tops: tuple[float, float] = (0.05, 1.0)
    """Random first guesses begin at a fraction of the edge of stability between these. With (0.025, 0.5) and (0.1,
    2.0) all of 10 answers were the same."""
    ends: tuple[float, float] = (0.01, 2.0)
    """Random first guesses end at a multiple of the best constant rate between these. With (0.005, 1.0) and (0.02,
    4.0) all of 10 answers were the same."""
    jitter: float = 0.3
    """Standard deviation of the logs of the rates of random first guesses about an even fall. With 0.15 and 0.6 all
    of 10 answers were the same."""
    growth: float = 1e8
    """A piece may pass the edge of stability as far as a mode grows by this factor in it, which matters where nothing bounds the
    loss. It was 1e6. Compared with
    that, 1e8 made one of 10 answers 1.7% better, and in another set of 10, on other spectra, batch sizes and numbers
    of pieces, two better, by 0.7% at most; none was worse. 1e4 made two and three worse, by 1.6% and 7% at most. In
    the other set 1e10 made two better by 1.3% at most, but such schedules let a weight grow ten thousand million
    times before it shrinks."""
    all_growth: float = 1e140
    """In all pieces together a mode may grow by this factor, whose square is still a number."""
    beyond: float = 64.0
    """A rate is at most this many times the edge of stability, however short its piece. With 32 and 128 all of 10
    answers were the same."""
    short: int = 8
    """Pieces of fewer steps than this may pass the edge at once, because they end before a loss overflows. With 4 and
    16 all of 10 answers were the same."""
    collapsed: float = 1e-3
    """A rate has collapsed if it is below this part of a later one."""
    charged: float = 0.1
    """A start is above the bound on the loss if that adds more than this to the log of its loss."""
    below: tuple[float, ...] = (-1.0, 0.0, 0.3, 1.0, 3.0, 10.0, 30.0)
    """Where the start of a descent is above the bound, or worse than no training, its log rates are first cut to this many n-ths
    below the edge of stability, for pieces of n steps: to whichever of these gives the least loss. Without the cut a descent sets
    such rates to 0, where they stay: four of ten schedules of SGD took more than five times as many steps."""
    far_below: tuple[float, ...] = (-0.3, -1.0, -2.0, -4.0)
    """They may also be cut to this far below the edge, because the first steps of a momentum overshoot."""
    long: int = 50
    """In pieces of at least this many steps rates beyond the edge of stability save less than 0.5%. A search for SGD then keeps
    to the edge at first, and to the bound on the loss at the end; it finds the same steps within 0.1% in half the CPU time."""
    depth: float = 60.0
    """The log of a rate lies at most this far below that of the largest rate allowed. With 30 and 120 all of 10
    answers were the same."""
    iterations: int = 300
    """L-BFGS takes at most this many iterations. With 150 and 600 all of 10 answers were the same."""
    corrections: int = 20
    """L-BFGS remembers this many of its past steps. With 10 and 40 all of 10 answers were the same."""
    added: float = 1e-5
    """Where a schedule just misses the target on all modes, this fraction of its steps is added at a time. With 5e-6
    all of 10 answers were the same."""
    tighter: float = 0.01
    """Where descents do not come to keep the bound, its log is lowered in them by at most this much at a time."""
    rounds: int = 12
    """A schedule is confirmed in at most this many rounds, each a descent and a walk over all steps; after these its rates are
    lowered until no step is above the bound."""
    slack: float = 1e-3
    """The log of the bound on the loss is lower by this in a descent than in the answer, so that a walk rarely finds a step above
    it. It costs a schedule of 3 pieces of 6 steps 0.01% of its loss."""
    stiffness: float = 10.0
    """Stiffness of the augmented Lagrangian of the bound. With 40 two of ten answers were worse, by 1%, none was better, for 1.2
    times the CPU time."""
    most_added: int = 100
    """Steps are added at most this many times. It is a limit on time where more steps do not help, and decides nothing in
    an answer that was confirmed before."""


@dataclass(frozen=True)
class HitSettings:
    """A search for a first hit, by blocks of time. The answers are exact, so these numbers decide about time alone.

    Each field was varied by ``python -m benchmarks.settings hits``: 81 first hits and last crossings of SGD, heavy ball,
    Nesterov, an EMA, Lookahead and a cosine schedule, on three spectra at three batch sizes; six of Polyak averages; and two on
    least squares. All answers were always the same.
    """

    leaf_level: int = 4
    """A block of 2^leaf_level steps or fewer is walked step by step instead of being bounded. It was 6, which took
    1.2 to 1.4 times the CPU time on two sets of questions; 2, 3 and 5 take 0.95 to 1.13 times the time of 4, and 8
    twice as much."""
    flips: float = -0.5
    """Odd and even steps are searched separately where the trace of A is below this on some mode, because such modes
    change their sign at every step. With -0.9 and -0.1 the CPU time was 0.98 and 1.06 times as long."""
    rounding: float = 1e-12
    """Relative rounding error that the lower bound of a block allows for. Without it SGD(lr=1.5) on 100 modes without
    noise reached a loss of 1e-100 683 steps late, because the difference of two equal numbers was not 0. Values from
    1e-15 to 1e-6 gave the same answers there."""
    most_walked: int = 10**6
    """At most this many steps are walked in all, because undamped swings can leave a loss undecided for ever. None of
    the 81 questions needs as many."""
    most_phases: int = 4096
    """A cycle of at most this many steps is searched phase by phase, and a longer one is walked. The questions have
    cycles of 5 steps, so that half and twice as many made no difference."""
    most_coupled: int = 10**7
    """At most this many steps are walked on a problem whose modes are coupled, which takes a minute for 10^6 steps on
    10^4 modes."""
    most_called: int = 10**6
    """A schedule that is a function of the step is evaluated at no more steps than this. It bounds time and
    memory."""
    fewer_nodes: float = 0.5
    """A coupled problem is walked on its fine nodes if they are fewer than this part of its modes. The check on the
    modes as given takes as long as a walk on them, so that walking on the modes at once took 0.81 times the CPU time
    on 2,000 modes."""
    horizon_ratio: float = 1.02
    """Horizons are tried on a grid of this ratio where each horizon is a different run. With 1.1 six answers were the
    same for 0.27 times the CPU time, with 1.002 for 6.4 times; a coarser grid is more likely to miss a short dip
    below the target."""
    longest_horizon: int = 10**5
    """Longer horizons are not tried where each horizon is a different run that is walked step by step. It bounds the
    time of a hopeless search; half and twice as many gave the same six answers."""


@dataclass(frozen=True)
class MapSettings:
    """How a map of steps to a target is computed.

    Each field was varied by ``python -m benchmarks.settings maps``: nine maps of 16 x 16 cells of heavy ball, Nesterov and SGD
    on three spectra. A cell is worse if its steps are more, because a swing through the target was missed.
    """

    pass_size: int = 16384
    """Settings times nodes times slots of one pass, whose powers stay in cache. Half and twice as many took 1.18 and
    1.16 times the CPU time."""
    bisections: int = 40
    """The edge of stability is bisected this many times, to a part in 10^12 of an axis. Half and twice as many took
    0.97 and 1.00 times the CPU time."""
    dense_steps: int = 1024
    """Up to this step observations are dense. With 512 one of 2,304 cells was 12% worse; with twice as many all were
    the same; dense observations throughout took 1.4 times the CPU time for the same cells."""
    dense_bits: int = 5
    """Up to ``dense_steps`` each doubling of time has 2^(dense_bits - 1) observations. With 4 bits 45 of 2,304 cells
    were worse, by 43% at most, for 0.85 times the CPU time; with 6 bits 58 were better, by 30% at most, for 1.49
    times."""
    sparse_bits: int = 3
    """After ``dense_steps`` each doubling of time has 2^(sparse_bits - 1) observations. With 2 and 4 bits all of
    2,304 cells were the same, for 1.00 and 1.07 times the CPU time."""


RATE_SETTINGS, HIT_SETTINGS, MAP_SETTINGS = RateSettings(), HitSettings(), MapSettings()
