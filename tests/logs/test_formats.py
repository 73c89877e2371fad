"""Every format gives the same log: files as the tools write them, and small ones written by hand."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nqm.logs import Log, read_logs
from nqm.types import Wrong

STEPS = [1, 2, 4, 8, 16]
LOSSES = [3.0, 2.5, 2.25, 2.125, 2.0625]
RATES = [0.1, 0.1, 0.1, 0.05, 0.025]
ROWS = list(zip(STEPS, LOSSES, RATES, strict=True))
CSV = "step,loss,lr\n" + "".join(f"{s},{x},{r}\n" for s, x, r in ROWS)


def one(path: Path, content: str | bytes, **options: object) -> Log:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    (log,) = read_logs(path, **options)  # type: ignore[arg-type]
    return log


def check(log: Log) -> None:
    assert (log.step.tolist(), log.loss.tolist(), log.logged_rates.tolist()) == (STEPS, LOSSES, RATES)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("comma.csv", CSV),
        ("tab.tsv", CSV.replace(",", "\t")),
        ("tabs_and_commas.tsv", "step\tloss\tlr\ta, b, c, d, e\n" + "".join(f"{s}\t{x}\t{r}\t0\n" for s, x, r in ROWS)),
        ("semicolon.csv", CSV.replace(",", ";")),
        ("decimal_comma.csv", CSV.replace(",", ";").replace(".", ",")),
        ("spaces.txt", CSV.replace(",", "  ")),
        ("comment.txt", "# made by hand\n# " + CSV.replace(",", " ")),
        ("windows.csv", CSV.replace("\n", "\r\n")),
        ("blank_lines.csv", "\n" + CSV.replace("\n", "\n\n")),
        ("mark.csv", "\ufeff" + CSV),
        ("quotes.csv", 'step,loss,lr,"a note, quoted"\n' + "".join(f'{s},"{x}",{r},"x, ""y"""\n' for s, x, r in ROWS)),
        ("index.csv", ",step,loss,lr\n" + "".join(f"{i},{s},{x},{r}\n" for i, (s, x, r) in enumerate(ROWS))),
        ("float_steps.csv", "step,loss,lr\n" + "".join(f"{s}.0,{x},{r}\n" for s, x, r in ROWS)),
        ("lines.jsonl", "".join(json.dumps({"step": s, "loss": x, "lr": r}) + "\n" for s, x, r in ROWS)),
        ("list.json", json.dumps([{"step": s, "loss": x, "lr": r} for s, x, r in ROWS])),
        ("pretty.json", json.dumps([{"step": s, "loss": x, "lr": r} for s, x, r in ROWS], indent=2)),
        ("columns.json", json.dumps({"step": STEPS, "loss": LOSSES, "lr": RATES})),
        ("nested.jsonl", "".join(json.dumps({"step": s, "train": {"loss": x, "lr": r}}) + "\n" for s, x, r in ROWS)),
    ],
)
def test_tables_of_text(tmp_path: Path, name: str, text: str) -> None:
    log = one(tmp_path / name, text)
    check(log)
    assert log.name == name.partition(".")[0]
    if name != "decimal_comma.csv":
        assert log.remarks == ()
    check(one(tmp_path / (name + ".gz"), gzip.compress(text.encode())))


def test_utf_16_is_read(tmp_path: Path) -> None:
    check(one(tmp_path / "log.csv", CSV.encode("utf-16")))


NAMES = [
    ("global_step", "train_loss", "learning_rate"), ("_step", "train/loss", "train/lr"), ("iteration", "training_loss", "lr-AdamW"),
    ("iter", "eval_loss", "LR"), ("trainer/global_step", "val_loss", "lr-AdamW/pg1"), ("Step", "val/loss", "train/learning_rate"),
    ("it", "valid_loss", "optim/learning_rate_group0"), ("globalStep", "trainLoss", "learningRate"), ("num_updates", "lm loss", "lr"),
]  # fmt: skip


@pytest.mark.parametrize("names", NAMES)
def test_usual_names_are_found(tmp_path: Path, names: tuple[str, str, str]) -> None:
    log = one(tmp_path / "log.csv", CSV.replace("step,loss,lr", ",".join(names)))
    check(log)
    validation = any(word in names[1] for word in ("val", "eval"))
    assert any("validation losses" in remark for remark in log.remarks) == validation


