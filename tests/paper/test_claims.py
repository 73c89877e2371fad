"""Claims: the verdict of each follows from its number, and changes with its premise."""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.linalg import solve_discrete_lyapunov

import nqm.paper.claims
from nqm import SGD, HeavyBall, free
from nqm.cli import main
from nqm.paper.claims import CLAIMS, Claim, Measured, check, claim, run_all
from nqm.paper.claims.base import OWN, PAPER
from nqm.paper.claims.quadratic_near_minimum import Logistic
from nqm.paper.claims.stationary_covariance import _exact, _turned
from nqm.paper.grid_search import GridSearch
from nqm.paper.instance import PaperStudy
from nqm.show.tables import column
from nqm.show.verdict import JUDGED, Verdict
from nqm.types import Wrong

holds, partly, fails = JUDGED
untested = Verdict.untested

EXPECTED: dict[str, tuple[Verdict, Verdict | None, Callable[[float], bool]]] = {
    # the verdict, the verdict with its premise broken if one breaks it, and what is known of the number from elsewhere
    "adam_half_life": (untested, holds, lambda x: abs(x) < 1e-3),
    "adam_half_power": (partly, fails, lambda x: x < 1e-3),
    "adam_rate_surges": (partly, holds, lambda x: x == 0),
    "critical_batch_knee": (holds, fails, lambda x: 1.2 < x < 1.6),
    "critical_batch_order": (partly, holds, lambda x: 0.1 < x < 0.16),
    "diagonal_without_loss": (holds, fails, lambda x: x < 1e-14),
    "ema_lowers_floor": (holds, None, lambda x: 0.5 < x < 0.8),
    "ema_small_batch": (holds, None, lambda x: abs(x - 0.732) < 0.002),
    "experiments_in_seconds": (holds, fails, lambda x: x < 60),
    "lr_linear_then_flat": (holds, partly, lambda x: x < 0.01),
    "lr_momentum_interchangeable": (partly, fails, lambda x: abs(x - 0.047) < 0.0005),
    "mccandlish_hyperbola": (fails, None, lambda x: x > 1),
    "momentum_large_batch": (holds, fails, lambda x: x >= 2),
    "momentum_small_batch": (partly, fails, lambda x: x < 0.003),
    "noise_bound": (partly, fails, lambda x: x == 10 / (10_000 / (2 * 3 * 4))),
    "noise_need_not_be_gaussian": (holds, fails, lambda x: x < 0.1),
    "noise_scale": (holds, fails, lambda x: 2 < x < 3.16),
    "preconditioning_before_after": (holds, fails, lambda x: x < 1e-14),
    "preconditioning_extends_scaling": (holds, None, lambda x: x > 1.1),
    "preconditioning_helps_small_batch": (holds, None, lambda x: abs(x - 5.75 / 4.33) < 0.005),
    "quadratic_near_minimum": (holds, fails, lambda x: x < 0.05),
    "sampling_noise": (partly, fails, lambda x: 0.5 < x < 0.9),
    "schedule_starts_at_largest_rate": (partly, fails, lambda x: x < 0.1),
    "stationary_covariance": (holds, fails, lambda x: abs(x - 0.005) < 1e-12),
}
QUICK: dict[str, dict] = {  # premises that only make the measurement smaller
    "adam_half_life": {"batch_sizes": (16, 256)},
    "diagonal_without_loss": {"dim": 60, "steps": 60, "replicas": 16},
    "ema_lowers_floor": {"dim": 1000},
    "experiments_in_seconds": {"batch_sizes": (2**2, 2**8, 2**12, 2**16, 2**20)},
    "noise_need_not_be_gaussian": {"dim": 20, "steps": 60, "replicas": 1500},
    "preconditioning_before_after": {"dim": 30, "steps": 120, "replicas": 16},
    "quadratic_near_minimum": {"replicas": 150, "steps": 20},
    "sampling_noise": {"dim": 100, "targets": (1.0,)},
    "schedule_starts_at_largest_rate": {"pieces": 10, "batch_sizes": (64,)},
}
FACTS = {  # the authors' claims, and where each is measured; those on networks have their tests in nets/
    "experiments in seconds": "experiments_in_seconds",
    "lr and momentum interchangeable at small batch": "lr_momentum_interchangeable",
    "momentum helps at large batch": "momentum_large_batch",
    "momentum gives nothing at small batch": "momentum_small_batch",
    "preconditioning before momentum is as after it when fixed": "preconditioning_before_after",
    "diagonal H without loss of generality": "diagonal_without_loss",
    "noise need not be Gaussian": "noise_need_not_be_gaussian",
    "preconditioning extends perfect scaling": "preconditioning_extends_scaling",
    "preconditioning helps at small batch too": "preconditioning_helps_small_batch",
    "EMA lowers the floor": "ema_lowers_floor",
    "EMA helps at small batch only": "ema_small_batch",
    "best lr linear in B, then flat": "lr_linear_then_flat",
    "a smooth loss is quadratic near its minimum": "quadratic_near_minimum",
    "stationary covariance lr / (2B) C H^-1": "stationary_covariance",
    "d / (2CB) is a lower bound": "noise_bound",
    "the optimal schedule starts at the largest rate": "schedule_starts_at_largest_rate",
    "the McCandlish hyperbola": "mccandlish_hyperbola",
    "Fisher = Gauss-Newton": "fisher_is_gauss_newton",
    "Hessian of the linearised network = Gauss-Newton": "linearised_hessian",
    "Fisher stabilises after a few epochs": "fisher_stabilises",
    "H^-1/2 stands for Adam": "adam_half_power",
    "critical batch size of SGD below that of momentum, and that below Adam's": "critical_batch_order",
    "wide networks stay near their linearisation": "wide_networks_linear",
}


