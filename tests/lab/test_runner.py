"""Running a study: the same table in any process, after any interruption, by however many runners."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lab_studies import Table, begun, small, stored

from nqm.lab import LabError, Results, Snapshot, Store, Study, executors, run
from nqm.lab.executors import Crew
from nqm.lab.view import headline
from nqm.text.imports import UserCodeError
from nqm.types import Wrong


def test_the_table_is_complete(undisturbed: Table, study: Study) -> None:
    assert [row["optimizer"] for row in undisturbed] == ["SGD"] * 3 + ["HeavyBall"] * 3 + ["EMA(HeavyBall)"] * 3
    assert [row["batch_size"] for row in undisturbed] == [4, 16, 64] * 3
    assert all(row["state"] == "done" and row["steps"] and row["seeds"] == 3 for row in undisturbed)
    assert all(row["feasible"] == study.trials for row in undisturbed)


@pytest.mark.parametrize("how", ["threads", "local", pytest.param("dask", marks=pytest.mark.slow)])
def test_every_executor_gives_the_same_table(how: str, undisturbed: Table, study: Study, tmp_path: Path) -> None:
    if how == "dask":
        pytest.importorskip("distributed")
    made = {
        "threads": lambda: ThreadPoolExecutor(3),
        "local": lambda: executors.local(2),
        "dask": lambda: executors.dask(workers=2),
    }[how]()
    assert run(study, store=tmp_path / "small.db", executor=made).table() == undisturbed


@pytest.mark.slow
def test_again_repeats_nothing_and_more_goes_on(undisturbed: Table, log: Path, tmp_path: Path) -> None:
    path = tmp_path / "small.db"
    first = run(small(worker="logged", batch_sizes=[4, 16]), store=path)
    before = Counter(begun(log))
    again = run(small(worker="logged", batch_sizes=[4, 16]), store=path)
    assert again.table() == first.table()
    assert Counter(begun(log)) == before
    more = run(small(worker="logged"), store=path)
    assert more.table() == undisturbed
    ended = set(before)
    assert not ended & set(begun(log)[before.total() :])


def test_another_study_lives_in_the_same_file(undisturbed: Table, study: Study, tmp_path: Path) -> None:
    path = tmp_path / "small.db"
    first = run(study, store=path).study
    other = run(small(target=0.1, name="easier"), store=path)
    assert other.table() != undisturbed
    assert Results.open(path).study.name == "easier"
    assert Results.open(path, "small").table() == undisturbed
    assert Results.open(path, first.key).table() == undisturbed
    with pytest.raises(ValueError, match=r"has no study 'none'; there are easier \(\w+\), small"):
        Results.open(path, "none")


def test_a_wrong_study_is_refused_before_anything_runs(tmp_path: Path) -> None:
    path = tmp_path / "small.db"
    with pytest.raises(ValueError, match="no optimizer 'Adam' here"):
        run(small(optimizers={"Adam": {"lr": {"low": 0.1, "high": 1}}}), store=path)
    assert stored(path) == []
    with pytest.raises(
        ValueError, match=r"cannot find the module 'nowhere' of nowhere:run: looked in .*; put nowhere\.py beside"
    ):
        run(small(), store=path, worker="nowhere:run")
    with pytest.raises(ValueError, match="no name in lab_workers called 'nothing'"):
        run(small(worker="nothing"), store=path)
    with pytest.raises(ValueError, match=r"submit\(\)"):
        run(small(), store=path, executor=3)
    with pytest.raises(ValueError, match="stacking must be one of"):
        run(small(), store=path, stacking="maybe")


@pytest.mark.parametrize(
    ("worker", "error", "why"),
    [
        (
            "raises",
            UserCodeError,
            r"the worker lab_workers:raises failed with ZeroDivisionError: on purpose \(lab_workers\.py",
        ),
        ("short", Wrong, "one result for each trial"),
    ],
)
def test_a_worker_that_breaks_its_contract(worker: str, error: type[Exception], why: str, tmp_path: Path) -> None:
    path = tmp_path / "small.db"
    with pytest.raises(error, match=why):
        run(small(worker=worker), store=path)
    with Store.open(path) as store:
        assert not store.at_work(f"lab_workers:{worker}")  # its claims are given up


def test_an_exception_in_a_worker_of_another_process_is_the_users_own(tmp_path: Path) -> None:
    with pytest.raises(UserCodeError, match="the worker lab_workers:interrupted failed with KeyError") as caught:
        run(small(worker="interrupted"), store=tmp_path / "small.db", executor=executors.local(1))
    assert "raise KeyError(trials[0].key[:4])" in caught.value.traceback
    assert "nqm/lab" not in caught.value.traceback


def test_failed_trials_are_told_and_run_again_when_asked(log: Path, tmp_path: Path) -> None:
    study = small(optimizers={"SGD": {"lr": {"low": 0.1, "high": 1}, "broken": True}}, worker="logged")
    path = tmp_path / "small.db"
    found = run(study, store=path)
    assert {p.message for p in found.points} == {"every trial of a round failed: it broke"}
    run(study, store=path)
    assert max(Counter(begun(log)).values()) == 1
    run(study, store=path, retry_failed=True)
    assert set(Counter(begun(log)).values()) == {2}


def test_a_range_that_is_not_widened_any_more(tmp_path: Path) -> None:
    study = small(
        widen=True,
        optimizers={"SGD": {"lr": {"low": 1e-11, "high": 1e-10}}},
        trials=16,
        batch_sizes=[16],
        max_steps=10**13,
    )
    (told,) = run(study, store=tmp_path / "small.db").edges()
    assert told.endswith("upper end of its range; the box was widened 6 times: choose another range in the study")


def test_widening_follows_from_the_study(tmp_path: Path) -> None:
    study = small(widen=True, optimizers={"SGD": {"lr": {"low": 1e-4, "high": 0.01}}}, trials=16)
    path = tmp_path / "small.db"
    narrow = run(replace(study, widen=False), store=path)
    assert len(narrow.edges()) == 3
    assert "batch size 16: the best lr lies at the upper end of its range" in narrow.edges()[1]
    assert narrow.edges()[1].endswith("widen = true in the study extends it")
    wide = run(study, store=path)
    assert wide.edges() == []
    assert narrow.keys < wide.keys
    assert Results.open(path).table() == run(study, store=path).table() == wide.table()
    for before, after in zip(narrow.points, wide.points, strict=True):
        assert after.feasible > before.feasible == 16
        assert (after.steps or 0) < (before.steps or 0)
    fresh = run(study, store=tmp_path / "fresh.db")
    assert fresh.table() == wide.table()


# Workers that are lost.


def test_a_worker_that_dies_is_replaced(undisturbed: Table, log: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    crew = executors.local(2)
    watch = lambda at: notes.append(at.note) if at.note else None  # noqa: E731
    found = run(small(worker="dies_once"), store=tmp_path / "small.db", executor=crew, watch=watch)
    assert found.table() == undisturbed
    assert log.exists()
    assert any("a worker was lost with" in note for note in notes)


def test_an_executor_that_takes_no_more_calls_ends_the_run(tmp_path: Path) -> None:
    """Nobody can tell whether an error of ``submit`` would go away, so it is shown."""
    crew = executors.local(1)
    right, calls = crew.executor.submit, []

    def submit(function: Any, *args: Any) -> Future[Any]:
        calls.append(function)
        if len(calls) == 2:
            raise OSError("no more calls")
        return right(function, *args)

    crew.executor.submit = submit
    with pytest.raises(OSError, match="no more calls"):
        run(small(), store=tmp_path / "small.db", executor=crew)
    assert run(small(), store=tmp_path / "small.db").finished


@pytest.mark.slow
def test_a_round_that_kills_its_workers_is_given_up_alone(undisturbed: Table, tmp_path: Path) -> None:
    path = tmp_path / "small.db"
    with pytest.raises(LabError, match=r"lost 4 times while they trained (SGD|HeavyBall) at batch size 4"):
        run(small(worker="dies_at_four"), store=path, executor=executors.local(1))
    found = Results.open(path)
    assert [row for row in found.table() if row["batch_size"] != 4] == [r for r in undisturbed if r["batch_size"] != 4]
    assert {p.message for p in found.points if p.batch_size == 4} == {"not begun"}


class Dropping:
    """An executor that loses every other call."""

    calls = 0

    def submit(self, function: Any, *args: Any) -> Future[Any]:
        self.calls += 1
        future: Future[Any] = Future()
        if self.calls % 2 == 0:
            future.cancel()
        else:
            future.set_result(function(*args))
        return future


def test_calls_that_are_lost_are_handed_over_again(undisturbed: Table, study: Study, tmp_path: Path) -> None:
    dropping = Dropping()
    crew = Crew(lambda: dropping, 1, lambda _: None)
    assert run(study, store=tmp_path / "small.db", executor=crew).table() == undisturbed


def test_an_executor_of_ones_own_is_not_replaced(study: Study, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="were lost 1 times"):
        run(study, store=tmp_path / "small.db", executor=Dropping())


def test_what_a_run_says_of_itself(study: Study, tmp_path: Path) -> None:
    seen: list[Snapshot] = []
    run(study, store=tmp_path / "small.db", watch=seen.append)
    assert seen[-1].finished
    assert (
        seen[-1].new == sum(len(list(cell.trials())) for cell in seen[-1].cells) == len(stored(tmp_path / "small.db"))
    )
    assert [s.new for s in seen] == sorted(s.new for s in seen)


def test_no_scheduler_there(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(executors, "CONNECT_SECONDS", 0.5)
    with pytest.raises(ValueError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1"):
        executors.crew("tcp://127.0.0.1:1")
    with pytest.raises(ValueError, match="on must be local, here, dask, or an address"):
        executors.crew("cloud")


def test_a_range_that_leaves_what_is_allowed_is_refused_before_anything_is_trained(log: Path, tmp_path: Path) -> None:
    """The first points of a search may all lie where nothing is wrong; the ends of its ranges tell."""
    box = {"lr": {"low": 0.01, "high": 1}, "momentum": {"low": 0, "high": 1.02, "scale": "linear"}}
    study = small(optimizers={"HeavyBall": box}, worker="logged", batch_sizes=[4])
    with pytest.raises(ValueError, match=r"momentum must be in \[0, 1\), got 1\.01898"):
        run(study, store=tmp_path / "small.db")
    assert begun(log) == []
    box["momentum"]["high"] = 1  # which no point comes to
    run(small(optimizers={"HeavyBall": box}, worker="logged", batch_sizes=[4]), store=tmp_path / "small.db")


def test_a_worker_that_is_no_function_is_refused(tmp_path: Path) -> None:
    study = small(worker="run_trials").to_dict()
    study["study"]["worker"] = "math:pi"
    with pytest.raises(ValueError, match=r"the worker math:pi must be a function, and is 3\.14"):
        run(Study.from_dict(study), store=tmp_path / "small.db")


def test_a_worker_that_dies_before_the_first_round_is_replaced(undisturbed: Table, log: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    found = run(
        small(worker="dies_in_check", workload="dies_in_check"), store=tmp_path / "small.db", executor=executors.local(1),
        watch=lambda at: notes.append(at.note) if at.note else None,
    )  # fmt: skip
    drop = {"key"}  # Its workload has another name.
    assert [{k: v for k, v in row.items() if k not in drop} for row in found.table()] == [
        {k: v for k, v in row.items() if k not in drop} for row in undisturbed
    ]
    assert notes[0] == "a worker was lost before the first round; another takes its place"


def test_a_worker_that_always_dies_before_the_first_round_ends_the_run(tmp_path: Path) -> None:
    class Lost:
        def submit(self, function: Any, *args: Any) -> Future[Any]:
            raise BrokenExecutor

    with pytest.raises(LabError, match="workers were lost 4 times before the first round"):
        run(small(), store=tmp_path / "small.db", executor=Crew(Lost, 1, lambda _: None))


def test_wrong_studies_are_refused_before_workers_start(tmp_path: Path) -> None:
    started: list[int] = []
    crew = Crew(lambda: started.append(1) or executors.Here(), 1)  # type: ignore[func-returns-value]
    with pytest.raises(ValueError, match="cannot find the module 'nowhere'"):
        run(small(), store=tmp_path / "small.db", worker="nowhere:run", executor=crew)
    run(small(), store=tmp_path / "small.db")
    with pytest.raises(ValueError, match="was searched with trials = 6, and the study now has 5"):
        run(small(trials=5), store=tmp_path / "small.db", executor=crew)
    assert not started


@pytest.mark.slow
@pytest.mark.parametrize("how", ["local", "dask"])
def test_a_run_says_how_far_its_rounds_are(how: str, log: Path, tmp_path: Path) -> None:
    if how == "dask":
        pytest.importorskip("distributed")
    seen: list[str] = []
    run(
        small(worker="reporting", batch_sizes=[4]),
        store=tmp_path / "small.db",
        executor=executors.crew(how, 1),
        watch=lambda at: seen.append(headline(at)),
    )
    assert any("; SGD 4 at step 7 of 4,000 at most" in line for line in seen), seen


def test_a_lost_crew_that_cannot_start_again_is_one_sentence(study: Study, tmp_path: Path) -> None:
    class Gone:
        calls = 0

        def submit(self, function: Any, *args: Any) -> Future[Any]:
            Gone.calls += 1
            future: Future[Any] = Future()
            if Gone.calls > 1:
                future.cancel()
            else:
                future.set_result(function(*args))
            return future

    starts: list[int] = []

    def start() -> Gone:
        starts.append(1)
        if len(starts) > 1:
            raise Wrong("no scheduler answers", "on")
        return Gone()

    with pytest.raises(
        LabError, match="the workers are lost and cannot be started again: no scheduler answers"
    ) as told:
        run(study, store=tmp_path / "small.db", executor=Crew(start, 1, lambda _: None))
    assert told.value.resumable