def test_other_names_are_given(tmp_path: Path) -> None:
    text = CSV.replace("step,loss,lr", "when,what,how much")
    with pytest.raises(Wrong, match="when, what and how much") as error:
        one(tmp_path / "log.csv", text)
    assert error.value.argument == "columns"
    check(one(tmp_path / "log.csv", text, columns={"step": "when", "loss": "what", "lr": "how_much"}))
    with pytest.raises(Wrong, match=r"log.csv: there is no column for loss called 'wat' \(did you mean what\?\)"):
        one(tmp_path / "log.csv", text, columns={"step": "when", "loss": "wat", "lr": "how much"})


def test_training_and_validation_losses_are_never_mixed(tmp_path: Path) -> None:
    text = "step,val_loss,train_loss,lr\n" + "".join(f"{s},{x + 1},{x},{r}\n" for s, x, r in ROWS)
    log = one(tmp_path / "log.csv", text)
    check(log)
    (remark,) = log.remarks
    assert "training losses ('train_loss')" in remark
    assert "columns={'loss': 'val_loss'}" in remark
    other = one(tmp_path / "log.csv", text, columns={"loss": "val_loss"})
    assert other.loss.tolist() == [x + 1 for x in LOSSES]
    assert "validation losses" in other.remarks[0]


def test_rows_of_training_and_validation_are_never_mixed(tmp_path: Path) -> None:
    text = "split,step,loss,lr\n" + "".join(f"train,{s},{x},{r}\nval,{s},{x + 1},\n" for s, x, r in ROWS)
    log = one(tmp_path / "log.csv", text)
    check(log)
    assert any("5 rows without a value in the column 'train/loss'" in remark for remark in log.remarks)
    other = one(tmp_path / "log.csv", text, columns={"loss": "val/loss"})
    assert other.loss.tolist() == [x + 1 for x in LOSSES]
    assert other.logged_rates.tolist() == RATES


def test_smoothed_columns_are_not_preferred(tmp_path: Path) -> None:
    text = "step,loss (smoothed),loss,lr\n" + "".join(f"{s},9,{x},{r}\n" for s, x, r in ROWS)
    check(one(tmp_path / "log.csv", text))
    only = one(tmp_path / "log.csv", CSV.replace("loss", "loss__smoothed"))
    check(only)
    assert any("smoothed" in remark for remark in only.remarks)


def test_a_run_column_makes_several_logs(tmp_path: Path) -> None:
    rows = [f"{name},{s},{x + k},{r}\n" for s, x, r in ROWS for k, name in enumerate("ab")]
    (tmp_path / "long.csv").write_text("run,step,loss,lr\n" + "".join(rows))
    a, b = read_logs(tmp_path / "long.csv")
    check(a)
    assert (a.name, b.name) == ("a", "b")
    assert b.loss.tolist() == [x + 1 for x in LOSSES]


HISTORY = [
    {"epoch": 0.1, "grad_norm": 1.0, "learning_rate": RATES[i], "loss": LOSSES[i], "step": STEPS[i]} for i in range(5)
]
HISTORY.insert(2, {"epoch": 0.1, "eval_loss": 2.75, "eval_runtime": 1.0, "step": 2})
HISTORY.append({"epoch": 1.0, "step": 16, "total_flos": 1.0, "train_loss": 2.3, "train_runtime": 9.0})


def check_trainer_state(log: Log) -> None:
    check(log)
    said = " ".join(log.remarks)
    assert "training losses ('loss') and validation losses ('eval_loss')" in said
    assert "Other columns of training losses are not used: 'train_loss'" in said  # the mean over the whole training
    assert "2 rows without a value in the column 'loss' were omitted (steps 2 and 16)" in said
    assert "mean of the training loss since" in said


def test_trainer_state_written_by_hand(tmp_path: Path) -> None:
    log = one(tmp_path / "model" / "trainer_state.json", json.dumps({"log_history": HISTORY}))
    check_trainer_state(log)
    assert log.name == "model"
    evaluated = read_logs(tmp_path / "model", columns={"loss": "eval_loss"})[0]
    assert (evaluated.step.tolist(), evaluated.loss.tolist()) == ([2], [2.75])
    assert not any("mean of the training loss" in remark for remark in evaluated.remarks)


def test_checkpoints_of_one_run_are_one_log(tmp_path: Path) -> None:
    for count in (2, 4, len(HISTORY)):
        text = json.dumps({"log_history": HISTORY[:count]}, indent=2)
        file = tmp_path / "model" / f"checkpoint-{count}" / "trainer_state.json"
        file.parent.mkdir(parents=True)
        file.write_text(text)
        (file.parent / "config.json").write_text("{}")
    (log,) = read_logs(tmp_path)
    check_trainer_state(log)
    assert log.name == "model"
    assert any("beginning lies in other files" in remark and "checkpoint-2" in remark for remark in log.remarks)
    assert any("3 other files" in remark and "config.json" in remark for remark in log.remarks)


