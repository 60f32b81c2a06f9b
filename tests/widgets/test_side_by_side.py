"""SideBySide: two stages on one clock show what Python says of each run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minisgl_widgets import runs
from minisgl_widgets.side_by_side import SideBySide
from tests.widgets.exported import Opened
from tests.widgets.packed import parts_of


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
    said = page.page.locator(".msgl-pair > .msgl-top .msgl-player").inner_text()
    assert "steps 86, 49" in said and "86 | 49" not in said, "once"
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


def test_where_it_is_narrow_they_stand_one_below_the_other(chromium: Any, tmp_path: Path) -> None:
    """As in a notebook beside JupyterLab's list of files: each text still has room for words."""
    page = Opened(chromium, SideBySide(runs.reserve, runs.retract).export_html(tmp_path / "pair.html"), "#step=30")
    for width, stacked in ((850, True), (1280, False)):
        page.page.set_viewport_size({"width": width, "height": 720})
        page.settle()
        left, right = page.page.eval_on_selector_all(
            ".msgl-side", "(all) => all.map((el) => el.getBoundingClientRect().toJSON())"
        )
        assert (left["bottom"] <= right["top"]) == stacked and (left["right"] <= right["left"]) != stacked
        columns = page.page.eval_on_selector_all(
            ".msgl-thead span:nth-child(3), .msgl-thead span:nth-child(4)",
            "(all) => all.map((el) => [el.clientWidth, el.scrollWidth])",
        )
        assert len(columns) == 4 and all(60 < room >= needed for room, needed in columns), (width, columns)
        beyond = page.page.eval_on_selector_all(
            ".msgl-thead > :last-child, .msgl-request > :last-child",
            "(all) => all.map((el) => el.getBoundingClientRect().right"
            " - el.closest('.msgl-table').getBoundingClientRect().right)",
        )
        assert len(beyond) == 14 and max(beyond) < 0, (width, beyond)
    titles = page.page.locator(".msgl-compact .msgl-title").evaluate_all("(all) => all.map((el) => el.textContent)")
    assert titles == [runs.reserve.title, runs.retract.title]
    assert page.problems == []
    page.context.close()


def test_an_address_leads_there_and_both_charts_have_one_scale(chromium: Any, tmp_path: Path) -> None:
    """The shorter run is on the left, and its pool is the smaller one."""
    traces = runs.load("small_cache"), runs.load("reserve")
    path = SideBySide(*traces).export_html(tmp_path / "pair.html")

    def steps(page: Opened) -> list[int]:
        page.settle()
        return [int(side["step"]) for side in page.data(".msgl-side .msgl[data-step]")]

    page = Opened(chromium, path, "#step=30&req=2")
    assert steps(page) == [30, 30]
    assert [m["uid"] for m in page.data(".msgl-request.msgl-hi")] == ["2", "2"], "held in both"
    page.page.keyboard.press("ArrowRight")
    page.page.wait_for_url("**#step=31&clock=step&req=2&view=chart")
    page.page.evaluate("location.hash = '#step=70'")
    assert steps(page) == [traces[0].history.last, 70], "the longer run's step"
    page.page.locator(".msgl-clock").select_option("time")
    for _ in range(3):
        page.page.keyboard.press("ArrowLeft")
    there, (pair,) = steps(page), page.data(".msgl-pair")
    page.page.wait_for_url(f"**#step={there[0]}&beside={there[1]}&clock=time&*")
    again = Opened(chromium, path, page.page.evaluate("location.hash"))
    assert steps(again) == there
    assert again.data(".msgl-pair")[0]["place"] == pair["place"] and pair["clock"] == "time"
    again.page.evaluate("location.hash = '#step=1&beside=1&clock=step&view=timeline'")
    again.page.wait_for_selector(".msgl-side:nth-child(1) .msgl-timeline")
    again.page.wait_for_selector(".msgl-side:nth-child(2) .msgl-timeline")
    assert again.problems == []
    again.context.close()

    page.page.evaluate("location.hash = '#step=20&clock=step'")
    assert steps(page) == [20, 20]
    pages, last = 96, traces[1].history.last
    assert [(c["steps"], c["pages"]) for c in page.data(".msgl-pool-chart")] == [(str(last), str(pages))] * 2
    (x, y), (x2, y2) = page.page.eval_on_selector_all(
        ".msgl-pool-chart",
        """(all) => all.map((el) => [el.querySelector(".msgl-a-here").getAttribute("x1"),
        [...el.querySelectorAll(".msgl-axes text")].map((t) => t.textContent)])""",
    )
    assert (x, y) == (x2, y2), "the same step is at the same place, under the same numbers"
    left, right = page.page.eval_on_selector_all(
        ".msgl-a-line", "(all) => all.map((el) => el.getBBox()).map((box) => [box.x, box.width])"
    )
    assert left[0] == right[0] and left[1] / right[1] == pytest.approx(traces[0].history.last / last, abs=0.001)
    box = page.page.locator(".msgl-chart").first.bounding_box()
    page.page.mouse.click(box["x"] + float(x), box["y"] + 60)
    assert steps(page) == [20, 20], "where a step is drawn, a click goes to it"
    page.page.mouse.click(box["x"] + box["width"] - 12, box["y"] + 60)
    assert steps(page)[0] == traces[0].history.last, "beyond the run's end: its end"
    assert page.problems == []
    page.context.close()


def test_what_one_run_shows_of_the_other_follows_it(chromium: Any, tmp_path: Path) -> None:
    """A token of the address is held in both; the left chart has the right run's scale as soon as that one is there."""
    path = SideBySide(runs.load("small_cache"), runs.load("reserve")).export_html(tmp_path / "pair.html")
    page = Opened(chromium, path, "#step=30&req=2&token=0")
    assert page.page.evaluate("stage.stage.pinned") == {"kind": "token", "uid": 2, "at": 0}, "of the right run"
    page.page.evaluate("""() => { const { store } = stage.stage;
        Object.defineProperty(store, "numPages", { value: 500 });
        for (const fn of [...store.listeners]) fn("load"); }""")
    page.settle()
    assert [chart["pages"] for chart in page.data(".msgl-pool-chart")] == ["500", "500"]
    assert page.problems == []
    page.context.close()
