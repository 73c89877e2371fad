"""Claims about networks: the verdict follows from the number, and turns with the premise."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from models import NETWORKS, mlp

from nqm.nets.curvature import Fisher, GaussNewton
from nqm.paper.claims import CLAIMS, check
from nqm.paper.claims.base import Measured
from nqm.paper.claims.fisher_is_gauss_newton import exact_fisher
from nqm.paper.claims.fisher_stabilises import judged
from nqm.paper.claims.nets import digits, gauss_newton, one_thread
from nqm.paper.claims.wide_networks_linear import _distance, _network, _rate
from nqm.show.tables import column
from nqm.show.verdict import JUDGED, Verdict

holds, partly, fails = JUDGED

EXPECTED: dict[str, tuple[Verdict, Verdict | None, Callable[[float], bool]]] = {
    "fisher_is_gauss_newton": (holds, fails, lambda x: x < 1e-14),
    "fisher_stabilises": (Verdict.untested, None, lambda x: 0.95 < x < 1),
    "linearised_hessian": (holds, fails, lambda x: x < 1e-14),
    "wide_networks_linear": (holds, fails, lambda x: -1.2 < x < -0.5),
}
DOCUMENTED = Path(__file__).parents[2] / "docs" / "claims.md"
QUICK: dict[str, dict] = {  # premises that only make the measurement smaller
    "fisher_is_gauss_newton": {"steps": (0, 30), "width": 4, "examples": 40},
    "fisher_stabilises": {"epochs": (0, 1, 4, 8, 16, 32), "k": 6, "probes": 4, "lanczos_steps": 3},
    "linearised_hessian": {"steps": (0, 30), "width": 4, "examples": 40},
    "wide_networks_linear": {"widths": (16, 64, 256), "steps": 20, "examples": 48, "seeds": 1},
}


def test_every_claim_on_networks_has_a_test() -> None:
    assert set(EXPECTED) == {name for name, c in CLAIMS.items() if c.needs is not None}
    assert all(CLAIMS[name].needs == ("torch", "nets") and not CLAIMS[name].missing for name in EXPECTED)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_the_verdict_follows_the_premise(name: str) -> None:
    verdict, turned, known = EXPECTED[name]
    one = CLAIMS[name]
    found, again = one.check(**QUICK[name]), one.check(**{**QUICK[name], **one.turn})
    assert found.verdict is verdict, found.told
    assert known(found.number), found.number
    assert again.verdict is (turned or verdict), again.told
    for m in (found, again):
        assert m.sentence.startswith(("holds", "does not hold when ", "not tested: "))
        assert m.told.endswith(".")
        assert math.isfinite(m.number)
        assert not any("nan" in text for text in (m.told, m.sentence, m.what))
        pickle.loads(pickle.dumps(m))
        assert one.draw(m.table).axes
    row = next(line for line in DOCUMENTED.read_text().splitlines() if line.startswith(f"| `{name}`"))
    assert found.sentence.split(" within")[0].split(" when")[0].split(":")[0] in row, (
        "run python docs/generate.py --claims"
    )


def gap(A: torch.Tensor, B: torch.Tensor) -> float:
    return float((A - B).norm() / B.norm())


def test_the_two_gauss_newton_matrices_are_made_apart_and_agree() -> None:
    network = mlp()
    assert gap(gauss_newton(network), GaussNewton(network).dense()) < 1e-14
    assert gap(gauss_newton(network), gauss_newton(network.at(network.theta * 1.01))) > 1e-3


def test_the_exact_fisher_is_the_mean_of_sampled_ones() -> None:
    """z-scores of v' F v over draws."""
    network = NETWORKS["mlp"]()
    v = torch.randn(4, network.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    draws = torch.stack([(Fisher(network, samples=1, seed=s)(v) * v).sum(1) for s in range(60)])
    exact = ((v @ exact_fisher(network)) * v).sum(1)
    z = (draws.mean(0) - exact) / (draws.std(0) / 60**0.5)
    assert z.abs().max() < 4
    wrong = (draws.mean(0) - 2 * exact) / (draws.std(0) / 60**0.5)
    assert wrong.abs().max() > 6


def test_networks_move_alike_at_every_width() -> None:
    """The rate makes up for the scale: the loss after training hardly depends on the width under either scaling."""
    table = check("wide_networks_linear", **QUICK["wide_networks_linear"]).table
    for scale in ("ntk", "mean_field"):
        loss = column(table, "loss", scale=scale)
        assert 0.5 < loss[-1] / loss[1] < 2
        assert loss.max() < math.log(10)


def test_a_linear_network_is_its_own_linearisation() -> None:
    """Few and tiny steps: the distance is of second order in the rate, so it falls with the rate."""
    network = _network("ntk", 64, 32, 0)
    far, near = (_distance(network, _rate("ntk", 64, lr), 5)[0] for lr in (1.0, 0.1))
    assert near < 0.2 * far


def test_stability_needs_two_checkpoints_to_compare() -> None:
    with pytest.raises(ValueError, match=r"after must leave two checkpoints to compare, got 8"):
        check("fisher_stabilises", after=8.0, epochs=(0, 1), examples=64, k=1, probes=1, lanczos_steps=2)
    with pytest.raises(ValueError, match="widths must be two or more"):
        check("wide_networks_linear", widths=(16,))


def test_a_run_tests_stability_only_in_the_middle_of_a_training() -> None:
    """Rows as of a training whose first epoch ends at loss 1: it has begun, is in the middle, or has memorised its examples."""

    def verdict(last: float, alignment: float = 0.99, trace: float = 1.05) -> Measured:
        row = {"epoch": 8, "before": 4, "loss": last, "alignment": alignment, "trace_ratio": trace}
        return judged([{**row, "epoch": 4, "before": 0, "loss": 1.0}, row], 4, "a network")

    assert verdict(0.6).sentence.startswith(
        "not tested: the run is the initial phase of a training, because at epoch 8 60% "
    )
    assert verdict(0.01).sentence.startswith("not tested: the network has memorised its examples")
    assert [verdict(0.3, *more).verdict for more in ((), (0.99, 2.0), (0.5,))] == [holds, partly, fails]


def test_the_matrix_may_be_of_a_sample() -> None:
    """Training sees all examples, the matrix some; the number of those is refused before the training."""
    small = {"after": 1, "epochs": (0, 1, 2), "examples": 96, "k": 2, "probes": 2, "lanczos_steps": 2}
    whole, part = check("fisher_stabilises", **small), check("fisher_stabilises", **small, sample=32)
    assert "(96 examples, the matrix of 32 of them)" in part.told
    assert "(96 examples)" in whole.told
    assert [row["trace"] for row in whole.table] != [row["trace"] for row in part.table]
    assert check("fisher_stabilises", **small, sample=96).table == whole.table
    with pytest.raises(ValueError, match="from 1 to 96, got 97"):
        check("fisher_stabilises", **small, sample=97)


@pytest.mark.slow
def test_measurements_repeat_and_differ_by_seed() -> None:
    quick = QUICK["linearised_hessian"]
    assert check("linearised_hessian", **quick).table == check("linearised_hessian", **quick).table
    assert check("linearised_hessian", **quick, seed=1).table != check("linearised_hessian", **quick).table
    assert np.isfinite(digits(4, 40, 3, 1).full_loss())


def test_threads_are_as_they_were() -> None:
    before = torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
