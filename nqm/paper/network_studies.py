"""What studies of real networks measured: the tables in the folder ``studies``, as ``nqm lab compare --csv`` wrote them."""

from __future__ import annotations

from pathlib import Path

from ..lab.compare import Topic, read_table
from ..show.tables import Table

FOLDER = Path(__file__).parent / "studies"
TITLES = {
    "fashion_cnn": "CNN on Fashion-MNIST",
    "fashion_wide": "the same CNN, another study",
    "fashion_validation": "the same CNN, validation loss",
    "digits": "MLP on digits",
    "digits_variants": "MLP on digits, variants",
    "digits_checkpoint": "MLP on digits, from a checkpoint",
    "moby_transformer": "Transformer on Moby-Dick",
    "cifar_resnet8": "ResNet8 on CIFAR-10",
}
"""What is trained in each study, for titles of pictures and rows."""
CLAIM_OF = {
    Topic.order: "critical_batch_order",
    Topic.momentum_small: "momentum_small_batch",
    Topic.momentum_large: "momentum_large_batch",
    Topic.average: "ema_small_batch",
    Topic.rates: "lr_linear_then_flat",
    Topic.preconditioning: "preconditioning_extends_scaling",
}
"""The claim in which the noisy quadratic model answers the same question as a topic."""


def names() -> list[str]:
    """The studies that come with the package, in the order of `TITLES`."""
    return [name for name in TITLES if (FOLDER / f"{name}.csv").exists()]


def table_of(name: str) -> Table:
    """The table of one study."""
    return read_table(FOLDER / f"{name}.csv")
