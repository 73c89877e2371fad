"""`forecast` and what it answers: every way to ask, every refusal, files, and what is said of the logs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from laws import law_of, plain_loop

from nqm import SGD, HeavyBall, free
from nqm.engine.schedule import Schedule, constant, linear, step
from nqm.logs import Forecast, Log, forecast, read_logs
from nqm.logs.allowance import SETTINGS_OF_ERROR
from nqm.logs.assuming import metric_of, reference_of, rising
from nqm.logs.course import Course
from nqm.logs.fitting import INTERVAL_90, SETTINGS_OF_FIT, Fitted, huber, independent_points, mean_square, reading
from nqm.logs.law import NAMES, LossLaw, RateMetric
from nqm.types import Wrong

T = 3000
t = np.arange(1, T + 1)
ADAMW = RateMetric("norm", 0.1)
RATES = 2e-3 * np.minimum(t / 100, 1)
STEPS = np.arange(100, T + 1, 100)
OWN = float(np.hypot(SETTINGS_OF_ERROR.offset, 1e-3))  # The scatter of the fits below is 0.001.
SPREAD = 0.02  # standard deviation of each log parameter of the forecasts below


def log_of(law: LossLaw, peak: float = 2e-3, size: float | None = None, **settings: Any) -> Log:
    """A log that follows a law."""
    rates = peak * np.minimum(t / 100, 1)
    ratio = 1.0 if size is None else size / 64
    loss = law.loss(Course.of(rates, STEPS, law.metric.weight_decay, ratio))
    return Log(STEPS, loss, rates, batch_size=size, **settings)


def made(
    metric: RateMetric = ADAMW, batch_size: float | None = None, peaks: tuple[float, ...] = (1e-3, 2e-3, 2e-3)
) -> Forecast:
    """A forecast with a known law, as a fit would give it."""
    law = law_of(metric)
    settings = {"optimizer": "AdamW", "weight_decay": 0.1} if metric.kind == "norm" else {}
    logs = tuple(log_of(law, peak, batch_size, **settings) for peak in peaks)
    free_ones = [float(name in metric.names) for name in NAMES]
    zeros = tuple(np.zeros(STEPS.size) for _ in logs)
    covariance = np.diag(SPREAD**2 * np.array(free_ones))
    return Forecast(logs, Fitted(law, covariance, np.ones(len(NAMES)), 0.0, 1e-3, zeros), batch_size)


@pytest.fixture(scope="module")
def plain() -> Forecast:
    return made()


@pytest.fixture(scope="module")
def sized() -> Forecast:
    return made(batch_size=64.0)


def loop(found: Forecast, rates: np.ndarray, times: list[int], ratios: np.ndarray | None = None) -> np.ndarray:
    return plain_loop(found.law, rates.tolist(), times, None if ratios is None else ratios.tolist())


TIMES = [0, 500, 3000]
CLOSE = 1e-4  # Blocks hold the rate to 2% of its largest.


def test_one_rate_for_each_step(plain: Forecast) -> None:
    rates = RATES * np.minimum(1, (T + 1 - t) / 600)
    outlook = plain.predict(rates, TIMES)
    np.testing.assert_allclose(outlook.loss, loop(plain, rates, TIMES), rtol=CLOSE)
    assert outlook.steps.tolist() == TIMES
    np.testing.assert_allclose(plain.law["floor"] + outlook.signal + outlook.noise, outlook.loss, rtol=1e-12)
    whole = plain.predict(rates.tolist())
    assert whole.steps[0] == 0
    assert whole.steps[-1] == T
    assert whole.steps.size == 200
    np.testing.assert_array_equal(whole.rates, rates)
    assert plain.predict(rates, 600).rates.size == 600


def test_a_schedule_multiplies_its_peak(plain: Forecast) -> None:
    schedule = constant(2400) + linear(600)
    found = plain.predict(schedule, peak=1e-3)
    rates = 1e-3 * schedule.multipliers("lr", T)
    np.testing.assert_array_equal(found.rates, rates)
    np.testing.assert_allclose(found.loss[-1], loop(plain, rates, [T])[0], rtol=CLOSE)
    assert plain.predict(schedule).rates.max() == 2e-3  # the largest peak of the logs
    # After its last piece a schedule keeps its last multiplier.
    assert plain.predict(step(1000, 0.5, [500]), 1500, peak=1e-3).rates[-1] == 5e-4


def test_a_log_gives_its_rates_and_steps(plain: Forecast) -> None:
    log = plain.logs[0]
    found = plain.predict(log)
    np.testing.assert_array_equal(found.steps, log.step)
    np.testing.assert_array_equal(found.rates, log.rates)
    np.testing.assert_allclose(found.loss, log.loss, rtol=1e-9)
    assert plain.predict(log, [700]).loss[0] == pytest.approx(log.loss[6], rel=1e-4)


def test_a_number_is_a_constant_rate_after_the_warm_up_of_the_logs(plain: Forecast) -> None:
    found = plain.predict(1.5e-3, 1000)
    assert plain.warmup == 98  # the first step whose rate is 99% of the peak, counted from 0
    np.testing.assert_allclose(found.rates, 1.5e-3 * np.minimum(np.arange(1, 1001) / 98, 1), rtol=1e-12)
    assert plain.predict(1.5e-3, [10]).rates.tolist() == pytest.approx([3e-4 * min(i, 5) for i in range(1, 11)])


def test_sgd_stands_for_its_learning_rate(plain: Forecast) -> None:
    np.testing.assert_array_equal(plain.predict(SGD(1e-3), 500).loss, plain.predict(1e-3, 500).loss)
    for other in (HeavyBall(1e-3, 0.9), SGD(free)):
        with pytest.raises(Wrong, match="answers for the optimizer of its logs") as error:
            plain.predict(other, 500)  # type: ignore[arg-type]
        assert error.value.argument == "optimizer"


def test_a_long_run_is_the_plain_loop(plain: Forecast) -> None:
    """100,000 steps of a cosine after a warm-up, through the transient of the weight norm."""
    n = 100_000
    rates = 1e-3 * np.minimum(np.arange(1, n + 1) / 2000, 1) * (0.55 + 0.45 * np.cos(np.pi * np.arange(n) / n))
    found = plain.predict(rates, [30_000, n])
    np.testing.assert_allclose(found.loss, loop(plain, rates, [30_000, n]), rtol=CLOSE)
    assert "33.3 times as long as the longest log, 3,000 steps" in found.sentence


def test_batch_sizes(sized: Forecast) -> None:
    np.testing.assert_array_equal(sized.predict(RATES, batch_size=64).loss, sized.predict(RATES).loss)
    ratios = np.full(T, 4.0)
    np.testing.assert_allclose(
        sized.predict(RATES, [T], batch_size=256).loss, loop(sized, RATES, [T], ratios), rtol=CLOSE
    )
    doubled = Schedule([1000, 2000], batch_size=[1.0, 4.0])
    ratios = np.where(t <= 1000, 1.0, 4.0)
    rates = np.full(T, 1e-3)
    found = sized.predict(doubled, [T], peak=1e-3)
    np.testing.assert_allclose(found.loss, loop(sized, rates, [T], ratios), rtol=CLOSE)
    assert found.batch_size == 64
    np.testing.assert_allclose(
        sized.predict(doubled, [T], peak=1e-3, batch_size=32).loss, loop(sized, rates, [T], ratios / 2), rtol=CLOSE
    )
    log = replace(sized.logs[1], batch_size=np.where(STEPS <= 1000, 64.0, 256.0))
    np.testing.assert_allclose(sized.predict(log, [T]).loss, loop(sized, RATES, [T], ratios), rtol=CLOSE)
    assert "its batch size 256 is 4 times the largest of the logs, 64" in sized.predict(RATES, batch_size=256).sentence


def test_a_batch_size_needs_logs_with_batch_sizes(plain: Forecast) -> None:
    with pytest.raises(Wrong, match="these logs have no batch size") as error:
        plain.predict(RATES, batch_size=64)
    assert error.value.argument == "batch_size"
    with pytest.raises(Wrong, match="these logs have no batch size: give batch_size=") as error:
        plain.predict(Schedule([10, 10], batch_size=[1.0, 2.0]))
    assert error.value.argument == "batch_size"


@pytest.mark.parametrize(
    ("asked", "argument", "says"),
    [
        ({"lr": "fast"}, "lr", "there is no schedule 'fast'"),
        ({"lr": {}}, "lr", "lr must be a Schedule with its peak, one learning rate for each step, a Log, or a number"),
        ({"lr": [[1e-3], [1e-3]]}, "lr", "lr must be a Schedule"),
        ({"lr": []}, "lr", "lr must be a Schedule"),
        ({"lr": None}, "lr", "lr must be a Schedule"),
        ({"lr": [1e-3, -1e-3]}, "lr", "lr must be finite, not negative, and positive somewhere"),
        ({"lr": [1e-3, np.nan]}, "lr", "finite"),
        ({"lr": [0.0, 0.0]}, "lr", "positive somewhere"),
        ({"lr": -1e-3, "steps": 10}, "lr", "not negative"),
        ({"lr": [1e-3] * 10, "steps": 11}, "lr", "lr has 10 rates, the last step asked for is 11"),
        ({"lr": 1e-3}, "steps", "a constant rate needs steps="),
        ({"lr": 1e-3, "steps": [5, 3]}, "steps", "rising order"),
        ({"lr": 1e-3, "steps": "many"}, "steps", "steps must be"),
        ({"lr": constant(10), "peak": 0}, "peak", "peak must be a positive learning rate, got 0"),
        ({"lr": constant(10), "peak": np.inf}, "peak", "peak must be a positive"),
        ({"lr": constant(10), "peak": "high"}, "peak", "peak must be a positive"),
        ({"lr": constant(10), "batch_size": 0}, "batch_size", "batch_size must be a positive number"),
    ],
)  # fmt: skip
def test_wrong_questions(asked: dict[str, Any], argument: str, says: str, plain: Forecast) -> None:
    with pytest.raises(Wrong, match=says) as error:
        plain.predict(**asked)
    assert error.value.argument == argument


def test_the_interval_is_that_of_the_covariance_and_the_residuals(plain: Forecast) -> None:
    """Every free log parameter has the same standard deviation, so the variance is a sum of squared derivatives."""
    found = plain.predict(RATES, [T])
    _, J = plain.law.jacobian(Course.of(RATES, np.array([T]), 0.1))
    spread = np.sqrt(SPREAD**2 * np.sum((J / found.loss[0]) ** 2) + OWN**2)
    np.testing.assert_allclose(np.log(found.high / found.loss), INTERVAL_90 * spread, rtol=1e-9)
    np.testing.assert_allclose(np.log(found.loss / found.low), INTERVAL_90 * spread, rtol=1e-9)


def test_the_table_of_parameters(plain: Forecast) -> None:
    rows = {row["parameter"]: row for row in plain.table()}
    assert tuple(rows) == NAMES
    assert rows["floor"]["value"] == pytest.approx(3.0)
    assert rows["floor"]["high"] == pytest.approx(3.0 * np.exp(INTERVAL_90 * SPREAD))
    assert rows["floor"]["low"] == pytest.approx(3.0 * np.exp(-INTERVAL_90 * SPREAD))
    assert all(row["decided"] for row in rows.values())
    wide = replace(plain.fitted, covariance=0.3 * np.eye(len(NAMES)))  # deviations of 0.55, over half of the priors' 1
    assert not any(row["decided"] for row in replace(plain, fitted=wide).table())
    assert [row["parameter"] for row in made(RateMetric("plain")).table()] == list(NAMES[:6])


def test_constant_rates_do_not_decide_the_speed_of_noise() -> None:
    """At one constant rate, noise and signal add to one smooth curve; a drop of the rate tells them apart."""
    law = law_of(RateMetric("plain"), A=4.0, s0=2.0, N=1.0, C=3.0)
    at = np.arange(50, 2001, 50)
    now = np.arange(1, 2001)

    def decided(*rates: np.ndarray) -> bool:
        logs = [Log(at, law.loss(Course.of(r, at)), r, optimizer="SGD") for r in rates]
        return {row["parameter"]: row["decided"] for row in forecast(logs).table()}["C"]

    even = np.full(2000, 0.05)
    assert not decided(even, even)
    assert decided(even, np.where(now <= 600, 0.05, 0.01), np.where(now <= 1200, 0.05, 0.01))


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the logs cannot decide has tests of its own."""
    monkeypatch.setattr(Forecast, "undecided", ("Nothing is decided.",))


