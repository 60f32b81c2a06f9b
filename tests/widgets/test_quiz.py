"""Quiz: the marked answer is what the engine did, the others are not, and nothing is shown before it is asked."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minisgl.core import SamplingParams
from minisgl.errors import QuizError
from minisgl.events import types as ev
from minisgl.events.fold import Fold
from minisgl.events.history import History
from minisgl.events.recorder import Recorder
from minisgl.events.state import fresh
from minisgl.events.trace import Trace
from minisgl.events.words import describe
from minisgl_widgets import runs
from minisgl_widgets.decisions import FATES, VERDICTS, questions
from minisgl_widgets.moment import Moment
from minisgl_widgets.quiz import Quiz, choose
from minisgl_widgets.quiz_question import TOPICS, QuizQuestion
from tests.fakes import Run
from tests.widgets.exported import Opened
from tests.widgets.packed import parts_of


def random_run(seed: int) -> Trace:
    """Requests that share prefixes, in a pool that is too small, under any policy."""
    rng = random.Random(seed)
    page_size = rng.choice((1, 2, 4))
    core = Run(
        num_pages=rng.choice((24, 40)) // min(2, page_size),
        page_size=page_size,
        max_running_requests=rng.choice((2, 4)),
        max_seq_len=24,
        max_prefill_tokens=rng.choice((6, 64)),
        prefix_cache=rng.choice(("radix", "radix", "naive")),
        admission=rng.choice(("conservative", "optimistic", 0.5)),
        eviction=rng.choice(("lru", "lru", "lfu", "fifo")),
        phase=rng.choice(("prefill-first", "mixed")),
        overlap=rng.random() < 0.4,
        check=False,
    )
    with Recorder(core) as recorder:
        for _ in range(rng.randint(3, 9)):
            prompt = [7] * rng.randint(0, 8) + [rng.randint(1, 3) for _ in range(rng.randint(1, 6))]
            core.scheduler.submit(prompt, SamplingParams(max_tokens=rng.randint(1, 8), ignore_eos=True))
            for _ in range(rng.randint(0, 4)):
                core.scheduler.step()
        core.play()
    return recorder.trace


def test_a_moment_knows_the_settings_of_its_step() -> None:
    core = Run(max_prefill_tokens=8)
    with Recorder(core) as recorder:
        core.scheduler.submit([1, 2, 3], SamplingParams(max_tokens=4, ignore_eos=True))
        core.scheduler.step()
        core.scheduler.change(max_prefill_tokens=2)
        core.play()
    moment = Moment(recorder.trace)
    limits = {}
    for event in recorder.trace.events:
        moment.follow(event)
        limits[event.step] = moment.limits
    assert "at most 8 prompt tokens" in limits[1] and "at most 2 prompt tokens" in limits[2]


def decider(trace: Trace, question: QuizQuestion) -> tuple[int, Any, dict]:
    """The event that decides, its place, and the state in which it happened, folded anew."""
    fold = Fold(fresh(trace.keyframe))
    for at, event in enumerate(trace.events):
        same = event.step == question.step and type(event).__name__ == question.type
        if same and describe(event) == question.event:
            return at, event, fold.state
        fold.apply(event)
    raise AssertionError(f"no event decides {question}")


def check(trace: Trace, q: QuizQuestion) -> None:
    """Answer the question in another way than it was made, and refute every wrong choice."""
    assert len(set(q.choices)) == len(q.choices) != 1
    assert 0 <= q.answer < len(q.choices) if q.choices else q.answer >= 0
    assert q.before >= trace.history.first
    at, event, state = decider(trace, q)
    before = trace.at(q.before)
    if q.topic == "admission":
        assert q.choices[q.answer] == VERDICTS[event.verdict]
        admitted = any(isinstance(e, ev.RequestAdmitted) and e.uid == q.uid for e in trace.events if e.step == q.step)
        assert admitted == (q.choices[q.answer] == VERDICTS["admitted"])
        if event.need is not None:
            limits = [event.available, event.available_locked]
            assert admitted == all(n is not None and event.need + event.reserved <= n for n in limits)
    elif q.kind == "need":
        assert q.answer == -(-event.worst // before.page_size) - event.matched // before.page_size
        if "room for" not in q.prompt:  # the reader can find it with what the prompt says
            said = re.search(r"(\d+) prompt tokens?, up to (\d+) new", q.prompt)
            assert (
                said
                and q.answer
                == -(-(int(said[1]) + int(said[2])) // before.page_size) - event.matched // before.page_size
            )
    elif q.kind == "taken":
        here = [e for e in trace.events if e.step == q.step]
        assert q.answer == sum(len(e.pages) for e in here if isinstance(e, ev.PagesAllocated))
        lengths = re.findall(r"(\d+) of request (\d+)", q.prompt)
        for length, uid in lengths:
            assert before.requests[int(uid)].device_len in (int(length), int(length) + 1)
        assert q.answer == sum(int(length) % before.page_size == 0 for length, _ in lengths)
    elif q.topic == "eviction":
        _check_eviction(trace, q, event, state, before)
    else:
        _check_handoff(trace, q, at, event, state)


def _check_eviction(trace: Trace, q: QuizQuestion, event: ev.PagesEvicted, state: dict, before: Any) -> None:
    offered = [int(re.match(r"node (\d+)", c)[1]) for c in q.choices]
    assert set(offered) <= set(before.tree), "a choice that the views do not show"
    right = offered[q.answer]
    assert right == event.nodes[0]
    after = fresh(state)
    fold = Fold(after)
    fold.apply(event)
    assert right not in after["nodes"]
    nodes, inner = state["nodes"], {n["parent"] for n in state["nodes"].values()}
    for i in set(offered) - {right}:
        free = i not in inner and not nodes[i]["locks"]
        if free and trace.about["config"]["eviction"] == "lru":
            assert nodes[i]["used"] > nodes[right]["used"]
        assert ("has others below" in q.why) or i not in inner
        assert i not in event.nodes or event.nodes.index(i) > 0


def _check_handoff(trace: Trace, q: QuizQuestion, at: int, event: ev.Handoff, state: dict) -> None:
    fold = Fold(fresh(state))
    fold.apply(event)
    if event.pending:  # they come free with the batch in flight
        given_up = set(fold.state["requests"][q.uid]["pending"])
    else:
        freed = [e for e in trace.events[at:] if isinstance(e, ev.PagesFreed) and e.step == q.step]
        given_up = {p for e in freed for p, uid in zip(e.pages, e.uids, strict=True) if uid == q.uid}
    given_up &= set(event.pages)  # an earlier handoff of the request may have waited for the same batch
    if q.kind == "given up":
        assert q.answer == len(given_up)
        return
    fate = list(FATES)[q.answer]
    parts = {name: pages for name, _, _, pages in event.segments()}
    pages = set(parts.get(fate, parts["tail"]))
    owners = {fold.state["pages"]["owner"][p] for p in pages}
    assert owners == ({-2} if fate in ("locked", "inserted") else {q.uid})
    assert (pages <= given_up) if fate in ("duplicate", "freed") else not (pages & given_up)
    came = [e for e in trace.events[:at] if isinstance(e, ev.NodeInserted) and (e.step, e.uid) == (q.step, q.uid)]
    assert (pages == {p for e in came for p in e.pages}) == (fate == "inserted")


@given(seed=st.integers(0, 2**32))
@settings(max_examples=40)
def test_every_answer_is_what_the_engine_did(seed: int) -> None:
    trace = random_run(seed)
    for question in questions(trace):
        check(trace, question)


@pytest.mark.parametrize("name", runs.names)
def test_every_answer_about_a_packaged_run(name: str) -> None:
    trace = runs.load(name)
    every = questions(trace)
    for question in every[:: 1 + len(every) // 80]:
        check(trace, question)


def test_random_runs_ask_every_kind_of_question() -> None:
    kinds = {(q.topic, q.kind) for seed in range(60) for q in questions(random_run(seed))}
    wanted = {("admission", verdict) for verdict in VERDICTS} | {("handoff", fate) for fate in FATES}
    wanted |= {("pages", "need"), ("pages", "taken"), ("eviction", "first"), ("handoff", "given up")}
    assert kinds == wanted


def test_what_is_asked_depends_on_the_seed_alone() -> None:
    every = questions(runs.load("retract"))
    chosen = choose(every, 8, seed=1)
    assert chosen == choose(every, 8, seed=1) != choose(every, 8, seed=2)
    assert [q.step for q in chosen] == sorted({q.step for q in chosen}), "one a step, in order"
    assert Counter(q.topic for q in chosen) == dict.fromkeys(TOPICS, 2)
    assert len(choose(every, 1000, seed=0)) == len({q.step for q in every})
    assert choose(every, 0, seed=0) == []


def test_a_topic_is_kept_to_and_a_wrong_one_is_named() -> None:
    trace = runs.load("five_prompts")
    for topic in TOPICS:
        assert {q.topic for q in Quiz(trace, topic).questions} == {topic}
    with pytest.raises(QuizError, match="no topic is called 'pool'; there are admission, pages, eviction, handoff"):
        Quiz(trace, "pool")
    with pytest.raises(QuizError, match="nothing to ask about eviction .* it has 5 questions on admission"):
        Quiz(runs.load("chunked_prefill"), "eviction")
    quiz = Quiz(trace, "eviction")
    assert repr(quiz).splitlines()[0] == "Quiz(Five prompts, 64 pages: 1 question, 1 on eviction; seed 0)"
    told = quiz.text()
    assert told.startswith("1. [eviction] In step 16") and told.count("   * ") == 1


def test_a_page_gets_the_run_in_pieces_none_of_which_tells_too_much() -> None:
    quiz = Quiz(runs.load("small_cache"))
    first, pieces = quiz._pieces()
    assert parts_of(first)[0][3]["config"] == quiz.trace.about["config"]
    known = 0
    ends = [end for q in quiz.questions for end in (q.before, q.step)]
    for piece, end in zip([first, *pieces], [*ends, quiz.trace.history.last], strict=True):
        if piece is not None:
            head = parts_of(piece)[0]
            assert head[1] == known, "what follows"
            known += head[2]
        assert known == end
    uids = {uid for part in parts_of(first) if part[0] == "head" for uid in part[3]["marks"][1]}
    late = {e.uid for e in quiz.trace.of(ev.RequestArrived) if e.step > quiz.questions[0].before}
    assert late and not uids & late


def cut(trace: Trace, step: int) -> History:
    """The run as far as a reader knows it."""
    known = [e for e in trace.events if e.step <= step]
    return Trace(trace.keyframe, known, trace.texts).history


# -- in a browser ----------------------------------------------------------------------------------------------------


def test_a_reader_answers_and_the_engine_marks(chromium: Any, tmp_path: Path) -> None:
    trace = runs.load("small_cache")
    quiz = Quiz(trace, seed=3)
    page = Opened(chromium, quiz.export_html(tmp_path / "quiz.html"))
    right = 0
    for i, q in enumerate(quiz.questions):
        page.page.wait_for_selector(f".msgl-quiz[data-question='{i}'][data-state=ask]")
        page.page.wait_for_selector(f".msgl[data-step='{q.before}']")
        page.settle()
        page.check(cut(trace, q.before), q.before)
        assert page.data(".msgl")[0]["last"] == str(q.before), "later steps are not there"
        assert not {"eviction", "questions"} & {m["view"] for m in page.data(".msgl-tab")}, (
            "what foretells is not there"
        )
        page.page.locator(".msgl-prompt").focus()
        assert page.press("End", "ArrowRight", "Shift+ArrowRight") == q.before
        assert q.event not in page.page.content().split('id="panel"')[0]
        assert page.text(".msgl-prompt") == q.prompt
        page.page.keyboard.press("n")  # no skipping
        page.settle()
        assert page.data(".msgl-quiz")[0]["state"] == "ask"
        wrong = i % 2 == 1
        right += not wrong
        if q.choices:
            assert [t.split(" ", 1)[1] for t in page.page.locator(".msgl-choice").all_inner_texts()] == list(q.choices)
            page.page.keyboard.press(str((q.answer + wrong) % len(q.choices) + 1))
        else:
            page.page.locator(".msgl-field").fill(str(q.answer + wrong))
            page.page.locator(".msgl-field").press("Enter")
        page.page.wait_for_selector(f".msgl[data-step='{q.step}']")
        page.settle()
        assert page.data(".msgl-verdict-line") == [{"right": str(not wrong).lower()}]
        assert q.event[:200] in page.text(".msgl-verdict-line") and q.why in page.text(".msgl-because")
        marks = {m["mark"]: int(m["choice"]) for m in page.data(".msgl-choice[data-mark]")}
        if q.choices:
            assert marks == {"right": q.answer} | ({"wrong": (q.answer + 1) % len(q.choices)} if wrong else {})
        assert page.text(".msgl-quizscore") == f"{right} of {i + 1} right"
        page.page.keyboard.press("n")
    page.page.wait_for_selector(".msgl-quiz[data-state=done]")
    result = page.text(".msgl-result")
    assert result.startswith(f"{right} of {len(quiz.questions)} right (") and result.endswith(f": {quiz.title}, seed 3")
    assert page.data(".msgl")[0]["last"] == str(trace.history.last), "now all of it is open"
    asked = page.page.locator(".msgl-asked button")
    signs = ["✓" if m["right"] == "true" else "✕" for m in page.data(".msgl-asked button")]
    assert asked.all_inner_texts() == [
        f"{s} step {q.step}: {q.topic}" for s, q in zip(signs, quiz.questions, strict=True)
    ]
    assert signs.count("✓") == right
    asked.first.click()
    page.settle()
    assert page.step == quiz.questions[0].step
    page.scrub(trace.history.last)
    page.check(trace.history, trace.history.last)
    assert page.problems == []
    page.context.close()


def test_the_quiz_is_as_high_whatever_it_says(chromium: Any, tmp_path: Path) -> None:
    page = Opened(chromium, Quiz(runs.load("retract"), most=4).export_html(tmp_path / "quiz.html"))
    heights = set()
    for i in range(4):
        page.page.wait_for_selector(f".msgl-quiz[data-question='{i}'][data-state=ask]")
        heights.add(page.page.locator(".msgl-quiz").bounding_box()["height"])
        field = page.page.locator(".msgl-field")
        if field.count():
            field.fill("0")
            field.press("Enter")
        else:
            page.page.locator(".msgl-choice").first.click()
        page.page.wait_for_selector(".msgl-quiz[data-state=told]")
        heights.add(page.page.locator(".msgl-quiz").bounding_box()["height"])
        page.page.locator(".msgl-goon").click()
    assert len(heights) == 1
    page.context.close()
