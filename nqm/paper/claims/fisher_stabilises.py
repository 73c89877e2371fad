"""Claim: the Fisher matrix of a network stabilises during training.

By default it is measured on digits, which need no download; docs/nets.md has what was measured on ResNet8. A run tests the claim
only if it ends in the middle of a training: past the first phase, and before the network has memorised its examples. None of
these runs does, so the verdict is "not tested".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...show.chart import PALETTE, Figure, Line, Panel, chart
from ...show.numbers import percent
from ...show.tables import Table, column
from ...show.verdict import Verdict
from ...types import Wrong
from ..drawing import level
from .base import PAPER, Measured
from .nets import NETS, one_thread

STATEMENT = "The Fisher matrix stabilises after a few epochs of training."
NEEDS = NETS
ORIGIN = PAPER
SOURCE = "in an appendix, on the Fisher matrix of a ResNet during training"
TOLERANCE, STEADY = 0.95, 0.1  # The least alignment, and the largest relative change of the trace, of a stable matrix.
BEGUN, MEMORISED = 0.5, 0.1
"""Shares of the loss after the first epochs. A run that ends above the first has only begun; one that ends below the second has
memorised its examples, whose gradients then vanish."""


def measure(
    after: float = 4.0, epochs: Sequence[float] = (0, 1, 2, 4, 8, 16, 32), workload: str = "digits",
    examples: int = 1797, sample: int | None = None, k: int = 10, probes: int = 8, lanczos_steps: int = 5,
    tol: float = 1e-3, seed: int = 0,
) -> Measured:  # fmt: skip
    """Alignment of the Fisher matrix, which is the Gauss-Newton matrix, at each checkpoint with that at the one before.

    Alignment is the cosine between the two matrices, each restricted to its largest eigenvalues. It does not depend on the
    scale of the matrices; the ratio of the traces measures the scale.

    Parameters
    ----------
    after : number of epochs after which the matrix should be stable.
    epochs : epochs of the checkpoints.
    workload : a name such as "digits" (bundled), "fashion_cnn" or "cifar_resnet8".
    examples : number of training examples.
    sample : the matrices are those of this many examples, the first ones; by default of all. A product with a matrix is a
        pass over these examples, so that a small sample saves time where training needs many examples.
    k : number of eigenvalues that are kept of each matrix.
    probes, lanczos_steps : number of random vectors for the traces, which all checkpoints share, and Lanczos steps of each.
    tol : residual of an eigenpair that is small enough, as a share of the largest eigenvalue.
    seed : seed of the start, the batches and the probes.
    """
    from ...nets.fitting.similarity import checkpoints, curvature_similarity
    from ...nets.workloads import WORKLOADS
    from ...nets.workloads import workload as named

    if not any(before >= after for before in epochs[:-1]):
        raise Wrong(f"after must leave two checkpoints to compare, got {after:g} with epochs {list(epochs)}", "after")
    task = named(workload)
    with one_thread():
        start = task.network(0, seed=seed, examples=examples)
        seen = start.examples if sample is None else sample
        if not 1 <= seen <= start.examples:  # This is refused before the training.
            raise Wrong(f"sample must be from 1 to {start.examples:,}, got {seen}", argument="sample")
        times = [round(e * start.examples / task.batch_size) for e in epochs]
        trained = [
            network.first(seen) for network in checkpoints(start, task.optimizer, task.batch_size, times, seed=seed)
        ]
        found = curvature_similarity(trained, k=k, probes=probes, lanczos_steps=lanczos_steps, seed=seed, tol=tol)
    table = [
        {"epoch": epoch, "before": before, **{name: v for name, v in row.items() if name not in ("step", "before")}}
        for before, epoch, row in zip(epochs[:-1], epochs[1:], found.table(), strict=True)
    ]
    data = f"{start.examples:,} examples" + (f", the matrix of {seen:,} of them" if seen < start.examples else "")
    return judged(table, after, f"{WORKLOADS[workload]} ({data})")


def judged(table: Table, after: float, where: str) -> Measured:
    """The verdict from a table of alignments and traces; ``where`` names the network and the data."""
    late = [row for row in table if row["before"] >= after]
    least, drift = float(column(late, "alignment").min()), float(np.abs(column(late, "trace_ratio") - 1).max())
    directions, scale, why = least >= TOLERANCE, drift <= STEADY, untested(table)
    told = ", ".join(f"{row['alignment']:.2f} from {row['before']:g} to {row['epoch']:g}" for row in table)
    ratios = ", ".join(f"{row['trace_ratio']:.2f}" for row in table)
    moves = f"the trace changes by up to {percent(drift)} between checkpoints from epoch {after:g} on"
    turns = f"the alignment from epoch {after:g} on is as low as {least:.2f}"
    return Measured(
        table, least, f"least alignment of one checkpoint with the next, from epoch {after:g} on",
        f"Alignment of the Fisher matrix on {where}, by epochs: {told}. The trace changes "
        f"by factors of {ratios}.",
        TOLERANCE, f"{TOLERANCE:g} is an angle of 18 degrees between matrices; the scale may change by {percent(STEADY)}, "
        "because learning rates are seldom known better",
        Verdict.untested if why else Verdict.holds if directions and scale else Verdict.partly if directions else Verdict.fails,
        f"an alignment of {least:.2f} while the number of epochs doubles",
        why or (f"the scale counts too: {moves}" if directions else turns),
    )  # fmt: skip


def untested(table: Table) -> str:
    """Why the run of a table does not test the claim; empty if it does."""
    loss = column(table, "loss")
    left, last = float(loss[-1] / loss[0]), f"epoch {table[-1]['epoch']:g}"
    if left > BEGUN:
        return f"the run is the initial phase of a training, because at {last} {percent(left)} of the loss of the first epoch is left"
    if left < MEMORISED:
        return f"the network has memorised its examples, because at {last} {percent(left)} of the loss of the first epoch is left"
    return ""


def draw(table: Table) -> Figure:
    epoch = column(table, "epoch")
    likeness = [
        Line(epoch, column(table, "alignment"), "alignment", PALETTE[0], marker="o"),
        Line(epoch, column(table, "overlap"), "overlap of the top subspaces", PALETTE[1], marker="s"),
        level(epoch, TOLERANCE),
    ]
    scale = [
        Line(epoch, column(table, "trace_ratio"), "trace, over the one before", PALETTE[2], marker="o"),
        Line(epoch, column(table, "distance"), "distance of the spectra", PALETTE[3], marker="s"),
        level(epoch, 1.0, "unchanged"),
    ]
    name = "epoch, against the checkpoint before"
    return chart([
        Panel(likeness, name, "likeness of the Fisher matrices", "log2", y_limits=(0.0, 1.05), legend="lower right"),
        Panel(scale, name, "scale", "log2", legend="upper right"),
    ])  # fmt: skip
