"""The endpoints: a JSON body in, one call of the engine, a JSON answer out. No mathematics here."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ..engine.run import number, numbers
from ..optimizers import Optimizer, free
from ..optimizers.base import assign, parameters
from ..problems.quadratic import MAX_STEPS, Quadratic
from ..search import Axis, optimal_schedule, phase_map, steps_to_target
from ..search import tune as run_tune
from ..search.sweeps import Sweep
from ..search.sweeps import sweep as run_sweep
from ..show.numbers import exact
from ..show.plain import plain
from ..types import Wrong
from . import recipes
from .bodies import BODIES, Given, Scheduled
from .fields import Refused
from .files import SHELF
from .recipes import option
from .summary import summary

Answer = dict[str, Any]


def curve(
    problem: Given, optimizer: Optimizer, batch_size: float, steps: int, schedule: Scheduled | None, quick: bool, seed: int,
    grid: Any, points: int, replicas: int,
) -> Answer:  # fmt: skip
    """Loss over steps of one setting; of an optimizer that is not linear, the mean over replicas."""
    exact = optimizer.linear
    limit = None if quick else _limit(problem, optimizer, batch_size)
    quick = exact and (quick or problem.takes_long(steps))
    where, plan = problem.quick if quick else problem.problem, schedule and schedule.schedule
    sampling: dict[str, Any] = {} if exact else {"replicas": replicas, "seed": seed}
    if exact:
        run = where.run(optimizer, batch_size, steps, plan, grid, points)
    else:
        run = where.sample(optimizer, batch_size, steps, plan, grid=grid, points=points, workers=1, **sampling)
    named = {"batch_size": batch_size, "steps": steps, "schedule": recipes.python_schedule(schedule)}
    named |= {"grid": None if grid == "log" else repr(grid), "points": None if points == 200 else points, **sampling}
    options = [
        option("-b", batch_size), option("--steps", steps), option("--schedule", schedule and schedule.text),
        option("--grid", grid, "log"), option("--points", points, 200), recipes.problem_options(problem, quick),
        *(option(f"--{name}", value) for name, value in sampling.items()),
    ]  # fmt: skip
    divisor = run.batch_size
    return {
        **run.to_dict(),
        "noise_loss": None if run.noise is None else numbers(run.noise / divisor),
        "band_noise_loss": None if run.band_noise is None else numbers(run.band_noise / divisor),
        "initial_loss": where.spectrum.initial_loss,
        "stability_limit": limit,
        "multipliers": None if plan is None else _multipliers(plan, run.steps),
        "quick": quick,
        "command": recipes.command("curve", recipes.source(optimizer), options=options),
        "python": recipes.python(
            recipes.python_problem(problem, quick),
            "answer = " + recipes.call(f"problem.{'run' if exact else 'sample'}", recipes.source(optimizer), **named),
        ),
    }


def _multipliers(schedule: Any, steps: Any) -> dict[str, list[float]]:
    at = [schedule.at(int(t)) for t in steps]
    return {name: [values[i] for values in at] for i, name in enumerate(("lr", "momentum", "batch_size"))}


def _limit(given: Given, optimizer: Optimizer, batch_size: float) -> float | None:
    """The learning rate at which the setting loses stability, where that is quick to say."""
    if not optimizer.linear or "lr" not in parameters(optimizer) or optimizer.at_horizon(MAX_STEPS).cycle > 1:
        return None
    problem = given.problem
    if isinstance(problem, Quadratic):
        return number(problem.stability_limit(optimizer))
    return number(problem.fine.stability_limit(optimizer, batch_size))


def steps(
    problem: Given, optimizer: Optimizer, batch_size: float, target: float, schedule: Scheduled | None, quick: bool, until: Any
) -> Answer:  # fmt: skip
    """Steps that one setting needs to reach a loss."""
    where, plan = problem.quick if quick else problem.problem, schedule and schedule.schedule
    hit = steps_to_target(where, optimizer, batch_size, target, plan, until=until)
    options = [
        option("-b", batch_size), option("--target", target), option("--until", until, "first"),
        option("--schedule", schedule and schedule.text), recipes.problem_options(problem, quick),
    ]  # fmt: skip
    named = {"batch_size": batch_size, "target": target, "schedule": recipes.python_schedule(schedule)}
    named |= {"until": None if until == "first" else repr(until)}
    return {
        **hit.to_dict(),
        "optimizer": str(optimizer),
        "command": recipes.command("steps", recipes.source(optimizer), options=options),
        "python": recipes.python(
            recipes.python_problem(problem, quick),
            "answer = " + recipes.call("steps_to_target", "problem", recipes.source(optimizer), **named),
        ),
    }


def tune(
    problem: Given, optimizer: Optimizer, batch_size: float, target: float | None, steps: int | None, examples: float | None,
    seed: int,
) -> Answer:  # fmt: skip
    """Best values of the free parameters at one batch size."""
    found = run_tune(problem.problem, optimizer, batch_size, target, steps=steps, examples=examples, seed=seed)
    goals = {"target": target, "steps": steps, "examples": examples}
    options = [option("-b", batch_size), *(option(f"--{name}", value) for name, value in goals.items())]
    options += [option("--seed", seed, 0), recipes.problem_options(problem)]
    named = {"batch_size": batch_size, **goals, "seed": seed or None}
    return {
        **found.to_dict(),
        "command": recipes.command("tune", recipes.source(optimizer), options=options),
        "python": recipes.python(
            recipes.python_problem(problem),
            "answer = " + recipes.call("tune", "problem", recipes.source(optimizer), **named),
        ),
    }


def sweep(problem: Given, target: float, seed: int, optimizers: list[Optimizer], batch_sizes: list[float]) -> Answer:
    """Tuned steps to a target at each batch size, for each optimizer."""
    found = [run_sweep(problem.problem, o, batch_sizes, target=target, seed=seed) for o in optimizers]
    texts = [recipes.source(o) for o in optimizers]
    sizes = ",".join(exact(size) for size in batch_sizes)
    options = [option("--target", target), option("--batch-sizes", sizes), option("--seed", seed, 0)]
    options += [recipes.problem_options(problem)]
    named = {"target": target, "batch_sizes": f"[{sizes}]", "seed": seed or None}
    calls = [recipes.call("sweep", "problem", text, **named) for text in texts]
    return {
        "sweeps": [_swept(one) for one in found],
        "optimizer": ", ".join(str(o) for o in optimizers),
        "command": recipes.command("sweep", *texts, options=options),
        "python": recipes.python(recipes.python_problem(problem), f"answer = [{', '.join(calls)}]"),
    }


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
    pieces: int, on: Any,
) -> Answer:  # fmt: skip
    """The best piecewise-constant schedule of the learning rate or of the batch size."""
    if not isinstance(problem.problem, Quadratic):
        raise Refused("best schedules need noise of fixed variance, the kind quadratic", "problem.kind")
    goals = {"target": target, "steps": steps, "examples": examples}
    found = optimal_schedule(
        problem.problem, optimizer, batch_size, target, steps=steps, examples=examples, pieces=pieces, on=on
    )
    options = [option("-b", batch_size), *(option(f"--{name}", value) for name, value in goals.items())]
    options += [option("--pieces", pieces, 10), option("--on", on, "lr"), recipes.problem_options(problem)]
    named = {"batch_size": batch_size, **goals, "pieces": pieces, "on": None if on == "lr" else repr(on)}
    return {
        **found.to_dict(),
        "command": recipes.command("schedule", recipes.source(optimizer), options=options),
        "python": recipes.python(
            recipes.python_problem(problem),
            "answer = " + recipes.call("optimal_schedule", "problem", recipes.source(optimizer), **named),
        ),
    }


def phases(problem: Given, optimizer: Optimizer, target: float, batch_size: float | None, x: Axis, y: Axis) -> Answer:
    """Steps to a target over two settings."""
    if not isinstance(problem.problem, Quadratic):
        raise Refused("maps need noise of fixed variance, the kind quadratic", "problem.kind")
    # What an axis holds need not be free: the text of a page keeps the setting that was clicked.
    for axis in (x, y):
        if axis.name in (known := parameters(optimizer)):
            optimizer = assign(optimizer, known[axis.name].path, free)
    found = phase_map(problem.problem, optimizer, x, y, batch_size, target=target)
    options = [option("--target", target), option("-b", batch_size)]
    options += [["--x", str(x)], ["--y", str(y)], recipes.problem_options(problem)]
    line = recipes.call(
        "phase_map", "problem", recipes.source(optimizer), x=repr(x), y=repr(y), target=target, batch_size=batch_size
    )
    return {
        **found.to_dict(),
        "command": recipes.command("map", recipes.source(optimizer), options=options),
        "python": recipes.python(recipes.python_problem(problem), f"answer = {line}"),
    }


def spectrum(problem: Given) -> Answer:
    """What a problem is made of."""
    return {
        **summary(problem),
        "optimizer": None,
        "command": recipes.command("spectrum", recipes.spectrum_text(problem), "--json"),
        "python": recipes.python(f"answer = {recipes.python_spectrum(problem)}"),
    }


def predict(
    problem: Given, optimizer: Optimizer, batch_size: float, steps: int, schedule: Scheduled | None, epochs: bool, quadratic: bool
) -> Answer:  # fmt: skip
    """What a fitted network will do next."""
    fit = problem.fit
    if fit is None:
        raise Refused("predictions need a file of nqm fit", "problem.spectrum")
    plan = schedule and schedule.schedule
    found = fit.predict(optimizer, batch_size, steps, plan, replacement=not epochs, bent=not quadratic)
    flags = ["--epochs"] * epochs + ["--quadratic"] * quadratic
    options = [
        option("-b", batch_size),
        option("--steps", steps),
        option("--schedule", schedule and schedule.text),
        flags,
    ]
    named = {"batch_size": batch_size, "steps": steps, "schedule": recipes.python_schedule(schedule)}
    named |= {"replacement": False if epochs else None, "bent": False if quadratic else None}
    name = problem.spectrum.text
    return {
        **found.to_dict(),
        "command": recipes.command("predict", name, recipes.source(optimizer), options=options),
        "python": recipes.python(
            "answer = " + recipes.call(f"Fit.load({name!r}).predict", recipes.source(optimizer), **named)
        ),
    }


ENDPOINTS: dict[str, Callable[..., Answer]] = {
    "curve": curve, "steps": steps, "tune": tune, "sweep": sweep, "schedule": schedule, "map": phases,
    "spectrum": spectrum, "predict": predict,
}  # fmt: skip


def upload(content: bytes, name: str = "") -> Answer:
    """Read a file, and say what is in it."""
    from .bodies import Source

    opened = SHELF.opened(content, name)
    given = Given(Source(opened.name, opened))
    return {"id": opened.id, "name": opened.name, "kind": opened.kind, "file": opened.to_json(), **spectrum(given)}


def answer(endpoint: str, body: bytes) -> Answer:
    """What an endpoint answers to a body; `Refused` if it is wrong."""
    try:
        data = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Refused(f"the body is not JSON: {error}", None, 400) from None
    if not isinstance(data, dict):
        raise Refused("the body must be a JSON object", None, 400)
    values = BODIES[endpoint].read(data)
    try:
        return ENDPOINTS[endpoint](**values)
    except Refused:
        raise
    except (ValueError, TypeError) as error:
        raise Refused(str(error), _blamed(str(error), values)) from None


def _no_constant(name: str) -> float:
    raise Wrong(f'{name} is not a number in JSON; write a batch size without noise as "inf"')


def _blamed(sentence: str, values: dict[str, Any]) -> str | None:
    """The field that the engine's sentence begins with, or the optimizer that it speaks of."""
    named = next((name for name in values if sentence.startswith(f"{name} ")), None)
    optimizer = values.get("optimizer")
    if named is None and optimizer is not None and type(optimizer).__name__ in sentence:
        return "optimizer"
    return named


def encoded(data: Any) -> bytes:
    """Strict JSON."""
    try:
        text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    except ValueError:  # results are plain already, but for what they quote
        text = json.dumps(plain(data), allow_nan=False, separators=(",", ":"))
    return text.encode()


def respond(endpoint: str, body: bytes, name: str = "") -> tuple[int, bytes]:
    """Status and JSON of an answer, whatever comes in."""
    try:
        found = upload(body, name) if endpoint == "upload" else answer(endpoint, body)
        return 200, encoded(found)
    except Refused as refused:
        return refused.status, encoded({"error": str(refused), "field": refused.field})
    except MemoryError:
        return 503, encoded({"error": "this takes more memory than a request may have; ask for less", "field": None})
    except ArithmeticError as error:
        return 422, encoded({"error": f"these values are beyond floating point: {error}", "field": None})
