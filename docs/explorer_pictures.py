"""Make the pictures of the explorer in docs/img and the live figure in docs/live: ``python docs/explorer_pictures.py``.

It needs the extras web and dev, and Chromium. ``--all FOLDER`` writes screenshots of every view instead, on a screen of
1280 x 800 in light and in dark colours, and on a phone of 390 x 844, for a look after a change.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.explorer import browsing, opened, serving, settle, until

HERE = Path(__file__).parent
LOG = HERE.parent / "tests" / "data" / "curves" / "multipowerlaw" / "25M" / "cosine_24000.csv"
SCHEDULE = (
    "view=schedule&run=SGD(lr=1.5)&batch=64&steps=20000&schedule=Schedule([12000,4000,2000,2000],[1,0.4,0.15,0.03])"
)
MAP = "view=map&run=HeavyBall(lr=0.5,momentum=0.9)&batch=4096"
PICTURES = {"steps": "", "schedule": SCHEDULE, "map": MAP}
VIEWS = {
    **PICTURES, "settings": "view=settings", "loss": "view=loss&batch=1024&steps=20000", "network": "view=network",
    "batch": "view=batch&noise=1000&noise_low=600&noise_high=2200", "advice": "view=advice&batch=64", "runs": "view=runs",
}  # fmt: skip
SCREENS = {
    "light": {"color_scheme": "light"}, "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "device_scale_factor": 2},
}  # fmt: skip


def pictures(browser: Any, address: str) -> None:
    for name, state in PICTURES.items():
        page = opened(browser, address, state)
        page.screenshot(path=str(HERE / "img" / f"explorer-{name}.png"))
        if name == "steps":
            with page.expect_download() as waiting:
                page.click("#save-html")
            waiting.value.save_as(HERE / "live" / "steps.html")
        page.context.close()


def everything(browser: Any, address: str, folder: Path, wanted: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for screen, options in SCREENS.items():
        for name in wanted or VIEWS:
            page = opened(browser, address, VIEWS[name], **options)
            begun(page, name)
            page.screenshot(path=str(folder / f"{name}-{screen}.png"))
            page.screenshot(path=str(folder / f"{name}-{screen}-whole.png"), full_page=True)
            page.context.close()


def begun(page: Any, name: str) -> None:
    """Open the file that a view needs."""
    if name == "advice":
        page.click("#advice-sample")
        until(page, "window.nqm.state().data")
    if name == "runs":
        page.evaluate("window.nqm.update({view: 'steps'})")
        page.evaluate("document.querySelector('#drawer').open = true")
        page.select_option("#spectrum-kind", "file")
        page.set_input_files("#file", str(LOG))
        until(page, "window.nqm.state().view === 'runs'")
        settle(page)
        page.click("#shape-wsd")
    settle(page)


if __name__ == "__main__":
    with serving() as address, browsing() as browser:
        if sys.argv[1:2] == ["--all"]:
            everything(browser, address, Path(sys.argv[2]), sys.argv[3:])
        else:
            pictures(browser, address)