@pytest.mark.usefixtures("known")
def test_a_forecast_is_saved_and_loaded(sized: Forecast, tmp_path: Path) -> None:
    sized = replace(sized, remarks=("One remark.",))
    sized.save(tmp_path / "found.json")
    back = Forecast.load(tmp_path / "found.json")
    assert back.metric == sized.metric
    assert back.remarks == sized.remarks
    assert back.batch_size == sized.batch_size
    assert [log.name for log in back.logs] == [log.name for log in sized.logs]
    for name in ("loss", "low", "high", "signal", "noise"):
        np.testing.assert_array_equal(getattr(back.predict(RATES), name), getattr(sized.predict(RATES), name))
    assert back.to_dict() == sized.to_dict()
    assert json.loads((tmp_path / "found.json").read_text())["parameters"] == sized.table()


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.pop("theta"), lambda d: d.pop("logs"), lambda d: d.update(logs=[]), lambda d: d["theta"].pop(),
        lambda d: d.update(theta=["a"] * 8), lambda d: d.update(theta=[None] * 8), lambda d: d["covariance"].pop(),
        lambda d: d["metric"].update(kind="other"), lambda d: d["metric"].update(weight_decay=None),
        lambda d: d.update(batch_size=-1), lambda d: d["logs"][0].update(loss=[1.0]), lambda d: d["logs"][0].update(new=1),
        lambda d: d.update(prior=[1.0]), lambda d: d.update(residuals=3), lambda d: d.update(scatter="none"),
    ],
)  # fmt: skip
def test_damaged_files_are_refused(damage: Any, sized: Forecast, tmp_path: Path) -> None:
    data = sized.to_dict()
    damage(data)
    path = tmp_path / "damaged.json"
    path.write_text(json.dumps(data))
    with pytest.raises(Wrong, match=r"this forecast is damaged: .*; write it again with nqm forecast fit") as error:
        Forecast.load(path)
    assert error.value.argument == "path"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[1]", b"{}", b'{"format": "nqm forecast 0"}', b"3"])
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_bytes(content)
    with pytest.raises(
        Wrong, match=r"other\.json is (no forecast|a forecast of another version).*nqm forecast fit"
    ) as error:
        Forecast.load(tmp_path / "other.json")
    assert error.value.argument == "path"


