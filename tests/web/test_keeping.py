"""What the page shows can be kept: links and downloads, in a real browser."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from live import ROOT
from pages import SIZES, close

pytestmark = pytest.mark.slow


def test_a_link_is_a_figure(open_page):
    page = open_page(f"view=steps&o=SGD()&{SIZES}")
    page.page.click("#family-add")
    page.settle()
    page.set("#target-text", "0.02")
    page.page.select_option("#critical", "20%")
    page.settle()
    again = open_page(page.link())
    assert again.shown("figure") == page.shown("figure")
    assert again.page.input_value("#target-text") == "0.02"
    assert again.page.input_value("#critical") == "20%"
    page.view("loss")
    page.page.go_back()
    page.settle()
    assert page.shown("view") == "steps"


def download(page: Any, kind: str, folder: Path) -> Path:
    with page.page.expect_download() as waiting:
        page.page.click(f"#save-{kind}")
    path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path


LINES = f"view=steps&o=SGD()&{SIZES}"
MAP = "view=map&run=SGD(lr=0.5)&y=batch_size&cells=8"


def test_downloads(open_page, tmp_path):
    page = open_page(f"view=steps&limits=shown&o=SGD()&o=HeavyBall()&{SIZES}")
    figure = page.shown("figure")
    picture = download(page, "png", tmp_path).read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 20_000
    drawing = ET.fromstring(download(page, "svg", tmp_path).read_text())
    assert sum(1 for node in drawing.iter() if node.tag.endswith("circle")) >= 8  # a dot for each point
    assert "HeavyBall()" in "".join(drawing.itertext())
    table = list(csv.DictReader(io.StringIO(download(page, "csv", tmp_path).read_text())))
    steps = [float(row["y"]) for row in table if row["series"] == "HeavyBall()"]
    close(steps, page.line("HeavyBall()"))
    kept = json.loads(download(page, "json", tmp_path).read_text())
    assert kept["answers"] == page.shown()
    asked = [line for line in figure["panels"][0]["lines"] if not line["label"].endswith(": added")]
    assert len(asked) == 6
    series = {row["series"] for row in table if row["x"] and row["y"]}
    assert {"perfect scaling of SGD()", "perfect scaling of HeavyBall()"} <= series  # each has a name of its own
    words = "".join(drawing.itertext())
    assert page.text("#headline")[:40] in words
    assert "Problem: power_law(10000). nqm " in words
    assert page.page.evaluate("window.nqm.shown.link") in words


@pytest.mark.parametrize("state", [LINES, MAP], ids=["lines", "map"])
def test_one_file_page_needs_no_network(open_page, browser, tmp_path, state):
    page = open_page(state)
    path = download(page, "html", tmp_path)
    context = browser.new_context(offline=True)
    asked, complaints = [], []
    alone = context.new_page()
    alone.on("request", lambda request: asked.append(request.url))
    alone.on("pageerror", lambda error: complaints.append(str(error)))
    alone.goto(path.as_uri())
    alone.wait_for_selector(".plot canvas")
    drawn = type(page)(alone, complaints)
    drawn.eventually(lambda: min(drawn.colours()) > 10, "the charts")
    assert all(url.startswith(("file:", "data:")) for url in asked)
    assert complaints == []
    words = alone.inner_text("body")
    assert page.shown("commands")[0]["command"] in words
    assert page.text("#headline") in words
    assert "Problem: power_law(10000). nqm " in words
    context.close()


def test_the_live_figure_of_the_docs_opens_by_itself(browser):
    context = browser.new_context(offline=True)
    alone, complaints = context.new_page(), []
    alone.on("pageerror", lambda error: complaints.append(str(error)))
    alone.goto((ROOT / "docs" / "live" / "steps.html").as_uri())
    alone.wait_for_selector(".plot canvas")
    assert "Momentum keeps scaling to batch size" in alone.inner_text("body")
    assert complaints == []
    context.close()


def test_a_picture_is_copied_as_it_is_saved(open_page, tmp_path):
    page = open_page(LINES)
    page.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.page.click("#copy-picture")
    page.eventually(lambda: page.text("#copy-picture") == "Picture copied", "the picture")
    copied = page.page.evaluate(
        """async () => {
            const [item] = await navigator.clipboard.read();
            const image = await createImageBitmap(await item.getType("image/png"));
            return [item.types, image.width, image.height];
        }"""
    )
    saved = download(page, "png", tmp_path).read_bytes()
    width, height = (int.from_bytes(saved[at : at + 4], "big") for at in (16, 20))  # where a PNG has its size
    assert copied == [["image/png"], width, height]


def test_a_picture_has_all_that_a_reader_needs(open_page):
    page = open_page(LINES)
    said = page.page.evaluate("async () => (await import('/js/save.js')).pictureOf(window.nqm.shown)")
    words = " ".join("".join(ET.fromstring(said).itertext()).split())
    version = page.page.evaluate("async () => (await import('/js/catalogue.js')).known().version")
    assert "Steps to loss 0.01 against batch size" in words
    assert f"Problem: power_law(10000). nqm {version}." in words
    for part in (page.text("#headline"), page.page.evaluate("window.nqm.shown.link")):
        assert "".join(part.split()) in "".join(words.split())  # lines are cut where the picture ends
