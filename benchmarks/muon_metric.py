"""How long the map of Muon could be held: ``python -m benchmarks.muon_metric [digits ...]``.

Muon steps along ``(M M')^-1/2 M``, with M the momentum of a weight matrix. A fit in a metric holds the map that is applied to the
gradient. So a network is trained by Muon, and the map of step t is applied to the momentum of step t + k: the error is the
distance from the step that Muon takes there, relative to its length. For comparison the same is done with the preconditioner of
K-FAC, between factors of 512 examples at these steps. The errors are written to docs/checks/muon.csv.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nqm.nets import Network, workload
from nqm.nets.training.kronecker_root import KroneckerRoot, factors_at
from nqm.show.tables import to_csv
from nqm.types import Array

FILE = Path(__file__).parents[1] / "docs" / "checks" / "muon.csv"
EXAMPLES = {"digits": 1797, "fashion_mlp": 2000}
LR, SIZE = 0.003, 64  # of the trainings by Muon; every singular value of a step is lr
WARM, STEPS = 60, 60  # steps before the first one that is compared, and after it
LAGS = (1, 2, 5, 10, 20, 40)
DAMPING = 0.01  # of K-FAC's factors


def polar(M: Tensor) -> tuple[Tensor, Tensor]:
    """(M M')^-1/2, and its product with M; M is turned so that it has no more rows than columns."""
    M = (M if M.shape[0] <= M.shape[1] else M.mT).double()
    U, S, V = torch.linalg.svd(M, full_matrices=False)
    return (U / S.clamp(min=1e-12 * float(S[0]))) @ U.mT, U @ V


def walk(network: Network, momentum: float, seed: int) -> tuple[list[dict[str, Tensor]], list[Tensor]]:
    """The momenta of all weight matrices, and the weights, over a training by Muon; biases take steps of SGD."""
    rng, theta = np.random.default_rng(seed), network.theta.clone()
    momenta = {name: torch.zeros(shape) for name, shape in network.shapes.items()}
    kept, weights = list[dict[str, Tensor]](), list[Tensor]()
    for _ in range(WARM + STEPS):
        g = network.gradient(theta, network.take(torch.from_numpy(rng.integers(network.examples, size=SIZE))))
        parts, changed = network.unflatten(theta), list[Tensor]()
        for name, slope in network.unflatten(g).items():
            momenta[name] = momentum * momenta[name] + slope
            M = momenta[name]
            change = polar(M)[1].to(M) if M.ndim == 2 else M
            changed.append((parts[name] - LR * (change if change.shape == M.shape else change.mT)).reshape(-1))
        theta = torch.cat(changed)
        kept.append({name: M.clone() for name, M in momenta.items() if M.ndim == 2})
        weights.append(theta)
    return kept, weights


def held_error(momenta: list[dict[str, Tensor]], lag: int) -> float:
    """The median error of a step whose map is ``lag`` steps old, over weight matrices and steps."""
    errors = list[float]()
    for t in range(WARM, WARM + STEPS - lag):
        for name, M in momenta[t].items():
            later = momenta[t + lag][name]
            later = (later if later.shape[0] <= later.shape[1] else later.mT).double()
            told, real = polar(M)[0] @ later, polar(later)[1]
            errors.append(float((told - real).norm() / real.norm()))
    return float(np.median(errors))


def kfac_error(network: Network, weights: list[Tensor], lag: int) -> float:
    """The error of a step of K-FAC whose preconditioner is ``lag`` steps old."""
    early, late = (factors_at(network, weights[t], examples=512, draws=8) for t in (WARM, WARM + lag))
    g = network.gradient(weights[WARM + lag])
    told, real = (root.apply(root.apply(g)) for root in (KroneckerRoot(network, f, DAMPING) for f in (early, late)))
    return float((told - real).norm() / real.norm())


def rows_of(name: str) -> list[dict[str, object]]:
    network, rows = workload(name).network(examples=EXAMPLES[name]), list[dict[str, object]]()
    for momentum in (0.5, 0.8, 0.95):
        momenta, weights = walk(network, momentum, 0)
        found: list[float] = [held_error(momenta, lag) for lag in LAGS]
        kfac = [kfac_error(network, weights, lag) for lag in LAGS]
        rows += [
            {"network": name, "momentum": momentum, "lag": lag, "muon": one, "kfac": other}
            for lag, one, other in zip(LAGS, found, kfac, strict=True)
        ]
        table: Array = np.array([found, kfac]).round(2)
        print(name, momentum, table.tolist(), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=list(EXAMPLES), help=f"of {', '.join(EXAMPLES)} (default: all)")
    torch.set_num_threads(1)
    rows = [row for name in parser.parse_args().workloads for row in rows_of(name)]
    FILE.write_text(to_csv(rows))


if __name__ == "__main__":
    main()