def test_what_had_to_be_assumed_is_said() -> None:
    log = Log([1, 2, 3], [3.0, 2.0, 1.0], 0.1)
    metric, said = metric_of([log])
    assert metric == RateMetric("half")
    assert "No optimizer is known: AdamW is assumed." in said[0]
    assert "No weight decay is known: the weight norm is taken at its steady state" in said[1]
    assert "Say weight_decay= (--weight-decay) if you know it" in said[1]
    assert metric_of([replace(log, optimizer="AdamW")])[1] == said[1:]
    assert metric_of([replace(log, weight_decay=0.0)]) == (RateMetric("norm", 0.0), said[:1])
    assert metric_of([replace(log, optimizer="Muon", weight_decay=0.1)]) == (RateMetric("norm", 0.1), ())
    assert metric_of([replace(log, optimizer=SGD(0.1)), replace(log, optimizer="momentum")]) == (
        RateMetric("plain"),
        (),
    )
    metric, said = metric_of([replace(log, optimizer="other")])
    assert metric == RateMetric("plain")
    assert said[0].startswith("The optimizer is another one: its updates are taken as proportional to gradients")
    for name in ("signSGD", "NormalisedSGD", "SophiaG"):
        assert metric_of([replace(log, optimizer=name)])[0] == RateMetric("half")


