"""The verbs of forecasts: their examples, their formats, what they print before a number, and what they refuse."""

from __future__ import annotations

import ast
import csv
import io
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.shell import BROKEN, ROOT, call, strict, told, told_without_output

from nqm.cli import main
from nqm.cli.forecast_shared import remarks_of
from nqm.cli.options import verbs
from nqm.logs import Forecast, Log, forecast, read_logs
from nqm.logs.files import example_files
from nqm.text.objects import parse_schedule

WSD = "wsd(24000, 2160, 4000, end=0.1)"
RUN = Path(__file__).parents[1] / "data" / "curves" / "multipowerlaw" / "100M" / "wsdld_20000_24000.csv"
FIT = ("forecast", "fit", "example", "--optimizer", "AdamW", "--weight-decay", "0.1")


def sized(lr: float, batch_size: float) -> Log:
    """A log of SGD whose noise falls with the batch size."""
    t = np.arange(50, 4001, 50)
    loss = 1 + 5 / np.sqrt(1 + lr * t) + 8 * lr / batch_size * (1 - np.exp(-t / 500))
    return Log(t, loss, lr, batch_size, "SGD", name=f"{lr:g} at {batch_size:g}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the examples of the help name."""
    folder = tmp_path_factory.mktemp("forecasts")
    (folder / "runs").mkdir()
    for file in example_files():
        (folder / "runs" / file.name).write_text(file.read_text().replace("step,lr,loss", "step,lr,train_loss"))
    (folder / "run.csv").write_text(RUN.read_text())
    t = np.arange(100, 2001, 50)
    lines = [f"{i},{3 + 2 / np.sqrt(i / 100):.5f}" for i in t.tolist()]
    (folder / "rateless.csv").write_text("\n".join(["step,loss", *lines]) + "\n")
    forecast([sized(lr, B) for lr in (0.1, 0.05) for B in (16, 64)]).save(folder / "sizes.json")
    forecast(read_logs("example", optimizer="AdamW", weight_decay=0.1)).save(folder / "forecast.json")
    return folder


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> Forecast:
    return Forecast.load(folder / "forecast.json")


VERBS = {name: command for name, command in verbs(main).items() if name.startswith("forecast ")}
EXAMPLES = [example for command in VERBS.values() for example in command.examples]


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


# Every verb.


def test_the_group_lists_its_verbs() -> None:
    text = call("forecast").stdout
    assert [name.split()[1] for name in VERBS] == [
        "fit", "show", "predict", "check", "plot", "best", "length", "next", "batch",
    ]  # fmt: skip
    for name, command in VERBS.items():
        assert f"  {name.split()[1]} " in text
        assert command.short_help in " ".join(text.split())


@pytest.mark.slow
@pytest.mark.parametrize("line", EXAMPLES)
def test_examples_run(line: str, here: Path) -> None:
    words = shlex.split(line)
    kept = (here / "forecast.json").read_text()
    try:
        result = call(*words[1:])
    finally:
        (here / "forecast.json").write_text(kept)  # Some examples write other fits to this file.
    assert result.exit_code == 0, result.output
    assert result.stdout
    for option in ("--plot", "--csv", "--out"):
        if option in words and (name := words[words.index(option) + 1]) != "-":
            assert (here / name).stat().st_size > 0
            assert f"wrote {name}" in result.stderr


FORECASTS = [
    (("predict", "forecast.json", "--schedule", WSD, "--peak", "3e-4"), "sentence"),
    (("predict", "forecast.json", "--log", "run.csv"), "measured"),
    (("best", "forecast.json", "--steps", "6000", "--pieces", "5"), "rivals"),
    (("length", "forecast.json", "--steps", "3k"), "gain"),
    (("next", "forecast.json", "--steps", "6000"), "width"),
    (("batch", "sizes.json"), "megatron"),
    (("check", "forecast.json"), "rows"),
    (("plot", "forecast.json", "--schedule", WSD), "lines"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("args", "field"), FORECASTS, ids=lambda value: value[0] if isinstance(value, tuple) else "")
def test_every_verb_writes_json_and_csv(args: tuple[str, ...], field: str) -> None:
    as_json = call("forecast", *args, "--json", "--csv", "table.csv")
    assert as_json.exit_code == 0, as_json.output
    assert field in strict(as_json.stdout)
    as_csv = call("forecast", *args, "--csv", "-")
    assert as_csv.exit_code == 0, as_csv.output
    assert as_csv.stdout == Path("table.csv").read_text()
    assert len(rows_of(as_csv.stdout)) >= (1 if args[0] == "length" else 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "args", [args for args, _ in FORECASTS if args[0] in ("predict", "best", "length", "check", "batch")]
)
def test_pictures_are_written(args: tuple[str, ...], tmp_path: Path) -> None:
    result = call("forecast", *args, "--plot", tmp_path / "picture.png")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize(("args", "field"), FORECASTS, ids=lambda value: value[0] if isinstance(value, tuple) else "")
def test_the_answer_comes_first_and_remarks_are_counted(args: tuple[str, ...], field: str) -> None:
    lines = call("forecast", *args).stdout.splitlines()
    assert not lines[0].startswith("- ")
    remarks = [line for line in call("forecast", "show", args[1]).stdout.splitlines() if line.startswith("- ")]
    assert lines[-1] == f"({len(remarks)} remarks: nqm forecast show {args[1]})"
    assert not set(remarks) & set(lines)


@pytest.mark.parametrize("file", ["forecast.json", "sizes.json"])
def test_all_remarks_are_shown(file: str) -> None:
    lines = call("forecast", "show", file).stdout.splitlines()
    loaded = Forecast.load(file)
    said = [*loaded.remarks, *loaded.undecided]
    assert said
    assert all(f"- {sentence}" in lines for sentence in said)
    for remark in {remark for log in loaded.logs for remark in log.remarks}:
        assert sum(line.endswith(remark) for line in lines) == 1
    assert [line.split()[0] for line in lines if line.endswith((" yes", " no"))] == [
        r["parameter"] for r in loaded.table()
    ]


@pytest.mark.slow
@pytest.mark.parametrize("args", [args for args, _ in FORECASTS], ids=lambda args: args[0])
@pytest.mark.parametrize("number", BROKEN)
def test_what_cannot_be_printed_is_told(args: tuple[str, ...], number: int, capfd: pytest.CaptureFixture[str]) -> None:
    assert BROKEN[number] in told_without_output(("forecast", *args), number, capfd)


# Numbers are the library's.


def test_fit_writes_the_forecast_that_the_library_makes(found: Forecast, tmp_path: Path) -> None:
    result = call(*FIT, "--out", tmp_path / "mine.json", "--json")
    assert result.stderr == f"wrote {tmp_path / 'mine.json'}\n"
    assert strict(result.stdout) == json.loads((tmp_path / "mine.json").read_text())
    ours = Forecast.load(tmp_path / "mine.json")
    np.testing.assert_allclose(ours.law.theta, found.law.theta, rtol=1e-6)  # Two fits of the same logs.
    assert [log.name for log in ours.logs] == ["constant", "cosine", "drop"]
    assert str(ours.optimizer) == "AdamW with weight decay 0.1"


def test_fit_prints_the_parameters(found: Forecast, tmp_path: Path) -> None:
    text = call(*FIT, "--out", tmp_path / "mine.json").stdout
    for row in found.table():
        assert f"\n{row['parameter']} " in text
    assert f"3 logs of AdamW with weight decay 0.1; the law fits them to {100 * found.error:.2g}% of the loss" in text


def test_fit_takes_columns_rates_and_batch_sizes() -> None:
    whole = ("--map", "loss=loss", "--schedule", "warmup(100) + cosine(1900)", "--peak", "3e-4", "-b", "2^9")
    args = ("rateless.csv", *whole, "--optimizer", "Adam", "--weight-decay", "0.05", "--out", "one.json")
    assert call("forecast", "fit", *args).exit_code == 0
    (log,) = Forecast.load("one.json").logs
    (again,) = read_logs(
        "rateless.csv", columns={"loss": "loss"}, schedule="warmup(100) + cosine(1900)", peak=3e-4, batch_size=512,
        optimizer="Adam", weight_decay=0.05,
    )  # fmt: skip
    assert log.to_dict() == again.to_dict()


def test_predict_is_that_of_the_library(found: Forecast) -> None:
    args = ("forecast", "predict", "forecast.json", "--schedule", WSD, "--peak", "3e-4")
    outlook = found.predict(parse_schedule(WSD), peak=3e-4)
    assert strict(call(*args, "--json").stdout) == outlook.to_dict()
    rows = rows_of(call(*args, "--csv", "-").stdout)
    assert [float(row["loss"]) for row in rows] == outlook.loss.tolist()
    end = f"loss {outlook.loss[-1]:#.5g} after 24,000 steps; 90% of such runs end between {outlook.low[-1]:#.5g} and "
    assert call(*args).stdout.splitlines()[0] == end + f"{outlook.high[-1]:#.5g}"
    short = strict(call(*args, "--steps", "22k", "--json").stdout)
    assert short["steps"][-1] == 22_000


def test_predict_stands_beside_a_log(found: Forecast) -> None:
    (log,) = read_logs("run.csv")
    outlook = found.predict(log)
    told_ = strict(call("forecast", "predict", "forecast.json", "--log", "run.csv", "--json").stdout)
    assert told_ == outlook.to_dict() | {"measured": log.loss.tolist()}
    rows = rows_of(call("forecast", "predict", "forecast.json", "--log", "run.csv", "--csv", "-").stdout)
    assert [float(row["measured"]) for row in rows] == log.loss.tolist()
    assert abs(float(rows[-1]["loss"]) - float(rows[-1]["measured"])) < 0.005  # The law was not fitted to this run.
    partly = strict(call("forecast", "predict", "forecast.json", "--log", "run.csv", "--steps", 9000, "--json").stdout)
    assert {m for m in partly["measured"] if m is not None} <= set(log.loss.tolist())


@pytest.mark.slow
def test_best_is_that_of_the_library_in_every_form(found: Forecast) -> None:
    args = ("forecast", "best", "forecast.json", "--steps", "6000", "--min-lr", "3e-5", "--pieces", "5")
    plan = found.optimal_schedule(6000, min_lr=3e-5, pieces=5)
    assert strict(call(*args, "--json").stdout) == plan.to_dict()
    text = call(*args).stdout
    assert plan.text() in text
    for row in plan.rivals:
        assert f"{row['schedule']} " in text
        assert f"{row['loss']:#.5g}" in text
    as_text = call(*args, "--as", "text")
    assert as_text.stdout == plan.text() + "\n"
    assert as_text.stderr == "(5 remarks: nqm forecast show forecast.json)\n"  # Standard output has the schedule alone.
    assert parse_schedule(as_text.stdout.strip()).steps == 6000
    assert call(*args, "--as", "csv").stdout == call(*args, "--csv", "-").stdout == plan.to_csv()
    snippet = call(*args, "--as", "torch").stdout
    ast.parse(snippet)
    assert snippet.strip() == plan.torch().strip()
    assert "torch.optim.lr_scheduler.LambdaLR" in snippet


def test_best_text_predicts_the_loss_of_the_best_schedule(found: Forecast) -> None:
    plan = found.optimal_schedule(6000, pieces=5)
    text = call("forecast", "best", "forecast.json", "--steps", "6000", "--pieces", "5", "--as", "text").stdout.strip()
    again = call("forecast", "predict", "forecast.json", "--schedule", text, "--peak", plan.peak, "--json")
    # Straight lines replace the curve to 0.4% of the peak, which moves the loss by far less than its fourth digit.
    assert strict(again.stdout)["loss"][-1] == pytest.approx(plan.loss, abs=1e-3)


@pytest.mark.slow
def test_best_goes_on_from_a_trunk_and_may_rise(found: Forecast) -> None:
    (trunk,) = read_logs("run.csv")
    args = ("forecast", "best", "forecast.json", "--steps", "30000", "--pieces", "4", "--json")
    after = strict(call(*args, "--trunk", "run.csv").stdout)
    assert after == found.optimal_schedule(30_000, pieces=4, trunk=trunk).to_dict()
    assert sum(after["lengths"]) == 30_000
    free = strict(call(*args, "--free", "--warmup", "100", "--max-lr", "2e-4").stdout)
    assert free == found.optimal_schedule(30_000, 2e-4, pieces=4, monotone=False, warmup=100).to_dict()


@pytest.mark.slow
def test_length_is_that_of_the_library(found: Forecast) -> None:
    args = ("forecast", "length", "forecast.json", "--steps", "6k,12000", "--min-lr", "3e-5", "--max-lr", "2e-4")
    by_length = found.losses_by_length([6000, 12_000], 2e-4, 3e-5)
    assert strict(call(*args, "--json").stdout) == by_length.to_dict()
    assert call(*args, "--csv", "-").stdout == by_length.to_csv()
    text = call(*args).stdout
    for row in by_length.table():
        assert f"{row['loss']:#.5g}" in text
    more = f"the loss would be {by_length.gain[-1]:.4f} lower than after 12,000 steps"
    assert text.splitlines()[0].endswith(more)


def test_batch_sizes_of_megatron(here: Path) -> None:
    ramp = Forecast.load(here / "sizes.json").critical_batch_size()
    assert strict(call("forecast", "batch", "sizes.json", "--json").stdout) == ramp.to_dict()
    alone = call("forecast", "batch", "sizes.json", "--as", "megatron", "--tokens-per-example", "1k")
    assert alone.stdout == ramp.megatron(1000) + "\n"
    assert alone.stdout.startswith("0:")
    plan = call("forecast", "best", "sizes.json", "--steps", "500", "--pieces", "3", "-b", "32", "--as", "megatron")
    assert plan.stdout == "0:32\n"


@pytest.mark.slow
def test_check_next_and_plot_are_those_of_the_library(found: Forecast, tmp_path: Path) -> None:
    assert strict(call("forecast", "check", "forecast.json", "--json").stdout) == found.check().to_dict()
    assert strict(call("forecast", "next", "forecast.json", "--json").stdout) == found.next_run().to_dict()
    drawn = strict(call("forecast", "plot", "forecast.json", "--out", tmp_path / "a.png", "--json").stdout)
    assert [line["log"] for line in drawn["lines"]] == [log.name for log in found.logs]
    for line, log in zip(drawn["lines"], found.logs, strict=True):
        assert line["measured"] == log.loss.tolist()
        assert line["loss"] == found.predict(log).loss.tolist()


# Wrong calls.


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (("fit",), "Missing argument 'LOGS...'"),
        (("fit", "nowhere.csv"), "Invalid value for 'LOGS...': there is no file 'nowhere.csv'"),
        (("fit", "nowhere/*.csv"), "Invalid value for 'LOGS...': there is no file 'nowhere/*.csv'"),
        (("fit", "rateless.csv"), "Invalid value for '--schedule': rateless.csv"),
        (("fit", "rateless.csv", "--schedule", "cosine(100)"), "Invalid value for '--peak': a schedule needs peak"),
        (("fit", "rateless.csv", "--peak", "0.1"), "Invalid value for '--schedule': peak is the largest rate"),
        (("fit", "rateless.csv", "--schedule", "cosyne(9)", "--peak", "1"), "did you mean cosine?"),
        (("fit", "example", "--map", "loss"), "Invalid value for '--map': 'loss' is not ROLE=NAME"),
        (("fit", "example", "--map", "los=loss"), "Invalid value for '--map': there is no role"),
        (("fit", "example", "--map", "loss=accuracy"), "Invalid value for '--map': "),
        (("fit", "example", "-b", "-4"), "Invalid value for '--batch-size' / '-b': batch_size must be a positive number"),
        (("fit", "example", "--weight-decay", "-1"), "Invalid value for '--weight-decay': weight_decay must be"),
        (("fit", "example", "--tokens-per-step", "0"), "Invalid value for '--tokens-per-step': "),
        (("fit", "example", "--out", "fit.csv"), "Invalid value for '--out': 'fit.csv' should end in .json"),
        (("fit", "example", "--out", "run.csv/a.json"), "Invalid value for '--out': "),
        (("predict", "nowhere.json", "--schedule", WSD), "Invalid value for 'FORECAST'"),
        (("predict", "run.csv", "--schedule", WSD), "Invalid value for 'FORECAST': run.csv is no forecast"),
        (("predict", "damaged.json", "--schedule", WSD), "Invalid value for 'FORECAST': this forecast is damaged"),
        (("predict", "forecast.json"), "give --schedule or --log, but not both"),
        (("predict", "forecast.json", "--schedule", WSD, "--log", "run.csv"), "give --schedule or --log"),
        (("predict", "forecast.json", "--log", "run.csv", "--peak", "1"), "a log has its own learning rates"),
        (("predict", "forecast.json", "--schedule", "wsdd(3)"), "Invalid value for '--schedule': there is no"),
        (("predict", "forecast.json", "--schedule", WSD, "--peak", "-1"), "Invalid value for '--peak': peak must be"),
        (("predict", "forecast.json", "--schedule", WSD, "--peak", "fast"), "Invalid value for '--peak'"),
        (("predict", "forecast.json", "--schedule", WSD, "--steps", "-1"), "Invalid value for '--steps'"),
        (("predict", "forecast.json", "--schedule", WSD, "-b", "8"), "Invalid value for '--batch-size' / '-b': these logs"),
        (("predict", "forecast.json", "--schedule", "constant(9, 0)"), "Invalid value for '--schedule': "),
        (("predict", "forecast.json", "--log", "rateless.csv"), "Invalid value for '--log': rateless.csv"),
        (("predict", "forecast.json", "--log", "two.csv"), "Invalid value for '--log': 'two.csv' holds 2 runs"),
        (("best", "forecast.json"), "Missing option '--steps'"),
        (("best", "forecast.json", "--steps", "0"), "Invalid value for '--steps'"),
        (("best", "forecast.json", "--steps", "100", "--max-lr", "-1"), "Invalid value for '--max-lr'"),
        (("best", "forecast.json", "--steps", "100", "--min-lr", "1"), "Invalid value for '--min-lr': min_lr 1 is above"),
        (("best", "forecast.json", "--steps", "100", "--pieces", "0"), "Invalid value for '--pieces'"),
        (("best", "forecast.json", "--steps", "100", "--trunk", "run.csv"), "Invalid value for '--steps': the trunk has"),
        (("best", "forecast.json", "--steps", "100", "--as", "jax"), "Invalid value for '--as'"),
        (("best", "forecast.json", "--steps", "100", "--as", "megatron"), "Invalid value for '--batch-size' / '-b': these logs"),
        (("best", "forecast.json", "--steps", "100", "--as", "text", "--json"), "give one of them"),
        (("length", "forecast.json", "--steps", "6k,many"), "Invalid value for '--steps': "),
        (("length", "forecast.json", "--steps", "0,6k"), "Invalid value for '--steps': "),
        (("length", "forecast.json", "--min-lr", "1"), "Invalid value for '--min-lr': min_lr 1 is above"),
        (("next", "forecast.json", "--max-lr", "-1"), "Invalid value for '--max-lr'"),
        (("batch", "forecast.json"), "Invalid value for 'FORECAST': the critical batch size needs logs at two"),
        (("batch", "sizes.json", "--peak", "1"), "--peak is for --schedule"),
        (("check", "one.json"), "Invalid value for 'FORECAST': a check leaves one log out"),
        (("plot", "forecast.json", "--peak", "1"), "--peak is for --schedule"),
        (("plot", "forecast.json", "--out", "a.gif"), "Invalid value for '--out': 'a.gif' should end in .png"),
        (("forget",), "there is no verb 'forget'"),
    ],
)  # fmt: skip
def test_wrong_calls_get_one_sentence(args: tuple[str, ...], part: str, here: Path) -> None:
    data: dict[str, Any] = json.loads((here / "forecast.json").read_text())
    (here / "damaged.json").write_text(json.dumps(data | {"theta": [1, 2]}))
    (here / "two.csv").write_text("run,step,loss,lr\n" + "".join(f"{r},{t},3,0.1\n" for r in "ab" for t in (1, 2, 3)))
    if not (here / "one.json").exists():
        forecast(sized(0.1, 16)).save(here / "one.json")
    assert part in told(call("forecast", *args))


