"""Questions: what a page brings along, and how an answer becomes HTML."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import pytest

from minisgl.errors import MinisglError
from minisgl.events.recorder import Recorder
from minisgl.events.trace import Trace
from minisgl.sim.answers import Answer
from minisgl_widgets import questions
from minisgl_widgets.questions import QUESTIONS, answer, answers, key_of, linked
from minisgl_widgets.session import Session
from tests.fakes import Run
from tests.widgets.packed import parts_of


def oracle() -> Trace:
    """Five requests, the last of which waits for pages until the others end."""
    run = Run(num_pages=64, page_size=1, max_seq_len=64, prefix_cache="naive")
    with Recorder(run) as recorder:
        for i, n in enumerate((5, 5, 4, 15, 5)):
            run.submit(list(range(10 * i, 10 * i + n)), 8)
        run.play()
    return recorder.trace


@pytest.fixture(scope="module")
def trace() -> Trace:
    return oracle()


def test_what_is_cited_is_a_link_and_who_is_named_a_name_tag() -> None:
    said = linked(
        "Steps 1 to 8: 7 to request 0, 17 tokens; then requests 2, 3 and 4 more (step 8, RequestFinished) <5 steps."
    )
    cited = re.findall(r'data-step="(\d+)"(?: data-event="(\w+)")?', said)
    assert cited == [("1", ""), ("8", ""), ("8", "RequestFinished")]
    assert re.findall(r'data-uid="(\d+)"', said) == ["0", "2", "3"]
    assert re.sub(r"<[^>]*>", "", said) == (
        "Steps 1 to 8: 7 to request 0, 17 tokens; then requests 2, 3 and 4 more (step 8, RequestFinished) &lt;5 steps."
    )
    assert "msgl-c1 msgl-p1" in linked("request 8")


def test_an_answer_is_text_picture_and_numbers(trace: Trace) -> None:
    said = answer(trace, "waiting", 4)
    assert "needs 13 pages" in said and 'data-step="9" data-event="RequestAdmitted"' in said
    assert "<svg" in said and "<table>" in said
    assert (
        answer(trace, "waiting", 99)
        == '<p class="msgl-empty">no request of this record has uid 99; it holds 0, 1, 2, 3, 4</p>'
    )
    with pytest.raises(KeyError):
        answer(trace, "whence", 4)


def test_a_short_run_brings_every_answer_along(trace: Trace) -> None:
    given = answers(trace)
    assert set(given) >= {key_of(q.id, uid) for q in QUESTIONS if q.id != "blame" for uid in range(5)}
    assert "blame:4" in given, "who waited longest comes first"
    assert given == answers(oracle()), "the same run, the same answers"
    assert given["slow:2"] == answer(trace, "slow", 2)


def test_a_page_costs_no_more_than_its_readings(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    events = len(trace.events)
    monkeypatch.setattr(questions, "QUESTIONS", [q for q in QUESTIONS if q.id in ("waiting", "slow", "reservations")])
    monkeypatch.setattr(questions, "READINGS", 40 * events)
    whole = [f"{id}:{uid}" for id in ("waiting", "slow") for uid in (4, 0, 1, 2, 3)]
    assert list(answers(trace)) == ["reservations", *whole], "20 and 10 passes"
    monkeypatch.setattr(questions, "READINGS", 12 * events)
    assert list(answers(trace)) == whole, "what one half does not need the other may"
    monkeypatch.setattr(questions, "READINGS", 3 * events)
    assert list(answers(trace)) == whole[:2]


def test_the_record_holds_the_answers_and_what_can_be_asked(trace: Trace) -> None:
    parts = parts_of(Session(trace).record())
    head = parts[0][3]
    assert [q["id"] for q in head["questions"]] == [q.id for q in QUESTIONS]
    assert "blame" in [q["id"] for q in head["questions"] if q["dear"]]
    assert head["config"]["max_prefill_tokens"] == trace.about["config"]["max_prefill_tokens"]
    assert [value for name, *_, value in parts if name == "answers"] == [answers(trace)]


def test_code_says_the_same(trace: Trace) -> None:
    import minisgl.sim.answers

    def text(ask: Callable[[], Answer]) -> str:
        try:
            return ask().text
        except MinisglError as error:
            return str(error)

    names = vars(minisgl.sim.answers) | {"trace": trace}
    for question in QUESTIONS:
        code = question.code.replace("UID", "4")
        assert text(lambda code=code: eval(code, names)) == text(lambda question=question: question.ask(trace, 4)), code


def test_a_kernel_answers_on_a_thread_of_its_own(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("anywidget", reason="the widgets need the extra [lab]")
    from minisgl_widgets import Stage
    from tests.widgets.browser import until

    stage = Stage(trace)
    sent: list[dict] = []
    monkeypatch.setattr(stage, "send", sent.append)
    ask = partial(stage._handle_custom_msg, buffers=[])
    ask({"kind": "ask", "id": "waiting", "uid": 4})
    until(lambda: sent)
    assert sent == [
        {"kind": "answer", "key": "waiting:4", "html": answer(trace, "waiting", 4), "last": trace.history.last}
    ]
    ask({"kind": "ask", "id": "reservations", "uid": -1})
    until(lambda: len(sent) == 2)
    assert sent[1]["key"] == "reservations" and "promised" in sent[1]["html"]
    ask({"kind": "ask", "id": "waiting", "uid": 77})
    until(lambda: len(sent) == 3)
    assert "no request of this record has uid 77" in sent[2]["html"]
    stage.close()
