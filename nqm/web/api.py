"""The endpoints. Each takes a JSON body, calls the engine once, and returns a JSON answer."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Literal, cast

import numpy as np

from ..engine.run import number, numbers
from ..engine.schedule import Schedule
from ..engine.spectrum import Spectrum, decades
from ..logs import Forecast, Log, Outlook
from ..nets.fitting.model import Fit
from ..nets.monitoring.choosing import BatchChoice
from ..nets.monitoring.watching import Watched, known_scale
from ..optimizers import Optimizer
from ..optimizers.base import parameters
from ..problems.base import Problem
from ..problems.quadratic import Quadratic
from ..search import Axis, optimal_schedule, phase_map, steps_to_target
from ..search import tune as run_tune
from ..search.answer import Sampling, check_goal
from ..search.preview import preview_sweep
from ..search.sweeps import Sweep, Sweeping, sorted_sizes
from ..show.tables import plain
from ..types import Array, Wrong
from .bodies import BODIES, Given, PlannedSchedule
from .fields import Refused, told
from .files import SHELF, noise_of
from .limits import SERVER
from .parts import PARTS
from .recipes import recipe

Answer = dict[str, object]

FIELDS = {
    "problem": "problem.kind",
    "spectrum": "problem.spectrum",
    "replacement": "epochs",
    "bent": "quadratic",
    "max_lr": "peak",
}
"""The field of a body for each argument of the library that has another name there."""


def curve(
    problem: Given, optimizer: Optimizer, batch_size: float, steps: int, schedule: PlannedSchedule | None, quick: bool,
    seed: int, grid: Literal["log", "linear"], points: int, replicas: int,
) -> Answer:  # fmt: skip
    """Loss over steps of one setting: exact, by mean field if the optimizer is not linear, or sampled if it has none."""
    limit = None if quick else _limit(problem, optimizer, batch_size)
    followed = problem.problem.follows(optimizer)
    quick = followed and (quick or problem.problem.slow(steps))
    where, plan = problem.quick if quick else problem.problem, schedule and schedule.schedule
    if followed:
        run = where.run(optimizer, batch_size, steps, plan, grid, points)
    else:
        run = where.sample(
            optimizer, batch_size, steps, plan, grid=grid, points=points, workers=1, replicas=replicas, seed=seed
        )
    return {
        **run.to_dict(),
        "noise_loss": None if run.noise is None else numbers(run.noise / run.batch_size),
        "band_noise_loss": None if run.band_noise is None else numbers(run.band_noise / run.batch_size),
        "initial_loss": where.initial_loss,
        "stability_limit": limit,
        "multipliers": None if plan is None else _multipliers(plan, run.steps),
        "quick": quick,
    }


def _multipliers(schedule: Schedule, steps: Array) -> dict[str, list[float]]:
    at = [schedule.at(int(t)) for t in steps]
    return {name: [values[i] for values in at] for i, name in enumerate(("lr", "momentum", "batch_size"))}


def _limit(given: Given, optimizer: Optimizer, batch_size: float) -> float | None:
    """The learning rate at which a setting loses stability; None if it would take long to compute."""
    if not optimizer.linear or "lr" not in parameters(optimizer) or optimizer.endless.cycle > 1:
        return None
    return number(given.quick.stability_limit(optimizer, batch_size))


def steps(
    problem: Given, optimizer: Optimizer, batch_size: float, target: float, schedule: PlannedSchedule | None, quick: bool,
    until: Literal["first", "settled"],
) -> Answer:  # fmt: skip
    """Steps that one setting needs to reach a loss."""
    where, plan = problem.quick if quick else problem.problem, schedule and schedule.schedule
    hit = steps_to_target(where, optimizer, batch_size, target, plan, until=until)
    return {**hit.to_dict(), "optimizer": str(optimizer)}


def tune(
    problem: Given, optimizer: Optimizer, batch_size: float, target: float | None, steps: int | None, examples: float | None,
    seed: int,
) -> Answer:  # fmt: skip
    """Best values of the free parameters at one batch size."""
    return run_tune(problem.problem, optimizer, batch_size, target, steps=steps, examples=examples, seed=seed).to_dict()


def sweep(problem: Given, target: float, seed: int, optimizers: list[Optimizer], batch_sizes: list[float]) -> Answer:
    """Tuned steps to a target at each batch size, for each optimizer."""
    found = [_told_sweep(problem.problem, o, batch_sizes, target, seed) for o in optimizers]
    return {"sweeps": [_swept(one) for one in found], "optimizer": ", ".join(str(o) for o in optimizers)}


def _told_sweep(problem: Problem, optimizer: Optimizer, batch_sizes: list[float], target: float, seed: int) -> Sweep:
    """The sweep of an optimizer; each of its points is told as a part of the answer when it is found."""
    sizes, sampling = sorted_sizes(batch_sizes), Sampling.of(optimizer, "gaussian", seed, None)
    sweeping = Sweeping(problem, optimizer, sizes, check_goal(problem, target), sampling=sampling)
    for found, _ in sweeping.points():
        if math.isfinite(found.batch_size):
            told = {"batch_size": found.batch_size, "steps": found.steps, "optimizer": str(found.optimizer)}
            PARTS.add({"label": str(optimizer), **told, "added": found.batch_size not in sizes})
    return sweeping.answer()


def preview(
    problem: Given, target: float, optimizers: list[Optimizer], batch_sizes: list[float], near: list[Optimizer],
    near_steps: list[float], added: list[float],
) -> Answer:  # fmt: skip
    """A sweep to about 1%, from settings near the answer: what the page shows while a slider moves.

    ``added`` has the batch sizes that the sweep added to those that were asked for.
    """
    if len(optimizers) != 1 or len(near) != len(near_steps):
        raise Wrong("a preview has one optimizer, and as many near_steps as near", argument="near")
    pairs = list(zip(near, near_steps, strict=True))
    found = preview_sweep(problem.problem, optimizers[0], sorted_sizes(batch_sizes).tolist(), target, pairs, added)
    return {"sweeps": [_swept(found)], "optimizer": str(optimizers[0])}


def _swept(found: Sweep) -> Answer:
    names = dict.fromkeys(name for o in found.optimizers if o for name in parameters(o))
    values = [parameters(o) if o else {} for o in found.optimizers]
    settings = {name: [number(known[name].value) if known else None for known in values] for name in names}
    return {
        **found.to_dict(),
        "settings": settings,
        "perfect_scaling": numbers(found.perfect_scaling()),
        "bounds": {k: number(v) if k == "conjugate_gradients" else numbers(v) for k, v in found.bounds().items()},
    }


def schedule(
    problem: Given, optimizer: Optimizer, batch_size: float, target: float | None, steps: int | None, examples: float | None,
    pieces: int, on: Literal["lr", "batch_size"], max_rate: float | Literal["paper"] | None,
) -> Answer:  # fmt: skip
    """The best piecewise-constant schedule of the learning rate or of the batch size."""
    where = _of_fixed_noise(problem, "best schedules")
    goal = {"target": target, "steps": steps, "examples": examples}
    found = optimal_schedule(where, optimizer, batch_size, **goal, pieces=pieces, on=on, max_rate=max_rate)
    return found.to_dict()


def phases(problem: Given, optimizer: Optimizer, target: float, batch_size: float | None, x: Axis, y: Axis) -> Answer:
    """Steps to a target over two settings."""
    return phase_map(_of_fixed_noise(problem, "maps"), optimizer, x, y, batch_size, target=target).to_dict()


def _of_fixed_noise(given: Given, what: str) -> Quadratic:
    if given.spectrum.forecast is not None:
        raise Wrong(f"{what} need a spectrum, not a forecast; in Python, {given.problem.instead}", argument="spectrum")
    if not given.problem.separable:
        raise Wrong(f"{what} need noise of fixed variance, the kind quadratic", argument="problem")
    return cast(Quadratic, given.problem)


def spectrum(problem: Given) -> Answer:
    """What ``nqm spectrum --json`` prints, noise scales at the start, nodes and bands to draw, and the fit."""
    if problem.spectrum.forecast is not None:
        raise Wrong("a forecast has no spectrum to show; look at its loss over steps", argument="spectrum")
    modes, fit = problem.problem.spectrum, problem.spectrum.fit
    edges, which = decades(modes.h)
    masses = {"signal": modes.signal_mass, "noise": modes.noise_mass, "count": modes.count}
    return {
        **modes.summary(),
        "nodes_shown": _nodes(modes),
        "bands": {"edges": numbers(edges), **{name: numbers(which @ mass) for name, mass in masses.items()}},
        "fit": None if fit is None else _fitted(fit),
        "optimizer": None,
    }


def _nodes(spectrum: Spectrum) -> dict[str, list[object]]:
    """Nodes from the largest curvature down; if there are too many, a selection at equal factors of their rank."""
    order = np.argsort(-spectrum.h, kind="stable")
    if len(order) > SERVER.nodes_shown:
        order = order[np.unique(np.rint(np.geomspace(1, len(order), SERVER.nodes_shown)).astype(int)) - 1]
    return {name: numbers(getattr(spectrum, name)[order]) for name in ("h", "c", "s", "count")}


def _fitted(fit: Fit) -> dict[str, object]:
    measures = {name: getattr(fit, name) for name in ("signal", "noise", "density")}
    return {
        **fit.to_dict(),
        "top": {name: numbers(values) for name, values in fit.top.items()},
        **{  # Weights are averaged over the probes.
            name: measure and {"h": numbers(measure.h), "weight": numbers(measure.weight / measure.probes)}
            for name, measure in measures.items()
        },
        "descent": fit.descent and {"steps": numbers(fit.descent.steps), "loss": numbers(fit.descent.loss)},
    }


def outlook(
    problem: Given, schedule: PlannedSchedule | None, peak: float | None, batch_size: float | None, best: int | None,
    extrapolate: bool, brief: bool, file: bool,
) -> Answer:  # fmt: skip
    """Logged losses beside those of the law that was fitted to them, a run that was not made, and the best one.

    ``peak`` is the rate that a schedule multiplies, and the largest rate of the best one. ``brief`` omits the logs, which stay
    the same while a schedule moves. ``file`` adds the forecast as its file has it. Beyond the reach of the logs a run has no interval
    (``low`` and ``high`` are null, and ``beyond`` says why) and no best schedule, unless ``extrapolate`` asks for them.
    """
    found = problem.spectrum.forecast
    if found is None:
        raise Wrong("open a log of training first: a CSV, or a trainer_state.json", argument="spectrum")
    planned = (
        None
        if schedule is None
        else found.predict(schedule.schedule, peak=peak, batch_size=batch_size, extrapolate=extrapolate)
    )
    runs = [] if brief else [_measured(found, log) for log in found.logs]
    plan = None if best is None else found.optimal_schedule(best, peak, batch_size=batch_size, extrapolate=extrapolate)
    chosen = plan and _told(plan.outlook)
    return {
        "runs": runs, "planned": planned and _told(planned), "best": chosen, "error": found.error, "peak": found.peaks[1],
        "noise": found.noise if found.noisy else None, "warmup": found.warmup, "batch_size": number(found.batch_size),
        "remarks": [*found.remarks, *found.undecided], "optimizer": found.optimizer,
        "file": problem.spectrum.content if file else None, "method": "law",
    }  # fmt: skip


def _measured(found: Forecast, log: Log) -> Answer:
    """A log with the fitted loss at its steps, and by how much the logged loss is above it."""
    fitted, which = found.predict(log), _thinned(len(log.step))
    residual = log.loss / fitted.loss - 1
    columns = {"step": log.step, "loss": log.loss, "fitted": fitted.loss, "residual": residual}
    return {"name": log.name, **{name: numbers(column[which]) for name, column in columns.items()}}


def _told(run: Outlook) -> Answer:
    which = _thinned(len(run.steps))
    rates = np.asarray(run.rates)[np.maximum(np.asarray(run.steps, dtype=int)[which] - 1, 0)]
    columns = {"steps": run.steps, "loss": run.loss, "low": run.low, "high": run.high}
    told = {name: numbers(np.asarray(column)[which]) for name, column in columns.items()}
    return {**told, "rates": numbers(rates), "message": run.sentence, "beyond": list(run.beyond)}


def _thinned(size: int) -> Array:
    """At most `ServerLimits.nodes_shown` indices, evenly spread, with the first and the last."""
    return np.unique(np.linspace(0, size - 1, min(size, SERVER.nodes_shown)).round().astype(int))


def predict(
    problem: Given, optimizer: Optimizer, batch_size: float, steps: int, schedule: PlannedSchedule | None, epochs: bool,
    quadratic: bool, target: float | None,
) -> Answer:  # fmt: skip
    """What a fitted network will do next, and when its trainings first dip below a target."""
    fit, plan = _fit_of(problem, "predictions"), schedule and schedule.schedule
    found = fit.predict(optimizer, batch_size, steps, plan, replacement=not epochs, bent=not quadratic)
    hits = None if target is None else fit.first_hits(optimizer, batch_size, target, plan)
    return {**found.to_dict(), "first_hits": hits and hits.to_dict()}


def advise(problem: Given, batch_size: float, target: float, optimizer: Optimizer | None) -> Answer:
    """How to reach a training loss soonest from the checkpoint of a fit. The share of the work that is done is told in parts."""
    fit = _fit_of(problem, "advice")
    found = fit.advise(batch_size, target, optimizer, progress=lambda done, of: PARTS.add({"done": done, "of": of}))
    return {
        **found.to_dict(),
        "families": [str(one.family) for one in found.arrivals],
        "loss": fit.loss,
        "method": "sampled",
    }


def _fit_of(given: Given, what: str) -> Fit:
    if given.spectrum.fit is None:
        raise Wrong(f"{what} need a file of nqm fit; drop one on the page, or open the sample", argument="spectrum")
    return given.spectrum.fit


def batch(training: BatchChoice) -> Answer:
    """The batch size to use, and time against cost around it."""
    return {**training.to_dict(), "optimizer": None}


def noise(text: str, name: str) -> Answer:
    """The noise scale in the file of a monitor or of a fit, with its interval and the batch size of the training."""
    found = noise_of(text, name)
    try:
        scale, low, high, _ = known_scale(found)
    except Wrong as wrong:
        raise Wrong(str(wrong), argument="text") from None
    watched = isinstance(found, Watched)
    return {
        "noise_scale": scale, "low": low, "high": high, "batch_size": number(found.batch_size) if watched else None,
        "sentence": " ".join(found.sentences()[:2]) if watched else str(found), "optimizer": None,
    }  # fmt: skip


ENDPOINTS: dict[str, Callable[..., Answer]] = {
    "curve": curve, "steps": steps, "tune": tune, "sweep": sweep, "schedule": schedule, "map": phases,
    "spectrum": spectrum, "predict": predict, "advise": advise, "preview": preview,
    "outlook": outlook, "batch": batch, "noise": noise,
}  # fmt: skip


def upload(content: bytes, name: str = "") -> Answer:
    """Read an uploaded file and describe it."""
    opened = SHELF.opened(content, name)
    kind = "fit" if opened.fit else "forecast" if opened.forecast else "spectrum"
    told: Answer = {"id": opened.id, "name": opened.name, "kind": kind, "file": opened.to_json()}
    if opened.forecast is not None:
        return {**told, **_logged(opened.forecast)}
    return {**told, **spectrum(Given(opened)), **recipe("spectrum", {"problem": Given(opened)})}


def _logged(found: Forecast) -> Answer:
    """What the page needs to begin with a forecast: a setting of its logs, and a loss that they reach."""
    last = max(found.logs, key=lambda log: int(log.step[-1]))
    return {
        "forecast": str(found), "floor": found.law["floor"], "initial_loss": found.problem.initial_loss,
        "lr": found.peaks[1], "batch_size": number(found.batch_size), "steps": found.longest,
        "loss": float(last.loss[-1]),
    }  # fmt: skip


def answer(endpoint: str, body: bytes) -> Answer:
    """The answer of an endpoint to a body; a wrong body raises `Refused` or `Wrong`."""
    try:
        data = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Refused(f"the body is not JSON: {error}", status=400) from None
    if not isinstance(data, dict):
        raise Refused("the body must be a JSON object", status=400)
    values = BODIES[endpoint].read(data)
    found = ENDPOINTS[endpoint](**values)
    return {**found, **recipe(endpoint, values, bool(found.get("quick", values.get("quick"))))}


def _no_constant(name: str) -> float:
    raise Wrong(f'{name} is not a number in JSON; write a batch size without noise as "inf"')


def _blamed(endpoint: str, argument: str | None) -> str | None:
    """The field of a body that an argument of the library comes from; None if there is none."""
    known = BODIES[endpoint].fields if endpoint in BODIES else {}
    if argument == "optimizer" and "optimizers" in known:
        return "optimizers"
    if argument == "steps" and "best" in known:
        return "best"
    field = FIELDS.get(argument or "", argument or "")
    return field if field.partition(".")[0] in known else None


def respond(endpoint: str, body: bytes, name: str = "") -> tuple[int, bytes]:
    """Status and JSON of the answer to a request. An exception that leaves this function is a bug."""
    try:
        found = upload(body, name) if endpoint == "upload" else answer(endpoint, body)
        return 200, json.dumps(plain(found), allow_nan=False, separators=(",", ":")).encode()
    except Refused as refused:
        return refused.status, told(str(refused), refused.field, refused.argument)
    except Wrong as wrong:
        return 422, told(str(wrong), _blamed(endpoint, wrong.argument))
    except MemoryError:
        return 503, told("this needs more memory than a request may use; ask for less")
