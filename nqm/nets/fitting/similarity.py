"""How similar the curvature of a network is at several checkpoints of a training.

With eigenvalues a_i, b_j and unit eigenvectors u_i, v_j of two positive semi-definite matrices A and B, d their size:

    trace      tr B / tr A
    overlap    sum_ij (u_i' v_j)^2 / k over the k largest: the mean squared cosine between the two subspaces. It is 1 if they
               are the same, and k / d on average if they are independent
    alignment  tr AB / (|A| |B|) of A and B restricted to those k: the cosine between the matrices, which ignores scale
    distance   sum_i |a_i - b_i| / (tr A + tr B) over all eigenvalues in order, which ignores direction. It is 0 for equal
               spectra, and at most 1

Eigenpairs come from Lanczos, traces and spectra from random probes. Every checkpoint has the same probes, so most of their
error is common to both sides of a comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...engine.readable import Tabular
from ...optimizers.base import Written
from ...sampling.replicas import check_whole
from ...types import Array, Progress, Wrong
from ..curvature import curvature_of
from ..estimates import Estimate, Measure, bootstrap
from ..krylov import standard_normal, top_eigenpairs
from ..natural import as_trained
from ..network import Network
from ..training.loop import Batches, walk
from .probing import krylov_spaces

CHECKPOINT_SEED = 0x51  # stream of the batches between checkpoints, separate from those of other trainings


@dataclass(frozen=True, eq=False, repr=False)
class Similarity(Tabular):
    """The result of `curvature_similarity`: an entry for each checkpoint, or for each pair of checkpoints.

    ``values`` has the k largest eigenvalues of each checkpoint, and ``residuals`` their errors as shares of the largest.
    """

    steps: tuple[int | None, ...]
    loss: Array
    trace: tuple[Estimate, ...]
    values: Array
    residuals: Array
    overlap: Array
    alignment: Array
    distance: Array
    dim: int
    curvature: str

    def _brief(self) -> str:
        return f"{len(self.steps)} checkpoints, {self.values.shape[1]} largest curvatures of the {self.curvature}"

    def table(self) -> list[dict[str, object]]:
        """A row for each checkpoint after the first, compared with the one before it."""
        return [
            {
                "step": self.steps[i], "before": self.steps[i - 1], "loss": float(self.loss[i]),
                "trace": self.trace[i].value, "trace_ratio": self.trace[i].value / self.trace[i - 1].value,
                "largest": float(self.values[i, 0]), "overlap": float(self.overlap[i - 1, i]),
                "alignment": float(self.alignment[i - 1, i]), "distance": float(self.distance[i - 1, i]),
            }
            for i in range(1, len(self.steps))
        ]  # fmt: skip

    def to_dict(self) -> dict[str, object]:
        """Plain numbers."""
        names = ("loss", "values", "residuals", "overlap", "alignment", "distance")
        arrays: dict[str, object] = {name: getattr(self, name).tolist() for name in names}
        arrays |= {"trace": [t.to_dict() for t in self.trace]}
        return {"steps": list(self.steps), **arrays, "dim": self.dim, "curvature": self.curvature}


def checkpoints(
    network: Network, optimizer: Written, batch_size: int, steps: Sequence[int], *, seed: int = 0
) -> list[Network]:
    """Train the network from its checkpoint, and return it after each of these numbers of steps."""
    times = [int(t) for t in steps]
    if not times or times != sorted(set(times)) or times[0] < 0:
        raise Wrong(f"steps must be increasing whole numbers from 0 on, got {list(steps)}", argument="steps")
    batches, begun = Batches(network.examples, (CHECKPOINT_SEED, seed)), network.step or 0
    path = walk(network, as_trained(optimizer), batch_size, times, batches=batches)
    return [network.at(theta, begun + times[i]) for i, theta in path]


def curvature_similarity(
    networks: Sequence[Network], *, k: int = 10, probes: int = 8, lanczos_steps: int = 20, curvature: str | None = None,
    seed: int = 0, tol: float = 1e-3, progress: Progress | None = None,
) -> Similarity:  # fmt: skip
    """Compare the curvature of one network at two or more checkpoints.

    Parameters
    ----------
    k : number of eigenpairs whose subspaces are compared.
    probes : number of random vectors for traces and spectra; their scatter gives the intervals of the traces.
    lanczos_steps : Lanczos steps from each probe.
    curvature : "gauss_newton" (default), "hessian", "fisher" or "empirical_fisher". The bounds of `overlap` and the
        other quantities hold only for positive semi-definite matrices.
    tol : residual, as a share of the largest eigenvalue, below which the Lanczos run for the eigenpairs ends.
    progress : called with (checkpoints done, number of checkpoints).
    """
    check_networks(networks)
    found = []
    for i, network in enumerate(networks):
        found.append(portrait(network, k, probes, lanczos_steps, curvature, seed, tol))
        if progress:
            progress(i + 1, len(networks))
    return similarity(found)


def check_networks(networks: Sequence[Network]) -> None:
    """Refuse what is not one network at two or more checkpoints."""
    if len(networks) < 2:
        raise Wrong(f"networks must be two checkpoints or more, got {len(networks)}", argument="networks")
    sizes = [n.dim for n in networks]
    if len(set(sizes)) > 1:
        raise Wrong(f"networks must be one model at several checkpoints; they have {sizes} weights", "networks")


@dataclass(frozen=True, eq=False)
class Portrait:
    """The curvature of a network at one checkpoint: its k largest eigenpairs, with errors, and its spectrum from probes."""

    step: int | None
    loss: float
    values: Array
    vectors: Array
    residuals: Array
    spectrum: Measure
    curvature: str


def portrait(
    network: Network, k: int = 10, probes: int = 8, lanczos_steps: int = 20, curvature: str | None = None, seed: int = 0,
    tol: float = 1e-3,
) -> Portrait:  # fmt: skip
    """What `curvature_similarity` measures at one checkpoint, with the same arguments."""
    check_whole("k", k, 1, network.dim)
    check_whole("probes", probes, 1)
    check_whole("lanczos_steps", lanczos_steps, 1)
    dtype, device, operator = network.theta.dtype, network.theta.device, curvature_of(network, curvature)
    draws = torch.Generator().manual_seed(seed)
    z = standard_normal((probes, network.dim), draws, torch.float64, "cpu").to(dtype).to(device)
    h, u, r = top_eigenpairs(operator, network.dim, k, dtype=dtype, seed=seed, tol=tol, device=device)
    spectrum = Measure.of([found.quadrature() for found in krylov_spaces(operator, z, lanczos_steps)])
    values, residuals = _filled(h, k), _filled(r / abs(h[0]), k)
    return Portrait(
        network.step, network.full_loss(), values, u.cpu().double().numpy(), residuals, spectrum, operator.name
    )


def similarity(portraits: Sequence[Portrait]) -> Similarity:
    """Portraits of one network compared with each other."""
    k, values = len(portraits[0].values), [one.values for one in portraits]
    cosines = [[(one.vectors @ other.vectors.T) ** 2 for other in portraits] for one in portraits]
    spectra = [one.spectrum for one in portraits]
    return Similarity(
        steps=tuple(one.step for one in portraits), loss=np.array([one.loss for one in portraits]),
        trace=tuple(bootstrap(m.each(lambda h: h)) for m in spectra), values=np.array(values),
        residuals=np.array([one.residuals for one in portraits]),
        overlap=np.array([[c.sum() / k for c in row] for row in cosines]),
        alignment=np.array([
            [_alignment(a, b, cosine) for b, cosine in zip(values, row, strict=True)]
            for a, row in zip(values, cosines, strict=True)
        ]),
        distance=np.array([[spectra_distance(one, other) for other in spectra] for one in spectra]),
        dim=portraits[0].vectors.shape[1], curvature=portraits[0].curvature,
    )  # fmt: skip


def spectra_distance(one: Measure, other: Measure) -> float:
    """The area between the two counts of eigenvalues above h, divided by the sum of the traces.

    The area is the Wasserstein-1 distance of the two spectra, sum_i |a_i - b_i|.
    """
    h = np.concatenate([one.h, other.h])
    mass = np.concatenate([one.weight / one.probes, -other.weight / other.probes])
    order = np.argsort(h)
    between = np.abs(np.cumsum(mass[order]))[:-1] @ np.diff(h[order])
    return float(between / (one.integral(lambda h: h) + other.integral(lambda h: h)))


def _alignment(a: Array, b: Array, cosine: Array) -> float:
    """tr AB / (|A| |B|) from eigenvalues and squared cosines."""
    return float(a[: len(cosine)] @ cosine @ b[: cosine.shape[1]] / (np.linalg.norm(a) * np.linalg.norm(b)))


def _filled(found: Array, k: int) -> Array:
    """The k largest eigenvalues: beyond those that Lanczos finds, a matrix of lower rank has zeros."""
    return np.pad(np.asarray(found, float), (0, k - len(found)))
