"""A real server on the loopback interface, and a real browser in front of it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest
from live import serving
from waiting import LIMIT, eventually

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NEEDED = os.environ.get("NQM_REQUIRE_BROWSER") == "1"
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
]  # fmt: skip


@pytest.fixture(scope="session")
def explorer() -> Iterator[str]:
    """The address of ``nqm serve``, started as a user starts it, with a time limit that a busy machine does not come to."""
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    with serving("--time-limit", f"{LIMIT:g}") as server:
        yield server.address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window; skipped where it is missing, unless NQM_REQUIRE_BROWSER=1.

    For one module, not the whole run: while Playwright is open its event loop counts as this thread's running one, and a
    test elsewhere that starts its own with ``asyncio.run`` is refused.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        _missing("playwright")
    if CHROMIUM is None:
        _missing("Chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


def _missing(what: str) -> NoReturn:
    if NEEDED:
        pytest.fail(f"NQM_REQUIRE_BROWSER=1, and {what} is missing")
    pytest.skip(f"{what} is missing")


@pytest.fixture
def open_page(explorer: str, browser: Any) -> Iterator[Any]:
    """Opens pages of the explorer by the state in their link; whatever they complain of fails the test."""
    contexts, complaints = [], []

    def open_(state: str = "", wait: bool = True, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": 1280, "height": 860}, **options)
        context.set_default_timeout(1000 * LIMIT)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: said.type == "error" and complaints.append(said.text))
        page.goto(f"{explorer}#{state}")
        shown = Page(page, complaints)
        if wait:
            shown.settle()
        return shown

    yield open_
    for context in contexts:
        context.close()
    refused = "Failed to load resource: the server responded with a status of 4"  # wrong input, which a test asked for
    assert [text for text in complaints if not text.startswith(refused)] == []


class Page:
    """The explorer in a tab."""

    def __init__(self, page: Any, complaints: list[str]) -> None:
        self.page, self.complaints = page, complaints

    def eventually(self, condition: Callable[[], object], what: str) -> None:
        """Wait for what must happen, and let the page's events through meanwhile."""
        eventually(condition, what, lambda seconds: self.page.wait_for_timeout(1000 * seconds))

    def link(self) -> str:
        """The state in the page's address, which is written a moment after a change."""
        written = "async () => (await import('/js/state.js')).toHash(window.nqm.state()) === location.hash"
        self.eventually(lambda: self.page.evaluate(written), "the address of the page")
        return self.page.url.partition("#")[2]

    def settle(self, seconds: float = LIMIT) -> Page:
        """Wait until nothing is computed any more: twice in a row, as a slider's last move is answered twice."""
        end, quiet = time.monotonic() + seconds, 0
        while quiet < 2:
            assert time.monotonic() < end, f"still busy: {self.text('#status')!r} {self.complaints}"
            idle = self.page.evaluate("Boolean(window.nqm && !window.nqm.busy)")
            quiet = quiet + 1 if idle else 0
            time.sleep(0.15 if idle else 0.05)
        return self

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)

    def shown(self, what: str = "answers") -> Any:
        """What the page shows: its figure, the server's answers, the commands."""
        return self.page.evaluate(f"window.nqm.shown.{what}")

    def line(self, label: str, panel: int | None = None) -> list[float | None]:
        """The values of a line: of the first with this label, in one panel or in any."""
        panels = self.shown("figure")["panels"]
        lines = [line for one in (panels if panel is None else [panels[panel]]) for line in one["lines"]]
        return next(line["y"] for line in lines if line["label"] == label)

    def view(self, name: str) -> Page:
        self.page.click(f"#tab-{name}")
        return self.settle()

    def set(self, selector: str, value: str) -> Page:
        self.page.fill(selector, value)
        self.page.press(selector, "Enter")
        return self.settle()

    def colours(self) -> list[int]:
        """How many colours each chart's canvas has; a blank one has one."""
        return self.page.evaluate(
            """() => [...document.querySelectorAll(".plot canvas")].map((canvas) => {
                const pixels = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
                return new Set(pixels).size;
            })"""
        )
