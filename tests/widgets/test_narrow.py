"""As wide as an output is in JupyterLab at 1280 px, or as a telephone: nothing is cut, nothing moves, nothing runs over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minisgl_widgets import runs
from minisgl_widgets.export import export_html
from tests.widgets.test_export import Opened

CUT = """(tab) => [...tab.closest(".msgl-dock").querySelectorAll(".msgl-dockbody *")].filter((el) => el.getClientRects().length && !el.childElementCount
    && !el.closest("svg, select, [role=listitem], .msgl-event") && getComputedStyle(el).overflow !== "visible"
    && (el.scrollWidth > el.clientWidth + 1 || el.scrollHeight > el.clientHeight + 2)).map((el) => el.textContent || el.className)"""
TABS = """() => [...document.querySelectorAll(".msgl-tab")].map((el) => {
  const { x, y, width } = el.getBoundingClientRect();
  const dock = el.closest(".msgl-dock").getBoundingClientRect();
  return [x - dock.x, y - dock.y, width];
})"""


@pytest.fixture(scope="module")
def opened(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    page = Opened(chromium, export_html(runs.load("reserve"), tmp_path_factory.mktemp("narrow") / "run.html"))
    page.page.set_viewport_size({"width": 900, "height": 720})
    yield page
    assert page.problems == []
    page.context.close()


def test_no_tab_cuts_its_own_words_and_no_tab_moves(opened: Opened) -> None:
    places = opened.page.evaluate(TABS)
    for step in (0, 1):
        opened.scrub(step)
        for tab in opened.page.locator(".msgl-tab").all():
            tab.click()
            opened.settle()
            assert opened.page.evaluate(TABS) == places
            assert tab.evaluate(CUT) == [], tab.inner_text()