def test_a_forecast_of_another_version_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "tests").joinpath("cli", "shell.py").read_text()  # any text that is not JSON
    Path("other.json").write_text(text)
    Path("forecast.json").write_text('{\n  "format": "nqm forecast 0",\n  "theta": []\n}')
    for args in (("show",), ("predict", "--schedule", WSD)):
        sentence = told(call("forecast", args[0], "forecast.json", *args[1:]))
        assert "forecast.json is a forecast of another version of nqm: its format is 'nqm forecast 0'" in sentence
        assert "name a new file with --out" in sentence
        assert "no forecast" not in sentence
    assert "exists and is a forecast of another version of nqm, or damaged; name another" in told(call(*FIT))
    assert Path("forecast.json").read_text().startswith('{\n  "format": "nqm forecast 0"')
    told_of_text = told(call("forecast", "show", "other.json"))
    assert "other.json is no forecast" in told_of_text
    assert "--out other.json" not in told_of_text
    assert "give it as --forecast" in told(call("spectrum", "forecast.json"))


def test_a_log_may_have_a_batch_size_that_the_forecast_lacks(here: Path, tmp_path: Path) -> None:
    header, *lines = (here / "run.csv").read_text().splitlines()
    (tmp_path / "sized.csv").write_text("\n".join([f"{header},batch_size", *(f"{line},512" for line in lines)]) + "\n")
    with_size = call("forecast", "predict", "forecast.json", "--log", tmp_path / "sized.csv", "--csv", "-")
    assert with_size.exit_code == 0, with_size.output
    assert with_size.stdout == call("forecast", "predict", "forecast.json", "--log", "run.csv", "--csv", "-").stdout
    other = ("forecast", "predict", "forecast.json", "--log", "run.csv", "-b", 512)
    assert "Invalid value for '--batch-size'" in told(call(*other))


