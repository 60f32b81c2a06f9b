"""The dashboard without a browser: clicks are `button.click()`; what a browser would know comes from messages."""

from __future__ import annotations

import gc
import os
import signal
import threading
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from html import escape

import pytest

pytest.importorskip("anywidget", reason="the widgets need the extra [lab]")

from traitlets import TraitError

from minisgl.core import SamplingParams
from minisgl.errors import ConditionError, EngineClosedError, FixedSettingError, ForkError, LedgerError, TraceError
from minisgl.events import BatchScheduled, RequestArrived, SettingsChanged, StepFinished
from minisgl.events.recorder import Recorder
from minisgl.events.trace import Trace
from minisgl.events.until import Until
from minisgl.sim.answers import Answer, verify
from minisgl.sim.replay import replay
from minisgl_widgets import Dashboard, Stage
from minisgl_widgets.dashboard import result
from minisgl_widgets.panel import every_widget
from tests.widgets.browser import Browser, through_json, until
from tests.widgets.fake_llm import ORACLE, ORACLE_PARAMS, FakeLLM


def make(llm: FakeLLM | None = None, **keywords) -> Dashboard:
    return Dashboard(llm or FakeLLM(prefix_cache="naive"), **({"prompts": ORACLE, "ignore_eos": True} | keywords))


def click(dash: Dashboard, label: str) -> None:
    button = next(b for b in dash._controls.rows[1].children if getattr(b, "description", "") == label)
    button.click()


def settle(dash: Dashboard) -> None:
    """Wait until all that was asked for so far is done."""
    dash._driver.thread.put(lambda: None).result()
    until(lambda: not dash._driver.thread.running)
    dash._driver.thread.put(lambda: None).result()


def numbers(dash: Dashboard, step: int) -> tuple[int, int, int]:
    c = dash.at(step).counters
    return c["waiting"], c["free_pages"], c["reserved_pages"]


def test_the_methods_give_the_admission_oracle() -> None:
    dash = make()
    assert repr(dash) == (
        "Dashboard(step=0, free=64, owned=0, cached=0 (0 locked), promised=0, pages=64x1, running=0, waiting=0)"
    )
    snap = dash.step()
    assert (snap.step, numbers(dash, 1)) == (1, (1, 35, 28))
    assert dash.step(6).step == 7
    assert numbers(dash, 7) == (1, 11, 4)
    end = dash.run()
    assert (end.step, numbers(dash, 9), numbers(dash, 16)) == (16, (0, 59, 7), (0, 64, 0))
    assert "<b>idle</b> after step 16 · 0 running, 0 waiting<" in dash._controls.status.value
    assert "free=64" in dash._controls.status.value  # the rest is in its tooltip
    assert dash._controls.error.value == ""
    assert dash.llm.stepping_threads == {"minisgl-dashboard"}
    assert dash.trace.at(9) == dash.at(9)
    with pytest.raises(TraceError, match="steps 0 to 16"):
        dash.at(17)


def test_clicks_do_the_same() -> None:
    dash = make()
    click(dash, "Step")
    settle(dash)
    said = "<b>paused</b> after step 1 · 4 running, 1 waiting · 5 prompts submitted<"
    assert dash.history.last == 1 and said in dash._controls.status.value
    click(dash, "Run")
    settle(dash)
    assert dash.history.last == 16 and numbers(dash, 16) == (0, 64, 0)
    click(dash, "Add")
    settle(dash)
    assert dash.history.last == 16 and "<b>paused</b> after step 16" in dash._controls.status.value
    assert "5 prompts added; they take effect in the next step<" in dash._controls.status.value
    click(dash, "Run")  # goes on with what was added, and does not submit the box again
    settle(dash)
    assert len(dash.at(dash.history.last).requests) == 10


def test_the_box_takes_texts_and_token_ids_and_leaves_empty_lines_out() -> None:
    dash = make(prompts=["w1 w2 w3"])
    dash._controls.prompts.value = "w1 w2 w3\n\n   \n[7, 8]\n"
    dash._controls.max_tokens.value = 2
    requests = dash.run().requests
    assert [(r.prompt, len(r.output)) for r in requests.values()] == [((1, 2, 3), 2), ((7, 8), 2)]
    assert dash.texts[7] == " w7"


