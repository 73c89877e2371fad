"""The explorer as a user has it: ``nqm serve`` in a process of its own, and Chromium in front of it."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
PATIENCE = 300.0  # Seconds after which a page that is still busy counts as broken.


@contextmanager
def serving() -> Iterator[str]:
    """The address of a server that is ended at the end."""
    command = [sys.executable, "-m", "nqm", "serve", "--port", "0", "--no-open", "--time-limit", f"{PATIENCE:g}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+/", process.stdout.readline())
        if found is None:
            raise RuntimeError("nqm serve did not start")
        yield found.group()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)


@contextmanager
def browsing() -> Iterator[Any]:
    """Chromium without a window."""
    from playwright.sync_api import sync_playwright

    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        raise RuntimeError(f"there is no Chromium: none of {', '.join(BROWSERS)} is on the path")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser
        browser.close()


def opened(browser: Any, address: str, state: str = "", **options: Any) -> Any:
    """A tab with the explorer in this state, once it has its answer."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
    page = context.new_page()
    page.set_default_timeout(1000 * PATIENCE)
    page.goto(f"{address}#{state}")
    settle(page)
    return page


def until(page: Any, condition: str, times: int = 1) -> None:
    """Wait until a condition in JavaScript holds this many times in a row, a moment apart."""
    end, seen = time.monotonic() + PATIENCE, 0
    while seen < times:
        if time.monotonic() > end:
            raise RuntimeError(f"waited in vain for {condition}; the page says {page.inner_text('#status')!r}")
        holds = page.evaluate(f"Boolean({condition})")
        seen = seen + 1 if holds else 0
        time.sleep(0.15 if holds and times > 1 else 0.02)


def settle(page: Any) -> None:
    """Wait until nothing is computed any more: twice in a row, because the last move of a slider is answered twice."""
    until(page, "window.nqm && !window.nqm.busy", times=2)
