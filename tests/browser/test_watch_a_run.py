"""The first notebook as a reader meets it: Run All, look, step, scrub back, point at things, type a prompt."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = "notebooks/00_watch_a_run.ipynb"


class Dash:
    """One dashboard on the page: its buttons, and what its views say."""

    def __init__(self, page: Any, index: int) -> None:
        self.page = page
        self.stage = page.locator(".msgl").nth(index)
        # the controls are ipywidgets; they and the stage share the nearest box that has both
        self.box = page.locator(".jp-OutputArea-output:has(.msgl)").nth(index)

    def press(self, label: str) -> None:
        self.box.locator(f"button:has-text('{label}')").first.click()

    def number(self, part: str, name: str) -> int:
        return int(self.stage.locator(part).get_attribute(f"data-{name}"))

    def step(self) -> int:
        return int(self.stage.get_attribute("data-step"))

    def pool(self) -> tuple[int, ...]:
        return tuple(self.number(".msgl-strip", n) for n in ("free", "owned", "evictable", "protected"))

    def wait_for_step(self, step: int) -> None:
        self.page.wait_for_function(
            "([el, k]) => el.dataset.step === String(k)", arg=[self.stage.element_handle(), step]
        )

    def verdicts(self) -> list[tuple[str, str]]:
        tests = self.stage.locator(".msgl-test")
        return [(t.get_attribute("data-uid"), t.get_attribute("data-verdict")) for t in tests.all()]


@pytest.fixture
def shoot(request: pytest.FixtureRequest) -> Any:
    """Keep a picture of an element, beside the one that is taken at the end."""

    def shoot_(locator: Any, name: str) -> None:
        if folder := os.environ.get("MINISGL_SHOTS"):
            locator.screenshot(path=str(Path(folder) / f"{name}.png"))

    return shoot_


def test_a_reader_runs_steps_and_goes_back(open_notebook: Any, shoot: Any) -> None:
    page = open_notebook(NOTEBOOK, width=1500, height=1500)
    assert page.trouble() == []
    naive, radix = Dash(page, 0), Dash(page, 1)

    # Run All has run it: both dashboards stand at the end
    naive.wait_for_step(16)
    radix.wait_for_step(16)
    assert naive.pool() == (64, 0, 0, 0) and radix.pool() == (6, 0, 58, 0)
    assert radix.stage.locator(".msgl-lamp").get_attribute("data-sound") == "true"
    chart = page.locator(".jp-OutputArea-output.js-plotly-plot")
    assert chart.count() == 1 and "promised, not taken yet" not in chart.inner_text(), "the chart, not its still"
    radix.stage.scroll_into_view_if_needed()
    shoot(radix.stage, "dashboard-radix-end")

    # Step: the idle engine takes the box's prompts; strip and ledger change, request 9 waits as request 4 did
    naive.stage.scroll_into_view_if_needed()
    naive.press("Step")
    naive.wait_for_step(17)
    assert naive.pool() == (35, 29, 0, 0)
    assert ("9", "pages") in naive.verdicts()
    naive.press("Step")
    naive.wait_for_step(18)
    assert naive.pool() == (31, 33, 0, 0)
    shoot(naive.box, "dashboard-stepped")

    # back: by key to the start, one forward, then by dragging the bar; the kernel is not asked
    bar = naive.stage.locator(".msgl-range")
    bar.focus()
    page.keyboard.press("Home")
    naive.wait_for_step(0)
    assert naive.pool() == (64, 0, 0, 0)
    page.keyboard.press("ArrowRight")
    naive.wait_for_step(1)
    assert naive.pool() == (35, 29, 0, 0) and ("4", "pages") in naive.verdicts()
    box = bar.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.02, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, middle, steps=8)
    page.mouse.up()
    assert 6 <= naive.step() <= 12
    page.keyboard.press("End")
    naive.wait_for_step(18)

    # Run: the rest goes by itself, the view follows
    naive.press("Run")
    naive.wait_for_step(32)
    assert naive.pool() == (64, 0, 0, 0)

    # pointing at a request lights up its pages' owner everywhere
    bar.focus()
    page.keyboard.press("Home")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    naive.wait_for_step(3)
    naive.stage.locator(".msgl-request[data-uid='2']").hover()
    page.wait_for_selector(".msgl-hi:visible")
    assert page.trouble() == []


def test_ones_own_prompt_and_one_that_cannot_be_served(open_notebook: Any, shoot: Any) -> None:
    page = open_notebook(NOTEBOOK, width=1280, height=1300, dark=True)
    radix = Dash(page, 1)
    radix.wait_for_step(16)
    radix.stage.scroll_into_view_if_needed()
    shoot(radix.box, "dashboard-dark")
    box = radix.box.locator("textarea")
    box.fill("The capital of Spain is\n" + "far too long " * 80)
    box.blur()
    radix.press("Run")
    page.wait_for_selector("text=PromptTooLongError")
    page.wait_for_function("el => Number(el.dataset.last) >= 24", arg=radix.stage.element_handle())
    request = radix.stage.locator(".msgl-request").filter(has_text="Spain")
    assert int(request.get_attribute("data-matched")) >= 3
    assert request.get_attribute("data-reason") == "length"
    assert page.trouble() == []
