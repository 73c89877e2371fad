"""Bodies from a JSON schema: mostly what it allows, sometimes beside it, with text that means something."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
from fits import fit_json
from hypothesis import strategies as st

from nqm.logs import Log, forecast
from nqm.logs.saving import as_dict

SET = [
    "SGD(0.5)",
    "HeavyBall(0.1, 0.9)",
    "HeavyBall(3.99, 0.999)",
    "EMA(SGD(0.5), 0.99)",
    "Nesterov(0.1, 0.99)",
    "Polyak(SGD(0.1), 0.5)",
    "Polyak(SGD(0.1), 3)",
    "Lookahead(HeavyBall(0.1, 0.9), 0.5, 5)",
    "Preconditioned(SGD(0.1), 1)",
    "ScheduleFree(0.5, 0.9)",
    "Preconditioned(EMA(SGD(0.1), 0), 0.5)",
    "Adam(0.01, 0.9)",
    "Sign(0.1)",
    "Clipped(SGD(0.1), 1)",
    "NormalisedSGD(0.1)",
    "DriftingPreconditioned(SGD(0.1), 0.5, 0.5)",
    "SGD(1e300)",
    "SGD(1e-300)",
    "Lookahead(SGD(0.1), 0.5, 1e9)",
    "Polyak(SGD(0.1), 1e9)",
    "EstimatedPreconditioned(SGD(0.1), 0.5, 8)",
    "EMA(Lookahead(Nesterov(0.1, 0.9), 1, 1), 0)",
    "AdamW(0.1, 0)",
    "RMSProp(0.1)",
]
FREE = [
    "SGD",
    "HeavyBall",
    "HeavyBall(momentum=0.9)",
    "EMA(SGD)",
    "Nesterov(momentum=0.5)",
    "Preconditioned(SGD)",
    "Lookahead(SGD, period=3)",
    "EMA(HeavyBall(momentum=0.9), decay=0.99)",
    "Preconditioned(HeavyBall, power=0.5)",
    "Lookahead(SGD(0.5), period=3)",
    "SGD(0.1)",
]
SAMPLED = ["Adam", "Sign", "Clipped(SGD)", "Polyak(SGD)", "ScheduleFree"]  # slow to tune
SPECTRA = [
    "power_law(1)",
    "power_law(20)",
    "power_law(300)",
    "power_law(1e12, 1.2)",
    "power_law(50, exponent=0)",
    "Spectrum([1, 0.1])",
    "Spectrum([1, 0.1], c=[0, 0])",
    "Spectrum([1], s=0)",
    "power_law(300).binned(10)",
    "power_law(300).compress(1e-6)",
    "power_law(20, noise=0)",
    "power_law(20, scale=1e-200)",
    "power_law(20, exponent=20)",
    "power_law(20, scale=1e150)",
    "power_law(30, exponent=-1)",
    "power_law(20, noise=1e200)",
    "Spectrum([1e-300, 1])",
    "Spectrum([1, 1, 1], count=[0, 0, 1e9])",
]
SCHEDULES = [
    "constant(10)",
    "warmup(5) + cosine(20)",
    "step(30, 0.5, at=[10, 20])",
    'linear(50).on("batch_size")',
    "constant(10, 0)",
    "constant(10, 1e300)",
    'warmup(10).on("momentum") & cosine(30)',
    "wsd(30, 10, 10)",
    "exponential(9)",
    "Schedule([3, 4], [1, 0])",
]
GOOD = {
    "spectrum": SPECTRA,
    "schedule": SCHEDULES,
    "batch_sizes": ["4,16", "1..64", "2^4..2^20..2^16", "1,inf", "1e-9,1"],
    "name": ["lr", "momentum", "decay", "batch_size", "power", "alpha", "period"],
    "upload": ["0" * 32],
}
AXES = [
    {"name": name, "low": low, "high": high, "n": n}
    for name, low, high, n in (
        ("lr", 1e-3, 4, 5),
        ("lr", "1e-9", 1e9, 3),
        ("batch_size", 1, "2^20", 4),
        ("batch_size", 1e-9, 1, 2),
        ("momentum", 0, 0.99, 4),
        ("decay", 0.5, "1 - 2^-30", 3),
        ("power", 0, 1, 3),
        ("alpha", 0.1, 1, 3),
        ("period", 1, 9, 3),
    )
]
NUMBERS = ["1", "2^10", "1e-3", "1 - 2^-7", "inf", "10"]
WRONG = [
    "",
    "(",
    "os:system",
    "__import__('os')",
    "EMA()",
    "SGD((",
    "SGD(0)",
    "SGD(-1)",
    "SGD(inf)",
    "HeavyBall(0.1, 1)",
    "EMA(" * 9 + "SGD",
    "EMA(EMA(EMA(EMA(EMA(EMA(EMA(EMA(SGD))))))))",
    "Polyak(SGD(0.1), 0.5, 3)",
    "-1",
    "1/0",
    "2^9999",
    "nan",
    "1e400",
    "0x10",
    "9" * 50,
    "Spectrum([])",
    "/etc/passwd",
    "a.json",
    "cosine(1e9)",
    "linear(0)",
    "0,1",
    "1..1e300",
    "power_law(0)",
    "power_law(1e300)",
    "start",
    "\ud800",
    "\x00",
    "\u03a90",
    "1" * 3000,
]
SPECIAL: list[float] = [1, 2, 10, 100, 1000, 0.5, 0.01, 1e-3]
EXTREME: list[float] = [0, 1e-300, 1e-12, 1e300, 10**9, -1, 2**53, 10**400, 0.5]
ODD = st.one_of(st.none(), st.booleans(), st.text(max_size=5), st.just([]), st.just({}), st.just([[]]), st.just(1e999))


def mostly(good: st.SearchStrategy[Any], other: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The other one time in twenty."""
    return st.integers(0, 19).flatmap(lambda draw: other if draw == 7 else good)


