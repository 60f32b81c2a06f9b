"""Pages in a notebook: a tour leads and a quiz marks, also once the notebook was saved and opened without a kernel."""

from __future__ import annotations

from typing import Any

import pytest

NOTEBOOK = "notebooks/05_tour_and_quiz.ipynb"


def frame(page: Any, holds: str) -> Any:
    """The page in a cell's output that has such an element."""
    frames = page.locator("iframe[srcdoc]")
    frames.first.wait_for()
    for i in range(frames.count()):
        frames.nth(i).scroll_into_view_if_needed()
        inside = frames.nth(i).content_frame
        inside.locator(".msgl[data-step]").first.wait_for()
        if inside.locator(holds).count():
            return inside
    raise AssertionError(f"no frame has {holds}")


def step_of(inside: Any) -> int:
    return int(inside.locator(".msgl").first.get_attribute("data-step"))


def lead(inside: Any) -> None:
    """Five sentences on, the player stands elsewhere; back at the first, where it was."""
    assert step_of(inside) == 1
    for _ in range(4):
        inside.locator(".msgl-onward").click()
    inside.locator(".msgl[data-step='5']").wait_for()
    inside.locator(".msgl-range").press("Home")
    inside.locator(".msgl[data-step='0']").wait_for()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_tour_leads_and_a_quiz_marks(open_notebook: Any, dark: bool) -> None:
    page = open_notebook(NOTEBOOK, dark=dark, width=1400, height=1100)
    assert page.trouble() == []
    tour, quiz = frame(page, ".msgl-tour"), frame(page, ".msgl-quiz")
    page.wait_for_function("() => !document.querySelector('.msgl-still')")  # nothing is there twice
    for inside in (tour, quiz):  # JupyterLab's theme, inside too
        inside.locator(f"body[data-jp-theme-light={str(not dark).lower()}]").wait_for()
    lead(tour)

    quiz.locator(".msgl-quiz[data-state=ask]").wait_for()
    before = step_of(quiz)
    quiz.locator(".msgl-choice").first.click()  # "It is admitted."
    quiz.locator(".msgl-quiz[data-state=told][data-answered='1']").wait_for()
    said = quiz.locator(".msgl-verdict-line")
    assert said.get_attribute("data-right") == "true" and "request 1 is admitted" in said.inner_text()
    quiz.locator(f".msgl[data-step='{before + 1}']").wait_for()

    if not dark:
        page.evaluate("async () => window.jupyterapp.commands.execute('docmanager:save')")
        page.goto(page.url)
        page.wait_for_function("() => window.jupyterapp?.shell?.currentWidget?.context?.isReady", timeout=90_000)
        lead(frame(page, ".msgl-tour"))  # nothing was run
    assert page.trouble() == []
