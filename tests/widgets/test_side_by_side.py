"""SideBySide: two stages on one clock show what Python says of each run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minisgl_widgets import runs
from minisgl_widgets.side_by_side import SideBySide
from tests.widgets.packed import parts_of
from tests.widgets.test_export import Opened


def test_it_counts_what_differs() -> None:
    a, b = runs.load("reserve"), runs.load("retract")
    pair = SideBySide(a, b)
    content = pair.content()
    assert not any(part[0] == "answers" for record in content.records for part in parts_of(record)), "no tab shows them"
    panel = content.panel
    assert panel and sum(n for _, n in panel["differing"]) == len(a.diff(b)) > 0
    assert panel["settings"] == [["admission", "conservative", "optimistic"]]
    assert panel["first"][0] == 1 and "needs 40" in panel["first"][1] and "needs 13" in panel["first"][2]
    assert [len(t) for t in panel["times"]] == [87, 50]
    assert f"{len(a.diff(b))} differing events" in repr(pair)
    same = SideBySide(a, a)
    assert same.content().panel | {"times": 0} == panel | {"times": 0, "differing": [], "settings": [], "first": None}
    with pytest.raises(ValueError, match="clock='wall': must be one of 'step', 'time'"):
        SideBySide(a, b, clock="wall")


def test_one_player_moves_both(chromium: Any, tmp_path: Path) -> None:
    traces = runs.load("reserve"), runs.load("retract")
    pair = SideBySide(*traces)
    page = Opened(chromium, pair.export_html(tmp_path / "pair.html"))
    assert page.page.viewport_size == {"width": 1280, "height": 900}
    per_step = traces[0].diff(traces[1]).per_step

    def stand(steps: tuple[int, int]) -> None:
        page.settle()
        for i, (trace, step) in enumerate(zip(traces, steps, strict=True)):
            snap = trace.at(step)
            side = f".msgl-side:nth-child({i + 1}) "
            assert page.data(f"{side}.msgl")[0]["step"] == str(step)
            (strip,) = page.data(f"{side}.msgl-strip")
            for kind in ("free", "owned", "evictable", "protected"):
                assert strip[kind] == str(snap.pages.count(kind)), (step, kind)
            shown = {row["uid"]: row["status"] for row in page.data(f"{side}.msgl-request[data-uid]")}
            assert shown == {str(uid): r.status for uid, r in snap.requests.items()}
        (state,) = page.data(".msgl-pair")
        assert int(state["differing"]) == sum(n for step, n in per_step.items() if step <= max(steps))

    stand((1, 1))
    assert page.page.locator(".msgl-request[data-status=waiting]").count() > 0
    assert page.page.locator(".msgl-why").count() == 0, "no tab would show the answer"
    boxes = page.page.eval_on_selector_all(
        ".msgl-side, .msgl-side .msgl-panel",
        "(all) => all.map((el) => Object.values(el.getBoundingClientRect().toJSON()))",
    )
    assert boxes[0][2] == boxes[4][2], "as wide"
    assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "both fit"
    for _ in range(8):
        page.page.keyboard.press("ArrowRight")
    stand((9, 9))
    page.page.keyboard.press("End")
    stand((86, 49))
    page.page.keyboard.press("Home")
    stand((0, 0))
    page.page.locator(".msgl-range").first.evaluate("(el) => { el.value = 60; el.dispatchEvent(new Event('input')); }")
    stand((60, 49))
    page.page.locator(".msgl-clock").select_option("time")
    t = traces[0].at(60).t
    stand((60, max(s for s in range(50) if traces[1].at(s).t <= t)))
    for key in ("ArrowLeft", "Shift+ArrowLeft"):
        page.page.keyboard.press(key)
    place = int(page.data(".msgl-pair")[0]["place"])
    ends = sorted({0, *(trace.at(s).t for trace in traces for s in range(1, trace.history.last + 1))})
    now = ends[place] + 1e-9
    stand(tuple(max(s for s in range(tr.history.last + 1) if s == 0 or tr.at(s).t <= now) for tr in traces))
    page.page.locator(".msgl-clock").select_option("step")
    page.page.locator(".msgl-breakkind").first.select_option("finish")
    page.page.locator(".msgl-play").first.focus()
    for key in ("Home", "n"):
        page.page.keyboard.press(key)
        page.settle()
    stand((15, 15))
    page.page.locator(".msgl-side:nth-child(2) .msgl-request[data-uid='5']").click()
    page.settle()
    assert [m["uid"] for m in page.data(".msgl-request.msgl-hi")] == ["5", "5"], "in both"
    page.page.evaluate("document.activeElement.blur()")
    page.page.mouse.move(0, 0)
    page.page.keyboard.press("Escape")  # with the focus on the page's body
    page.settle()
    assert page.data(".msgl-request.msgl-hi") == [], "let go in both"
    for key in ("Home", "Space", "n"):
        page.page.keyboard.press(key)
    assert page.page.locator(".msgl-play").first.get_attribute("aria-pressed") == "false", "going somewhere stops it"
    assert page.problems == []
    page.context.close()
