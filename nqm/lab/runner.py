"""Runs a study: hands rounds of trials to workers, stores their results, and continues from the results in the store."""

from __future__ import annotations

import queue
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..nets.training.trial import Result, Trial
from ..show.html import versions
from ..types import Wrong
from . import executors, work
from .executors import Crew, Executor
from .plan import Cell, cells
from .results import Results
from .source import versioned
from .store import LEASE_SECONDS, LabError, Store
from .study import Study

SHOWN_DAMAGE = 5  # A message names at most this many damaged rows.
STACKING = ("auto", "always", "never")


@dataclass(frozen=True)
class RunnerSettings:
    """Numbers that steer how a runner shares out work; no result depends on them.

    Those on lost workers were measured with four workers on 12 cells, of which 4 kill every worker that trains them.
    """

    tries: int = 4
    """A round whose workers are lost is given up after this many tries. A try costs the start of a worker, 1 to 2 seconds. A
    round whose worker another process drove out of memory deserves several tries; one that kills every worker deserves none."""
    suspect: int = 2
    """A round that lost its workers this often runs alone, so that it has the memory of the machine for itself. With 1, 2 and 3
    a run took 14, 18 and 19 seconds, and none of the 8 blameless cells was given up."""
    poll_seconds: float = 0.5
    """The runner reads this often what other runners have stored. Reading takes 0.3 ms if there is nothing new, less than 0.1%
    of the time. A runner may wait this long for a round that another runner has ended."""


RUNNER = RunnerSettings()


@dataclass(eq=False)
class Round:
    """Trials of a cell that a worker trains."""

    cell: Cell
    trials: list[Trial]
    tries: int = 0
    future: Future[list[work.Data]] | None = None


@dataclass(frozen=True)
class AtWork:
    """A round that a worker trains: of which cell, how many trials, and how far it has come in steps, if that is known."""

    cell: Cell
    trials: int
    step: int
    most: int


@dataclass(frozen=True)
class Snapshot:
    """How far a run has come, for a view of it.

    ``new`` counts the trials that this run trained itself, ``seconds`` is the time since it began, and ``spent`` the time
    of its trials. ``rounds`` are those at work.
    """

    study: Study
    cells: Sequence[Cell]
    running: int
    new: int
    seconds: float
    spent: float
    workers: int
    note: str = ""
    finished: bool = False
    rounds: Sequence[AtWork] = ()


Watch = Callable[[Snapshot], None]


def run(
    study: Study | str | Path, *, store: str | Path | None = None, executor: Executor | Crew | None = None,
    worker: str | None = None, stacking: str = "auto", retry_failed: bool = False,
    watch: Watch | None = None,
) -> Results:  # fmt: skip
    """Run a study to its end and return its results; trials whose results are in the store are not run again.

    Parameters
    ----------
    study : a `Study`, or the path of a TOML file.
    store : file of the results; by default the file of the study with the ending .db.
    executor : anything with ``submit`` as in `concurrent.futures`, or a `Crew`; by default this process.
    worker : function that trains, ``module:function``, instead of the study's own.
    stacking : whether workers train several trials at once: ``auto``, ``always`` or ``never``.
    retry_failed : run trials again that an exception ended, or whose rows in the store are damaged.
    watch : called with a `Snapshot` whenever something has changed.
    """
    path, folder = store or default_store(study), None if isinstance(study, Study) else Path(study).absolute().parent
    study = study if isinstance(study, Study) else Study.load(study)
    if worker:
        study = replace(study, worker=worker)
    study = versioned(study, folder)
    if stacking not in STACKING:
        raise Wrong(f"stacking must be one of {', '.join(STACKING)}, got {stacking!r}", argument="stacking")
    crew = executors.here() if executor is None else executor
    crew = crew if isinstance(crew, Crew) else executors.given(crew)
    with Store.open(path, write=True) as opened:
        _check_budget(study, opened)
        opened.register(study)
        if retry_failed:
            opened.forget_failed(study)
            opened.forget_damaged()
        elif damaged := opened.damaged():
            told = f"{len(damaged)} rows of {str(path)!r} are damaged: {', '.join(damaged[:SHOWN_DAMAGE])}"
            raise LabError(f"{told}; the rest can be read, and --retry-failed trains them again", resumable=False)
        with _enlisted(opened, study) as name:
            _Runner(study, opened, crew, name, str(folder or ""), stacking, watch or (lambda _: None)).run()
        return Results.of(study, opened)