def documented() -> dict[str, list[str]]:
    """Statement, number and verdict of each claim in docs/claims.md."""
    text = (Path(__file__).parents[2] / "docs" / "claims.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): row[1:5] for row in rows if len(row) == 6}


@pytest.fixture(scope="module")
def study() -> PaperStudy:
    return PaperStudy()


def test_every_statement_has_a_claim_and_every_claim_a_test() -> None:
    assert set(FACTS.values()) <= set(CLAIMS)
    assert set(EXPECTED) == {name for name, c in CLAIMS.items() if c.needs is None}


def test_the_documentation_has_every_claim() -> None:
    assert {name: row[0] for name, row in documented().items()} == {
        name: one.statement for name, one in CLAIMS.items()
    }, "run python docs/generate.py --claims"


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_the_verdict_follows_the_premise(name: str, study: PaperStudy) -> None:
    """The claim as the authors make it, and with the premise broken: the verdict turns, and each has its sentence."""
    verdict, turned, known = EXPECTED[name]
    one, quick = CLAIMS[name], QUICK.get(name, {})
    found = one.check(study, **quick)
    assert found.verdict is verdict, found.told
    assert known(found.number), found.number
    _, whose, number, sentence = documented()[name]
    assert whose == one.origin
    if not quick:
        assert found.number == pytest.approx(float(number), rel=0.05, abs=1e-3), "run python docs/generate.py --claims"
    assert sentence.startswith(found.sentence.split(" within")[0].split(" when")[0].split(" (")[0])
    again = one.check(study, **{**quick, **one.turn})
    assert again.verdict is (turned or verdict), again.told
    assert turned is not verdict
    assert bool(one.turned_by) == bool(one.turn) == (turned is not None)
    for m in (found, again):
        assert m.sentence.startswith(("holds", "does not hold when ", "not tested: "))
        assert m.what
        assert m.reason
        assert m.told.endswith(".")
        assert math.isfinite(m.number)
        assert math.isfinite(m.tolerance)
        assert not any("nan" in text for text in (m.told, m.sentence, m.what))
        assert m.table
        pickle.loads(pickle.dumps(m))  # it travels between processes
        assert one.draw(m.table).axes


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_is_stated_in_full(name: str) -> None:
    one = CLAIMS[name]
    assert one.statement.endswith(".")
    assert one.source
    assert one.origin in (PAPER, OWN) or re.search(r" \((19|20)\d\d\)$", one.origin)
    assert set(one.turn) <= set(one.premises)
    assert one.measure.__doc__
    assert all(f"{premise}" in one.measure.__doc__ for premise in one.premises)
    file = Path(nqm.paper.claims.__file__).with_name(f"{name}.py")
    assert len(file.read_text().splitlines()) < 170
    pickle.loads(pickle.dumps(one))


@pytest.mark.slow
def test_measurements_are_deterministic() -> None:
    for name in ("quadratic_near_minimum", "noise_need_not_be_gaussian", "diagonal_without_loss"):
        first, then = (check(name, **QUICK[name]) for _ in range(2))
        assert first.table == then.table
        other = check(name, **QUICK[name], seed=5)
        assert other.table != first.table
        assert other.verdict is first.verdict  # not an accident of the seed


# Numbers from elsewhere.


def test_stationary_covariance_solves_its_equation() -> None:
    h = 1 / np.arange(1.0, 6)
    for angle, lr in ((0.0, 0.3), (0.7, 1.2)):
        C = _turned(h, angle)
        known = solve_discrete_lyapunov(np.eye(5) - lr * np.diag(h), lr**2 * C)
        assert np.allclose(_exact(h, C, lr), known, rtol=1e-10)
        assert np.allclose(np.linalg.eigvalsh(C), np.sort(h))
    turned = check("stationary_covariance", angle=0.5)
    assert turned.verdict is fails  # C H^-1 is not even symmetric
    assert "turned by 0.5" in turned.sentence


def test_the_gap_between_momentum_and_rate() -> None:
    table = [row for row in check("lr_momentum_interchangeable").table if row["asked"]]
    assert [round(row["gap"], 3) for row in table] == [0.005, 0.047, 0.297]
    x = 0.001  # one row again, by stepping the moments
    plain, u, v, w, worst = 1.0, 1.0, 0.0, 0.0, 0.0
    for _ in range(5000):
        plain = (1 - x) ** 2 * plain + x**2 / 10
        w, v = 0.25 * w + v + u + 0.1, 0.5 * v + u
        u, v = u - 2 * (x / 2) * v + (x / 2) ** 2 * w, v - x / 2 * w
        worst = max(worst, abs(u / plain - 1))
    assert table[0]["gap"] == pytest.approx(worst, rel=1e-3)


@pytest.mark.slow
def test_tuned_momentum_at_small_batch(study: PaperStudy) -> None:
    found = check("momentum_small_batch", study, momentum=free)
    ratio = [column(found.table, "ratio", power=p)[0] for p in (0.0, 0.25, 0.5, 0.75)]
    assert ratio == pytest.approx([0.855, 0.843, 0.822, 0.789], abs=0.002)


def test_knees(study: PaperStudy) -> None:
    assert column(check("critical_batch_knee", study).table, "knee").round().tolist() == [489, 1828, 9927, 66629]


def test_the_bayes_bound_is_one_where_the_papers_is_not(study: PaperStudy) -> None:
    row = next(row for row in check("noise_bound", study).table if row["target"] == 3.0)
    assert row["SGD"] == 15
    assert round(row["paper"]) == 417
    assert row["bayes"] < row["SGD with EMA"] < row["SGD"]


def test_logistic_regression_has_its_minimum_hessian_and_noise() -> None:
    rng = np.random.default_rng(1)
    loss = Logistic.made(rng, 100)
    share = np.full(100, 1 / 100)
    assert np.abs(loss.gradient(loss.minimum, share)).max() < 1e-14
    assert loss.loss(loss.minimum) == 0
    for offset in rng.standard_normal((3, 6)):
        e = 1e-5
        slope = (loss.gradient(loss.minimum + e * offset, share) - loss.gradient(loss.minimum - e * offset, share)) / (
            2 * e
        )
        assert np.allclose(slope, loss.H @ offset, atol=1e-8)
        ahead = loss.loss(loss.minimum + e * offset) - loss.loss(loss.minimum - e * offset)
        assert abs(ahead) < 1e-12
    assert np.abs(loss.noise.mean(0)).max() < 1e-14
    model = loss.model(np.ones(6))
    assert model.spectrum.initial_loss == pytest.approx(loss.H.sum() / 2)
    assert model.spectrum.c.sum() == pytest.approx((loss.noise**2).sum(1).mean())


ORIGINS = {
    "adam_half_life": "Marek et al. (2025)",
    "adam_half_power": OWN,
    "adam_rate_surges": "Li et al. (2024)",
    "critical_batch_knee": OWN,
    "mccandlish_hyperbola": "McCandlish et al. (2018)",
    "noise_scale": "McCandlish et al. (2018)",
    "wide_networks_linear": "Jacot et al. (2018) and Lee et al. (2019)",
}


def test_a_claim_is_that_of_whoever_makes_it() -> None:
    assert {name: one.origin for name, one in CLAIMS.items() if one.origin != PAPER} == ORIGINS
    assert claim("critical_batch_knee").said.startswith("Our own: ")
    assert claim("noise_scale").said.startswith("Said by McCandlish et al. (2018), An empirical model")
    assert "not about networks" in claim("critical_batch_order").said
    assert claim("critical_batch_order").statement.startswith("On the noisy quadratic model")


def test_identities_say_so() -> None:
    assert {name for name, one in CLAIMS.items() if one.identity} == {
        "diagonal_without_loss", "fisher_is_gauss_newton", "linearised_hessian", "noise_need_not_be_gaussian",
        "preconditioning_before_after",
    }  # fmt: skip


def test_no_turn_is_a_tautology() -> None:
    """A batch size beside itself, a decay of 0, equal curvatures, and a formula put into itself turn nothing."""
    for name in ("ema_small_batch", "ema_lowers_floor", "mccandlish_hyperbola", "preconditioning_extends_scaling"):
        assert not claim(name).turn
    assert "noise_scale" not in claim("mccandlish_hyperbola").premises


@pytest.mark.slow
def test_the_authors_grid_search_finds_what_their_notebook_finds(study: PaperStudy) -> None:
    """Steps and settings that the notebook prints; it counts one step fewer, the last one above the target."""
    spectrum = study.problem.spectrum
    search = GridSearch(spectrum, 0.01)
    known = {1024: (5203, 0.00811, 0.99766), 4096: (1280, 0.123, 0.99215), 16384: (349, 1.520, 0.97363)}
    for size, (steps, lr, momentum) in known.items():
        near = [s for s in search.settings if abs(s[0] / lr - 1) < 3e-3 and abs(s[1] - momentum) < 2e-5]
        assert [search.steps(setting, size) for setting in near] == [steps + 1]
        assert [replace(search, anew=False).steps(setting, size) for setting in near] == [steps + 1]
    plain = GridSearch(spectrum, 0.01, momentum=False)
    assert [plain.best(size)[0] for size in (1024, 4096)] == [10_609 + 1, 8_117 + 1]
    assert search.steps((1.9, 0.0), 16) is None  # Its floor is above the target.
    assert len(search.settings) == 2000
    assert search.seconds(1024, 1 / 1000) > 0


def test_momentum_is_what_leaves_the_knee(study: PaperStudy) -> None:
    assert check("critical_batch_knee", study, optimizer=SGD()).verdict is holds
    assert check("critical_batch_knee", study, optimizer=HeavyBall(momentum=0.0)).verdict is holds


def test_no_mean_is_seen_although_no_standard_error_shows_it() -> None:
    """Noise without a variance has large standard errors, so that z-scores alone would let it pass."""
    found = check("noise_need_not_be_gaussian", laws=("cauchy",), **QUICK["noise_need_not_be_gaussian"])
    z = (column(found.table, "loss") - column(found.table, "exact")) / column(found.table, "stderr")
    assert np.abs(z).max() < 5
    assert found.number > 100


# What a claim is.


def measured(verdict: Verdict, **words: str) -> Measured:
    return Measured([{"x": 1.0}], 1.0, "a number", "It was measured.", 0.1, "a reason", verdict, **words)


def test_sentences() -> None:
    assert measured(holds).sentence == "holds"
    assert measured(holds, within="1%").sentence == "holds within 1%"
    assert measured(partly, within="1%", when="x > 2").sentence == "holds within 1%; does not hold when x > 2"
    assert measured(fails, within="1%", when="x > 2").sentence == "does not hold when x > 2"
    assert measured(untested, within="1%", when="it is hidden").sentence == "not tested: it is hidden"
    with pytest.raises(ValueError, match="needs `when`"):
        measured(partly, within="1%")


def test_wrong_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"no claim 'ema_lower_floor' \(did you mean ema_lowers_floor\?\); there are"):
        claim("ema_lower_floor")
    with pytest.raises(ValueError, match=r"no premise of ema_lowers_floor 'decays' \(did you mean decay\?\)"):
        check("ema_lowers_floor", decays=0.9)


