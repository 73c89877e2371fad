"""A log that holds only the end of a training, such as its cooldown, and the log of the run from which it branches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..types import Array, Wrong
from .log import WARM_UP, Log, for_every_step
from .sheets import counted

LATE_SHARE = 0.2  # A log that begins after this share of its steps lacks its beginning: no warm-up lasts so long.
LEAST_RATE = 0.75  # The first rate of a branch is at least this share of the trunk's: some cooldowns begin steeply.
SAME_RATE = 1e-3  # Rates of trunk and branch that differ by this share or less are the same, but for their digits.
SAME_LOSS = 0.1  # Losses of trunk and branch where they meet differ by this share at most: single batches are noisy.
MEETING_POINTS = 9  # Points of either log over which their losses are compared.


def join(log: Log, trunk: Log) -> Log:
    """The log of the whole training: the trunk up to the step at which ``log`` begins, and ``log`` from there on.

    The result has a learning rate for every step. Its name and its settings are those of ``log``.

    >>> trunk = Log([0, 2, 4, 6], [4.0, 3.0, 2.5, 2.3], 0.5, name="constant")
    >>> whole = join(Log([4, 6, 8], [2.5, 2.2, 2.0], [0.5, 0.25, 0.0], name="cooldown"), trunk)
    >>> whole.step.tolist(), whole.rates.tolist()
    ([0, 2, 4, 6, 8], [0.5, 0.5, 0.5, 0.5, 0.375, 0.25, 0.125, 0.0])
    """
    for argument, given in (("log", log), ("trunk", trunk)):
        if not isinstance(given, Log):
            raise Wrong(f"{argument} must be a Log, got {given!r:.60}", argument=argument)
    first = int(log.step[0])
    if trunk.step[0] >= first:
        raise Wrong(f"the trunk must begin before step {first:,}, where the log begins", argument="trunk")
    if not _reaches(trunk, first):
        sentence = f"the trunk ends at step {trunk.step[-1]:,}, before the log begins at step {first:,}"
        raise Wrong(sentence, argument="trunk")
    before = trunk.step < first
    own = log.rates[max(first, 1) - 1 :]
    known = trunk.rates[: first - 1]
    between = np.linspace(known[-1] if known.size else own[0], own[0], first - known.size + 1)[1:-1]
    source = f" of {trunk.name!r}" if trunk.name else ""
    count = counted(int(before.sum()), "point")
    begun = f"Before step {first:,} the log has {count}{source}, from which it branches."
    remarks = [remark for remark in log.remarks if not remark.startswith(WARM_UP)]
    remarks += [remark for remark in trunk.remarks if remark.startswith(WARM_UP)]
    sizes, unknown_sizes = _batch_sizes(log, trunk, before)
    return replace(
        log,
        step=np.append(trunk.step[before], log.step),
        loss=np.append(trunk.loss[before], log.loss),
        lr=for_every_step(np.concatenate([known, between, own]), int(before.sum()) + log.step.size),
        batch_size=sizes,
        optimizer=log.optimizer if log.optimizer is not None else trunk.optimizer,
        weight_decay=log.weight_decay if log.weight_decay is not None else trunk.weight_decay,
        remarks=(*remarks, begun, *unknown_sizes),
    )


def joined(logs: Sequence[Log]) -> list[Log]:
    """The logs, each that lacks its beginning joined to the log from which it branches, if that is among them."""
    return [_whole(log, [other for other in logs if other is not log]) if lacks_beginning(log) else log for log in logs]


def lacks_beginning(log: Log) -> bool:
    """Whether a warm-up is assumed that no training has: a long one, and not just up to the first of even steps."""
    assumed = any(remark.startswith(WARM_UP) for remark in log.remarks)
    return assumed and bool(log.step[0] > max(LATE_SHARE * log.step[-1], 3 * _spacing(log)))


def find_trunk(log: Log, others: Sequence[Log]) -> Log | None:
    """The log from which another one branches: its constant rate is the rate at which the other begins, its loss too."""
    first = int(log.step[0])
    rate = float(log.logged_rates[0])
    best: tuple[float, Log] | None = None
    for trunk in others:
        if lacks_beginning(trunk) or trunk.step[0] >= first or not _reaches(trunk, first):
            continue
        rates = trunk.logged_rates[(trunk.step >= first / 2) & (trunk.step <= first)]
        if not rates.size:
            continue
        constant = float(rates[-1])
        if np.ptp(rates) > SAME_RATE * constant or not LEAST_RATE * constant <= rate <= (1 + SAME_RATE) * constant:
            continue
        apart = _apart(log, trunk, first)
        if apart <= SAME_LOSS and (best is None or apart < best[0]):
            best = apart, trunk
    return best and best[1]


def _whole(log: Log, others: Sequence[Log]) -> Log:
    trunk = find_trunk(log, others)
    if trunk is not None:
        return join(log, trunk)
    begins = f"It holds the end of a training alone, from step {log.step[0]:,} of {log.step[-1]:,}"
    remedy = "read the run from which it branches with it, or join the two with nqm.logs.join(log, trunk)"
    return replace(log, remarks=(*log.remarks, f"{begins}, and its beginning was not found: {remedy}."))


def _reaches(trunk: Log, first: int) -> bool:
    """Whether a log goes up to a step, or ends before it by no more than twice the usual distance of its points."""
    return bool(trunk.step[-1] + 2 * _spacing(trunk) >= first)


def _spacing(log: Log) -> float:
    """The usual distance between logged steps."""
    return float(np.median(np.diff(log.step))) if log.step.size > 1 else float(log.step[0])


def _apart(log: Log, trunk: Log, first: int) -> float:
    """The relative difference of the losses where two logs meet: at the same step, or over a few points."""
    same = np.flatnonzero(trunk.step == first)
    near = trunk.loss[np.argsort(np.abs(trunk.step - first))[:MEETING_POINTS]]
    pair = (trunk.loss[same[0]], log.loss[0]) if same.size else (np.median(near), np.median(log.loss[:MEETING_POINTS]))
    return float(abs(pair[0] - pair[1]) / max(abs(pair[0]), 1e-300))


def _batch_sizes(log: Log, trunk: Log, before: Array) -> tuple[Array | float | None, list[str]]:
    if log.batch_size is None or trunk.batch_size is None:
        said = ["The batch size is known of one of the two runs alone, and is not used."]
        return None, said if log.batch_size is not trunk.batch_size else []
    early = np.broadcast_to(trunk.batch_size, trunk.step.shape)[before]
    sizes = np.append(early, np.broadcast_to(log.batch_size, log.step.shape))
    return (float(sizes[0]) if np.all(sizes == sizes[0]) else sizes), []
