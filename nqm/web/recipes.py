"""The command line, and the lines of Python, that give the same answer as a request.

Numbers are written with all their digits, so that both repeat the answer exactly. A field that a request leaves at its
default is omitted, because the command line and the library have the same default.
"""

from __future__ import annotations

import ast
import shlex
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import nqm

from ..nets.fitting.model import Fit
from ..nets.monitoring.choosing import BatchChoice
from ..optimizers import Optimizer, free
from ..show.numbers import exact
from ..text.tokens import Text
from .bodies import BODIES, PAPER, Given, PlannedSchedule
from .files import noise_of, plain_name

QUICK_NODES = "compress(1e-9)"
FUNCTIONS = {"steps": "steps_to_target", "schedule": "optimal_schedule", "map": "phase_map"}
"""The functions of the library whose name differs from that of the endpoint."""
FLAGS = {"epochs": ("--epochs", "replacement=False"), "quadratic": ("--quadratic", "bent=False")}
"""Each flag of a body, as an option of the command line and as an argument in Python."""
SAMPLED_ONLY = {"seed", "replicas"}  # Fields that do not affect an exact curve.


def recipe(endpoint: str, values: Mapping[str, Any], quick: bool = False) -> dict[str, str]:
    """The command and the Python that repeat the answer to a body, whose values have been read.

    ``quick`` says that the answer was computed on quadrature nodes.
    """
    if endpoint == "batch":
        return _batch(values["training"])
    if endpoint == "noise":
        return _noise(values["text"], values["name"])
    if endpoint == "preview":  # Its answer is about that of the sweep, which is what to run.
        added = values["added"]
        asked = [size for size in values["batch_sizes"] if size not in added]
        endpoint, values = "sweep", {k: v for k, v in values.items() if not k.startswith(("near", "added"))}
        values["batch_sizes"] = asked
    given, usual = values["problem"], BODIES[endpoint].fields
    if endpoint == "outlook":
        return _outlook(values)
    if endpoint == "advise":
        return _advise(values)
    if endpoint == "spectrum":
        lines = [f"answer = {_python_spectrum(given)}"]
        if given.spectrum.fit:
            lines = [
                f"fit = Fit.load({given.spectrum.name!r})",
                "answer = fit.spectrum",
                "noise_scale = fit.noise_scale",
            ]
        return {"command": shlex.join(["nqm", "spectrum", _spectrum(given), "--json"]), "python": python(*lines)}
    optimizers = [source(o) for o in values.get("optimizers") or [values["optimizer"]]]
    exact_curve = endpoint == "curve" and given.problem.follows(values["optimizer"])
    omitted = {"problem", "optimizer", "optimizers", "quick", *(SAMPLED_ONLY if exact_curve else ())}
    named = {k: v for k, v in values.items() if k not in omitted and v is not None and v != usual[k].default}
    written = [_written(name, value) for name, value in named.items()]
    file = [given.spectrum.name] if endpoint == "predict" else []
    words = [endpoint, *file, *optimizers, *(word for option, _ in written for word in option)]
    arguments = [argument for _, argument in written]
    if endpoint == "predict":
        return {"command": shlex.join(["nqm", *words]), "python": _predicted(file[0], optimizers, named)}
    if endpoint == "curve":
        calls = [_call("problem.run" if exact_curve else "problem.sample", *optimizers, *arguments)]
    else:
        calls = [_call(FUNCTIONS.get(endpoint, endpoint), "problem", o, *arguments) for o in optimizers]
    answer = f"[{', '.join(calls)}]" if endpoint == "sweep" else calls[0]
    if given.spectrum.forecast is not None:
        name = given.spectrum.name
        lines = python(f"problem = Forecast.load({name!r}).problem", f"answer = {answer}")
        return {"command": shlex.join(["nqm", *words, "--forecast", name]), "python": lines}
    more = "" if given.label_noise is None else f", label_noise={given.label_noise!r}"
    problem = f"problem = {type(given.problem).__name__}({_python_spectrum(given, quick)}{more})"
    if (text := _spectrum(given, quick)) != PAPER:
        words += ["--spectrum", text]
    if given.kind != "quadratic":
        words += ["--problem", given.kind]
    if given.label_noise is not None:
        words += ["--label-noise", exact(given.label_noise)]
    command = shlex.join(["nqm", *words])
    return {"command": command, "python": python(problem, f"answer = {answer}")}


def _noise(text: str, name: str) -> dict[str, str]:
    """How to read a noise scale: that of a training by `nqm watch`, that of a fit in Python alone."""
    file = plain_name(name)
    if isinstance(noise_of(text, name), Fit):
        return {"command": "", "python": python(f"answer = Fit.load({file!r}).noise_scale")}
    line = python(f"answer = watch({file!r}).critical_batch_size")
    return {"command": shlex.join(["nqm", "watch", file, "--once"]), "python": line}


def _batch(training: BatchChoice) -> dict[str, str]:
    """The recommendation of a batch size, which `nqm batch` prints too."""
    names = ("noise_scale", "low", "high", "devices", "per_device", "seconds", "training_steps")
    known = {name: getattr(training, name) for name in names}
    if training.other is not None:
        known["other_per_device"], known["other_seconds"] = training.other
    words = [word for name, value in known.items() if value is not None for word in _written(name, value)[0]]
    return {"command": shlex.join(["nqm", "batch", *words, "--json"]), "python": python(f"answer = {training!r}")}


