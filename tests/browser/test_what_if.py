"""The sliders as a reader meets them: a slider moves, and picture, curve, table and pages follow."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = "notebooks/04_what_if.ipynb"
FIGURE = ".jp-OutputArea-output:has(.msgl-what-if) .js-plotly-plot"


class Sliders:
    """The WhatIf on the page."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.box = page.locator(".jp-OutputArea-output:has(.msgl-what-if)").first

    def slider(self, name: str) -> Any:
        return self.box.locator(".widget-slider").filter(has_text=name).locator(".noUi-handle")

    def trace(self, name: str, axis: str = "y") -> list[float]:
        """What the browser has of a line; the run that is tried, not the ghost."""
        return self.page.evaluate(
            "([where, name, axis]) => Array.from(document.querySelector(where).data.find(t => t.name === name)[axis])",
            [FIGURE, name, axis],
        )

    def row(self, label: str) -> list[str]:
        return self.box.locator(f".msgl-what-if tr:has-text('{label}') td").all_inner_texts()

    def wait_for(self, status: str) -> None:
        self.box.locator(f"[role='status']:has-text('{status}')").wait_for()

    def notes(self) -> str:
        return self.page.evaluate(
            "where => document.querySelector(where).layout.annotations.map(a => a.text).join(' | ')", FIGURE
        )


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_slider_moves_and_everything_follows(open_notebook: Any, dark: bool) -> None:
    page = open_notebook(NOTEBOOK, dark=dark, width=1300, height=1250)
    assert page.trouble() == []
    page.wait_for_selector(FIGURE)
    it = Sliders(page)
    it.wait_for("everything as recorded")
    before = it.row("time to first token, mean")
    assert before[1] == before[2] and before[4] == "= same"
    occupied = it.trace("occupied")
    assert occupied == it.trace("occupied, as recorded"), "the ghost of an unchanged run is the run"

    # by keyboard, one position after the other, faster than anybody could draw
    handle = it.slider("num_pages")
    handle.focus()
    for _ in range(10):
        page.keyboard.press("ArrowLeft")
    it.wait_for("num_pages = 96 pages")
    page.wait_for_function(
        "([where, text]) => document.querySelector(where).data.some(t => t.name === text)",
        arg=[FIGURE, "the pool: 96 pages"],
    )
    after = it.row("time to first token, mean")
    assert after[1] == before[1] != after[2] and after[3].startswith("+") and after[4] == "✕ worse"
    assert max(it.trace("occupied")) <= 96
    sizes = page.evaluate(
        "where => document.querySelector(where).data.map(t => [t.name, t.x?.length, t.y?.length])", FIGURE
    )
    assert [name for name, x, y in sizes if x != y] == [], "a line whose other half did not change is whole"
    assert it.trace("occupied") != it.trace("occupied, as recorded") == occupied, "the ghost stays"
    page.wait_for_function(
        "where => document.querySelector(where).layout.annotations.some(a => a.text.includes('cliff'))", arg=FIGURE
    )
    assert "cliff: between" in it.notes() and it.notes().count("as recorded") == 3
    it.box.scroll_into_view_if_needed()
    if folder := os.environ.get("MINISGL_SHOTS"):
        page.screenshot(path=str(Path(folder) / f"what-if-{'dark' if dark else 'light'}.png"))

    # a policy: the curve runs over its choices
    it.box.locator(".widget-dropdown").filter(has_text="phase").locator("select").select_option("decode-first")
    it.wait_for("phase = decode-first")
    page.wait_for_function(
        "where => document.querySelector(where).data.find(t => t.name === 'curve').x.length === 3", arg=FIGURE
    )

    # every page of it
    it.box.locator("button:has-text('Show every page')").click()
    stage = it.box.locator(".msgl[data-step]")  # the record is read after the stage is there
    stage.wait_for()
    assert "phase=decode-first" in stage.inner_text()

    # too small for anybody: a sentence
    handle.focus()
    page.keyboard.press("Home")
    it.box.locator("[role='alert']:has-text('can never be served')").wait_for()
    it.box.locator("button:has-text('Reset')").click()
    it.wait_for("everything as recorded")
    assert it.row("time to first token, mean") == before
    assert page.trouble() == []