def test_refused_prompts_are_shown_with_their_numbers_and_the_rest_runs() -> None:
    dash = make()
    end = dash.run([[1, 2], [], [5, 1000], list(range(128)), "no such word", [3]], ORACLE_PARAMS)
    kinds = [line.split(": ")[:2] for line in dash.errors]
    assert kinds == [
        ["prompt 2", "EmptyPromptError"],
        ["prompt 3", "TokenOutOfVocabularyError"],
        ["prompt 4", "PromptTooLongError"],
        ["prompt 5", "RequestError"],
    ]
    assert "128 tokens" in dash._controls.error.value and "1000" in dash._controls.error.value
    assert [r.reason for r in end.requests.values()] == ["length", "error", "error", "error", "length"]
    dash.run([[1]])
    assert dash.errors == [] and dash._controls.error.value == ""


def test_what_is_said_wraps_in_a_box_that_keeps_its_height() -> None:
    """Nothing of a sentence is cut, and the views below do not move when there is more to say."""
    dash = make()
    controls = dash._controls
    (box,) = [row for row in controls.rows if controls.status in every_widget(row)]
    assert controls.error in every_widget(box)
    assert box.layout.height.endswith("px") and box.layout.overflow == "auto", "beyond that it scrolls"
    for line in (controls.status, controls.error):
        assert (line.layout.height, line.layout.flex) == ("auto", "0 0 auto"), "as high as it needs"
    dash.run([[], [5, 1000]])
    for line in (controls.status, controls.error):
        assert line.value and "nowrap" not in line.value


def test_whoever_points_at_a_controls_name_reads_a_sentence() -> None:
    controls = make()._controls
    lists = [controls.until.choice, *controls.settings.controls.values()]
    for control in (*lists, controls.max_tokens, controls.temperature, controls.ignore_eos, controls.speed):
        assert control.description_allow_html and control.tooltip.endswith(".")
        assert f'title="{escape(control.tooltip)}"' in control.description


def test_equal_refusals_are_shown_once() -> None:
    dash = make()
    dash.add([[1], [], [2], [], [5, 1000], []])
    assert [line[:34] for line in dash.errors] == [
        "prompts 2, 4, 6: EmptyPromptError:",
        "prompt 5: TokenOutOfVocabularyErro",
    ]
    assert "2 of 6 prompts added; they take effect in the next step<" in dash._controls.status.value
    dash.add([[1]])
    assert "1 prompt added; it takes effect in the next step<" in dash._controls.status.value and dash.errors == []


def test_bad_parameters_are_shown() -> None:
    dash = make()
    dash._controls.max_tokens.value = 0
    click(dash, "Run")
    settle(dash)
    rule = "SamplingParamsError: max_tokens=0: must be an integer of at least 1"
    assert dash.errors == [f"prompts 1-5: {rule}"] and rule in dash._controls.error.value
    assert "0 of 5 prompts submitted" in dash._controls.status.value
    dash.run([[1, 2]], SamplingParams(temperature=float("nan")))
    assert "temperature=nan" in dash._controls.error.value
    dash._controls.prompts.value = "<b>\n"
    dash.run()
    assert "<b>'" not in dash._controls.error.value and "&lt;b&gt;" in dash._controls.error.value


def test_pause_and_go_on() -> None:
    dash = make(FakeLLM(max_seq_len=1024, num_pages=2048, check=False), prompts=[[1]], max_tokens=1000)
    click(dash, "Run")
    until(lambda: dash.history.last > 3)
    at = dash.pause().step
    assert 3 < at < 1000
    assert dash.history.last == at and "<b>paused</b>" in dash._controls.status.value
    assert dash.run().step == 1000


def test_the_speed_slider_paces_the_run() -> None:
    dash = make(FakeLLM(max_seq_len=1024, num_pages=2048), prompts=[[1]], max_tokens=1000, speed=1)
    click(dash, "Run")
    until(lambda: dash.history.last >= 1)
    assert dash._driver.thread._next_step > 0
    dash._controls.speed.index = (
        len(dash._controls.speed.options) - 1
    )  # to the top: the pause of a second that has begun ends
    until(lambda: dash.history.last > 50)
    dash.pause()