def network_claim(needs: str) -> Claim:
    """A claim as a module that needs an extra would state it."""
    module = ModuleType("nqm.paper.claims.fisher_is_gauss_newton")
    parts = {
        "STATEMENT": "The Fisher matrix is the Gauss-Newton matrix.", "ORIGIN": PAPER, "SOURCE": "an appendix",
        "NEEDS": (needs, "nets"), "TURN": ("it is the empirical one", {}),
        "measure": lambda: measured(holds), "draw": lambda table: SimpleNamespace(),
    }  # fmt: skip
    module.__dict__.update(parts)
    return Claim.of(module)


def test_a_claim_that_needs_an_extra_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    assert network_claim("numpy").missing == ""
    absent = network_claim("no_such_module")
    assert absent.missing == "needs nqm[nets]: pip install 'nqm[nets]'"
    monkeypatch.setattr(nqm.paper.claims, "CLAIMS", {absent.name: absent})
    assert nqm.paper.claims.run_all() == []
    said = nqm.paper.claims.left_out([])
    assert said == "Omitted: fisher_is_gauss_newton (needs nqm[nets]: pip install 'nqm[nets]')."
    with pytest.raises(ValueError, match=r"fisher_is_gauss_newton needs nqm\[nets\]"):
        nqm.paper.claims.run_all([absent.name])


