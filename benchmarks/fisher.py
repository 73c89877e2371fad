"""Whether the Fisher matrix of ResNet8 stabilises: ``python -m benchmarks.fisher [--folder DIR]``.

ResNet8 is trained on 1,024 pictures of CIFAR-10 by SGD with batch size 32, from three seeds and with two learning rates, for 128
epochs, in which the training loss falls to almost zero. At epochs 0, 1, 2, 4, ..., 128 the Fisher matrix of the first
128 pictures is compared with that of the checkpoint before. Each row is written to ``docs/checks/fisher_trainings.csv``
(``--out``) once it is known. The weights and eigenvectors of checkpoints are kept in the folder, so that the same command continues a
run that was interrupted. A checkpoint takes about half a minute of CPU time, a training three minutes, and all six trainings about
forty minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from nqm import SGD
from nqm.nets import checkpoints, workload
from nqm.nets.estimates import Measure
from nqm.nets.fitting.similarity import Portrait, portrait, similarity
from nqm.nets.network import Network
from nqm.show.tables import Table, to_csv

RATES = (0.05, 0.1)
SEEDS = (0, 1, 2)
EPOCHS = (0, 1, 2, 4, 8, 16, 32, 64, 128)
EXAMPLES, SAMPLE = 1024, 128  # Pictures of the training, and those of them whose Fisher matrix is measured.
EIGENPAIRS, PROBES, LANCZOS_STEPS, TOLERANCE = 10, 4, 3, 0.01
"""As in the first measurement on this network, which had one seed and one learning rate: see docs/nets.md."""
OUT = Path(__file__).parents[1] / "docs" / "checks" / "fisher_trainings.csv"


def main(arguments: Sequence[str] | None = None) -> None:
    read = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    read.add_argument("--folder", type=Path, default=Path("fisher-checkpoints"), help="where checkpoints are kept")
    read.add_argument("--checkpoints", type=int, default=10**6, help="measure at most this many checkpoints, then stop")
    read.add_argument("--out", type=Path, default=OUT, help="the table to write")
    given = read.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for _ in zip(range(given.checkpoints), measured(given.folder), strict=False):
        to_csv(rows(given.folder), given.out)


def measured(folder: Path) -> Iterator[None]:
    """Measure what the folder does not have yet, one checkpoint at a time: all runs at the first seed, then at the next."""
    for seed in SEEDS:
        for lr in RATES:
            networks: list[Network] = []
            for epoch in EPOCHS:
                path = kept(folder, lr, seed, epoch)
                if not path.exists():
                    networks = networks or trained(folder, lr, seed)
                    found = portrait(
                        networks[EPOCHS.index(epoch)], EIGENPAIRS, PROBES, LANCZOS_STEPS, tol=TOLERANCE, seed=seed
                    )
                    written(asdict(found), path)
                    yield


def trained(folder: Path, lr: float, seed: int) -> list[Network]:
    """The network after each number of epochs, from the folder if it has been trained before."""
    task, path = workload("cifar_resnet8"), folder / f"lr{lr:g}-seed{seed}-weights.pt"
    start = task.network(0, seed=seed, examples=EXAMPLES)
    times = [epoch * start.examples // task.batch_size for epoch in EPOCHS]
    if not path.exists():
        found = checkpoints(start, SGD(lr), task.batch_size, times, seed=seed)
        written(torch.stack([network.theta for network in found]), path)
    return [start.at(theta, t).first(SAMPLE) for theta, t in zip(torch.load(path), times, strict=True)]


def kept(folder: Path, lr: float, seed: int, epoch: int) -> Path:
    """The file of what was measured at a checkpoint."""
    return folder / f"lr{lr:g}-seed{seed}-epoch{epoch}.pt"


def written(value: object, path: Path) -> None:
    """Write a file whole or not at all."""
    part = path.with_suffix(".part")
    torch.save(value, part)
    part.replace(path)


def read_portrait(path: Path) -> Portrait:
    """What `written` wrote of a portrait."""
    found = torch.load(path, weights_only=False)
    return Portrait(**{**found, "spectrum": Measure(**found["spectrum"])})


def rows(folder: Path) -> Table:
    """The table of all trainings so far: a row for each checkpoint that is known together with the one before it."""
    table: Table = []
    for seed in SEEDS:
        for lr in RATES:
            known = [epoch for epoch in EPOCHS if kept(folder, lr, seed, epoch).exists()]
            if len(known) < 2:
                continue
            found = similarity([read_portrait(kept(folder, lr, seed, epoch)) for epoch in known])
            for before, epoch, row in zip(known[:-1], known[1:], found.table(), strict=True):
                likeness = {name: value for name, value in row.items() if name not in ("step", "before")}
                table.append({"lr": lr, "seed": seed, "epoch": epoch, "before": before, **likeness})
    return table


if __name__ == "__main__":
    main()
