"""Where gradient signal and gradient noise of a network sit over its curvature: Gauss quadrature by Lanczos.

With g the full gradient and g_j that of example j, C = mean (g_j - g)(g_j - g)':

    signal   f -> g' f(G) g            Lanczos from g
    noise    f -> tr f(G) C            Lanczos from n = N^-1/2 sum_j e_j (g_j - g), e_j standard normal: E n n' = C
    density  f -> tr f(G)              Lanczos from standard normal vectors

The last two are means over random probes, each kept, so that every number has an interval by resampling them:
`estimates.Measure`. Most of the scatter of the noise comes from the few largest curvatures h with vectors y. There y'Cy is
found exactly, by a forward-mode pass over the examples, and probes are left with the rest: for eigenvectors y of G,

    tr f(G) C = sum f(h) y'Cy + tr f(G) (1 - YY') C (1 - YY').
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..curvature import Curvature
from ..krylov import Krylov, Progress, lanczos
from ..network import Network
from ..transforms import pulled_back, vmap

ROOM = 2**30  # bytes that the bases of start vectors taken together may take


def noise_vectors(network: Network, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random combinations of centred per-example gradients, as rows, and the gradient; none of the former is formed."""
    theta = network.theta
    e = torch.randn(count, network.examples, generator=generator, dtype=torch.float64).to(theta.dtype)
    e = torch.cat([e, torch.ones_like(e[:1])])  # the last row gives the sum of the gradients themselves
    total, low = torch.zeros(count + 1, network.dim, dtype=theta.dtype), 0
    for batch, _ in network.batches():
        found, pull = pulled_back(lambda t, b=batch: network.losses(t, b), theta)
        high = low + len(found)
        total += vmap(pull, chunk_size=8)(e[:, low:high]).detach()
        low = high
    g = total[-1] / network.examples
    rows = total[:-1] - e[:-1].sum(1, keepdim=True) * g
    return rows / network.examples**0.5, g


def without(rows: Tensor, basis: Tensor) -> Tensor:
    """Rows less their part in the space of orthonormal vectors."""
    return rows - (rows @ basis.T) @ basis


def krylov_spaces(
    curvature: Curvature, starts: Tensor, steps: int, *, keep: bool = False, progress: Progress | None = None
) -> list[Krylov]:
    """Lanczos from every row, in groups whose bases fit in memory together; an interrupt keeps what is done."""
    if len(starts) == 0:
        return []
    size = (steps + 1) * starts.shape[1] * starts.element_size()
    group = int(max(1, min(len(starts), ROOM // size)))
    found: list[Krylov] = []
    try:
        for rows in starts.split(group):
            found += lanczos(curvature, rows, steps, keep=keep, progress=progress)
    except KeyboardInterrupt:
        if not found:
            raise
    return found