def test_premises_from_text() -> None:
    one = CLAIMS["stationary_covariance"]
    assert one.read("x = 1.9") == ("x", 1.9)
    assert CLAIMS["fisher_stabilises"].read("epochs=0,1,2^2") == ("epochs", (0, 1, 4))
    assert CLAIMS["fisher_stabilises"].read("workload=cifar_resnet8") == ("workload", "cifar_resnet8")
    assert CLAIMS["fisher_stabilises"].read("sample=512") == ("sample", 512)
    for text, sentence in (
        ("x", "a premise is NAME=VALUE"),
        ("x=", "a premise is NAME=VALUE"),
        ("y=1", "no premise of stationary_covariance 'y'"),
        ("x=one", "is not a number"),
    ):
        with pytest.raises(ValueError, match=sentence):
            one.read(text)
    with pytest.raises(
        ValueError, match="optimizer of critical_batch_knee is neither numbers nor a word: give it in Python"
    ):
        CLAIMS["critical_batch_knee"].read("optimizer=SGD")
    with pytest.raises(ValueError, match=r"dim of ema_lowers_floor must be a whole number, got '1\.5'"):
        CLAIMS["ema_lowers_floor"].read("dim=1.5")


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (3.0, "cannot be measured with x = 3.0: there, the largest relative error of the formula is not a number"),
        (-1.0, "cannot be measured with x = -1.0: SGD: lr must be positive, got -1.0"),
    ],
)
def test_a_premise_that_allows_no_measurement_is_refused(value: float, sentence: str) -> None:
    with pytest.raises(Wrong, match=sentence) as caught:
        CLAIMS["stationary_covariance"].check(x=value)
    assert caught.value.argument == "premises"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (["--premise", "x=3"], "Invalid value for '--premise': stationary_covariance cannot be measured with x = 3"),
        (["--premise", "x=nan"], "Invalid value for '--premise': x: 'nan' is not a number"),
        (["--premise", "y=1"], "Invalid value for '--premise': there is no premise of stationary_covariance 'y'"),
        (["--premise", "x=1", "--premise", "x=1.5"], "give each premise once, got x=1, x=1.5"),
        (["--list", "--premise", "x=1"], "--list measures nothing"),
        (["--list", "--turn"], "--list measures nothing"),
        (["--out", f"{__file__}/folder"], "Invalid value for '--out': cannot write into the folder"),
    ],
)
def test_a_wrong_line_names_its_option(line: list[str], sentence: str) -> None:
    result = CliRunner().invoke(main, ["claims", "stationary_covariance", *line])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert sentence in result.stderr


def test_premises_are_those_of_one_claim(tmp_path: Path) -> None:
    found = run_all(["stationary_covariance"], premises={"x": 1.9})
    assert found[0].measured.verdict is fails
    with pytest.raises(ValueError, match="premises are those of one claim, got 2 claims"):
        run_all(["stationary_covariance", "ema_lowers_floor"], premises={"x": 1.9})
    file = tmp_path / "table.csv"
    line = ["claims", "stationary_covariance", "--premise", "x=1.9", "--csv", str(file)]
    result = CliRunner().invoke(main, line)
    assert result.exit_code == 0, result.output
    assert "does not hold when lr h = 1.9" in result.stdout
    assert file.read_text().count("\n") == len(found[0].measured.table) + 1
    for wrong in (["--premise", "x=1"], ["--csv", str(file)], ["stationary_covariance", "--premise", "z=1"]):
        assert CliRunner().invoke(main, ["claims", *wrong]).exit_code == 2
