"""Lanczos with full reorthogonalisation, from several start vectors at once.

From a start vector v, k products with a symmetric matrix G give an orthonormal basis Q of the Krylov space and the
tridiagonal matrix ``T = Q' G Q``. The eigenvalues of T, called Ritz values, are the nodes of the Gauss quadrature of
``f -> v' f(G) v``; the squared first entries of its eigenvectors, times |v|^2, are the weights. It is exact for polynomials
up to degree 2k - 1, and so for the powers of G that make up the first steps of an optimizer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..types import Array, Progress, Wrong

SPENT = {torch.float64: 1e-11, torch.float32: 1e-5}
"""A residual below this share of |T| is rounding: the Krylov space is complete. By precision; 1e-3 for any other."""

TURNED_TOGETHER = (
    2**16
)  # entries of the basis that are turned into Ritz vectors, or brought into working precision, at a time
Store = Literal["working", "host", "bf16", "host-bf16"]
"""Where a Lanczos basis is kept: in working precision beside the network, in host memory, in bfloat16, or both."""
STORES: tuple[Store, ...] = ("working", "host", "bf16", "host-bf16")


@dataclass(frozen=True, eq=False)
class Krylov:
    """What Lanczos found from one start vector: the diagonal alpha and off-diagonal beta of T, and |v|.

    ``basis`` is Q', (steps, parameters), if it was kept. ``last`` is the next off-diagonal entry of T. ``error`` is the largest
    entry of |Q'Q - 1|, which is measured if the basis was kept elsewhere or in less than working precision.
    """

    alpha: Array
    beta: Array
    norm: float
    basis: Tensor | None = None
    last: float = 0.0
    error: float = 0.0

    def __len__(self) -> int:
        return len(self.alpha)

    def _eigen(self) -> tuple[Array, Array]:
        return np.linalg.eigh(np.diag(self.alpha) + np.diag(self.beta, 1) + np.diag(self.beta, -1))

    def quadrature(self) -> tuple[Array, Array]:
        """Nodes and weights of ``f -> v' f(G) v``; the weights sum to |v|^2."""
        values, vectors = self._eigen()
        return values, self.norm**2 * vectors[0] ** 2

    def ritz(self, k: int | None = None) -> tuple[Array, Tensor]:
        """All Ritz values, largest first, and the k first Ritz vectors as rows."""
        values, basis, turn = self._turn(k)
        return values, turn @ basis.to(turn.dtype)

    def into_ritz(self, k: int) -> tuple[Array, Tensor]:
        """All Ritz values, largest first, and the k first Ritz vectors, which take the place of the basis in memory."""
        values, basis, turn = self._turn(k)
        for piece in basis.split(TURNED_TOGETHER, dim=1):
            piece[: len(turn)] = turn @ piece.to(turn.dtype)
        return values, basis[: len(turn)]

    def _turn(self, k: int | None) -> tuple[Array, Tensor, Tensor]:
        """Ritz values, the basis, and the matrix that makes Ritz vectors of it."""
        if self.basis is None:
            raise Wrong("the basis was not kept; call lanczos with keep=True", argument="keep")
        values, vectors = self._eigen()
        order = np.argsort(-values)
        precise = torch.promote_types(self.basis.dtype, torch.float32)
        turn = torch.as_tensor(vectors[:, order[:k]].T.copy(), dtype=precise, device=self.basis.device)
        return values[order], self.basis, turn

    def along(self, v: Tensor) -> Array:
        """The parts of a vector along the Ritz vectors, largest value first, without forming these."""
        if self.basis is None:
            raise Wrong("the basis was not kept; call lanczos with keep=True", argument="keep")
        values, vectors = self._eigen()
        parts = np.array([float((row.to(v) * v).sum()) for row in self.basis])
        return vectors[:, np.argsort(-values)].T @ parts

    def residuals(self) -> Array:
        """``|G y - value y|`` of each Ritz pair, largest value first."""
        values, vectors = self._eigen()
        return self.last * np.abs(vectors[-1, np.argsort(-values)])


