"""Motion in the radix tree: what one step changed, shortly, and nothing else, ever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minisgl.events.trace import Trace
from minisgl_widgets.export import export_html
from tests.fakes import Run
from tests.widgets.exported import SMALL, Opened, recorded

MOVES = {
    "new": {"msgl-appear", "msgl-grow"},
    "split": {"msgl-cut"},
    "hit": {"msgl-pulse"},
    "evicted": {"msgl-empty"},
}

# go and draw at once: no test depends on how fast the machine is; ``rested``: the last step was long ago, not now
GO = """([step, rested]) => { const { stage } = document.getElementById("stage");
    stage.tree.moved = rested ? -Infinity : performance.now();
    stage.goto(step);
    stage.drawing.finish();
    return document.getAnimations().map((a) => {
        const node = a.effect.target.closest("[data-node]");
        return [a.animationName, node?.dataset.node ?? "", node?.dataset.mark ?? ""]; }); }"""

BOXES = """() => {
    const all = [...document.querySelectorAll(".msgl-panel, .msgl-node, .msgl-edge, canvas")];
    const name = (el, i) => (el.dataset.node ? `node ${el.dataset.node} ${el.dataset.mark}` : `${i}`);
    return Object.fromEntries(all.map((el, i) => [name(el, i), JSON.stringify(el.getBoundingClientRect())])); }"""


@pytest.fixture(scope="module")
def trace() -> Trace:
    return recorded(Run(**SMALL), 20, 5)


@pytest.fixture(scope="module")
def opened(chromium: Any, trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    page = Opened(chromium, export_html(trace, tmp_path_factory.mktemp("motion") / "run.html"))
    yield page
    assert page.problems == []
    page.context.close()


def go(opened: Opened, step: int, rested: bool = True) -> list[list[str]]:
    """The animations that a move to this step begins: (name, node, mark)."""
    return opened.page.evaluate(GO, [step, rested])


def test_only_what_a_step_changed_moves(opened: Opened, trace: Trace) -> None:
    seen = dict.fromkeys(MOVES, 0)
    last = trace.history.last
    go(opened, 0)
    for step in [*range(1, last + 1), *range(last - 1, 0, -1)]:
        moving = go(opened, step)
        marks = {n["node"]: n["mark"] for n in opened.data(".msgl-node") if n["mark"]}
        assert {node: mark for _, node, mark in moving} == marks, step
        for node, mark in marks.items():
            assert {name for name, who, _ in moving if who == node} == MOVES[mark]
            seen[mark] += 1
    assert all(n > 3 for n in seen.values()), seen


def test_it_ends_where_it_would_have_been_and_moves_nothing_else(opened: Opened, trace: Trace) -> None:
    go(opened, 1)
    compared = 0
    for step in range(2, trace.history.last + 1):
        if not go(opened, step):
            continue
        during = opened.page.evaluate(BOXES)
        opened.page.evaluate("Promise.all(document.getAnimations().map((a) => a.finished))")
        after = opened.page.evaluate(BOXES)
        assert during.keys() == after.keys()
        for name in after:
            if not name.startswith("node ") or name.endswith(" "):
                assert during[name] == after[name], (step, name)
                compared += 1
        opened.page.evaluate("document.querySelector('.msgl-moving').classList.remove('msgl-moving')")
        assert opened.page.evaluate(BOXES) == after, "at the end it stands as it would without motion"
    assert compared > 100


def test_pointing_begins_nothing_anew(opened: Opened, trace: Trace) -> None:
    step = next(s for s in range(2, trace.history.last) if go(opened, s - 1) is not None and go(opened, s))
    opened.page.evaluate("Promise.all(document.getAnimations().map((a) => a.finished))")
    opened.page.evaluate("document.getElementById('stage').stage.point({ kind: 'page', page: 3 })")
    opened.settle()
    assert opened.step == step and opened.page.evaluate("document.getAnimations().length") == 0
    opened.press("Escape")


def test_leaps_fast_steps_and_the_scrub_bar_are_still(opened: Opened, trace: Trace) -> None:
    last = trace.history.last
    go(opened, 1)
    assert [step for step in range(3, last + 1, 2) if go(opened, step)] == [], "leaps"
    go(opened, 1)
    assert opened.page.evaluate("stage.stage.tree.moved") > 0
    assert [step for step in range(2, last + 1) if go(opened, step, rested=False)] == [], "one right after the other"
    box = opened.page.locator(".msgl-range").bounding_box()
    mouse, middle = opened.page.mouse, box["y"] + box["height"] / 2
    mouse.move(box["x"] + 9, middle)
    mouse.down()
    for x in range(10, 120, 10):
        mouse.move(box["x"] + x, middle)
        opened.settle()
        assert opened.page.evaluate("document.getAnimations().length") == 0
    assert [step for step in range(opened.step + 1, last + 1) if go(opened, step)] == [], "while the bar is held"
    mouse.up()
    opened.settle()
    go(opened, 1)
    assert any(go(opened, step) for step in range(2, last + 1)), "and then not any more"


def test_who_wants_no_motion_sees_none(chromium: Any, trace: Trace, tmp_path: Path) -> None:
    page = Opened(chromium, export_html(trace, tmp_path / "run.html"), reduced_motion="reduce")
    assert [step for step in range(1, trace.history.last + 1) if go(page, step)] == []
    assert page.problems == []
    page.context.close()


def test_a_saved_picture_stands_still(opened: Opened, trace: Trace) -> None:
    next(s for s in range(2, trace.history.last) if go(opened, s - 1) is not None and go(opened, s))
    with opened.page.expect_download() as saved:
        opened.page.locator(".msgl-save-svg").click()
    text = Path(saved.value.path()).read_text("utf-8")
    assert 'class="msgl-svg' in text and "msgl-svg msgl-moving" not in text
