"""The player stays in sight: nothing between it and the notebook's scroll bar clips."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.browser.test_lab_fixture import write

DASHBOARD = """from minisgl_widgets import Dashboard
from tests.widgets.fake_llm import FakeLLM
llm = FakeLLM()
dash = Dashboard(llm)
llm.generate([[1, 2, 3]])
dash"""
BELOW_TOP = """el => {
  const top = (e) => e.getBoundingClientRect().top;
  return top(el.querySelector(".msgl-top")) - top(el.closest(".jp-WindowedPanel-outer"));
}"""


def test_the_player_stays_where_the_notebook_scrolls(open_notebook: Any, tmp_path: Path) -> None:
    cells = ["from minisgl_widgets import Stage, runs", "Stage(runs.load('reserve'))", DASHBOARD]
    page = open_notebook(write(tmp_path / "two.ipynb", *cells), width=1280, height=720)
    stages = page.locator(".msgl")
    for i in range(2):
        stages.nth(i).locator(".msgl-requests").evaluate("el => el.scrollIntoView({ block: 'end' })")
        assert 0 <= stages.nth(i).evaluate(BELOW_TOP) < 2

    # an output that scrolls by itself clips as before
    page.evaluate("window.jupyterapp.shell.currentWidget.content.widgets[1].outputsScrolled = true")
    output = page.locator(".jp-Cell-outputArea:has(.msgl)").first
    assert output.evaluate("el => getComputedStyle(el).overflowY") == "auto"
    assert page.trouble() == []