def lanczos(
    product: Callable[[Tensor], Tensor], start: Tensor, steps: int, *, keep: bool = False,
    enough: Callable[[list[Krylov]], bool] | None = None, progress: Progress | None = None, store: Store = "working",
) -> list[Krylov]:  # fmt: skip
    """Run Lanczos from each row of ``start``, with one product for all rows in each step.

    Parameters
    ----------
    product : multiplies each row of an array (vectors, parameters) by the matrix.
    start : a vector, or several as rows; none of them zero.
    steps : number of products for each vector; fewer are made if its Krylov space ends earlier.
    keep : whether to keep the bases, for Ritz vectors.
    enough : called after every step with the results so far, without bases; True ends the run.
    progress : called with (done, total). Ctrl-C ends the run, and keeps the steps made so far.
    store : where the one copy of the basis is kept: "working", "host" (in host memory), "bf16" or "host-bf16". The newest vectors
        stay in working precision; `Krylov.error` says how far the kept ones are from orthonormal.

    Every new vector is orthogonalised twice against all earlier ones; otherwise copies of the largest eigenvalues appear.
    """
    start = start.detach().reshape(-1, start.shape[-1])
    norms = torch.linalg.vector_norm(start, dim=1, dtype=torch.float64).cpu()
    if not bool((norms > 0).all()) or not bool(torch.isfinite(norms).all()):
        raise Wrong("lanczos needs start vectors that are finite and not zero", argument="start")
    k, steps = len(start), min(steps, start.shape[1])
    basis = _kept(k, steps, start, store)
    newest = start / norms.to(start.dtype).to(start.device)[:, None]
    alpha, beta = np.zeros((k, steps)), np.zeros((k, steps))
    length, made = np.full(k, steps), 0
    try:
        for j in range(steps):
            basis[:, j] = newest
            if store == "working":
                newest = basis[:, j]  # so that there is one copy
            newest = _advance(product, newest, basis[:, : j + 1], alpha, beta)
            made = j + 1
            scale = np.abs(alpha[:, :made]).max(1) + np.abs(beta[:, :made]).max(1)
            spent = beta[:, j] <= SPENT.get(start.dtype, 1e-3) * scale
            length = np.where(spent & (length == steps), made, length)
            if progress:
                progress(made, steps)
            if (length <= made).all() or (enough and enough(_found(alpha, beta, norms, np.minimum(length, made)))):
                break
    except KeyboardInterrupt:
        if made == 0:
            raise
    length = np.minimum(length, made)
    errors = [0.0 if store == "working" else _orthogonality(basis[i, :n], start.dtype) for i, n in enumerate(length)]
    found = _found(alpha, beta, norms, length, basis if keep else None)
    return [replace(one, error=error) for one, error in zip(found, errors, strict=True)]


def stored_bytes(like: Tensor, store: Store) -> int:
    """Bytes that one number of a basis takes beside the network: none if it is kept in the memory of another device."""
    if store.startswith("host") and like.device.type != "cpu":
        return 0
    return 2 if store.endswith("bf16") else like.element_size()


def _kept(k: int, steps: int, like: Tensor, store: Store) -> Tensor:
    """Memory for the bases of k start vectors."""
    if store not in STORES:
        raise Wrong(f"store must be one of {', '.join(STORES)}, got {store!r}", argument="store")
    dtype = torch.bfloat16 if store.endswith("bf16") else like.dtype
    device = torch.device("cpu") if store.startswith("host") else like.device
    return torch.empty(k, steps, like.shape[1], dtype=dtype, device=device)