@pytest.mark.parametrize(
    ("name", "meant"), [("AdmW", "AdamW"), ("SDG", "SGD"), ("Muno(lr=0.1)", "Muon"), ("lin", "Lion")]
)
def test_a_misspelt_optimizer_is_refused_with_what_was_meant(name: str, meant: str) -> None:
    said = rf"there is no optimizer called '{name.partition('(')[0]}' \(did you mean {meant}\?\); .* and other for one"
    with pytest.raises(Wrong, match=said) as refused:
        Log([1, 2, 3], [3.0, 2.0, 1.0], 0.1, optimizer=name)
    assert refused.value.argument == "optimizer"
    with pytest.raises(Wrong, match=said):
        read_logs("example", optimizer=name)


@pytest.mark.parametrize("kind", ["norm", "half", "plain"])
def test_the_unit_of_the_loss_does_not_matter(kind: str) -> None:
    """Bits are nats over log 2: the forecast of the same logs in bits is the same loss in bits, with the same interval."""
    metric = RateMetric("norm", 0.1) if kind == "norm" else RateMetric(kind)  # type: ignore[arg-type]
    settings = {"optimizer": "SGD"} if kind == "plain" else {"optimizer": "AdamW"}
    decay = {"weight_decay": 0.1} if kind == "norm" else {}
    drop = 2e-3 * np.where(t < T // 2, np.minimum(t / 100, 1), 0.2)
    nats = [
        Log(STEPS, law_of(metric).loss(Course.of(rates, STEPS, metric.weight_decay)), rates, **settings, **decay)
        for rates in (RATES, drop)
    ]
    bits = [replace(log, loss=log.loss / np.log(2), lr=log.rates) for log in nats]
    linear_decay = 2e-3 * np.linspace(1, 0, T)
    one, other = (forecast(logs).predict(linear_decay, [T]) for logs in (nats, bits))
    for name in ("loss", "low", "high"):
        assert getattr(other, name)[0] * np.log(2) == pytest.approx(getattr(one, name)[0], rel=1e-4)


def test_a_loss_that_rises_is_said() -> None:
    step = np.arange(10, 1001, 10)
    falls = Log(step, 3 - step / 1000, 0.1, optimizer="SGD", name="falls")
    rises = replace(falls, loss=3 - step / 1000 + np.maximum(step - 500, 0) / 200, name="rises")
    assert rising(falls) is None
    sentence = rising(rises)
    assert sentence is not None
    assert sentence.startswith("The loss of 'rises' rises from 2.545 by step 500 to 4.32 at its end")
    assert sentence in forecast([falls, rises]).remarks
    assert rising(replace(rises, step=step[:5], loss=rises.loss[-5:])) is None  # Five points tell nothing.


def decaying(count: int, name: str = "run", **settings: Any) -> Log:
    at = np.linspace(2000 / count, 2000, count).astype(int)
    return Log(at, 2 + 3 / np.sqrt(1 + at / 100) + 1e-3 * np.sin(at), 0.1, optimizer="SGD", name=name, **settings)


def test_logs_that_decide_nothing_are_refused_with_the_number() -> None:
    with pytest.raises(
        Wrong, match="these logs have 3 points after their warm-up, and the law has 6 parameters: nothing would be"
    ):
        forecast(decaying(3))
    assert len(forecast(decaying(7)).logs) == 1
    same = Log(np.arange(1, 51) * 20, np.full(50, 2.5), 0.1, optimizer="SGD", name="flat")
    with pytest.raises(Wrong, match=r"log 'flat' has 50 equal losses of 2\.5: they decide nothing") as refused:
        forecast([decaying(50), same])
    assert refused.value.argument == "logs"


def test_a_copy_of_a_log_counts_once() -> None:
    alone, twice = forecast(decaying(50)), forecast([decaying(50), decaying(50, "copy")])
    assert [log.name for log in twice.logs] == ["run"]
    assert "All 50 losses of 'copy' are those of 'run': it is a copy, and counts once." in twice.remarks
    assert [row["low"] for row in twice.table()] == [row["low"] for row in alone.table()]
    with pytest.raises(Wrong, match="all 50 losses of 'copy' are those of 'run', but their batch sizes differ"):
        forecast([decaying(50, batch_size=16), decaying(50, "copy", batch_size=64)])
    with pytest.raises(Wrong, match="but their learning rates differ"):
        forecast([decaying(50), replace(decaying(50, "copy"), lr=np.full(50, 0.2))])


def test_logs_of_few_points_decide_nothing() -> None:
    """A fit of 6 parameters to 8 points has small residuals whatever the truth is."""
    few, many = (forecast(decaying(count)) for count in (8, 50))
    assert not any(row["decided"] for row in few.table())
    assert any(row["decided"] for row in many.table())
    assert "No log has more than 8 points after its warm-up: fewer than 12 decide nothing." in few.undecided
    assert not any("No log has more" in each for each in many.undecided)


@pytest.mark.parametrize("count", [10, 50])
def test_the_degrees_of_freedom_of_a_fit_widen_its_covariance(count: int) -> None:
    """The covariance a second time, from the fit's own derivatives."""
    found = forecast(decaying(count))
    one = reading(found.logs[0], found.metric, None)
    free = [NAMES.index(name) for name in found.metric.names]
    loss, J = found.law.jacobian(one.course)
    e = found.fitted.residuals[0]
    w = one.weight * huber(e / SETTINGS_OF_FIT.scatter)[1] / SETTINGS_OF_FIT.scatter
    slopes = (w / loss)[:, None] * J[:, free]
    P = np.diag(1 / found.fitted.prior[free] ** 2)
    f = (
        mean_square(e, one.weight)
        / independent_points(e)
        * SETTINGS_OF_FIT.effective_points
        / SETTINGS_OF_FIT.scatter**2
    )
    G = w @ slopes
    middle = P + f * count / (count - 6) * slopes.T @ slopes + SETTINGS_OF_FIT.offset**2 * np.outer(G, G)
    bread = np.linalg.inv(P + slopes.T @ slopes)
    np.testing.assert_allclose(found.fitted.covariance[np.ix_(free, free)], bread @ middle @ bread, rtol=1e-6)


def test_logs_that_do_not_belong_together_are_refused() -> None:
    log = Log([1, 2, 3], [3.0, 2.0, 1.0], 0.1)
    for logs, says in (
        ([replace(log, optimizer="SGD"), replace(log, optimizer="AdamW")], "optimizers of two kinds"),
        ([replace(log, weight_decay=0.1), log], r"different weight decays \(0.1, unknown\)"),
        ([], "forecast needs logs"),
        ([3], "forecast needs logs"),
    ):
        with pytest.raises(Wrong, match=says) as error:
            forecast(logs)  # type: ignore[arg-type]
        assert error.value.argument == "logs"


def test_the_reference_batch_size() -> None:
    log = Log([1, 2, 3], [3.0, 2.0, 1.0], 0.1)
    small, large = replace(log, batch_size=16), replace(log, batch_size=[64, 64, 64])
    assert reference_of([small, large]) == (pytest.approx(32), ())
    assert reference_of([log]) == (None, ())
    size, said = reference_of([small, log])
    assert size is None
    assert said == ("1 of 2 logs have no batch size, so it is left out of account.",)


def test_batch_sizes_of_logs_are_fitted() -> None:
    """Two batch sizes at one rate: the law says what a third one does, as noise falls with the batch size."""
    law = law_of(RateMetric("plain"), A=4.0, s0=2.0, N=1.0, C=3.0)
    at, now = np.arange(50, 2001, 50), np.arange(1, 2001)
    rates = np.where(now <= 1200, 0.05, 0.01)
    logs = [
        Log(at, law.loss(Course.of(rates, at, 0.0, size / 32)), rates, batch_size=size, optimizer="SGD")
        for size in (16.0, 64.0)
    ]
    found = forecast(logs)
    assert found.batch_size == pytest.approx(32)
    # Noise-free logs leave the pull of the priors, some 1e-4 of the loss, as in the test of the fit.
    expected = law.loss(Course.of(rates, at, 0.0, 1.0))[10:]
    np.testing.assert_allclose(found.predict(rates, at, batch_size=32).loss[10:], expected, rtol=1e-3)


def test_one_log_alone_is_taken(plain: Forecast) -> None:
    assert len(forecast(plain.logs[0]).logs) == 1


def test_names_of_optimizers(plain: Forecast, sized: Forecast) -> None:
    assert plain.optimizer == "AdamW with weight decay 0.1"
    assert made(RateMetric("half")).optimizer == "an adaptive optimizer"
    assert made(RateMetric("plain")).optimizer == "SGD"
    assert repr(plain).startswith("Forecast(3 logs, AdamW with weight decay 0.1: floor 3")


def test_an_outlook_as_rows(plain: Forecast) -> None:
    found = plain.predict(RATES, [0, 100, T])
    rows = found.table()
    assert [row["step"] for row in rows] == [0, 100, T]
    assert [row["lr"] for row in rows] == pytest.approx([RATES[0], RATES[99], RATES[-1]])
    assert rows[-1]["loss"] == found.loss[-1] == found.to_dict()["loss"][-1]
    assert found.to_dict()["sentence"] == found.sentence
    assert repr(found).startswith(f"Outlook(3 points to step {T:,}, loss ")