def _check_budget(study: Study, store: Store) -> None:
    """Refuse fewer trials than before: some stored trials were stopped early because of rivals that would be missing."""
    for before in (found for found in store.studies() if found.key == study.key):
        for label in study.optimizers:
            had, now = (one.first_trials(label) for one in (before, study))
            if had > now:
                raise Wrong(
                    f"{str(store.path)!r} was searched with trials = {had}, and the study now has {now}: some stored "
                    f"trials were stopped early because of rivals that would be missing; set trials to {had} or more, or "
                    "use another store (--store)",
                    "study.trials",
                )


def default_store(study: Study | str | Path) -> Path:
    """The default file of results of a study: beside its TOML file, or in the current folder."""
    return Path(f"{study.name}.db") if isinstance(study, Study) else Path(study).with_suffix(".db")


@contextmanager
def _enlisted(store: Store, study: Study) -> Iterator[str]:
    """Register a runner in the store while the context lasts, and return its name; a thread reports that it is alive."""
    name, over = uuid.uuid4().hex[:12], threading.Event()
    store.enlist(name, study, versions())

    def beat() -> None:
        with (
            suppress(LabError, Wrong),
            Store.open(store.path, write=True) as own,
        ):  # The runner will meet the same error.
            while not over.wait(LEASE_SECONDS / 6):
                own.beat(name)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield name
    finally:
        over.set()
        thread.join()
        with suppress(LabError):  # The claims of a process that is gone lapse anyway.
            store.discharge(name)