def test_a_broken_forward_is_shown_and_the_next_run_works() -> None:
    dash = make()
    dash.llm.core.executor.fail_at = 3
    dash.run()
    assert dash.errors == ["request 3 ended with RuntimeError: the device is gone"]
    assert "the device is gone" in dash._controls.error.value and dash._driver.thread.alive
    dash.llm.core.executor.fail_at = None
    assert dash.run().counters["free_pages"] == 64
    assert dash.errors == []


@pytest.mark.parametrize("error", [LedgerError("page 3 has two owners"), SystemExit(1), KeyboardInterrupt()])
def test_nothing_kills_the_thread(error: BaseException) -> None:
    dash = make()

    def broken() -> None:
        raise error

    dash.llm.before_step = broken
    click(dash, "Run")
    settle(dash)
    assert type(error).__name__ in dash._controls.error.value and str(error) in dash._controls.error.value
    dash.llm.before_step = lambda: None
    assert dash.run().step == 16


def test_a_broken_screen_does_not_leave_anybody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    dash = make()

    def broken() -> None:
        raise OSError("the comm is closed")

    with monkeypatch.context() as patch:
        patch.setattr(dash.stage, "publish", broken)
        with pytest.raises(OSError, match="the comm is closed"):
            dash.run()
    assert dash.run().counters["free_pages"] == 64


def test_other_cells_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = FakeLLM(prefix_cache="naive")
    dash = make(llm)
    browser = Browser(dash.stage, monkeypatch)
    llm.generate(ORACLE, ORACLE_PARAMS)
    assert dash.history.last == 16 and "step=16" in repr(dash)
    until(lambda: len(browser.deltas) == 16)
    until(lambda: "<b>idle</b> after step 16" in dash._controls.status.value)
    assert llm.stepping_threads == {threading.current_thread().name}


def test_both_may_step_at_once() -> None:
    llm = FakeLLM(max_seq_len=64, num_pages=512)
    dash = make(llm)
    dash.run([[i, i + 1, i + 2] for i in range(20)], wait=False)
    llm.generate([[500 + i] for i in range(20)], SamplingParams(max_tokens=8))
    end = dash.run(prompts=[])
    assert [r.reason for r in end.requests.values()] == ["length"] * 40
    llm.check_integrity()


def test_the_browser_gets_every_step_and_text(monkeypatch: pytest.MonkeyPatch) -> None:
    dash = make(FakeLLM(prefix_cache="radix"))
    browser = Browser(dash.stage, monkeypatch)
    dash.step()
    assert len(browser.deltas) == 1  # a step is shown at once
    dash.run()
    assert len(browser.deltas) == dash.stage.length == 16  # and so is the end of a run
    dash.run([[1, 2, 3], []])
    for step in range(dash.history.last + 1):
        assert browser.at(step) == through_json(dash.at(step))
    assert len(browser.index["phase"]) == dash.history.last
    assert browser.texts == dash.texts
    assert len(browser.learned) == len(set(browser.learned))


def test_a_browser_that_lost_something_gets_the_record_again(monkeypatch: pytest.MonkeyPatch) -> None:
    dash = make()
    browser = Browser(dash.stage, monkeypatch)
    dash.step()
    browser.deltas.clear()
    dash.step()
    settle(dash)
    assert len(browser.deltas) == 2
    dash.run()
    for step in (0, 1, 9, 16):
        assert browser.at(step) == through_json(dash.at(step))


