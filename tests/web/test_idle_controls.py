"""A control that can be seen changes the figure or the text beside it; one that changes neither is in the way."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pages import SETTING

pytestmark = pytest.mark.slow

SMALL = "spectrum=power_law(100)&target=0.05&sizes=4,64&cells=4&pieces=2"
CONTROLS = """() => [...document.querySelectorAll("#problem, #families, #setting, #training, #view-controls")]
    .flatMap((box) => [...box.querySelectorAll("input, select, button")])
    .filter((node) => node.id && !node.disabled && node.type !== "file" && node.offsetParent !== null)
    .filter((node) => !node.closest("#problem .presets"))
    .map((node) => ({ id: node.id, tag: node.tagName, type: node.type }))"""
SHOWN = """() => JSON.stringify([window.nqm.shown?.figure,
    ...["headline", "facts", "error", "editor"].map((id) => document.getElementById(id).textContent)])"""
MOVE = """(id) => {
    const node = document.getElementById(id);
    const tell = (...kinds) => kinds.forEach((kind) => node.dispatchEvent(new Event(kind, { bubbles: true })));
    if (node.tagName === "BUTTON" || node.type === "checkbox") return node.click();
    if (node.tagName === "SELECT") {
        const at = [...node.options].findIndex((option, i) => i !== node.selectedIndex && option.value);
        node.selectedIndex = at;
        return tell("change");
    }
    if (node.type === "range") {
        node.value = String(Number(node.value) + (Number(node.value) > 500 ? -90 : 90));
        return tell("input");
    }
}"""
FILES = {"save-forecast", "sample"}  # Buttons that save a file, or open the one that is open.
ASKS_FOR_MORE = {
    "max-rate": "paper",
    "noise-low": "500",
    "noise-high": "2000",
    "goal": "0.13",
    "other-per-device": "64",
    "other-seconds": "0.3",
}
"""What is written into fields that may be empty."""
PATIENCE = 8.0  # seconds
TWINS = "-text"  # A slider has a field for the same number, whose name ends like this.


def idle(page: Any) -> list[str]:
    """The ids of the controls of a view that change neither figure nor text."""
    page.page.evaluate("document.querySelectorAll('details.compose').forEach((node) => (node.open = true))")
    state = page.page.evaluate("window.nqm.state()")
    found, controls = [], page.page.evaluate(CONTROLS)
    sliders = {control["id"] for control in controls if control["type"] == "range"}
    for control in controls:
        name = control["id"]
        if name in FILES or name.removesuffix(TWINS) in sliders - {name}:
            continue
        if page.page.evaluate(f"document.getElementById({name!r}) === null"):
            continue  # it went with what another control changed
        before = page.page.evaluate(SHOWN)
        if act(page, name, control) and not changed(page, before):
            found.append(name)
        page.page.evaluate("(state) => window.nqm.update(state)", state)
        wait(page)
    return found


def act(page: Any, name: str, control: dict[str, str]) -> bool:
    """Move a control; a text is written anew with something else in it."""
    if control["tag"] == "INPUT" and control["type"] == "text":
        text = other(name, page.page.input_value(f"#{name}"))
        if text is None:
            return False
        page.page.fill(f"#{name}", text)
        page.page.press(f"#{name}", "Enter")
        page.page.evaluate("document.activeElement.blur()")
    else:
        page.page.evaluate(MOVE, name)
    wait(page)
    return True


def changed(page: Any, before: str) -> bool:
    """Whether the page shows something else, now or within the seconds that a control may take which asks before it changes."""
    end = time.monotonic() + PATIENCE
    while page.page.evaluate(SHOWN) == before:
        if time.monotonic() > end:
            return False
        page.page.wait_for_timeout(50)
        wait(page)
    return True


def wait(page: Any) -> None:
    """Until the exact answer is there; the page is busy from the moment of a change."""
    page.page.evaluate(
        "() => new Promise((done) => { const look = () => (window.nqm.busy ? setTimeout(look, 20) : done()); look(); })"
    )


def other(name: str, text: str) -> str | None:
    """Another text for a field."""
    if name in ASKS_FOR_MORE:
        return ASKS_FOR_MORE[name]
    if name.endswith("range"):
        low, _, high = text.partition("..")
        return f"{low}..{float(high) / 2:g}"
    if name == "sizes":
        return f"{text},128"
    if name == "schedule-text":
        return "cosine(3000)"
    if "text" in name and "(" in text:  # an optimizer, or the constructor of a spectrum
        return None
    return None if not text else f"{float(text) * 0.9:g}"


VIEWS = {
    "steps": f"view=steps&o=EMA(SGD())&{SMALL}",
    "settings": f"view=settings&o=SGD()&{SMALL}",
    "loss": f"view=loss&{SETTING}&{SMALL}",
    "a regression": f"view=loss&{SETTING}&kind=least_squares&label_noise=1&{SMALL}",
    "schedule": f"view=schedule&{SETTING}&schedule=Schedule([2000,1000],[1,0.3])&{SMALL}",
    "map": f"view=map&run=HeavyBall(lr=0.5,momentum=0.9)&batch=512&{SMALL}",
    "network": f"view=network&{SMALL}",
    "a network of a regression": f"view=network&kind=least_squares&label_noise=1&{SMALL}",
    "batch": "view=batch",
}


@pytest.mark.parametrize("state", VIEWS.values(), ids=VIEWS)
def test_no_control_of_a_view_is_idle(state: str, open_page) -> None:
    assert idle(open_page(state)) == []


def test_no_control_of_a_measured_network_is_idle(open_page) -> None:
    page = open_page("view=advice&batch=64&goal=0.14&advised=own&run=SGD(lr=0.5)&steps=300", wait=False)
    page.page.click("#advice-sample")
    page.eventually(lambda: page.page.evaluate("Boolean(window.nqm.state().data)"), "the sample")
    page.settle()
    shown = {control["id"] for control in page.page.evaluate(CONTROLS)}
    assert {"goal", "advised", "batch"} <= shown
    assert (
        not {"tune", "target", "noise-kind", "setting-lr-0", "steps"} & shown
    )  # advice tunes, and has a goal of its own
    page.view("network")
    assert idle(page) == []
    last = "() => { const node = document.querySelector('#batch'); node.value = 1000; node.dispatchEvent(new Event('input')); }"
    page.page.evaluate(last)
    assert page.settle().page.input_value("#batch-text") == "1797"  # all examples of the network


def test_no_control_of_logs_is_idle(open_page) -> None:
    page = open_page("view=runs", wait=False)
    page.page.click("#runs-sample")
    page.eventually(lambda: page.page.evaluate("Boolean(window.nqm.state().data)"), "the sample")
    page.settle()
    shown = {control["id"] for control in page.page.evaluate(CONTROLS)}
    assert not {"tune", "target", "noise-kind", "setting-lr-0", "steps", "batch"} & shown  # without a next run
    assert idle(page) == []
    for shape in ("wsd", "best"):
        page.page.click(f"#shape-{shape}")
        page.settle()
        assert {"setting-lr-0", "steps"} <= {control["id"] for control in page.page.evaluate(CONTROLS)}
        assert idle(page) == []


def test_an_idle_control_is_found(open_page) -> None:
    page = open_page(f"view=loss&{SETTING}&{SMALL}")
    deaf = "document.addEventListener('change', (event) => event.target.id === 'grid' && event.stopImmediatePropagation(), true)"
    page.page.evaluate(deaf)
    assert idle(page) == ["grid"]