@pytest.mark.parametrize(
    ("columns", "args", "said"),
    [
        ("epoch,loss,lr", (), "name it: --map step=NAME, or tokens=NAME or examples=NAME; its columns are"),
        ("step,quality,lr", (), "name it: --map loss=NAME; its columns are"),
        ("step,loss,speed", (), "name its column, --map lr=NAME, or give the schedule and its peak, such as "
         "--schedule 'warmup(2160) + cosine(21840, end=0.1)' --peak 3e-4; its columns are"),
    ],
)  # fmt: skip
def test_sentences_speak_of_options(columns: str, args: tuple[str, ...], said: str, tmp_path: Path) -> None:
    rows = "".join(f"{t},{3 + 1 / t:.4f},0.1\n" for t in range(1, 40))
    (tmp_path / "log.csv").write_text(f"{columns}\n{rows}")
    assert said in told(call("forecast", "fit", tmp_path / "log.csv", *args, "--out", tmp_path / "f.json"))


def test_remarks_speak_of_options(tmp_path: Path) -> None:
    rows = "".join(f"{t},{3 + 1 / t:.4f},{3.1 + 1 / t:.4f},0.1\n" for t in [*range(1, 40), *range(1, 60)])
    (tmp_path / "log.csv").write_text(f"step,train_loss,val_loss,lr\n{rows}")
    result = call("forecast", "fit", tmp_path / "log.csv", "--out", tmp_path / "f.json")
    assert result.exit_code == 0, result.output
    assert "the training losses are used, and --map loss='val_loss' takes the other" in result.stdout
    assert "if a column tells them apart, name it: --map run=NAME" in result.stdout
    assert "Say --optimizer if it is another" in result.stdout
    assert "= " not in result.stdout.replace("R2 = ", "")
    assert "columns=" not in result.stdout