def test_another_dashboard_takes_over_and_the_first_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = FakeLLM()
    first = make(llm, speed=50)
    browser = Browser(first.stage, monkeypatch)
    first.run(wait=False)
    until(lambda: first.history.last > 2)
    second = make(llm)
    at = first.history.last
    assert not first._driver.thread.alive and second._driver.thread.alive
    assert "closed: another dashboard watches this engine" in first._controls.status.value and not first.stage.live
    assert f"steps 0 to {at}" in first._controls.status.value
    boxes = [w for row in first._controls.rows for w in every_widget(row) if w.has_trait("disabled")]
    assert len(boxes) > 15 and all(w.disabled for w in boxes)
    second.run()
    assert first.history.last == at  # it listens no more, and everything that it has was sent
    assert [browser.at(step) for step in range(at + 1)] == [through_json(first.at(step)) for step in range(at + 1)]
    first.stage._handle_custom_msg({"kind": "resync"}, [])  # a browser that comes late
    assert len(browser.deltas) == at
    with pytest.raises(RuntimeError, match="closed"):
        first.run()
    first.retire()
    first.close()
    assert first.stage.comm is None and second._driver.thread.alive


def test_what_cannot_be_made_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    from minisgl_widgets.driver import Driver

    complaints: list = []
    heard: list = []
    hear = Driver._heard
    monkeypatch.setattr("sys.unraisablehook", complaints.append)
    monkeypatch.setattr(Driver, "_heard", lambda driver, event: (heard.append(event), hear(driver, event)))
    llm = FakeLLM()
    with pytest.raises(TraitError):
        make(llm, max_tokens="many")
    gc.collect()
    llm.generate(ORACLE, ORACLE_PARAMS)
    assert not complaints and not heard
    assert make(llm).run().step > 0 and heard


def test_an_engine_that_was_closed_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    dash = make()
    dash.run()

    def gone(llm: FakeLLM) -> bool:
        raise EngineClosedError("this LLM was closed; make a new one")

    monkeypatch.setattr(FakeLLM, "idle", property(gone))
    click(dash, "Run")
    settle(dash)
    assert "<b>the engine was closed</b> after step 16" in dash._controls.status.value
    assert "EngineClosedError: this LLM was closed" in dash._controls.error.value
    assert dash._controls.buttons["Run"].disabled and dash._controls.buttons["Pause"].disabled
    assert dash.at(9).step == 9 and not dash.stage.live


def test_each_engine_has_a_dashboard_of_its_own() -> None:
    llm = FakeLLM()
    make(llm).run()
    second = make(llm)
    assert second.history.first == 16 and second.run().step > 16
    other = make(FakeLLM())
    assert second._driver.thread.alive and other._driver.thread.alive


def test_a_dashboard_may_open_in_the_middle_of_a_run() -> None:
    llm = FakeLLM(page_size=2)
    for prompt in ORACLE:
        llm.submit(prompt, ORACLE_PARAMS)
    for _ in range(5):
        llm.step()
    dash = make(llm)
    assert dash.history.first == 5 and "step=5, " in repr(dash)
    dash.step()
    assert dash.at(6).differences(llm.snapshot()) == []
    end = dash.run()
    assert end.differences(llm.snapshot()) == [] and not dash.history.steps[-1]["violations"]


def test_its_trace_can_be_saved_whole(tmp_path) -> None:
    llm = FakeLLM(overlap=True)
    llm.submit(ORACLE[0], ORACLE_PARAMS)
    llm.step()
    assert llm.core.scheduler.in_flight == 1
    dash = make(llm, title="from a dashboard")
    recorder = Recorder(llm, "from a dashboard").start()
    dash.run()
    trace = Trace.load(dash.trace.save(tmp_path / "run.jsonl.zst"))
    assert trace.keyframe["flight"] == [] and trace.check() == []  # every batch of the run began in it
    assert trace.about == recorder.trace.about and trace.about["config"]["overlap"]
    assert len(trace.diff(replay(trace))) == 0 and trace.checkpoint == recorder.trace.checkpoint
    assert not trace.diff(recorder.trace, times=True) and trace.texts == recorder.trace.texts
    assert dash.trace.at(9) == trace.at(9) and Stage(trace).feed.trace.about == trace.about


def test_close_leaves_nothing_behind() -> None:
    from ipywidgets.widgets.widget import _instances

    before = set(_instances)
    llm = FakeLLM(check=False)
    dash = make(llm)
    dash.step()
    dash.close()
    dash.close()
    assert not dash._driver.thread.alive and not llm.core.scheduler.bus
    assert set(_instances) == before
    with pytest.raises(RuntimeError, match="closed"):
        dash.run()
    assert not llm.idle  # the engine keeps its requests
    llm.generate([[1]])


