"""Menus and schemas say what there is."""

from __future__ import annotations

import json
import math

import nqm
from nqm.text.objects import KNOWN_OPTIMIZERS, KNOWN_SCHEDULES, parse_optimizer
from nqm.web.bodies import BODIES, schemas
from nqm.web.describe import describe
from nqm.web.limits import REQUEST


def test_every_optimizer_can_be_made_from_its_description() -> None:
    told = describe()
    assert {o["name"] for o in told["optimizers"]} == set(KNOWN_OPTIMIZERS)
    for one in told["optimizers"]:
        assert one["sentence"].endswith(".")
        inner = ["SGD(0.1)"] * one["wraps"]
        middles = {"log": lambda p: math.sqrt(p["low"] * p["high"]), "linear": lambda p: 0.5, "memory": lambda p: 0.9}
        shown = []
        for p in one["parameters"]:
            assert p["sentence"].endswith(".")
            if p["scale"] == "choice":
                shown += [f'{p["name"]}="{choice}"' for choice in p["choices"][:1]]
                continue
            assert p["low"] < p["high"]
            value = middles[p["scale"]](p)
            shown.append(f"{p['name']}={round(value) if p['whole'] else value}")
        optimizer = parse_optimizer(f"{one['name']}({', '.join(inner + shown)})")
        assert optimizer.linear == one["linear"]


def test_menus_have_everything() -> None:
    told = describe()
    assert {s["name"] for s in told["schedules"]} == set(KNOWN_SCHEDULES)
    assert all(sentence.endswith(".") for sentence in told["terms"].values())
    assert set(told["outcomes"]) == {outcome.name for outcome in nqm.Outcome}
    assert told["limits"]["points"] == REQUEST.points
    json.dumps(told, allow_nan=False)


def test_schemas_name_every_field_and_bound() -> None:
    found = schemas()
    assert set(found) == {f"/api/{name}" for name in BODIES}
    curve = found["/api/curve"]
    assert curve["required"] == ["optimizer", "batch_size", "steps"]
    assert curve["properties"]["points"]["anyOf"][0] == {"type": "integer", "minimum": 2, "maximum": REQUEST.points}
    json.dumps(found, allow_nan=False)


def test_words_to_choose_from_are_all_that_the_class_takes() -> None:
    (drifting,) = [o for o in describe()["optimizers"] if o["name"] == "DriftingPreconditioned"]
    (order,) = [p for p in drifting["parameters"] if p["scale"] == "choice"]
    assert (order["allowed"], order["default"], order["choices"]) == ("before or after", "before", ["before", "after"])
    for choice in order["choices"]:
        assert nqm.DriftingPreconditioned(nqm.SGD(0.1), 0.5, 0.5, order=choice).order == choice