def test_a_wrong_out_is_refused_before_logs_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nqm.logs.read_logs", None)  # Calling it would be an error of another kind.
    monkeypatch.chdir(tmp_path)
    Path("forecast.json").write_text('{"mine": 1}')
    sentence = "Invalid value for '--out': 'forecast.json' exists and is not a forecast; name another file with --out"
    assert sentence in told(call(*FIT))
    assert Path("forecast.json").read_text() == '{"mine": 1}'
    Path("forecast.json").unlink()
    Path("forecast.json").mkdir()
    assert "Invalid value for '--out': 'forecast.json' is a folder" in told(call(*FIT))


def test_an_earlier_forecast_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("forecast", "fit", "example").exit_code == 0
    assert call(*FIT).exit_code == 0
    assert Forecast.load("forecast.json").metric.weight_decay == 0.1


def test_a_file_of_ones_own_called_example_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("example").write_text("step,loss,lr\n1,3,0.1\n2,2,0.1\n")
    assert [log.step.tolist() for log in read_logs("example")] == [[1, 2]]


@pytest.mark.slow
def test_many_remarks_are_grouped_and_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    t = np.arange(10, 400, 10)
    logs = [Log(t, 2 + (1 + i / 99) / np.sqrt(t), 0.1, optimizer="SGD", name=f"run {i}", remarks=("All alike.", f"Only {i}."))
            for i in range(20)]  # fmt: skip
    found = forecast(logs)
    found.save("many.json")
    lines = remarks_of(found, 12)
    assert lines[:2] == ["all logs: All alike.", "run 0: Only 0."]
    assert lines[12] == "nqm forecast show prints 9 more sentences on single logs"
    shown = call("forecast", "show", "many.json").stdout.splitlines()
    assert [line for line in shown if line.startswith("- ")] == [f"- {sentence}" for sentence in remarks_of(found)]
    assert "- run 19: Only 19." in shown