def bodies(endpoint: str, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Bodies of an endpoint; it decides which optimizers make sense, and what has to fit together."""
    sensible = {"predict": SET[:9], "advise": FREE[:4], "curve": SET, "steps": SET}
    known = sensible.get(endpoint, FREE * 3 + SET + SAMPLED)
    texts = {**GOOD, "optimizer": known, "optimizers": known}
    drawn = values(schema, "", texts, fits=endpoint in ("predict", "advise"))
    if endpoint == "preview":
        return mostly(st.tuples(drawn, st.sampled_from(NEAR)).map(lambda pair: fitting_preview(*pair)), drawn)
    if endpoint == "outlook":
        return mostly(st.tuples(drawn, forecasts()).map(lambda pair: with_file(*pair)), drawn)
    if endpoint == "noise":
        return mostly(st.tuples(drawn, monitor_texts()).map(lambda pair: {**pair[0], "text": pair[1]}), drawn)
    if endpoint == "map":
        return mostly(st.tuples(drawn, st.sampled_from(MAPS)).map(lambda pair: fitting_map(*pair)), drawn)
    if endpoint == "advise":  # which wants a loss below that of the checkpoint, 0.6
        goals = st.sampled_from([0.55, 0.5, 0.59])
        return mostly(
            st.tuples(drawn.map(plain_problem), goals).map(lambda pair: {**pair[0], "target": pair[1]}), drawn
        )
    if endpoint in ("predict", "schedule"):  # which want a quadratic
        return mostly(drawn.map(plain_problem), drawn)
    return drawn


NEAR = [
    ("SGD", ["SGD(0.5)", "SGD(1.9)", "SGD(1e-300)"], [100, 9, 1]),
    ("HeavyBall", ["HeavyBall(0.1, 0.9)", "HeavyBall(3.99, 0.999)"], [30, 10**9]),
    ("EMA(SGD)", ["EMA(SGD(0.5), 0.99)"] * 3, [1000, 1, 0]),
    ("HeavyBall(momentum=0.9)", ["HeavyBall(0.1, 0.9)", "HeavyBall(0.1, 0.5)"], [10, 10]),
    ("EMA(HeavyBall)", ["EMA(HeavyBall(1e300, 0.9), 0)"] * 2, [2.5, 7]),
    ("HeavyBall", ["SGD(0.5)", "HeavyBall(momentum=0.9)"], [10, 10]),
]  # a family, settings near its answer for each batch size and without noise, and their steps


def fitting_preview(body: dict[str, Any], near: tuple[str, list[str], list[float]]) -> dict[str, Any]:
    """The body with settings and steps of an earlier answer, mostly those of its family."""
    family, settings, steps = near
    sizes = [2**10, 2**14][: len(settings) - 1]
    return {**plain_problem(body), "optimizers": [family], "batch_sizes": sizes, "near": settings, "near_steps": steps}


def with_file(body: dict[str, Any], file: dict[str, Any]) -> dict[str, Any]:
    return {**body, "problem": {"spectrum": {"file": file, "name": "forecast.json"}}}


@cache
def forecast_json() -> dict[str, Any]:
    """A forecast of two short logs, as its file has it."""
    step = np.arange(100, 4000, 150)
    rates = [np.full(len(step), 1e-3), 1e-3 * (1 - step / 4500)]
    logs = [Log(step, 2 + 5 / (1 + 0.01 * step) ** 0.5 + 30 * lr, lr, name=f"run {i}") for i, lr in enumerate(rates)]
    return as_dict(forecast(logs))


@st.composite
def forecasts(draw: st.DrawFn) -> dict[str, Any]:
    """The content of a forecast's file, now and then damaged."""
    return damaged(draw, dict(forecast_json()))


@st.composite
def monitor_texts(draw: st.DrawFn) -> str:
    """The file of a monitor, with numbers that may be odd or missing."""
    scale = st.sampled_from([500.0, 1e-9, 1e300, 0.0, -1.0, None, "x"])
    rows = [
        {"step": t, "loss": 1.0, "batch_size": draw(st.sampled_from([64, 64, 64, 0, None])), "noise_scale": draw(scale)}
        for t in range(1, draw(st.integers(2, 4)))
    ]
    rows.append({"step": 9, "loss": 1.0, "batch_size": 64, "noise_scale": 500.0, "noise_scale_low": draw(scale)})
    return "\n".join(map(json.dumps, rows)) + draw(st.sampled_from(["\n", "", "\n{", '\n{"step": 3}']))


def fitting_map(body: dict[str, Any], match: tuple[str, str, str]) -> dict[str, Any]:
    """The body with axes that its optimizer has, and a batch size if none of them is one."""
    optimizer, x, y = match
    axes = {axis["name"]: axis for axis in reversed(AXES)}
    body = plain_problem({"batch_size": 64, **body, "optimizer": optimizer, "x": axes[x], "y": axes[y]})
    return {k: v for k, v in body.items() if k != "batch_size" or "batch_size" not in (x, y)}


def plain_problem(body: dict[str, Any]) -> dict[str, Any]:
    problem = body.get("problem")
    kept = {k: v for k, v in problem.items() if k == "spectrum"} if isinstance(problem, dict) else {}
    return {**body, "problem": kept}


MAPS = [
    ("SGD", "lr", "batch_size"),
    ("HeavyBall", "lr", "momentum"),
    ("EMA(SGD)", "lr", "decay"),
    ("Preconditioned(SGD)", "lr", "power"),
    ("HeavyBall(0.1)", "momentum", "batch_size"),
    ("Lookahead(SGD(0.5))", "alpha", "period"),
    ("EMA(HeavyBall(0.1))", "momentum", "decay"),
]


def values(schema: dict[str, Any], name: str, texts: dict[str, list[str]], fits: bool) -> st.SearchStrategy[Any]:
    """Values for a schema; ``name`` is the field they stand in."""
    if "anyOf" in schema:
        kinds = [values(kind, name, texts, fits) for kind in schema["anyOf"]]
        return mostly(*reversed(kinds)) if fits and name == "spectrum" else mostly(*kinds)
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema["type"]:
        case "boolean":
            return st.booleans()
        case "number" | "integer":
            return numbers(schema)
        case "string":
            return mostly(
                st.sampled_from(texts.get(name, NUMBERS)), st.one_of(st.sampled_from(WRONG), st.text(max_size=12))
            )
        case "array":
            items, most = values(schema["items"], name, texts, fits), min(schema["maxItems"], 2)
            return st.lists(items, min_size=schema["minItems"], max_size=most)
    if "properties" not in schema:
        return files(fits)
    return (
        mostly(st.sampled_from(AXES), objects(schema, texts, fits))
        if name in ("x", "y")
        else objects(schema, texts, fits)
    )


def numbers(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    low, high = schema["minimum"], schema["maximum"]
    whole = schema["type"] == "integer"
    inside = st.sampled_from([v for v in SPECIAL if low <= v <= high and (not whole or v == int(v))] or [low])
    drawn = st.integers(int(low), int(min(high, 1000))) if whole else st.floats(low, min(high, 1e4))
    return mostly(st.one_of(inside, drawn), st.sampled_from(EXTREME))


@st.composite
def objects(draw: st.DrawFn, schema: dict[str, Any], texts: dict[str, list[str]], fits: bool) -> Any:
    """An object with its required fields and some others; now and then one is odd."""
    found = {}
    for name, kind in schema["properties"].items():
        alone = name == "upload" and draw(st.integers(0, 9)) != 7  # goes with file never
        wanted = (
            name in schema["required"]
            or name == "file"
            or (fits and name in ("problem", "spectrum"))
            or draw(st.booleans())
        )
        if wanted and not alone:
            found[name] = draw(values(kind, name, texts, fits))
    if "label_noise" in found and draw(st.integers(0, 9)) != 7:
        found["kind"] = "least_squares"
    if {"target", "steps", "examples"} <= set(schema["properties"]) and draw(st.integers(0, 9)) != 7:
        only = draw(st.sampled_from(["target", "steps", "examples"]))
        found = {k: v for k, v in found.items() if k not in ("target", "steps", "examples")}
        found[only] = draw(values(schema["properties"][only], only, texts, fits))
    if draw(st.integers(0, 19)) == 7:
        found[draw(st.sampled_from([*schema["properties"], "more"]))] = draw(ODD)
    return found


@st.composite
def files(draw: st.DrawFn, fits: bool) -> dict[str, Any]:
    """The content of a file: a fit, a spectrum, or one of them damaged."""
    spectrum = {"h": [1.0, 0.1], "c": [1.0, 0.0], "s": [1.0, 1.0], "count": [1, 9]}
    return damaged(draw, dict(draw(st.sampled_from([spectrum, *[fit_json()] * (7 if fits else 1)]))))


def damaged(draw: st.DrawFn, found: dict[str, Any]) -> dict[str, Any]:
    """The content of a file, of which up to two entries may be missing or wrong."""
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        name = draw(st.sampled_from(sorted(found)))
        if draw(st.booleans()):
            del found[name]
            continue
        values = found[name]
        wrong = [None, [], [[1]], "x", -1, 0, 1e300, {}, True, 10**400]
        if isinstance(values, list) and values:
            wrong += [
                values[:-1],
                [*values[:-1], -1],
                [*values[:-1], 1e300],
                [*values[:-1], 0],
                [0] * len(values),
                [*values[:-1], "a"],
            ]
        found[name] = draw(st.sampled_from(wrong))
    return found