def _outlook(values: Mapping[str, Any]) -> dict[str, str]:
    """The best schedule of a forecast, the loss of a run that was not made, or else how close the law comes to the logs."""
    name, plan, steps = values["problem"].spectrum.name, values["schedule"], values["best"]
    size = {} if values["batch_size"] is None else {"batch_size": values["batch_size"]}
    peak = values["peak"]
    if steps is not None:
        asked, verb = {"steps": steps, **({"max_lr": peak} if peak else {}), **size}, "best"
        call = "forecast.optimal_schedule"
    elif plan is not None:
        asked, verb = {"schedule": plan, **({"peak": peak} if peak else {}), **size}, "predict"
        call = "forecast.predict"
    else:
        asked, verb, call = {}, "plot", ""
    written = [_written(key, value) for key, value in asked.items()]
    if call and values["extrapolate"]:
        written.append((["--extrapolate"], "extrapolate=True"))
    first, *rest = [argument for _, argument in written] or [""]
    options = [word for option, _ in written for word in option]
    words = ["nqm", "forecast", verb, name, *options, *["--json"] * bool(call)]
    answer = _call(call, first.partition("=")[2], *rest) if call else "forecast.error"
    lines = python(f"forecast = Forecast.load({name!r})", f"answer = {answer}")
    return {"command": shlex.join(words), "python": lines}


def _predicted(file: str, optimizers: list[str], named: Mapping[str, Any]) -> str:
    """A prediction in Python; the first hits of a target are a second call there."""
    given = {name: _written(name, value)[1] for name, value in named.items()}
    target = given.pop("target", None)
    lines = [f"fit = Fit.load({file!r})", f"answer = {_call('fit.predict', *optimizers, *given.values())}"]
    if target is not None:
        asked = [given[name] for name in ("batch_size", "schedule") if name in given]
        lines.append(f"hits = {_call('fit.first_hits', *optimizers, target, *asked)}")
    return python(*lines)


def _advise(values: Mapping[str, Any]) -> dict[str, str]:
    name, optimizer = values["problem"].spectrum.name, values["optimizer"]
    written = [_written(key, values[key]) for key in ("batch_size", "target")]
    own = [] if optimizer is None else [source(optimizer)]
    words = [
        "nqm",
        "advise",
        name,
        *(word for option, _ in written for word in option),
        *(["--optimizer", *own] * bool(own)),
    ]
    call = _call(f"Fit.load({name!r}).advise", *(argument for _, argument in written), *(f"optimizer={o}" for o in own))
    return {"command": shlex.join([*words, "--json"]), "python": python(f"answer = {call}")}


def source(optimizer: Optimizer) -> str:
    """An optimizer as its constructor, with all digits of its numbers.

    >>> from nqm import EMA, HeavyBall
    >>> source(EMA(HeavyBall(momentum=1 - 2**-20)))
    'EMA(HeavyBall(momentum=0.9999990463256836))'
    """
    shown = []
    for f in fields(optimizer):
        value = getattr(optimizer, f.name)
        if isinstance(value, Optimizer):
            shown.append(source(value))
        elif value is not free and value != f.default:
            shown.append(f"{f.name}={value!r}")
    return f"{type(optimizer).__name__}({', '.join(shown)})"


def python(*lines: str) -> str:
    """Lines of Python with the imports that they need.

    >>> print(python("problem = Quadratic(Spectrum([1.0]))", "answer = problem.run(SGD(lr=0.1), batch_size=inf, steps=9)"))
    from math import inf
    from nqm import SGD, Quadratic, Spectrum
    <BLANKLINE>
    problem = Quadratic(Spectrum([1.0]))
    answer = problem.run(SGD(lr=0.1), batch_size=inf, steps=9)
    """
    tree = ast.parse("\n".join(lines))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    public = sorted(names & set(nqm.__all__), key=lambda name: (not name.isupper(), name[0].islower(), name))
    head = ["from math import inf"] * ("inf" in names) + [f"from nqm import {', '.join(public)}"] * bool(public)
    head += ["from nqm.logs import Forecast"] * ("Forecast" in names)
    head += [f"from nqm.nets import {name}" for name in ("BatchChoice", "Fit", "watch") if name in names]
    return "\n".join([*head, "", *lines])


def _written(name: str, value: object) -> tuple[list[str], str]:
    """A value as words of the command line, and as an argument in Python."""
    if name in FLAGS:
        option, argument = FLAGS[name]
        return [option], argument
    match value:
        case PlannedSchedule():
            text, source = value.text, ast.unparse(Text("schedule", value.text).tree)
        case list():
            numbers = [exact(size) for size in value]
            text, source = ",".join(numbers), f"[{', '.join(numbers)}]"
        case int() | float():
            text, source = exact(value), repr(value)
        case _:
            text, source = str(value), repr(value)
    return ["-b" if name == "batch_size" else f"--{name.replace('_', '-')}", text], f"{name}={source}"


def _call(function: str, *arguments: str) -> str:
    return f"{function}({', '.join(arguments)})"


def _spectrum(given: Given, quick: bool = False) -> str:
    """The spectrum as text of the command line. Files and linear regressions are given there without quadrature nodes."""
    name = given.spectrum.name
    return f"{name}.{QUICK_NODES}" if quick and not given.spectrum.id and given.problem.separable else name


def _python_spectrum(given: Given, quick: bool = False) -> str:
    name = given.spectrum.name
    if given.spectrum.id:
        return f"Fit.load({name!r}).spectrum" if given.spectrum.fit else f"Spectrum.load({name!r})"
    tree = Text("spectrum", _spectrum(given, quick)).tree
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "power_law":
            node.func = ast.Attribute(ast.Name("Spectrum", ast.Load()), "power_law", ast.Load())
    return ast.unparse(tree)
