"""Recorders: what they keep, and what they let go of when they are told to keep little."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minisgl.errors import ConfigError, PoolTooSmallError, PromptTooLongError
from minisgl.events import RequestFinished, StepFinished
from minisgl.events.recorder import Recorder
from minisgl.events.trace import Trace
from tests.fakes import Run, expected


def recorded(last: int, script: list, **settings) -> tuple[Trace, Trace]:
    """The same run recorded in whole and by a recorder that keeps ``last`` steps."""
    run, requests = Run(**settings), []
    with Recorder(run) as whole, Recorder(run, last=last) as bounded:
        for what, *args in script:
            if what == "submit":
                with contextlib.suppress(PoolTooSmallError, PromptTooLongError):
                    requests.append(run.submit(*args))
            elif what == "abort" and requests:
                run.scheduler.abort(requests[args[0] % len(requests)].uid)
            else:
                run.scheduler.step()
        run.play()
    return whole.trace, bounded.trace


def assert_is_the_end_of(part: Trace, whole: Trace, last: int) -> None:
    """Each step that ``part`` holds has the state of the whole run, but for requests that ended before it begins."""
    first, end = part.history.first, whole.history.last
    assert part.history.last == end
    assert min(last, end) <= end - first <= last + last // 8
    assert part.events == [e for e in whole.events if e.step > first]
    ended = whole.at(first).requests.keys() - whole.at(first).ledgers()["requests"].keys()
    assert not ended & part.keyframe["requests"].keys()
    for step in range(first, end + 1):
        state = whole.at(step).to_dict()
        state["requests"] = {uid: r for uid, r in state["requests"].items() if uid not in ended}
        assert part.at(step).to_dict() == state
    for step in part.history.steps:
        assert step == whole.history.steps[step["step"] - 1] and not step["violations"]


class TestBounded:
    actions = st.one_of(
        st.tuples(st.just("submit"), st.lists(st.integers(0, 2), min_size=1, max_size=30), st.integers(1, 20)),
        st.tuples(st.just("abort"), st.integers(0, 9)),
        st.just(("step",)),
    )

    @settings(max_examples=100)
    @given(
        st.sampled_from([1, 2, 5, 8, 17]),
        st.lists(actions, max_size=40),
        st.sampled_from([1, 2, 16]),
        st.booleans(),
    )
    def test_it_equals_the_end_of_the_whole(self, last, script, page_size, overlap):
        settings = {"page_size": page_size, "overlap": overlap, "max_seq_len": 32, "max_running_requests": 3}
        whole, part = recorded(last, script, num_pages=32, max_prefill_tokens=7, **settings)
        assert_is_the_end_of(part, whole, last)

    def test_who_ended_with_pages_in_flight_is_not_forgotten(self):
        """Its pages come back after the batch that names them: until then the state must know whose they are."""
        run, prompt = Run(overlap=True), [1, 2, 3]
        with Recorder(run) as whole, Recorder(run, last=1) as bounded:
            uid = run.submit(prompt, 20, stop_token_ids=expected(prompt, 4)[3:]).uid
            run.submit([7, 8], 20)
            kept = {}
            while run.scheduler.step() is not None:
                assert_is_the_end_of(bounded.trace, whole.trace, 1)
                kept[bounded.trace.keyframe["step"]] = bounded.trace.keyframe["requests"].get(uid)
        (end,) = [e.step for e in whole.trace.of(RequestFinished) if e.uid == uid]
        assert kept[end]["status"] == "finished" and kept[end]["pending"] and kept[end + 1] is None

    def test_a_long_run(self):
        script = [("submit", [i % 3, i % 7, 5], 1 + i % 11) for i in range(60)]
        whole, part = recorded(20, script, num_pages=24, max_running_requests=4)
        assert whole.history.last > 80
        assert_is_the_end_of(part, whole, 20)

    def test_what_is_kept_does_not_grow_with_the_run(self):
        run = Run(num_pages=24, max_running_requests=2)
        held = []
        with Recorder(run, last=16) as recorder:
            for _ in range(6):
                for i in range(10):
                    run.submit([i, 5, 5], 5)
                run.play()
                trace = recorder.trace
                held.append((len(trace.keyframe["requests"]), len(trace.steps)))
                assert len(trace.texts) <= 10 + 10 * 5
        assert all(requests <= 10 and steps <= 18 for requests, steps in held) and run.scheduler.steps > 100

    def test_a_trace_does_not_move_with_the_recorder(self):
        run = Run()
        with Recorder(run, last=2) as recorder:
            run.submit([1, 2, 3], 40)
            for _ in range(5):
                run.scheduler.step()
            early = recorder.trace
            before = early.at(4).to_dict()
            run.play()
        again = Trace(early.keyframe, early.events, early.texts)
        assert again.at(4).to_dict() == before and recorder.trace.history.first > 4

    def test_starting_afresh_forgets(self):
        run = Run()
        recorder = Recorder(run, last=8)
        for _ in range(2):
            with recorder:
                run.submit([1, 2, 3], 6)
                run.play()
        trace = recorder.trace
        assert [e.step for e in trace.of(StepFinished)] == list(range(trace.history.first + 1, run.scheduler.steps + 1))
        assert len(trace.steps) == run.scheduler.steps // 2

    @pytest.mark.parametrize("last", [0, -3, 1.5, True, "all"])
    def test_nonsense(self, last):
        with pytest.raises(ConfigError, match="must be None .* or an integer of at least 1"):
            Recorder(Run(), last=last)


class TestSaid:
    def test_how_far_it_is(self):
        run = Run()
        recorder = Recorder(run, last=4)
        assert repr(recorder) == "Recorder(nothing recorded yet)"
        with recorder:
            assert repr(recorder) == "Recorder(no steps, 0 events, recording, keeps the last 4 steps)"
            run.submit([1, 2], 9)
            run.play()
        assert run.scheduler.steps == 9
        said = f"Recorder(steps 6 to 9, {len(recorder.events)} events, stopped, keeps the last 4 steps)"
        assert repr(recorder) == said and recorder._repr_html_() == f"<b>{said}</b>"

    def test_where_the_run_comes_from(self):
        run = Run()
        with Recorder(run) as recorder:
            pass
        about = recorder.trace.about
        assert about.items() >= run.about().items() and about["machine"]["cpus"] > 0

    def test_the_whole_run_is_kept_by_the_lists_own_append(self):
        """Nothing of ours stands between an event and the list: what recording costs depends on it."""
        run = Run(record=False, check=False)
        recorder = Recorder(run)
        heard = []
        run.on = lambda kind, fn: heard.append((kind, fn))
        recorder.start()
        assert heard == [(None, recorder.events.append)]