def test_a_misspelt_optimizer_is_refused() -> None:
    done = call("forecast", "fit", "example", "--optimizer", "AdmW", "--out", "misspelt.json")
    assert done.exit_code == 2
    said = " ".join(done.stderr.split())
    assert "there is no optimizer called 'AdmW' (did you mean AdamW?)" in said
    assert "--optimizer" in said
    assert not Path("misspelt.json").exists()


def state(folder: Path, name: str, shift: float = 0.0) -> Path:
    """A trainer_state.json whose validation losses are 0.5 above its training losses."""
    t = np.arange(50, 2001, 50)
    train = 2 + 3 / np.sqrt(1 + 0.1 * t) + shift
    history = [{"step": int(i), "loss": float(y), "learning_rate": 0.1} for i, y in zip(t, train, strict=True)]
    history += [{"step": int(i), "eval_loss": float(y) + 0.5} for i, y in zip(t, train, strict=True)]
    path = folder / name / "trainer_state.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"log_history": history}))
    return path


def test_a_log_is_compared_in_the_losses_that_were_fitted(folder: Path) -> None:
    """The forecast is of eval_loss; the log has training losses too, which lie 0.5 lower and are what read_logs takes."""
    one, two = state(folder, "one"), state(folder, "two", shift=0.001)
    fitted = call("forecast", "fit", str(one), "--map", "loss=eval_loss", "--optimizer", "SGD", "--out", "eval.json")
    assert fitted.exit_code == 0, fitted.stderr
    found = strict(call("forecast", "predict", "eval.json", "--log", str(two), "--json").stdout)
    assert found["measured"][-1] == pytest.approx(2.501 + 3 / np.sqrt(201), abs=1e-9)
    asked = call("forecast", "predict", "eval.json", "--log", str(two), "--map", "loss=loss")
    assert "The measured losses are the column 'loss'; the forecast was fitted to 'eval_loss'." in " ".join(
        asked.stdout.split()
    )
    t = np.arange(50, 2001, 50)
    Path("train.csv").write_text("step,loss,lr\n" + "".join(f"{i},{3 / i:.5f},0.1\n" for i in t.tolist()))
    refused = call("forecast", "predict", "eval.json", "--log", "train.csv")
    assert refused.exit_code == 2
    assert "has no column 'eval_loss' and no other validation losses to compare with" in " ".join(
        refused.stderr.split()
    )