def _found(alpha: Array, beta: Array, norms: Tensor, length: Array, basis: Tensor | None = None) -> list[Krylov]:
    """The results after ``length`` steps from each start vector; their bases are views of one tensor."""
    kept = [None if basis is None else basis[i, :n] for i, n in enumerate(length)]
    rows = zip(alpha, beta, norms.tolist(), kept, length, strict=True)
    return [Krylov(a[:n], b[: n - 1], norm, vectors, b[n - 1]) for a, b, norm, vectors, n in rows]


def _advance(product: Callable[[Tensor], Tensor], newest: Tensor, old: Tensor, alpha: Array, beta: Array) -> Tensor:
    """Take one step: multiply the newest vectors, orthogonalise against all that are kept, and return the next ones."""
    j, v = old.shape[1] - 1, product(newest)
    alpha[:, j] = (v * newest).sum(1).cpu().double().numpy()
    for _ in range(2):
        v = _without(v, old)
    left = torch.linalg.vector_norm(v, dim=1)
    beta[:, j] = left.cpu().double().numpy()
    return v.div_(left.clamp(min=torch.finfo(v.dtype).tiny)[:, None])


def _without(v: Tensor, old: Tensor) -> Tensor:
    """Each row of v without its parts along the kept vectors of its start, which may be elsewhere or less precise."""
    if (old.dtype, old.device) == (v.dtype, v.device):
        parts = torch.einsum("kjp,kp->kj", old, v)
        return torch.baddbmm(v[:, None], parts[:, None], old, alpha=-1)[:, 0]  # with no other number for each weight
    v = v.clone()
    parts = torch.zeros(old.shape[:2], dtype=v.dtype, device=v.device)
    pieces = list(zip(old.split(TURNED_TOGETHER, dim=2), v.split(TURNED_TOGETHER, dim=1), strict=True))
    for kept, piece in pieces:
        parts += torch.einsum("kjp,kp->kj", kept.to(v), piece)
    for kept, piece in pieces:
        piece -= torch.einsum("kj,kjp->kp", parts, kept.to(v))
    return v


def _orthogonality(basis: Tensor, dtype: torch.dtype) -> float:
    """The largest entry of |Q'Q - 1|."""
    gram = torch.zeros(len(basis), len(basis), dtype=torch.float64, device=basis.device)
    for piece in basis.split(TURNED_TOGETHER, dim=1):
        gram += (piece.to(dtype) @ piece.to(dtype).T).double()
    return float((gram - torch.eye(len(basis), dtype=gram.dtype, device=gram.device)).abs().max())


def top_eigenpairs(
    product: Callable[[Tensor], Tensor], dim: int, k: int, *, dtype: torch.dtype, seed: int = 0, tol: float = 1e-3,
    most: int = 200, progress: Progress | None = None, device: torch.device | str = "cpu",
) -> tuple[Array, Tensor, Array]:  # fmt: skip
    """The k largest eigenvalues, their vectors as rows, and the residual norm of each.

    Lanczos continues until every residual is below ``tol`` of the largest value, or until ``most`` products are made. Its
    own estimate of the residuals, which costs nothing, decides; the residuals that are returned are computed by products.
    """
    start = standard_normal((dim,), torch.Generator().manual_seed(seed), dtype, device)
    least = max(2 * k + 10, 20)  # an eigenvector with a small part in the start vector appears late

    def enough(found: list[Krylov]) -> bool:
        (one,) = found
        return len(one) >= least and bool(one.residuals()[:k].max() <= tol * abs(one.quadrature()[0].max()))

    (found,) = lanczos(product, start, max(least, most), keep=True, enough=enough, progress=progress)
    values, top = found.ritz(k)
    largest = torch.as_tensor(values[:k], dtype=dtype, device=top.device)
    residual = torch.linalg.vector_norm(product(top) - largest[:, None] * top, dim=1)
    return values[:k], top, residual.cpu().double().numpy()


def standard_normal(
    shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype, device: torch.device | str
) -> Tensor:
    """Normal numbers that are the same on every device: they are drawn on the CPU."""
    return torch.randn(shape, generator=generator, dtype=dtype, device="cpu").to(device)