@pytest.mark.slow
def test_trainer_state_as_transformers_writes_it(tmp_path: Path) -> None:
    TrainerState = pytest.importorskip("transformers").TrainerState
    TrainerState(max_steps=16, log_history=HISTORY).save_to_json(str(tmp_path / "trainer_state.json"))
    check_trainer_state(read_logs(tmp_path / "trainer_state.json")[0])


def lightning_text() -> str:
    """Rows as CSVLogger writes them: each call of log_metrics is one, with the cells that it has."""
    rows = [f"0,{r},{s},,\n0,,{s},{x},\n" for s, x, r in ROWS]
    return "epoch,lr-AdamW,step,train_loss,val_loss\n" + "".join(rows) + "0,,16,,2.5\n"


def check_lightning(log: Log) -> None:
    check(log)
    assert any("6 rows without a value in the column 'train_loss'" in remark for remark in log.remarks)
    assert log.name == "version_0"


def test_lightning_metrics_written_by_hand(tmp_path: Path) -> None:
    check_lightning(one(tmp_path / "lightning_logs" / "version_0" / "metrics.csv", lightning_text()))


@pytest.mark.slow
def test_metrics_as_lightning_writes_them(tmp_path: Path) -> None:
    CSVLogger = pytest.importorskip("lightning.pytorch.loggers").CSVLogger
    logger = CSVLogger(tmp_path)
    for s, x, r in ROWS:
        logger.log_metrics({"lr-AdamW": r}, step=s)
        logger.log_metrics({"train_loss": x, "epoch": 0}, step=s)
    logger.log_metrics({"val_loss": 2.5, "epoch": 0}, step=16)
    logger.save()
    check_lightning(read_logs(tmp_path)[0])


def wandb_text(metric: str, values: list[float]) -> str:
    runs = ("bright - sun 1", "dark-moon-2")
    names = [f"{run} - {metric}{end}" for run in runs for end in ("", "__MIN", "__MAX")]
    rows = "".join(
        f'"{s}","{v}","{v}","{v}","","",""\n"{s}","","","","{2 * v}","{2 * v}","{2 * v}"\n'
        for s, v in zip(STEPS, values, strict=True)
    )
    return ",".join(f'"{name}"' for name in ("Step", *names)) + "\n" + rows


def test_exports_of_wandb_are_joined_by_run(tmp_path: Path) -> None:
    (tmp_path / "loss.csv").write_text(wandb_text("train/loss", LOSSES))
    (tmp_path / "rate.csv").write_text(wandb_text("train/learning_rate", RATES))
    sun, moon = read_logs([tmp_path / "loss.csv", tmp_path / "rate.csv"])
    check(sun)
    assert (sun.name, moon.name) == ("bright - sun 1", "dark-moon-2")
    assert moon.loss.tolist() == [2 * x for x in LOSSES]
    assert any("__MIN" in remark for remark in sun.remarks)
    (alone, _) = read_logs(tmp_path / "loss.csv", schedule="constant(16)", peak=0.1)
    assert alone.rates.tolist() == [0.1] * 16
    with pytest.raises(Wrong, match="no learning rate") as error:
        read_logs(tmp_path / "loss.csv")
    assert error.value.argument == "schedule"


def write_events(folder: Path, rows: list[tuple[int, float, float]]) -> None:
    writer = pytest.importorskip("torch.utils.tensorboard").SummaryWriter(str(folder))
    for s, x, r in rows:
        writer.add_scalar("train/loss", x, s)
        writer.add_scalar("lr", r, s)
    writer.add_text("note", "by hand", 0)
    writer.close()


def check_events(log: Log) -> None:
    assert (log.step.tolist(), log.loss.tolist()) == (STEPS, LOSSES)
    np.testing.assert_allclose(log.logged_rates, RATES, rtol=1e-7)  # event files hold single precision
    assert any("1 value of the event file was not read" in remark for remark in log.remarks)


