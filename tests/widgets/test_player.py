"""The player: whole at every width, and in every step as wide and as high."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minisgl.events.recorder import Recorder
from minisgl_widgets import runs
from minisgl_widgets.export import export_html
from minisgl_widgets.side_by_side import SideBySide
from tests.widgets.exported import Opened
from tests.widgets.fake_llm import FakeLLM

PARTS = """() => {
  const seen = (el) => el.getClientRects().length;
  const player = [...document.querySelectorAll(".msgl-player")].find(seen);
  const box = (el) => {
    const { left, top, right, bottom } = el.getBoundingClientRect();
    return [left, top, right, bottom];
  };
  const [left, top, right, bottom] = box(player);
  const beyond = ([l, t, r, b]) => l < left || t < top || r > right || b > bottom;
  const cut = (el) => el.matches("output, span, button") && el.clientWidth && el.scrollWidth > el.clientWidth;
  const parts = [...player.querySelectorAll("*")].filter((el) => seen(el) && !el.closest("svg, select"));
  return {
    lost: parts.filter((el) => beyond(box(el)) || cut(el)).map((el) => el.className),
    places: parts.filter((el) => !el.closest(".msgl-batch > *")).map(box).concat([box(player)]),
  };
}"""


@pytest.mark.parametrize("kind", ["single", "live", "pair"])
def test_nothing_lies_beyond_the_player_and_nothing_moves(chromium: Any, tmp_path: Path, kind: str) -> None:
    a, path = runs.load("reserve"), tmp_path / "run.html"
    page = Opened(
        chromium, SideBySide(a, runs.load("retract")).export_html(path) if kind == "pair" else export_html(a, path)
    )
    if kind == "live":
        page.page.evaluate("stage.stage.player.live.hidden = false")
    for width in (560, 800, 1030, 1150, 1280):
        page.page.set_viewport_size({"width": width, "height": 720})
        page.page.keyboard.press("Home")
        page.settle()
        first = page.page.evaluate(PARTS)
        assert first["lost"] == [], width
        for key in ("ArrowRight", "Shift+ArrowRight", "End"):
            page.page.keyboard.press(key)
            page.settle()
            assert page.page.evaluate(PARTS) == first, (width, key)
    assert page.problems == []
    page.context.close()


def test_the_scrub_bar_has_room(chromium: Any, tmp_path: Path) -> None:
    page = Opened(chromium, export_html(runs.load("reserve"), tmp_path / "run.html"))
    for width in (560, 760, 900, 960):  # 900: about what an output has in JupyterLab at 1280
        page.page.set_viewport_size({"width": width, "height": 720})
        assert page.page.evaluate("document.querySelector('.msgl-range').clientWidth") >= 240, width
    page.context.close()


@pytest.mark.parametrize("live", [False, True])
def test_asking_for_a_number_of_pages_takes_no_further_room(chromium: Any, tmp_path: Path, live: bool) -> None:
    page = Opened(chromium, export_html(runs.load("reserve"), tmp_path / "run.html"))
    page.page.evaluate("(live) => { stage.stage.player.live.hidden = !live; }", live)
    for width in (560, 800, 900, 1030, 1150, 1280, 1500):
        page.page.set_viewport_size({"width": width, "height": 720})
        found = []
        for kind in ("refusal", "free"):
            page.page.locator(".msgl-breakkind").select_option(kind)
            page.settle()
            found.append(page.page.evaluate(PARTS))
        assert found[1]["lost"] == [], width
        fields, around = found[1]["places"], found[0]["places"]
        assert len(fields) == len(around) + 1 and all(box in fields for box in around), f"nothing moves at {width}"
        if width >= 1030:
            (_, top, _, bottom) = fields[-1]
            assert bottom - top < 50, f"one row at {width}"
    assert page.problems == []
    page.context.close()


def test_a_run_without_steps_is_drawn_and_then_rests(chromium: Any, tmp_path: Path) -> None:
    with Recorder(FakeLLM(), "nothing yet") as recorder:
        pass
    page = Opened(chromium, export_html(recorder.trace, tmp_path / "run.html"), "#view=events")
    assert page.text(".msgl-events [role=status]") == "0 events"
    for _ in range(3):
        page.settle()
    assert page.page.evaluate("stage.stage.drawing.next") == 0, "no frame is asked for"
    assert page.problems == []
    page.context.close()
