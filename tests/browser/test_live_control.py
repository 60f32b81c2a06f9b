"""Live control as a reader meets it: run until something happens, fork from the step shown; and what is over."""

from __future__ import annotations

from typing import Any

from tests.browser.test_watch_a_run import NOTEBOOK, Dash

RUN_CODE = """async (code) => {
  const panel = window.jupyterapp.shell.currentWidget;
  return new Promise((done) => {
    const future = panel.sessionContext.session.kernel.requestExecute({ code });
    future.done.then((reply) => done(reply.content.status));
  });
}"""
RESTART = "async () => { await window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart(); }"


def fork(dash: Dash) -> Any:
    return dash.box.locator("button:has-text('Fork from here')")


def test_until_and_fork(open_notebook: Any) -> None:
    page = open_notebook(NOTEBOOK, width=1500, height=1500)
    naive = Dash(page, 0)
    naive.wait_for_step(16)
    naive.stage.scroll_into_view_if_needed()
    assert "replay: 0 differences" in naive.box.inner_text()

    # run until: the idle engine takes the box's prompts and stops where one of them has ended
    naive.box.locator("select").first.select_option(label="a finish")
    naive.press("Run")
    naive.wait_for_step(24)
    page.wait_for_selector("text=stopped at finish (step 24, RequestFinished)")

    # the player goes back; the engine follows it there, and goes on from there
    naive.box.locator("select").first.select_option(label="all are done")
    naive.stage.locator(".msgl-range").focus()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    naive.wait_for_step(21)
    page.wait_for_timeout(1000)  # the kernel is told a moment after the last move
    fork(naive).click()
    page.wait_for_selector("text=forked after step 21")
    page.wait_for_function("(el) => el.dataset.last === '21'", arg=naive.stage.element_handle())
    naive.wait_for_step(21)
    naive.press("Run")
    naive.wait_for_step(32)

    # the views follow; what a cell runs they show only after it, and yet it forks where the run is
    page.wait_for_timeout(1000)
    assert page.evaluate(RUN_CODE, "end = dash.run().step; assert end > 32 and dash.fork().step == end") == "ok"

    # closed, it leaves a line where it was
    views = page.locator(".msgl").count()
    assert page.evaluate(RUN_CODE, "dash.close()") == "ok"
    page.wait_for_selector("text=dashboard closed after step")
    page.wait_for_function("(n) => document.querySelectorAll('.msgl').length === n", arg=views - 1)
    assert page.trouble() == []


def test_what_is_over_looks_so(open_notebook: Any) -> None:
    page = open_notebook(NOTEBOOK, width=1500, height=1500)
    naive = Dash(page, 0)
    naive.wait_for_step(16)
    naive.stage.scroll_into_view_if_needed()
    assert page.evaluate(RUN_CODE, "from minisgl_widgets import Dashboard; other = Dashboard(llm)") == "ok"
    page.wait_for_selector("text=closed: another dashboard watches this engine")
    assert fork(naive).is_disabled() and not naive.stage.locator(".msgl-live").is_visible()
    naive.stage.locator(".msgl-range").focus()
    page.keyboard.press("Home")  # and the views go on
    naive.wait_for_step(0)

    radix = Dash(page, 1)
    radix.stage.scroll_into_view_if_needed()
    assert fork(radix).evaluate("(el) => getComputedStyle(el).pointerEvents") == "auto"
    page.evaluate(RESTART)
    page.wait_for_function("(el) => getComputedStyle(el).pointerEvents === 'none'", arg=fork(radix).element_handle())
    assert radix.box.locator(".msgl-controls").first.evaluate("(el) => getComputedStyle(el).opacity") == "0.45"
    said = "(el) => getComputedStyle(el.closest('.msgl-dashboard'), '::before').content"
    assert "The kernel is gone" in fork(radix).evaluate(said)
    assert not radix.stage.locator(".msgl-live").is_visible()
    radix.stage.locator(".msgl-range").focus()
    page.keyboard.press("Home")
    radix.wait_for_step(0)
    assert page.trouble() == []
