"""A Session: what it holds, whom it tells, and what a Replay of it leaves in a notebook."""

from __future__ import annotations

from html import unescape
from pathlib import Path

import pytest

from minisgl.errors import TraceError
from minisgl.events.recorder import Recorder
from minisgl.events.trace import Trace
from minisgl_widgets import Replay, Session, Stage
from minisgl_widgets.feed import Feed
from tests.widgets.fake_llm import ORACLE, ORACLE_PARAMS, FakeLLM


@pytest.fixture(scope="module")
def trace() -> Trace:
    llm = FakeLLM()
    with Recorder(llm, "the oracle") as recorder:
        llm.generate(ORACLE, ORACLE_PARAMS)
    return recorder.trace


def test_it_holds_a_run_and_a_step(trace: Trace) -> None:
    session = Session(trace)
    assert session.title == "the oracle" and session.texts[100] == " w100"
    assert session.step == 1 and session.at() == trace.at(1) and session.at(9) == trace.at(9)
    session.step = 7
    assert session.step == 7 and session.at() == trace.at(7)
    with pytest.raises(TraceError, match="step 17 is not in this run: it holds steps 0 to 16"):
        session.step = 17
    assert repr(session).startswith("Session(steps 0 to 16, at 7: step=7, free=")
    session.step = 16
    assert "62 cached = 64 pages" in session._repr_html_()


def test_every_kind_of_run_has_its_events(trace: Trace) -> None:
    for run in (trace, trace.history, Feed.of(trace), Session(trace)):
        assert list(Session(run).trace.events) == list(trace.events)
    with pytest.raises(TypeError, match="cannot show a int"):
        Session(17)  # type: ignore[arg-type]


def test_observers_hear_of_what_is_new_and_until_they_end(trace: Trace) -> None:
    session, heard = Session(trace), []
    end = session.observe(lambda s: heard.append((s.step, s.selection)))
    session.step = 5
    session.step = 5
    session.selection = {"kind": "page", "page": 3}
    session.look(6, None)
    end()
    end()
    session.step = 7
    assert heard == [(5, None), (5, {"kind": "page", "page": 3}), (6, None)]


@pytest.mark.parametrize(
    "selection",
    [{"kind": "row", "row": 1}, {"kind": "page"}, {"kind": "uid", "uid": "4"}, {"kind": "token", "uid": 4}, {}],
)
def test_only_pages_nodes_requests_and_tokens_are_selected(trace: Trace, selection: dict) -> None:
    session = Session(trace)
    with pytest.raises(ValueError, match="page, node, uid, token"):
        session.selection = selection
    assert session.selection is None
    session.selection = {"kind": "token", "uid": 4, "at": 12}
    assert session.selection["at"] == 12


def test_stages_of_a_session_move_together(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(trace)
    session.step = 4
    stages = [Stage(session), Stage(session)]
    assert [stage.start for stage in stages] == [4, 4]
    sent: list[tuple[int, dict]] = []
    for i, stage in enumerate(stages):
        monkeypatch.setattr(stage, "send", lambda message, i=i: sent.append((i, message)))
    held = {"kind": "uid", "uid": 2}
    stages[0]._handle_custom_msg({"kind": "looked", "step": 9, "selection": held}, [])
    assert (session.step, session.selection) == (9, held)
    assert sent == [(1, {"kind": "look", "step": 9, "selection": held})], "the one that moved is not told"
    sent.clear()
    session.step = 3
    assert [i for i, _ in sent] == [0, 1]
    stages[1].close()
    sent.clear()
    session.step = 2
    assert [i for i, _ in sent] == [0]
    stages[0].close()


def test_a_run_is_saved_and_exported(trace: Trace, tmp_path: Path) -> None:
    session = Session(trace)
    assert list(Trace.load(session.save(tmp_path / "run.jsonl.zst")).events) == list(trace.events)
    page = session.export_html(tmp_path / "run.html").read_text("utf-8")
    assert page == Replay(trace).html() and "<title>the oracle</title>" in page


def test_a_replay_is_a_page_in_a_frame(trace: Trace) -> None:
    replay = Replay(trace)
    shown = replay._repr_mimebundle_()
    assert set(shown) == {"text/plain", "text/html"}
    assert shown["text/plain"].startswith("Replay(steps 0 to 16: step=16, free=2, owned=0")
    html = shown["text/html"]
    assert html.startswith('<iframe srcdoc="') and html.endswith("</iframe>")
    srcdoc = html.removeprefix('<iframe srcdoc="').split('"')[0]
    assert unescape(srcdoc) == Replay(trace).html(), "nothing in the page ends the attribute"