def test_close_lets_go_of_whoever_waits() -> None:
    dash = make(FakeLLM(max_seq_len=1024, num_pages=2048), prompts=[[1]], max_tokens=1000, speed=1)
    ends: list[int] = []
    waiting = threading.Thread(target=lambda: ends.append(dash.run().step))
    waiting.start()
    until(lambda: dash.history.last >= 1)
    dash.close()
    waiting.join(60)
    assert ends and ends[0] < 1000


def test_an_interrupt_aborts_what_the_call_submitted() -> None:
    llm = FakeLLM(prefix_cache="naive", max_seq_len=1024, num_pages=2048)
    dash = make(llm, prompts=[[1]], max_tokens=1000, speed=50)

    def interrupt() -> None:
        until(lambda: dash.history.last >= 2)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        dash.run()
    now = dash.at(dash.history.last)
    assert now.requests[0].reason == "abort" and now.counters["free_pages"] == 2048
    assert dash.run([[5, 6]], ORACLE_PARAMS).counters["free_pages"] == 2048


def test_what_a_notebook_stores_has_the_numbers() -> None:
    dash = make()
    dash.step()
    shown = dash._repr_mimebundle_()
    assert shown["text/plain"] == repr(dash)
    assert "needs 13, 61 promised" in shown["text/html"] and "<script" not in shown["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in shown


def test_where_it_was_shown_a_line_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs: dict[str, list[dict]] = {}
    plain = lambda obj, raw, display_id, **more: outputs.setdefault(display_id, []).append(obj)  # noqa: E731
    for name in ("display", "update_display"):
        monkeypatch.setattr(f"IPython.core.display_functions.{name}", plain)
    dash = make()
    dash._ipython_display_()
    dash.step()
    dash._ipython_display_()  # in a second cell
    dash.close()
    dash._ipython_display_()
    (first, line), (second, line_again), (still,) = outputs.values()
    assert "application/vnd.jupyter.widget-view+json" in first and "needs 13, 61 promised" in second["text/html"]
    assert line == line_again == {"text/plain": "fake: dashboard closed after step 1"}
    assert set(still) == {"text/plain", "text/html"}, "no widget that is not there"


def test_a_dashboard_is_live_and_says_its_speeds() -> None:
    dash = make(speed=3)
    assert dash.stage.live
    assert [label for label, _ in dash._controls.speed.options][:3] == ["1 step/s", "2 steps/s", "3 steps/s"]


def test_save_html(tmp_path) -> None:
    dash = make(title="five prompts")
    dash.run()
    page = dash.save_html(tmp_path / "run.html").read_text("utf-8")
    assert "five prompts" in page and "16 steps" in page


def look(dash: Dashboard, step: int) -> None:
    """Somebody has moved the player there, and it came to rest."""
    following = step == dash.history.last
    dash.stage._handle_custom_msg({"kind": "looked", "step": step, "selection": None, "following": following}, [])


def click_in(dash: Dashboard, row: int, label: str, wait: bool = True) -> None:
    next(b for b in dash._controls.rows[row].children if getattr(b, "description", "") == label).click()
    if wait:
        settle(dash)


def test_run_until() -> None:
    dash = make()
    assert dash.run(until="finish of request 2").step == 8
    assert dash.stopped == dash.trace.find("finish of request 2")
    assert (
        "<b>paused</b>" in dash._controls.status.value
        and "stopped at finish of request 2 (step 8, Req" in dash._controls.status.value
    )
    assert dash.run(until=lambda e: e.step == 12).step == 12 and dash.stopped.step == 12
    assert dash.run(until="eviction").step == 16 and dash.stopped is None
    assert "<b>idle</b>" in dash._controls.status.value and "stopped" not in dash._controls.status.value
    with pytest.raises(ConditionError, match="free < 8"):
        dash.run(until="pages < 3")
    assert "ConditionError" in dash._controls.error.value and dash.history.last == 16  # and nothing was submitted
    with pytest.raises(ZeroDivisionError):
        dash.run(until=lambda e: 1 / 0)
    assert dash.history.last == 17 and "ZeroDivisionError" in dash._controls.error.value
    assert dash.run().counters["running"] == 0


def test_the_list_beside_run() -> None:
    llm = FakeLLM(prefix_cache="naive", check=False)
    dash = make(llm)
    choices = dict(dash._controls.until.choice.options)
    assert dash._controls.until.condition is None and dash._controls.until.number.disabled
    for condition in choices.values():
        if condition:
            Until(condition.replace("{n}", "3"))  # all of them can be read
    dash._controls.until.choice.value = choices["free pages < n"]
    dash._controls.until.number.value = 20
    assert not dash._controls.until.number.disabled
    click(dash, "Run")
    settle(dash)
    first = dash.trace.find("free < 20")
    assert dash.history.last == first.step and dash.stopped == first
    kinds = len(llm.core.scheduler.bus._listeners)
    dash._controls.until.choice.value = ""
    click(dash, "Run")
    settle(dash)
    assert dash.history.last == 16
    assert len(llm.core.scheduler.bus._listeners) == kinds  # the breakpoint listens no more
    assert all(len(fns) == 1 for fns in llm.core.scheduler.bus._listeners.values())


def test_fork_goes_back_and_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    dash = make(max_tokens=6)
    browser = Browser(dash.stage, monkeypatch)
    dash.run()
    was = dash.trace
    assert dash.fork(3).step == 3
    assert "forked after step 3, which was computed again" in dash._controls.status.value and dash.errors == []
    assert "<b>paused</b>" in dash._controls.status.value
    assert dash.before.diff(was) is not None and not len(dash.before.diff(was))
    assert browser.at(3) == through_json(dash.at(3)) and len(browser.deltas) == 3
    uids = dash.add([[7, 7, 7]])
    assert uids == [5]
    end = dash.run()
    assert len(end.requests) == 6 and end.differences(dash.llm.snapshot()) == []
    parts = was.diff(dash.trace)
    assert parts.first.step == 4 and isinstance(parts.first.other, RequestArrived)
    assert dash.trace.check() == [] and dash.verify() == "replay: 0 differences"
    assert dash.fork(0).step == 0 and dash.run([[1, 2]]).counters["free_pages"] == 64


def test_fork_from_where_the_browser_stands() -> None:
    dash = make()
    dash.run()
    look(dash, 5)
    click_in(dash, 2, "Fork from here")
    assert dash.history.last == 5 and "<b>paused</b>" in dash._controls.status.value
    click_in(dash, 2, "Fork from here")  # nobody has moved since: where it stands
    assert dash.history.last == 5
    dash.change(order="shortest")
    assert dash.llm.config.order == "fcfs"
    dash.run()
    assert dash.llm.config.order == "shortest" and dash._controls.settings.controls["order"].value == "shortest"
    dash.fork(2)
    assert dash._controls.settings.controls["order"].value == "fcfs"


def test_requests_that_came_later_are_left_out() -> None:
    dash = make()
    dash.step(2)
    dash.add([[1], [2]])
    dash.run()
    assert len(dash.fork(2).requests) == 5
    assert "what came later is left out: 2 requests" in dash._controls.status.value
    assert dash.run().counters["running"] == 0


def test_a_fork_goes_through_the_times_in_which_nothing_was_to_do() -> None:
    dash = make()
    for prompt in ([1, 2], [3, 4], [5, 6]):
        dash.run([prompt])
    assert dash.history.last == 24
    assert dash.fork(20).step == 20 and dash.errors == []
    assert dash.run(prompts=[]).step == 24 and dash.errors == ["no prompts: write one per line into the box"]


def test_a_fork_that_cannot_be_says_what_to_do() -> None:
    llm = FakeLLM()
    llm.submit([1, 2, 3], ORACLE_PARAMS)
    llm.step()
    dash = make(llm)
    dash.run([[4, 5]])
    with pytest.raises(ForkError, match="had begun before the record did"):
        dash.fork(2)
    assert "ForkError" in dash._controls.error.value
    with pytest.raises(TraceError, match="steps 1 to"):
        dash.fork(99)
    assert dash.run([[4, 5]]).counters["running"] == 0  # it goes on


def test_a_rerun_that_differs_is_shown() -> None:
    dash = make(FakeLLM(poison=False, check=False))
    dash.run([[1, 2, 3]])
    dash.llm.core.executor.fail_at, dash.llm.core.executor.fail_in = 2, "collect"  # the device is not what it was
    dash.fork(4)
    assert "the same steps came out differently: step 2" in dash.errors[0]


def test_settings_are_chosen_from_lists() -> None:
    dash = make()
    dash.step()
    dash._controls.settings.controls["phase"].value = "mixed"
    settle(dash)
    assert "phase=mixed from the next step on" in dash._controls.status.value
    dash.run()
    assert dash.trace.find(lambda e: isinstance(e, SettingsChanged)).values == ("mixed",)
    dash.llm.change(admission=0.25)  # from another cell
    dash.llm.step()
    until(lambda: dash._controls.settings.controls["admission"].value == 0.25)
    with pytest.raises(FixedSettingError, match="whatif"):
        dash.change(num_pages=3)
    assert dash.verify() == "replay: 0 differences"


def test_what_is_asked_for_during_a_fork_is_done_when_it_is_there() -> None:
    dash = make()
    dash.run()
    was = dash.trace
    gate = threading.Semaphore(0)
    dash.llm.before_step = gate.acquire
    click_in(dash, 2, "Fork from here", wait=False)
    until(lambda: "going back" in dash._controls.status.value)
    for label in ("Run", "Step", "Add", "Fork from here", "Verify"):
        assert dash._controls.buttons[label].disabled
    assert not dash._controls.buttons["Pause"].disabled
    assert all(control.disabled for control in dash._controls.settings.controls.values())
    said = "<b>going back to step 16</b> · 0 of 16 steps computed again · Pause ends it here, all else waits"
    assert said in dash._controls.status.value
    driver = dash._driver
    asked = [driver.add([[7, 7]], ORACLE_PARAMS), driver.change(order="lpm"), driver.run(None, ([], ORACLE_PARAMS))]
    gate.release(10)
    until(lambda: dash.history.last == 10)
    assert not any(future.done() for future in asked)
    gate.release(100)
    result(result(asked[2])[1])
    assert not any(button.disabled for button in dash._controls.buttons.values())
    assert not any(control.disabled for control in dash._controls.settings.controls.values())
    again = [e for e in dash.trace.events if e.step <= 16]
    assert not Trace(was.keyframe, again, {}, about=was.about).diff(was)  # nothing came between
    assert dash.trace.find(lambda e: isinstance(e, RequestArrived) and e.prompt == (7, 7)).step == 17
    assert dash.errors == [] and dash.llm.config.order == "lpm" and dash.llm.idle


def test_a_fork_that_is_paused_begins_there() -> None:
    dash = make()
    dash.step(2)
    dash.add([[1], [2]])
    dash.run()
    gate = threading.Semaphore(0)
    dash.llm.before_step = gate.acquire
    dash.fork(10, wait=False)
    gate.release(2)
    until(lambda: dash.history.last == 2)
    paused = dash._driver.pause()
    gate.release(1)
    result(paused)
    dash.llm.before_step = lambda: None
    assert dash.history.last == 3 and len(dash.last().requests) == 7
    assert "<b>paused</b> after step 3" in dash._controls.status.value
    assert "forked after step 3, paused on the way back to step 10<" in dash._controls.status.value
    assert not dash._controls.buttons["Run"].disabled and dash.errors == []
    assert dash.run([[5, 6]]).step > 3 and dash.verify() == "replay: 0 differences"


@pytest.mark.parametrize("queued", [False, True], ids=["the fork itself", "a run that waits for it"])
def test_an_interrupt_during_a_fork(queued: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    dash = make()
    dash.run()
    gate = threading.Semaphore(2)
    dash.llm.before_step = gate.acquire
    interrupted: list[bool] = []

    def turn(futures: list[Future], timeout: float) -> None:
        """Who waits gets an interrupt when two steps are computed again; and then they go on."""
        if interrupted:
            gate.release(100 if queued else 1)
        elif dash.history.last == 2:
            interrupted.append(True)
            raise KeyboardInterrupt
        wait_for(futures, timeout=0.01)

    if queued:
        dash.fork(9, wait=False)
    monkeypatch.setattr("minisgl_widgets.dashboard.wait_for", turn)
    with pytest.raises(KeyboardInterrupt):
        if queued:
            dash.run([[1, 2]])
        else:
            dash.fork(9)
    gate.release(100)
    settle(dash)
    assert dash.history.last == (9 if queued else 3)
    assert len(dash.last().requests) == 5  # the run was called off


def test_a_fork_after_a_run_begins_at_its_end_if_the_views_follow() -> None:
    dash = make()
    look(dash, 0)  # a browser has said so; while a cell runs it is not heard
    assert dash.run().step == 16 and dash.fork().step == 16
    look(dash, 5)
    dash.run([[1, 2]])
    assert dash.fork().step == 5  # the views stay where somebody has moved them
    dash.run()
    dash.stage.session.step = 7
    assert dash.fork().step == 7


def drawn(dash: Dashboard) -> None:
    """A browser says that it shows all there is; it is heard when no cell runs."""
    dash.stage._handle_custom_msg({"kind": "drawn", "step": dash.history.last}, [])


def test_a_run_is_verified_once_when_somebody_sees_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    verified: list[int] = []

    def counting(trace: Trace) -> Answer:
        verified.append(trace.history.last)
        return verify(trace)

    monkeypatch.setattr("minisgl_widgets.proof.verify", counting)
    dash = make()
    dash.run()
    for _ in range(3):  # other cells
        dash.llm.generate(ORACLE[:1], ORACLE_PARAMS)
    settle(dash)
    assert verified == [] and "replay" not in dash._controls.status.value
    drawn(dash)
    until(lambda: "replay: 0 differences" in dash._controls.status.value)
    drawn(dash)  # by a second browser
    assert dash.verify() == "replay: 0 differences" and verified == [40, 40]  # that was asked for
    dash.step()
    drawn(dash)  # it is not over
    settle(dash)
    assert verified == [40, 40] and "replay" not in dash._controls.status.value


def test_nobody_waits_for_a_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()

    def slow(trace: Trace) -> Answer:
        gate.wait(60)
        return verify(trace)

    monkeypatch.setattr("minisgl_widgets.proof.verify", slow)
    dash = make()
    dash.run()
    drawn(dash)
    assert dash.run().step == 32  # while it is being verified
    assert not gate.is_set()
    gate.set()
    drawn(dash)
    until(lambda: "after step 32" in dash._controls.status.value and "replay: 0" in dash._controls.status.value)


def test_what_was_verified_before_a_fork_says_nothing_of_what_comes_after() -> None:
    dash = make()
    dash.run()
    assert dash.verify() == "replay: 0 differences"
    dash.fork(0)
    assert dash.run().step == 16 and "replay" not in dash._controls.status.value


def test_a_run_in_the_middle_of_a_step_is_verified_up_to_it() -> None:
    dash = make()
    dash.step(3)
    assert isinstance(dash.trace.events[-1], StepFinished)
    said: list[str] = []
    with dash.llm.on(BatchScheduled, lambda event: said.append(dash.verify())):
        dash.llm.step()
    assert said == ["replay: 0 differences"]


def test_a_record_that_does_not_equal_its_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    dash = make()
    dash.step()
    assert "replay" not in dash._controls.status.value  # only when a run is over
    monkeypatch.setattr(dash.llm.core.scheduler.prefill, "share", 0.5)  # behind its back
    dash.run()
    drawn(dash)
    until(lambda: "differences ✕" in dash._controls.status.value)
    assert verify(dash.trace).facts["differences"] > 0


def test_long_runs_are_verified_when_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minisgl_widgets.screen.PROVEN", 10)
    dash = make()
    dash.run()
    drawn(dash)
    assert dash._screen.proof._wished is None
    click_in(dash, 2, "Verify")
    until(lambda: "replay: 0 differences" in dash._controls.status.value)