@dataclass(eq=False)
class _Runner:
    study: Study
    store: Store
    crew: Crew
    name: str
    folder: str
    stacking: str
    watch: Watch
    flying: set[Round] = field(default_factory=set)
    waiting: list[Round] = field(default_factory=list)  # Rounds whose workers were lost, to be handed over again.
    given_up: dict[Cell, str] = field(default_factory=dict)
    stopping: bool = False
    mending: BaseException | None = (
        None  # Why all workers are to be started again, as soon as none of them has a round.
    )

    def run(self) -> None:
        self.ended: queue.SimpleQueue[tuple[Round, Future[list[work.Data]]] | None] = queue.SimpleQueue()
        self.began, self.new, self.spent, self.seen, self.taken_in = time.monotonic(), 0, 0.0, 0, 0.0
        self.known: dict[str, Result] = {}
        self.cells = cells(self.study)
        self._take_in()
        try:
            with self._between_calls():
                self._check()
                while not self.stopping and self._hand_over():
                    self._collect()
            if self.stopping:
                raise KeyboardInterrupt
            self._show(finished=True)
        finally:
            self.crew.close()
        if self.given_up:
            raise LabError("; ".join(self.given_up.values()))

    @contextmanager
    def _between_calls(self) -> Iterator[None]:
        """Let Ctrl-C take effect between two calls of the executor: within one, it could leave a worker half started.

        A second Ctrl-C takes effect at once, and so does the first if trials run in this process.
        """
        if isinstance(self.crew.executor, executors.Here) or threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(*_: object) -> None:
            if self.stopping:
                raise KeyboardInterrupt
            self.stopping = True
            self.ended.put(None)  # This wakes up the loop that waits for rounds to end.

        before = signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _check(self) -> None:
        """Let the worker refuse trials that it cannot run, before anything is trained."""
        begun = [cell for cell in self.cells if cell.round and not cell.done]
        first = [trial.to_dict() for cell in begun for trial in (*(cell.round or ())[:1], *cell.extremes())]
        if not first:
            return
        for tried in range(1, RUNNER.tries + 1):
            try:
                self._checked(first)
                return
            except Exception as error:
                if not executors.lost(error):
                    raise
                if tried == RUNNER.tries or not self.crew.renewable:
                    script = "in a script, call run() under if __name__ == '__main__'"
                    raise LabError(f"workers were lost {tried} times before the first round; {script}") from error
                self._show("a worker was lost before the first round; another takes its place")
                self._mend(error)

    def _checked(self, first: list[work.Data]) -> None:
        future, done = self.crew.submit(work.check_trials, self.study.worker, first, self.folder), threading.Event()
        future.add_done_callback(lambda _: done.set())
        while not done.wait(RUNNER.poll_seconds):
            if self.stopping:
                return
        future.result()

    def _mend(self, error: BaseException) -> None:
        """Start all workers again, unless only one was lost, which is replaced without that."""
        self.mending = None
        if executors.spares_others(error):
            return
        try:
            self.crew.renew()
        except (Wrong, OSError) as gone:
            raise LabError(f"the workers are lost and cannot be started again: {gone}") from error

    def _abandon(self, error: BaseException) -> None:
        """Give up the rounds that were handed to a scheduler shortly before it was lost, and that never end; start again."""
        for flight in list(self.flying):
            self.flying.discard(flight)
            self._lost(flight, error)
        self._mend(error)

    def _take_in(self) -> None:
        """Take in what other runners have stored."""
        found, self.seen = self.store.results(self.study.worker, self.seen)
        self.known |= found
        self.taken_in = time.monotonic()
        for cell in self.cells:
            cell.advance(self.known)

    def _hand_over(self) -> bool:
        """Give rounds to free workers; return whether there is anything left to wait for."""
        busy = {flight.cell for flight in (*self.flying, *self.waiting)} | set(self.given_up)
        idle = sorted((c for c in self.cells if c.round and c not in busy), key=lambda c: len(c.done))
        for cell in idle:
            if not self._free():
                break
            missing = [trial for trial in cell.round or () if trial.key not in self.known]
            if self.store.claim(self.name, self.study.worker, [trial.key for trial in missing]):
                self._submit(Round(cell, missing))
        for flight in list(self.waiting):
            if self._free() and (flight.tries < RUNNER.suspect or not self.flying):
                self.waiting.remove(flight)
                self._submit(flight)
        self._show()
        return bool(self.flying or self.waiting or idle)

    def _free(self) -> bool:
        if self.mending is not None or any(flight.tries >= RUNNER.suspect for flight in self.flying):
            return False
        return self.crew.slots is None or len(self.flying) < self.crew.slots

    def _submit(self, flight: Round) -> None:
        self.flying.add(flight)
        try:
            trials, race = [trial.to_dict() for trial in flight.trials], flight.cell.phase == "search"
            future = flight.future = self.crew.submit(
                work.call, self.study.worker, trials, self.stacking, race, self.folder
            )
        except Exception as error:  # The executor itself is gone.
            future = Future()
            future.set_exception(error)
        future.add_done_callback(lambda future: self.ended.put((flight, future)))

    def _collect(self) -> None:
        """Wait for a round to end, and keep what it found."""
        try:
            item = self.ended.get(timeout=RUNNER.poll_seconds)
        except queue.Empty:
            if self.mending is not None and not self.crew.answers:
                self._abandon(self.mending)
            self._take_in()
            return
        if item is None:
            return
        flight, future = item
        self.flying.discard(flight)
        try:
            data = future.result()
        except BaseException as error:
            if not executors.lost(error):
                raise  # A trial that fails is a result; an error of the worker concerns all trials and ends the run.
            self._lost(flight, error)
        else:
            self._keep(flight, data)
        if self.mending is not None and not self.flying:
            self._mend(self.mending)
        if time.monotonic() - self.taken_in > RUNNER.poll_seconds:
            self._take_in()

    def _keep(self, flight: Round, data: list[work.Data]) -> None:
        pairs = list(zip(flight.trials, map(Result.from_dict, data), strict=True))
        kind = "confirm" if flight.cell.phase == "confirm" else "search"
        self.new += self.store.add(self.name, self.study, flight.cell.label, kind, pairs)
        self.spent += sum(result.seconds for _, result in pairs)
        self.known |= {result.key: result for _, result in pairs if result.key not in self.known}
        flight.cell.advance(self.known)

    def _lost(self, flight: Round, error: BaseException) -> None:
        """Hand a round over again whose workers were lost, up to `RunnerSettings.tries` times."""
        flight.tries += 1
        what = f"{flight.cell.label} at batch size {flight.cell.batch_size}"
        if flight.tries >= RUNNER.tries or not self.crew.renewable:
            self.store.release(self.study.worker, [trial.key for trial in flight.trials])
            self.given_up[flight.cell] = (
                f"workers were lost {flight.tries} times while they trained {what} ({type(error).__name__}); "
                "perhaps the machine ran out of memory: use fewer workers, and run the same command again"
            )
        else:
            self.waiting.append(flight)
        if self.crew.renewable and not executors.spares_others(error):
            self.mending = error
        self._show(f"a worker was lost with {what}; its trials are handed over again")

    def _show(self, note: str = "", finished: bool = False) -> None:
        running, seconds = sum(len(flight.trials) for flight in self.flying), time.monotonic() - self.began
        rounds = [self._at_work(flight) for flight in self.flying]
        at = Snapshot(
            self.study, self.cells, running, self.new, seconds, self.spent, self.crew.size, note, finished, rounds
        )
        self.watch(at)

    def _at_work(self, flight: Round) -> AtWork:
        heard = self.crew.heard(flight.future) if flight.future else None
        return AtWork(flight.cell, len(flight.trials), heard.step if heard else 0, heard.most if heard else 0)