def test_event_files_as_torch_writes_them(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    write_events(tmp_path / "run", ROWS)
    (log,) = read_logs(tmp_path)
    check_events(log)
    assert log.name == "run"
    (file,) = (tmp_path / "run").iterdir()
    content = file.read_bytes()
    check_events(one(tmp_path / "packed" / (file.name + ".gz"), gzip.compress(content)))
    cut = one(tmp_path / "cut" / file.name, content[:-5])
    check_loss = cut.loss.tolist()
    assert check_loss == LOSSES
    assert any("is cut off" in remark for remark in cut.remarks)
    damaged = bytearray(content)
    damaged[len(content) // 2] ^= 0xFF
    with pytest.raises(Wrong, match=r"event \d+ is damaged"):
        one(tmp_path / "damaged" / file.name, bytes(damaged))


def test_event_files_of_a_restarted_run_are_one_log(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    write_events(tmp_path / "a", [*ROWS[:3], (8, 9.0, 0.05)])
    write_events(tmp_path / "b", ROWS[3:])
    for i, folder in enumerate("ab"):
        (file,) = (tmp_path / folder).iterdir()
        (tmp_path / "run").mkdir(exist_ok=True)
        file.rename(tmp_path / "run" / f"events.out.tfevents.{i}")
    (log,) = read_logs(tmp_path / "run")
    assert log.loss.tolist() == LOSSES
    assert any("1 doubled point" in remark for remark in log.remarks)


def test_without_tensorboard_a_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.setitem(sys.modules, "tensorboard.backend.event_processing.event_file_loader", None)
    with pytest.raises(Wrong, match=r"TensorBoard.*pip install 'nqm\[logs\]'"):
        one(tmp_path / "events.out.tfevents.1", b'\x18\0\0\0\0\0\0\0\xa3\x7fK"brain.Event:2')


def test_reading_needs_nothing_large(tmp_path: Path) -> None:
    one(tmp_path / "log.csv", CSV)
    script = (
        f"from nqm.logs import read_logs; read_logs({str(tmp_path / 'log.csv')!r}); import sys; print(*sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in out.stdout.split()}
    assert "nqm" in loaded
    assert not loaded & {"torch", "pandas", "tensorboard", "scipy", "matplotlib", "numba"}


def test_tokens_and_examples_are_turned_into_steps(tmp_path: Path) -> None:
    tokens = "tokens,loss,lr\n" + "".join(f"{s * 4096},{x},{r}\n" for s, x, r in ROWS)
    log = one(tmp_path / "log.csv", tokens, tokens_per_step=4096)
    check(log)
    assert "'tokens' divided by tokens_per_step = 4,096" in log.remarks[0]
    examples = tokens.replace("tokens", "consumed samples")
    log = one(tmp_path / "log.csv", examples, batch_size=4096)
    check(log)
    assert log.batch_size == 4096
    rounded = one(tmp_path / "log.csv", examples.replace("4096,", "4100,"), batch_size=4096)
    check(rounded)
    assert any("rounded" in remark for remark in rounded.remarks)
    for text, argument in ((tokens, "tokens_per_step"), (examples, "batch_size")):
        with pytest.raises(Wrong, match=argument) as error:
            one(tmp_path / "log.csv", text)
        assert error.value.argument == argument


def test_batch_sizes_are_read(tmp_path: Path) -> None:
    sizes = [8, 8, 16, 16, 32]
    text = "step,loss,lr,batch_size\n" + "".join(f"{s},{x},{r},{b}\n" for (s, x, r), b in zip(ROWS, sizes, strict=True))
    assert one(tmp_path / "log.csv", text).batch_size.tolist() == sizes
    assert one(tmp_path / "log.csv", text, batch_size=4).batch_size == 4
    assert one(tmp_path / "log.csv", text.replace(",16", ",8").replace(",32", ",8")).batch_size == 8


def test_a_schedule_replaces_rates(tmp_path: Path) -> None:
    text = "warmup(4) + cosine(12, end=0.1)"
    log = one(tmp_path / "log.csv", CSV, schedule=text, peak=2.0)
    u = np.arange(12) / 12
    cosine = 2 * (0.1 + 0.9 * (1 + np.cos(np.pi * u)) / 2)
    np.testing.assert_allclose(log.rates, np.append([0.5, 1.0, 1.5, 2.0], cosine), rtol=1e-15)
    assert any("not used ('lr')" in remark for remark in log.remarks)
    short = one(tmp_path / "log.csv", CSV, schedule="warmup(4)", peak=2.0)
    assert short.rates[-1] == 2.0
    assert any("ends at step 4" in remark for remark in short.remarks)


def test_rates_of_every_step_are_not_taken_for_rates_of_points(tmp_path: Path) -> None:
    """Two points and two steps: the rates must stay those of the updates 1 and 2."""
    log = one(tmp_path / "log.csv", "step,loss\n0,3\n2,2\n", schedule="linear(2, 1, 0)", peak=1.0)
    assert log.rates.tolist() == [1.0, 0.5]


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"schedule": "cosine(10)"}, "peak"),
        ({"peak": 0.1}, "schedule"),
        ({"schedule": "__import__('os')", "peak": 0.1}, "schedule"),
        ({"schedule": 'constant(9).on("momentum") & constant(9, 2).on("momentum")', "peak": 0.1}, "schedule"),
        ({"schedule": 3, "peak": 0.1}, "schedule"),
        ({"peak": -1.0, "schedule": "constant(3)"}, "peak"),
        ({"batch_size": 0}, "batch_size"),
        ({"tokens_per_step": "many"}, "tokens_per_step"),
        ({"columns": {"los": "loss"}}, "columns"),
        ({"columns": {"loss": 3}}, "columns"),
        ({"columns": "loss"}, "columns"),
        ({"columns": {"step": "step", "tokens": "step"}}, "columns"),
        ({"weight_decay": -1}, "weight_decay"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path: Path, options: dict[str, object], argument: str | None) -> None:
    with pytest.raises(Wrong) as error:
        one(tmp_path / "log.csv", CSV, **options)
    assert error.value.argument == argument


def test_paths_are_files_folders_and_patterns(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        one(tmp_path / folder / "log.csv", CSV)
        one(tmp_path / folder / "cosine.csv", CSV)
    assert [log.name for log in read_logs(tmp_path)] == ["a/cosine", "a", "b/cosine", "b"]
    assert [log.name for log in read_logs(str(tmp_path / "*" / "cosine.csv"))] == ["a/cosine", "b/cosine"]
    assert len(read_logs([tmp_path / "a" / "log.csv", str(tmp_path / "a")])) == 2  # each file once
    for paths, says in (
        (tmp_path / "c", "no file"), (str(tmp_path / "*.csv"), "no file"), ([], "no files"), ([3], "names of files"),
        (3, "names of files"),
        ("a\0b", "not a path"), ("/dev/null", "neither"),
    ):  # fmt: skip
        with pytest.raises(Wrong, match=says) as error:
            read_logs(paths)  # type: ignore[arg-type]
        assert error.value.argument == "paths"
    (tmp_path / "c").mkdir()
    with pytest.raises(Wrong, match="holds no logs"):
        read_logs(tmp_path / "c")


def test_lightning_runs_keep_the_name_of_their_experiment(tmp_path: Path) -> None:
    """Lightning writes ``logs/NAME/version_0/metrics.csv``, and ``lightning_logs/version_0`` if no name was given."""
    for folder in ("logs/wide/version_0", "logs/wide/version_1", "logs/deep/version_0", "lightning_logs/version_3"):
        path = tmp_path / folder / "metrics.csv"
        path.parent.mkdir(parents=True)
        path.write_text(CSV)
    names = [log.name for log in read_logs(tmp_path)]
    assert sorted(names) == ["deep/version_0", "version_3", "wide/version_0", "wide/version_1"]


def test_batch_sizes_by_file_folder_run_and_pattern(tmp_path: Path) -> None:
    for name in ("small/a.csv", "small/b.csv", "large/c.csv", "large/d.csv", "e.csv"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(CSV)
    sizes = {"*": 8, str(tmp_path / "small"): 16, "a": 32, f"{tmp_path}/large/*": 64, "d.csv": 128}
    found = {log.name: log.batch_size for log in read_logs(tmp_path, batch_size=sizes)}
    assert found == {"a": 32, "b": 16, "c": 64, "d": 128, "e": 8}
    with pytest.raises(Wrong, match=r"no run or file called 'g\.csv'") as refused:
        read_logs(tmp_path, batch_size={"g.csv": 3})
    assert refused.value.argument == "batch_size"
    with pytest.raises(Wrong, match="batch_size must be a positive number"):
        read_logs(tmp_path, batch_size={"a": -1})
    assert read_logs(tmp_path / "e.csv", batch_size={"e": 4})[0].batch_size == 4


def test_the_column_of_the_losses_is_kept(tmp_path: Path) -> None:
    text = "step,loss,eval_loss,lr\n" + "".join(f"{s},{x},{x + 1},{r}\n" for s, x, r in ROWS)
    training, validation = one(tmp_path / "r.csv", text), one(tmp_path / "r.csv", text, columns={"loss": "eval_loss"})
    assert (training.column, validation.column) == ("loss", "eval_loss")
    assert one(tmp_path / "r.csv", text, like=validation).loss.tolist() == validation.loss.tolist()
    assert one(tmp_path / "s.csv", text.replace("eval_loss", "val/loss"), like=validation).column == "val/loss"
    assert one(tmp_path / "r.csv", text, like=training).column == "loss"
