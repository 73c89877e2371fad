"""How quickly the explorer answers in Chromium: ``python -m benchmarks.page``. Run it on an otherwise idle machine.

It prints the median and the 95th percentile of the milliseconds from a move of a slider to its picture, for the view of the
loss and for sweeps of three optimizers at ten batch sizes; of the milliseconds of exact sweeps after a move; of the first
paint; and the size of the page as it is sent.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from benchmarks.explorer import browsing, opened, serving, settle, until

SETTING = "view=loss&run=HeavyBall(lr=0.05,momentum=0.9)&batch=256&steps=3000"
BEAT = 0.2  # Seconds between two moves: slower than a hand, so that each move has its own picture.
MOVES = 60  # Moves of a slider whose pictures are timed.
SWEEPS = 12  # Exact sweeps that are timed, each at a target of its own.
PAINTS = 10  # Times that the page is opened.
BARS = {"loss": 60, "sweep, preview": 200, "sweep, exact": 1500, "first paint": 1000}  # ms that we want at most, p95.


def main() -> None:
    with serving() as address, browsing() as browser:
        opened(browser, address).context.close()  # The server compiles and warms up.
        rows = {
            "loss": moves(browser, address, SETTING, "#setting-lr-0"),
            "sweep, preview": moves(browser, address, "", "#target"),
            "sweep, exact": sweeps(browser, address),
            "first paint": paints(browser, address),
        }
        size = sent(browser, address)
    load = os.getloadavg()[0]
    print(f"milliseconds until the picture is there; load {load:.1f} on {os.cpu_count()} cores")
    print(f"{'':<16}{'count':>6}{'median':>8}{'p95':>8}{'wanted':>8}")
    for name, times in rows.items():
        if not times:
            print(f"{name:<16}{0:>6}  no picture came while the slider moved")
            continue
        middle, late = np.quantile(times, [0.5, 0.95])
        print(f"{name:<16}{len(times):>6}{middle:>8.0f}{late:>8.0f}{BARS[name]:>8}")
    print(f"the page as it is sent, with the heads of its answers: {size / 1e3:.0f} kB (150 wanted)")


def moves(browser: Any, address: str, state: str, control: str) -> list[float]:
    """Milliseconds from a move of a slider to its quick picture."""
    page = opened(browser, address, state)
    page.focus(control)
    page.evaluate("window.nqm.timings.length = 0")
    for i in range(MOVES):
        page.keyboard.press("ArrowRight" if i % 20 < 10 else "ArrowLeft")
        page.wait_for_timeout(1000 * BEAT)
    settle(page)
    found = page.evaluate("window.nqm.timings")
    page.context.close()
    return [one["ms"] for one in found if one["moving"]]


def sweeps(browser: Any, address: str) -> list[float]:
    """Milliseconds of an exact sweep, from the end of a move on: a new target each time."""
    page, found = opened(browser, address), []
    for i in range(SWEEPS):
        page.evaluate("window.nqm.timings.length = 0")
        page.evaluate(f"window.nqm.update({{target: '{0.01 * 1.013 ** (i + 1):.6g}'}})")
        until(page, "window.nqm.timings.some((one) => !one.moving)")
        settle(page)
        found += [one["answer"] for one in page.evaluate("window.nqm.timings") if not one["moving"]]
    page.context.close()
    return found


def paints(browser: Any, address: str) -> list[float]:
    """Milliseconds until something is painted, with nothing in the browser's cache."""
    found = []
    for _ in range(PAINTS):
        page = opened(browser, address)
        paint = "performance.getEntriesByType('paint').find((one) => one.name === 'first-contentful-paint').startTime"
        found.append(page.evaluate(paint))
        page.context.close()
        time.sleep(BEAT)
    return found


def sent(browser: Any, address: str) -> int:
    """Bytes of everything that the page loads, compressed, without its answers."""
    page = opened(browser, address)
    files = "performance.getEntries().filter((one) => one.transferSize && !one.name.includes('/api/'))"
    size = page.evaluate(f"{files}.reduce((sum, one) => sum + one.transferSize, 0)")
    page.context.close()
    return size


if __name__ == "__main__":
    main()
