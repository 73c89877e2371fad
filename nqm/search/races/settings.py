"""The numbers that steer races."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class RaceSettings:
    """How long races are, how many replicas they have, which settings they drop, and how they narrow down.

    The work of a race is the numbers that it steps: settings x replicas x modes x steps. Values were first chosen on a power
    law of 1,000 modes with target 0.01, compared with exact tuning. Then fields were varied by ``python -m benchmarks.settings
    races``, with a quarter of the work: six searches with SGD, heavy ball and Adam that need 11 to 70 steps, on a power law
    of 1,000 modes and a steeper one of 300. An answer is the exact number of steps of the setting that was found, or the
    measured one for Adam, and counts as worse or better from 2% on. The two answers of heavy ball on the
    steeper law, 11 and 27 steps, have sharp basins, and almost any change of a field moves one of them, by up to 70%. Fields
    without such a number are limits or seeds, and say so.
    """

    # Lengths, in steps.
    max_steps: int = 2**20
    """A sampled optimizer is never walked further than this. It is a limit on time, and decides nothing in an answer below it."""
    wide_steps: int = 2**8
    """Length of a wide race; longer races are narrow. With half as many steps one of 6 answers was 36% worse and one
    15% better, with twice as many all were the same for 1.12 times the CPU time."""
    long_steps: int = 2**12
    """Length of the race that decides which settings get furthest towards a target that seems out of reach. None of the
    questions has such a target."""
    finalists: int = 4
    """Number of settings that are walked on before a target is called out of reach. None of the questions has such a
    target."""
    patience: int = 2**17
    """The finalists are walked at most this far, and the answer says how far. It is a limit on time."""
    slowdown: int = 64
    """A race may take this many times the steps of an easier goal; perfect scaling takes 4 times. With half and twice
    as many all of 6 answers were the same."""
    batch_factor: float = 4.0
    """Batch sizes of neighbouring goals on the ladder differ by this factor. With 2 and 8 all of 6 answers were the
    same."""
    budget_factor: int = 4
    """Budgets of neighbouring goals on the ladder differ by this factor, and a race is expected to take this many
    times the steps of the easier goal. With 2 two of 6 answers were worse and one better, with 8 one was worse, by
    55% at most."""
    huge_batch: float = 2.0**36
    """From this batch size on the ladder goes straight to gradients without noise. It is a limit: noise that is divided by
    as much is not seen in a loss."""

    # Replicas, and how the work is divided.
    race_samples: int = 128
    """About this many samples stand for all modes of a replica in a race. With half as many one of 6 answers was 5%
    worse; with twice as many two were worse, by 45% at most, and one 11% better."""
    measured_samples: int = 256
    """About this many samples stand for all modes of a replica in a measurement. With half as many one of 6 answers
    was 45% worse, with twice as many all were the same."""
    race_work: int = 2**24
    """Numbers that a race steps at most, unless even the fewest replicas need more. With half as many one of 6
    answers was 36% worse and one 15% better, for 0.79 times the CPU time; with twice as many one was 11% better, for
    1.06 times."""
    race_replicas: tuple[int, int] = (4, 128)
    """Fewest and most replicas of a race; all settings meet the same noise. With half as many one of 6 answers was
    36% worse; with twice as many one was 36% worse and one 15% better."""
    measured_work: int = 2**25
    """Numbers that a measurement steps at most, unless even the fewest replicas need more. With half and twice as
    many all of 6 answers were the same, for 0.69 and 1.05 times the CPU time; half as many make standard errors 1.4
    times as large."""
    measured_replicas: tuple[int, int] = (16, 4096)
    """Fewest and most replicas of a measurement. They are limits on the standard error and on memory."""
    block_replicas: int = 8
    """This many replicas of a measurement share a generator of random numbers, so that another number is another seed.
    With 4 and 16 one of 6 answers was worse, by 45%."""
    thread_numbers: int = 2**13
    """An array of this many numbers keeps one thread busy. It decides about time alone, because all threads of a race
    meet the same noise."""
    max_threads: int = 4
    """A race is split into at most this many lanes, one thread each. It decides about time alone."""
    pass_numbers: int = 2**15
    """Settings times nodes that share one array, before replicas are counted. It decides about time and memory alone."""
    luck_replicas: int = 4
    """A race that is run again after a lucky winner has this many times the replicas. With 2 and 8 all of 6 answers were
    the same."""
    retries: int = 2
    """A race is run again at most this often after a lucky winner. With 1 and 4 all of 6 answers were the same."""
    measured_limit: int = 3
    """A measurement walks at most this many times the steps of the race. With 2 and 6 all of 6 answers were the same."""
    proof_limit: int = 2
    """A dip that begins within that limit may be confirmed up to this many times the limit. With 1 and 4 all of 6 answers
    were the same."""
    observed_part: float = 1 / 256
    """Losses are observed each time that the steps have grown by this part. With 0.00195312 and 0.0078125 all of 6
    answers were the same."""
    averaged_part: float = 1 / 32
    """Losses are averaged over this last part of the time. Without the average, heavy-ball settings that never reach
    a target seemed to reach it. With 0.0625 one of 6 answers was worse, by 24%, and one better, by 15%; with 0.015625
    all were the same."""
    sure_errors: float = 3.0
    """A difference counts from this many standard errors on. With 6 one of 6 answers was worse, by 45%; with 1.5 all
    were the same."""
    first_seed: int = 20190704
    """Seed of the races for a user's seed 0. It is a seed, and any other number would do."""

    # Dropping settings.
    lost: float = 100.0
    """A setting whose loss is above this many times the initial loss has diverged, and is dropped. With 50 and 200
    all of 6 answers were the same."""
    stalled: float = 0.98
    """A loss above this part of what it was at a quarter of the time has stopped falling. With 0.9 and 0.999 all of 6
    answers were the same."""
    first_floor_step: int = 2**8
    """Before this step no setting is said to rest at its noise floor. With 128 and 512 all of 6 answers were the same."""
    floor_growth: float = math.sqrt(2)
    """Noise floors are checked each time that the steps have grown by this factor. With 1.2 and 2 all of 6 answers were
    the same."""
    floor_checks: int = 5
    """Five such checks span a factor of 4, so that the oldest is at a quarter of the time. With 3 and 8 all of 6 answers
    were the same."""

    # Narrowing down.
    near_best: float = 2.0
    """Settings below this many times the best loss are fitted by a quadratic. With 1 one of 6 answers was worse, by
    44%; with 4 one of 6 answers was worse, by 36%, and one better, by 15%."""
    half_width: float = 3.0
    """Half-width of the box of a narrow race in octaves, if that is below ``range_part`` of the range. With 1.5 two
    of 6 answers were worse, by 36% at most; with 6 two of 6 answers were worse, by 9% at most, and one better, by
    11%."""
    range_part: float = 0.25
    """Half-width of the box of a narrow race as a part of the parameter's range, if that is smaller. With 0.125 and
    0.5 all of 6 answers were the same."""
    wide_log2: int = 4
    """A wide race for p parameters has 2^(wide_log2 + p) settings. With 3 one of 6 answers was worse, by 45%, and one
    better, by 15%; with 5 one of 6 answers was better, by 15%."""
    narrow_log2: int = 2
    """A narrow race for p parameters has 2^(narrow_log2 + p) settings beside the best so far. With 1 one of 6 answers
    was worse, by 45%, and one better, by 11%; with 3 one of 6 answers was better, by 11%."""
    dense_log2: int = 2
    """A narrow race shorter than ``dense_steps`` has 2^dense_log2 times as many settings. With 1 one of 6 answers was
    worse, by 45%, and one better, by 11%; with 3 one was better, by 11%."""
    dense_steps: int = 2**10
    """Narrow races shorter than this have more settings. With 512 and 2048 all of 6 answers were the same."""
    max_log2_points: int = 7
    """No race has more than 2^max_log2_points settings beside the best so far. With 6 and 8 all of 6 answers were the
    same."""
    first_box: float = 1.5
    """The box around the best of an easier goal is this many times as wide as usual. With 0.75 one of 6 answers was
    worse, by 18%, and one better, by 15%; with 3 one of 6 answers was better, by 11%."""
    far_box: float = 1.0
    """The box around the settings that got furthest, where all were dropped, has this many times the usual width. With 0.5
    and 2 all of 6 answers were the same."""
    retry_box: float = 0.5
    """The box around a lucky winner has this many times the usual width. With 0.25 and 1 all of 6 answers were the
    same."""
    last_box: float = 0.25
    """The box of the last race has this many times the usual width, and repeated races stop there. With 0.125 two of
    6 answers were worse, by 70% at most; with 0.5 one of 6 answers was worse, by 36%, and one better, by 11%."""
    shrink: float = 0.7
    """The box shrinks by this factor after each repeated race that gains little. With 0.85 one of 6 answers was
    worse, by 45%, and one better, by 11%; with 0.5 all were the same."""
    max_repeats: int = 4
    """A goal has at most this many repeated races. With 2 one of 6 answers was worse, by 5%; with 8 all were the
    same."""
    caution: float = 0.95
    """A race whose winner was only lucky is run again for this part of the target. With 0.9 and 1 all of 6 answers
    were the same."""
    least_gain: float = 0.01
    """A race that saves less than this part of the steps gains little. With 0.005 and 0.02 all of 6 answers were the
    same."""
    repeat_steps: int = 2**13
    """The repeated races for a goal may take about this many steps together. With 4096 and 16384 all of 6 answers
    were the same."""


STANDARD = RaceSettings()