def test_the_picture_of_a_log_has_its_points(monkeypatch: pytest.MonkeyPatch) -> None:
    from nqm.logs import plots

    drawn: list[int] = []
    points = plots._points
    monkeypatch.setattr(plots, "_points", lambda log, *rest: drawn.append(len(log.step)) or points(log, *rest))
    assert call("forecast", "predict", "forecast.json", "--log", "run.csv", "--plot", "with.png").exit_code == 0
    assert drawn == [len(read_logs("run.csv")[0].step)]
    assert call("forecast", "predict", "forecast.json", "--schedule", WSD, "--plot", "without.png").exit_code == 0
    assert len(drawn) == 1


def test_each_file_has_its_batch_size(folder: Path) -> None:
    for i in (1, 2):
        t = np.arange(50, 2001, 50)
        lines = [f"{k},{2 + 3 / np.sqrt(k) + i / 1000:.6f},0.1" for k in t.tolist()]
        (folder / f"part{i}.csv").write_text("\n".join(["step,loss,lr", *lines]) + "\n")
    words = ("forecast", "fit", "part1.csv", "part2.csv", "--optimizer", "SGD", "--out", "parts.json")
    assert call(*words, "-b", "part1.csv=64", "-b", "256").exit_code == 0
    assert {log.name: log.batch_size for log in Forecast.load("parts.json").logs} == {"part1": 64, "part2": 256}
    for sizes, says in (
        (("-b", "part3.csv=64"), "there is no run or file called 'part3.csv' (did you mean part"),
        (("-b", "64", "-b", "32"), "--batch-size is given twice for all files"),
        (("-b", "part1.csv=0"), "batch_size must be a positive number"),
        (("-b", "=3"), "is not FILE=B"),
    ):
        refused = call(*words, *sizes)
        assert refused.exit_code == 2
        assert says in " ".join(refused.stderr.split())


def test_beyond_the_reach_of_the_logs_there_is_no_answer_without_extrapolate() -> None:
    far = ("forecast", "predict", "forecast.json", "--schedule", WSD, "--peak", "10")
    plain, wide = strict(call(*far, "--json").stdout), strict(call(*far, "--extrapolate", "--json").stdout)
    assert set(plain["low"]) == set(plain["high"]) == {None}
    assert plain["beyond"] == ["its peak rate 10 is 33,333 times the largest of the logs, 0.0003"]
    assert wide["beyond"] == []
    assert wide["low"][-1] < wide["loss"][-1] == plain["loss"][-1]
    shown = call(*far).stdout
    assert "by the law alone: there is no interval" in shown
    assert "nan" not in shown
    for words in (
        ("best", "--steps", "8000", "--max-lr", "1"),
        ("next", "--max-lr", "1"),
        ("length", "--steps", "1e7"),
    ):
        refused = call("forecast", words[0], "forecast.json", *words[1:])
        assert refused.exit_code == 2
        assert "or give --extrapolate" in " ".join(refused.stderr.split())
    alone = call("steps", "SGD(1)", "-b", "4", "--target", "0.1", "--extrapolate")
    assert "--extrapolate is for --forecast" in alone.stderr
