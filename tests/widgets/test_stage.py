"""A Stage: what it sends, when it holds back, and what it says without a browser."""

from __future__ import annotations

import pytest

pytest.importorskip("anywidget", reason="the widgets need the extra [lab]")

from minisgl.events import History
from minisgl.events.recorder import Recorder
from minisgl.events.trace import Trace
from minisgl_widgets import Stage
from minisgl_widgets.feed import Feed
from tests.widgets.browser import Browser, through_json
from tests.widgets.fake_llm import ORACLE, ORACLE_PARAMS, FakeLLM
from tests.widgets.packed import parts_of


def recorded(**settings) -> Trace:
    llm = FakeLLM(**settings)
    with Recorder(llm, "the oracle") as recorder:
        llm.generate(ORACLE, ORACLE_PARAMS)
    return recorder.trace


def live(llm: FakeLLM) -> Stage:
    feed = Feed(llm.snapshot().to_dict(), llm.token_text)
    llm.on(None, feed.put)
    return Stage(feed)


@pytest.mark.parametrize("cache", ["naive", "radix"])
def test_a_recorded_run(cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = recorded(prefix_cache=cache)
    stage = Stage(trace)
    browser = Browser(stage, monkeypatch)
    assert browser.title == "the oracle" and browser.texts[100] == " w100"
    assert stage.length == len(browser.deltas) == len(browser.index["phase"]) == 16
    assert stage.at(9) == trace.at(9)
    assert not stage.live  # it is over: it opens at its beginning
    bare, whole = (parts_of(s.record) for s in (Stage(trace.history, trace.texts, "the oracle"), stage))
    assert (bare[0][3].pop("config"), whole[0][3].pop("config")) == ({}, trace.about["config"])
    assert bare == whole
    assert "stage.js" in stage._esm and ".msgl" in stage._css


def test_only_runs_can_be_shown() -> None:
    with pytest.raises(TypeError, match="cannot show a int"):
        Stage(17)  # type: ignore[arg-type]


@pytest.mark.parametrize("steps", [1, 3])
def test_tails_continue_the_record(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = FakeLLM(page_size=2)
    llm.generate([[1, 2, 3]])  # so that the record does not begin at step 0, and the tree is not empty
    stage = live(llm)
    browser = Browser(stage, monkeypatch)
    for prompt in ORACLE:
        llm.submit(prompt, ORACLE_PARAMS)
    while True:
        done = [llm.step() for _ in range(steps)]
        stage.publish()
        if None in done:
            break
    history = stage.history
    assert history.first > 0 and len(browser.tails) == -(-len(history.deltas) // steps)
    for step in range(history.first, history.last + 1):
        assert browser.at(step) == through_json(history.at(step))
    sent = len(browser.tails)
    stage.publish()
    assert len(browser.tails) == sent  # nothing new, nothing sent


def test_the_browser_is_not_flooded(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("minisgl_widgets.stage.time.monotonic", lambda: clock[0])
    llm = FakeLLM()
    stage = live(llm)
    browser = Browser(stage, monkeypatch, acknowledges=False)
    llm.submit([1, 2, 3], ORACLE_PARAMS)
    assert stage.due_in() == 0
    llm.step()
    stage.publish()
    assert stage.due_in() == 1.0  # nobody has drawn it yet
    clock[0] += 0.25
    assert stage.due_in() == 0.75
    stage._handle_custom_msg({"kind": "drawn", "step": 1}, [])
    assert stage.due_in() == 0
    llm.step()
    stage.publish()
    stage._handle_custom_msg({"kind": "drawn", "step": 2}, [])
    assert 0 < stage.due_in() <= 1 / 12
    assert len(browser.tails) == 2


def test_a_browser_that_asks_gets_the_whole_record(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = FakeLLM()
    stage = live(llm)
    browser = Browser(stage, monkeypatch)
    llm.generate(ORACLE, ORACLE_PARAMS)
    stage._handle_custom_msg({"kind": "resync"}, [])
    assert len(browser.deltas) == stage.length == 16
    sent: list[str] = []
    monkeypatch.setattr(stage, "send_state", sent.append)
    stage._handle_custom_msg({"kind": "resync"}, [])  # the same record again must still be sent
    assert sent == ["record"]
    stage._handle_custom_msg("nonsense", [])


@pytest.mark.parametrize("fails", [False, True])
def test_an_answer_about_the_run_before_is_not_sent(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(Feed.of(recorded()))
    sent: list[dict] = []
    monkeypatch.setattr(stage, "send", sent.append)
    wish = ("waiting:4", "waiting", 4)

    def forked_meanwhile(*_: object) -> str:
        stage.begin_again(Feed.of(recorded()))
        if fails:
            raise ValueError("late")
        return "late"

    with monkeypatch.context() as patch:
        patch.setattr("minisgl_widgets.stage.answer", forked_meanwhile)
        try:
            stage._answer(wish, lambda: None)
        except ValueError as error:
            stage._unanswered(error)
    assert not sent
    stage._answer(wish, lambda: None)
    assert [message["key"] for message in sent] == ["waiting:4"]
    stage.close()


@pytest.mark.parametrize("step", [-1, 17])
def test_a_look_at_a_step_of_the_run_before_is_ignored(step: int) -> None:
    stage = Stage(recorded())
    look = {"kind": "looked", "selection": None, "following": False}
    stage._handle_custom_msg(look | {"step": 9}, [])
    stage._handle_custom_msg(look | {"step": step}, [])
    assert stage.session.step == 9 and stage.at().step == 9
    stage.close()


def test_what_a_notebook_stores_has_the_numbers() -> None:
    history = History(FakeLLM().snapshot().to_dict())
    stage = Stage(history)
    numbers = "step=0, free=64, owned=0, cached=0 (0 locked), promised=0, pages=64x1, running=0, waiting=0"
    assert repr(stage) == f"Stage(steps 0 to 0: {numbers})"
    shown = Stage(recorded())._repr_mimebundle_()
    assert shown is not None and shown[0]["text/plain"].startswith("Stage(steps 0 to 16: step=16, free=2, owned=0")
    assert "62 cached = 64 pages" in shown[0]["text/html"]
    stage.close()
