"""Requests over time, batches and questions in an exported page: the numbers are Python's, a click leads somewhere."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minisgl.events import types as ev
from minisgl.events.recorder import Recorder
from minisgl.events.trace import Trace
from minisgl_widgets.export import export_html
from minisgl_widgets.feed import Feed
from minisgl_widgets.questions import answer
from minisgl_widgets.static_time import WIDTH, Timeline
from tests.fakes import Run
from tests.widgets.exported import Kernel, Opened, exported

HELD = "document.querySelector('#stage').stage.pinned"
STATUSES = {"wait": {"waiting"}, "prefill": {"prefill", "running"}, "decode": {"running"}, "done": {"finished"}}


@pytest.fixture(scope="module")
def trace() -> Trace:
    """Chunks beside decoding, hits, evictions, retractions, an abort, with a batch in flight."""
    run = Run(
        num_pages=40,
        page_size=4,
        max_seq_len=80,
        max_running_requests=5,
        admission="optimistic",
        phase="mixed",
        max_prefill_tokens=16,
        overlap=True,
    )
    rng = random.Random(3)
    system = list(range(1, 20))
    with Recorder(run, "A busy run") as recorder:
        for i in range(16):
            tail = [rng.randrange(20, 23) for _ in range(rng.randrange(1, 30))]
            run.submit(system[: rng.randrange(2, 18)] + tail, rng.randrange(4, 20))
            for _ in range(rng.randrange(4)):
                run.scheduler.step()
            if i == 11:
                run.scheduler.abort(i)
        run.play()
    kinds = {type(event) for event in run.events}
    assert {ev.RequestRetracted, ev.PagesEvicted, ev.AbortRequested} <= kinds
    assert {e.verdict for e in run.of(ev.AdmissionTested)} >= {"row", "chunk"}
    return recorder.trace


@pytest.fixture(scope="module")
def opened(chromium: Any, trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    with exported(chromium, trace, tmp_path_factory.mktemp("time"), "#step=1&view=timeline,batch") as page:
        yield page


def both_ways(trace: Trace) -> list[int]:
    steps = list(range(trace.history.first, trace.history.last + 1))
    return [*steps[::3], *reversed(steps[1::4]), trace.history.last, 2]


def test_in_characters_each_step_says_what_the_state_says(trace: Trace) -> None:
    lines = Timeline(trace).lines
    assert sorted(lines) == sorted(trace.at(trace.history.last).requests)
    signs = {"waiting": "rbpcw", "prefill": "#", "running": "#=", "finished": "SLAE"}
    for step in range(trace.history.first + 1, trace.history.last + 1):
        refused = [e.verdict[0] for e in trace.of(ev.AdmissionTested) if e.step == step and e.verdict != "admitted"]
        for uid, request in trace.at(step).requests.items():
            rest = lines[uid][step - trace.history.first - 1 :]
            if request.status == "finished":
                assert len(rest) <= 2 and lines[uid][-1] in signs["finished"]
            else:
                assert rest[0] in signs[request.status], (step, uid, rest)
                if request.status == "waiting" and refused:
                    assert rest[0] == refused[-1], (step, uid)


def test_a_long_run_has_several_steps_in_a_character() -> None:
    run = Run(num_pages=200, page_size=4, max_seq_len=400, max_running_requests=1)
    with Recorder(run) as recorder:
        run.submit([1, 2, 3], 150)
        run.submit([4, 5, 6], 3)
        run.play()
    trace = recorder.trace
    assert trace.history.last == 153 > WIDTH
    said = repr(Timeline(trace)).splitlines()
    assert said[:3] == ["requests: steps 1 to 153, 2 in a character", f"0 |#{'=' * 74}L", f"1 |{'r' * 75}#=L"]
    assert Timeline(trace)._repr_html_().startswith("<pre><code>requests: steps")


def show(page: Opened, *views: str) -> None:
    for view in views:
        page.page.locator(f".msgl-tab[data-view={view}]").click()
    page.settle()


def test_each_line_says_what_its_request_does(opened: Opened, trace: Trace) -> None:
    show(opened, "timeline")
    opened.page.evaluate("document.querySelector('.msgl-dockbody').style.height = '700px'")  # all lines in sight
    opened.settle()
    for step in both_ways(trace):
        opened.scrub(step)
        opened.settle()
        state = trace.at(step)
        rows = opened.data(".msgl-tl-row")
        assert [int(row["uid"]) for row in rows] == trace.requests.uid.tolist()
        for row in rows:
            request = state.requests.get(int(row["uid"]))
            if request is None:
                assert row["status"] == "later", (step, row)
            else:
                assert request.status in STATUSES[row["status"]], (step, row)
    opened.page.evaluate("document.querySelector('.msgl-dockbody').style.height = ''")


def test_marks_and_pieces_are_where_the_tables_say(opened: Opened, trace: Trace) -> None:
    show(opened, "timeline")
    opened.page.evaluate("document.querySelector('.msgl-dockbody').style.height = '700px'")
    opened.settle()
    requests = trace.requests
    columns = {"arrived": "arrived", "admitted": "admitted", "first": "first_token", "finished": "finished"}
    rows = {int(row["uid"]): row for row in opened.data(".msgl-tl-row")}
    for i, uid in enumerate(requests.uid.tolist()):
        for name, column in columns.items():
            assert int(rows[uid][name]) == requests[f"{column}_step"][i], (uid, name)
        assert rows[uid]["reason"] == requests.reason[i]
        cached = [
            float(d["cached"]) for d in opened.data(f".msgl-tl-row[data-uid='{uid}'] .msgl-tl-prefill") if "cached" in d
        ]
        if requests.retractions[i] == 0 and requests.first_token_step[i] >= 0:
            share = requests.cached_tokens[i] / requests.prompt_tokens[i]
            assert cached == ([pytest.approx(share, abs=0.001)] if share else []), uid
    retracted = [(e.uid, e.step) for e in trace.of(ev.RequestRetracted)]
    shown = opened.page.eval_on_selector_all(
        ".msgl-tl-m-retracted",
        "(all) => all.map((el) => [Number(el.parentElement.dataset.uid), Number(el.dataset.at)])",
    )
    assert sorted(map(tuple, shown)) == sorted(retracted)
    opened.page.evaluate("document.querySelector('.msgl-dockbody').style.height = ''")


def test_the_lines_are_those_that_python_draws_in_characters(opened: Opened, trace: Trace) -> None:
    show(opened, "timeline")
    opened.page.evaluate("document.querySelector('.msgl-dockbody').style.height = '700px'")
    opened.settle()
    for uid, line in Timeline(trace).lines.items():
        drawn = dict.fromkeys(range(1, trace.history.last + 1), " ")
        for piece in opened.data(f".msgl-tl-row[data-uid='{uid}'] .msgl-tl-seg"):
            sign = {"wait": piece.get("reason", "w")[0], "prefill": "#", "decode": "="}[piece["kind"]]
            drawn |= dict.fromkeys(range(int(piece["from"]), int(piece["to"])), sign)
        assert "".join(drawn.values()).rstrip() == line[:-1].rstrip(), uid
    opened.page.evaluate("document.querySelector('.msgl-dockbody').style.height = ''")


def test_a_click_on_a_line_goes_there_and_holds_the_request(opened: Opened, trace: Trace) -> None:
    show(opened, "timeline")
    opened.scrub(2)
    piece = opened.page.locator(".msgl-tl-row[data-uid='0'] .msgl-tl-decode")
    piece.hover()
    opened.settle()
    assert "Request 0" in opened.text(".msgl-tl-told") and "decodes in step" in opened.text(".msgl-tl-told")
    piece.click(position={"x": 3, "y": 4})
    opened.settle()
    assert opened.step == int(piece.get_attribute("data-from"))
    assert opened.page.evaluate(HELD) == {"kind": "uid", "uid": 0}
    piece.click(position={"x": 3, "y": 4})
    assert opened.page.evaluate(HELD) == {"kind": "uid", "uid": 0}, "still held"
    opened.press("Escape")


def test_each_batch_in_numbers_and_words(opened: Opened, trace: Trace) -> None:
    show(opened, "batch")
    steps = trace.steps
    for step in both_ways(trace):
        opened.scrub(step)
        (shown,) = opened.data(".msgl-batches")
        i = step - trace.history.first - 1
        prefill, decode = (0, 0) if i < 0 else (steps.prefill_tokens[i], steps.decode_tokens[i])
        assert (int(shown["prefill"]), int(shown["decode"])) == (prefill, decode), step
        assert shown["budget"] == "16"
        launched = [e for e in trace.of(ev.BatchScheduled) if e.step == step]
        start = (
            f"step {step}, {launched[0].phase}: " if launched else f"step {step}: no batch" if i >= 0 else "The start"
        )
        assert opened.text(".msgl-batchwords").startswith(start)
        named = sorted(int(d["uid"]) for d in opened.data(".msgl-batchwords .msgl-chip"))
        assert named == sorted(launched[0].uids if launched else ()), step


def test_each_prompt_has_a_piece_of_the_bar(opened: Opened, trace: Trace) -> None:
    show(opened, "batch")
    pieces = [int(piece["piece"]) for piece in opened.data(".msgl-bt-prompt")]
    prompts, entering = [], set()
    for e in trace.of(ev.RequestAdmitted, ev.BatchScheduled):
        if isinstance(e, ev.RequestAdmitted):
            entering.add(e.uid)
            continue
        prompts += [uid for uid in e.uids if uid in entering]
        entering -= {uid for uid, samples in zip(e.uids, e.samples, strict=True) if samples}
    assert pieces == prompts


def test_a_click_on_a_bar_goes_there_and_keys_zoom(opened: Opened, trace: Trace) -> None:
    show(opened, "batch")
    opened.scrub(1)
    box = opened.page.locator(".msgl-batches svg").bounding_box()
    assert box
    opened.page.mouse.click(box["x"] + box["width"] - 12, box["y"] + 60)
    opened.settle()
    assert opened.step == trace.history.last
    opened.scrub(30)
    group = opened.page.locator(".msgl-batches .msgl-timescale")
    assert group.get_attribute("aria-label") == f"steps 1 to {trace.history.last} are in sight"
    opened.page.locator(".msgl-batches [aria-label='fewer steps, wider']").click()
    opened.settle()
    assert group.get_attribute("aria-label") == "steps 8 to 57 are in sight"
    opened.page.locator(".msgl-batches [aria-label='more steps']").click()


def test_why_is_one_click_away_from_who_waits(opened: Opened, trace: Trace) -> None:
    step = next(s for s in range(1, trace.history.last) if trace.at(s).waiting)
    uid = trace.at(step).waiting[0]
    opened.scrub(step)
    opened.page.locator(f".msgl-request[data-uid='{uid}'] .msgl-why").click()
    opened.settle()
    assert opened.data(".msgl-questions") == [{"question": "waiting", "uid": str(uid), "answered": "true"}]
    assert f"Why did request {uid} wait?" in " ".join(opened.text(".msgl-answer").split())
    cited = opened.page.locator(".msgl-answer .msgl-cite[data-event=RequestAdmitted]").first
    cited.click()
    opened.settle()
    assert opened.step == int(cited.get_attribute("data-step"))
    arrived = opened.page.locator(".msgl-answer .msgl-cite[data-event=RequestArrived]").first
    arrived.focus()
    assert opened.press("Enter") == int(arrived.get_attribute("data-step"))


def test_the_answer_follows_who_is_held_and_says_what_it_lacks(opened: Opened, trace: Trace) -> None:
    show(opened, "questions")
    opened.page.locator("[data-question=slow]").click()
    opened.page.locator(".msgl-request[data-uid='1'] .msgl-chip").click()
    opened.settle()
    assert opened.data(".msgl-questions") == [{"question": "slow", "uid": "1", "answered": "true"}]
    opened.page.locator("[data-question=reservations]").click()
    opened.settle()
    assert "What was promised and never used?" in opened.text(".msgl-answer")
    opened.page.locator("[data-question=blame]").click()
    opened.page.locator(".msgl-who").select_option("9")
    opened.settle()
    assert "blame(trace, uid=9)" in opened.text(".msgl-askline")
    assert opened.page.evaluate("document.querySelector('#stage').stage.pinned.uid") == 9


def test_where_there_is_a_kernel_it_is_asked(chromium: Any, trace: Trace, tmp_path: Path) -> None:
    page = Opened(chromium, export_html(trace, tmp_path / "run.html"))
    kernel = Kernel(page, Feed.of(trace))
    page.page.evaluate("live.docks[1].show('questions')")
    page.settle()

    def asked() -> list[dict]:
        return [message for message in kernel.heard() if message["kind"] == "ask"]

    page.page.evaluate("live.ask('waiting', 8)")
    page.settle()
    assert {"kind": "ask", "id": "waiting", "uid": 8} in asked()
    assert "The kernel has been asked" in page.text(".msgl-askline")
    last = trace.history.last
    message = {"kind": "answer", "key": "waiting:8", "html": answer(trace, "waiting", 8), "last": last}
    page.page.evaluate("(message) => live.store.answered(message)", message)
    page.settle()
    assert "Why did request 8 wait?" in " ".join(page.text(".msgl-answer").split())
    assert not page.page.locator(".msgl-again").is_visible() and asked() == [], "asked once"
    page.page.evaluate("(message) => live.store.answered(message)", message | {"last": last - 1})
    page.settle()
    assert f"As of step {last - 1}." in page.text(".msgl-askline")
    page.page.locator(".msgl-again").click()
    assert asked() == [{"kind": "ask", "id": "waiting", "uid": 8}]
    page.page.locator("[data-question=blame]").click()
    page.settle()
    assert asked() == [], "what takes long is asked for by hand"
    page.page.locator(".msgl-again").click()
    assert asked() == [{"kind": "ask", "id": "blame", "uid": 8}]
    assert page.problems == []
    page.context.close()
