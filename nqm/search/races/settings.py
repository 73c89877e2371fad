"""The numbers that steer races, each with what it means and, where it was measured, why it is what it is.

They were chosen on one problem: a power law of 1,000 modes with target 0.01, held against exact tuning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class RaceSettings:
    """How long races are, how many replicas they have, which settings they drop, and how they narrow down.

    The work of a race is the numbers it steps: settings x replicas x modes x steps.
    """

    # Lengths, in steps.
    max_steps: int = 2**20  # A sampled optimizer is never walked further than this.
    wide_steps: int = 2**8  # A wide race has this length; longer ones are run where they can be narrow.
    long_steps: int = 2**12  # This race decides which settings get furthest towards a target that seems out of reach.
    finalists: int = 4  # So many settings that got furthest are walked on before a target is called out of reach.
    patience: int = 2**17  # The finalists are walked at most so far, and the answer says how far.
    slowdown: int = 64  # A race may take so many times the steps of an easier goal, above the 4 of perfect scaling.
    batch_factor: float = 4.0  # Batch sizes of neighbouring goals on the ladder differ by this factor.
    budget_factor: int = 4  # Budgets of neighbouring goals on the ladder differ by this factor.
    huge_batch: float = 2.0**36  # From this batch size on the ladder goes straight to gradients without noise.

    # Replicas, and how the work is divided.
    race_samples: int = 128  # About so many samples stand for all modes of a replica in a race.
    measured_samples: int = 256  # About so many samples stand for all modes of a replica in a measurement.
    race_work: int = 2**24  # Numbers that a race steps at most, unless even the fewest replicas need more.
    race_replicas: tuple[int, int] = (4, 128)  # Fewest and most replicas of a race; settings meet the same noise.
    measured_work: int = 2**25  # Numbers that a measurement steps at most, unless even the fewest replicas need more.
    measured_replicas: tuple[int, int] = (16, 4096)  # Fewest and most replicas of a measurement.
    block_replicas: int = 8  # So many replicas of a measurement share a generator of random numbers.
    thread_numbers: int = 2**13  # An array of so many numbers keeps one thread busy.
    max_threads: int = 4  # A race is split into at most so many lanes, one thread each.
    first_seed: int = 20190704  # Seed of the races for a user's seed 0: kept so that answers stay the same.

    # Dropping settings.
    lost: float = 100.0  # A setting whose loss is above this many times the initial loss is dropped, and has diverged.
    stalled: float = 0.98  # A loss above this part of what it was at a quarter of the time has stopped falling.
    first_floor_step: int = 2**8  # Before this step no setting is said to rest at its noise floor.
    floor_growth: float = math.sqrt(2)  # Floors are looked for each time that the steps have grown by this factor.
    floor_checks: int = 5  # Five such checks span a factor of 4, so that the oldest one is at a quarter of the time.

    # Narrowing down.
    near_best: float = 2.0  # Settings below this many times the best loss are fitted by a quadratic.
    half_width: float = 3.0  # Half-width of a narrow race's box in octaves, if that is below a quarter of the range.
    max_log2_points: int = 7  # No race has more than 2^7 settings beside the best so far.
    first_box: float = 1.5  # The box around the best of an easier goal is this many times as wide.
    retry_box: float = 0.5  # The box around a winner that was only lucky has this part of the width.
    last_box: float = 0.25  # The box of the last race has this part of the width; repeated races stop there.
    shrink: float = 0.7  # Each repeated race that gains little has a box this much smaller.
    max_repeats: int = 4  # A goal has at most so many repeated races.
    caution: float = 0.95  # A race whose winner was only lucky is run again for this part of the target.
    least_gain: float = 0.01  # A race that saves less than this part of the steps gains little.
    repeat_steps: int = 2**13  # Repeated races for a goal may take about so many steps together.
    dense_steps: int = 2**10  # Races shorter than this have four times as many settings.


STANDARD = RaceSettings()
