"""As wide as an output is in JupyterLab at 1280 px, or as a telephone: nothing is cut, moves or runs over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minisgl.errors import PoolTooSmallError
from minisgl.events.recorder import Recorder
from minisgl_widgets import runs
from minisgl_widgets.export import export_html
from tests.fakes import Run
from tests.widgets.exported import Opened

CUT = """(tab) => {
  const all = [...tab.closest(".msgl-dock").querySelectorAll(".msgl-dockbody *")];
  const own = all.filter((el) => el.getClientRects().length && !el.childElementCount);
  const words = own.filter((el) => !el.closest("svg, select, .msgl-event"));
  const clips = words.filter((el) => getComputedStyle(el).overflow !== "visible");
  const cut = clips.filter((el) => el.scrollWidth > el.clientWidth + 1 || el.scrollHeight > el.clientHeight + 2);
  return cut.map((el) => el.textContent || el.className);
}"""
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


def test_a_telephone_scrolls_down_only(opened: Opened) -> None:
    opened.page.set_viewport_size({"width": 400, "height": 720})
    opened.settle()
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 400
    opened.page.set_viewport_size({"width": 900, "height": 720})


def test_what_is_copied_is_seen(opened: Opened) -> None:
    opened.page.locator(".msgl-copy").click()
    opened.page.locator(".msgl-copied").wait_for()
    opened.scrub(3)
    assert opened.page.locator(".msgl-copied").count() == 0


def test_an_old_test_says_of_which_step_its_numbers_are(opened: Opened) -> None:
    opened.scrub(9)
    assert opened.text(".msgl-since") == "(tested in step 2)"
    assert opened.text(".msgl-ledger .msgl-hint").startswith("step 2: ")


def test_a_failed_request_looks_so_and_keeps_its_prompt(chromium: Any, tmp_path: Path) -> None:
    run = Run(num_pages=80)
    with Recorder(run, "some fail") as recorder:
        with pytest.raises(PoolTooSmallError):
            run.submit([1, 2, 3], 90)
        run.submit([1, 2, 3], 60)
        run.play()
        run.submit([4, 5, 6], 4)
        run.executor.fail_at, run.executor.fail_in = 62, "collect"
        run.play()
    page = Opened(chromium, export_html(recorder.trace, tmp_path / "run.html"))
    page.page.set_viewport_size({"width": 900, "height": 720})
    page.press("End")
    refused, well, broken = (page.page.locator(f".msgl-request[data-uid='{uid}']") for uid in range(3))
    colour = "(el) => getComputedStyle(el).color.match(/[0-9]+/g).map(Number)"
    bad = [0xB3, 0x26, 0x1E]
    for row, said in ((refused, "need 93 pages"), (broken, "RuntimeError")):
        assert "✕ ended: error" in row.locator(".msgl-status").inner_text()
        assert said in row.locator(".msgl-out").inner_text()
        colours = [row.locator(cell).evaluate(colour) for cell in (".msgl-status", ".msgl-out")]
        assert colours == [bad] * 2
    assert "✓ ended: length" in well.locator(".msgl-status").inner_text()
    assert broken.locator(".msgl-reads").inner_text() == "<4><5><6>"
    tokens = well.locator("[role=cell]").nth(5)
    assert tokens.inner_text() == "60/60" and tokens.evaluate("(el) => el.scrollWidth <= el.clientWidth")
    page.context.close()
