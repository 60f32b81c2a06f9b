"""A record taken up again: nothing changed it comes out equal; changed, it is equal up to there and sound after it."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minisgl.core import SamplingParams
from minisgl.errors import (
    ConfigError,
    FixedSettingError,
    ForkError,
    PoolTooSmallError,
    PromptTypeError,
    TraceError,
    UnknownRequestError,
)
from minisgl.events import types as ev
from minisgl.events.recorder import Recorder
from minisgl.events.trace import Trace
from minisgl.sim.fork import fork
from minisgl.sim.replay import replay
from minisgl.sim.whatif import whatif
from tests.events.runs import all_seen, traces
from tests.fakes import Run


def recorded(*prompts, max_tokens=8, **knobs) -> Trace:
    run = Run(**knobs)
    with Recorder(run, "a run") as recorder:
        for prompt in prompts:
            run.submit(prompt, max_tokens)
        run.play()
    return recorder.trace


def queue() -> Trace:
    """One at a time; the last to come has least to do."""
    return recorded([1, 2, 3, 4], [5, 6, 7, 8], [9], max_running_requests=1)


def upto(trace: Trace, step: int) -> list[ev.Event]:
    return [e for e in trace.events if e.step <= step]


_changes = st.fixed_dictionaries(
    {},
    optional={
        "order": st.sampled_from(["fcfs", "lpm", "shortest"]),
        "admission": st.sampled_from(["conservative", "optimistic", 0.5]),
        "eviction": st.sampled_from(["lru", "lfu", "fifo"]),
        "phase": st.sampled_from(["prefill-first", "decode-first", "mixed"]),
        "max_prefill_tokens": st.sampled_from([2, 8]),
    },
)


def test_every_random_run() -> None:
    saw: Counter[str] = Counter()

    @settings(max_examples=200)
    @given(traces, st.floats(0, 1), _changes, st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=3), max_size=2))
    def check(trace: Trace, share: float, changes: dict, prompts: list[list[int]]) -> None:
        first = trace.keyframe["step"]
        step = first + round(share * len(trace.of(ev.StepFinished)))
        same = fork(trace, step)
        broke = any(e.error and e.step > step for e in trace.of(ev.ForwardFinished))  # which no request asked for
        assert broke or not same.diff, same.diff

        forked = fork(trace, step, **changes)
        for prompt in prompts:
            forked.submit(prompt, SamplingParams(max_tokens=2))
        then = forked.trace
        assert upto(then, step) == upto(trace, step)
        assert not then.check() and forked.scheduler.idle
        assert not then.diff(replay(then))  # what was changed is in the record, so it can be run again
        first_diff = then.diff(trace).first
        assert first_diff is None or first_diff.step > step
        saw["runs"] += 1
        saw["changed"] += bool(changes)
        saw["differs"] += first_diff is not None
        saw["in flight"] += bool(trace.at(step).flight)
        saw["later arrivals"] += any(e.step > step for e in trace.of(ev.RequestArrived))
        saw["retracted after"] += any(e.step > step for e in then.of(ev.RequestRetracted))

    check()
    all_seen(saw)


def test_another_order_from_here_on() -> None:
    trace = queue()
    forked = fork(trace, 2, order="shortest")
    assert trace.requests.admitted_step.tolist() == [1, 9, 17]
    assert forked.trace.requests.admitted_step.tolist() == [1, 17, 9]
    assert forked.diff.first.step == 3 and isinstance(forked.diff.first.other, ev.SettingsChanged)
    assert [tuple(row.values()) for row in forked.table.rows()] == [
        (0, 1, 1, 1, 1, 8, 8),
        (1, 9, 17, 9, 17, 16, 24),
        (2, 17, 9, 17, 9, 24, 16),
    ]
    assert forked.trace.title == "a run from step 2 on with order=shortest"
    assert repr(forked) == "Fork(as recorded up to step 2, then order=shortest)"
    assert forked.trace.about["config"]["order"] == "fcfs"  # as it began
    again = fork(forked.trace, 2, order="fcfs")  # the newer change holds
    assert again.trace.requests.admitted_step.tolist() == [1, 9, 17]


def test_a_request_more() -> None:
    trace = queue()
    forked = fork(trace, 10)
    uid = forked.submit([9, 9], SamplingParams(max_tokens=3))
    assert uid == 3  # the next that nobody had
    assert forked.step().step == 11
    assert forked.run_until("finish of request 2").end.step == 24
    with pytest.raises(PoolTooSmallError):
        forked.submit(range(100), SamplingParams(max_tokens=10))
    assert len(forked.trace.requests) == 5
    (arrived,) = [e for e in forked.trace.of(ev.RequestArrived) if e.uid == 3]
    assert arrived.step == 11
    assert forked.table.rows().__next__()["finished"] == 8
    last = list(forked.table.rows())[3]
    assert (last["finished"], last["finished_now"]) == (-1, 27)
    with pytest.raises(ForkError, match="run to its end"):
        forked.submit([1])
    with pytest.raises(ForkError, match="run to its end"):
        forked.abort(0)


def test_an_abort_more() -> None:
    forked = fork(queue(), 2)
    forked.abort(0)
    assert forked.trace.requests.reason.tolist() == ["abort", "length", "length"]
    with pytest.raises(UnknownRequestError):
        fork(queue(), 2).abort(3)


def test_times_go_on_from_the_record() -> None:
    run = Run()
    with Recorder(run) as recorder:
        run.submit([1, 2, 3], 4)
        run.scheduler.step()
        run.scheduler.step()
        run.submit([4, 5, 6], 4)
        run.play()
    trace = recorder.trace
    forked = fork(trace, 1).trace
    times = [e.t for e in forked.events]
    assert times == sorted(times)
    arrived = forked.of(ev.RequestArrived)[1]
    assert arrived.step == 3 and trace.at(1).t < arrived.submitted <= arrived.t


def test_what_cannot_change_says_why_and_what_can_be_done() -> None:
    trace = queue()
    for name, value in (("num_pages", 32), ("page_size", 2), ("overlap", True), ("max_seq_len", 64)):
        with pytest.raises(FixedSettingError, match=rf"{name}: .* whatif\(trace, {name}={value}\)"):
            fork(trace, 3, **{name: value})
    with pytest.raises(FixedSettingError, match="seed: .*; make another engine"):  # whatif would not take it
        fork(trace, 3, seed=3)
    with pytest.raises(ConfigError, match="must be one of"):
        fork(trace, 3, order="random")
    with pytest.raises(ConfigError, match="unknown setting"):
        fork(trace, 3, colour="blue")
    with pytest.raises(PromptTypeError, match="no tokenizer"):
        fork(trace, 3).submit("text")


def test_steps_that_are_not_there() -> None:
    trace = queue()
    assert not fork(trace, 0).diff and not fork(trace, 24).diff
    for step in (-1, 25):
        with pytest.raises(TraceError, match="steps 0 to 24"):
            fork(trace, step)


def test_a_record_that_does_not_come_out_the_same() -> None:
    trace = queue()
    trace.about["config"]["order"] = "shortest"
    with pytest.raises(ForkError, match="does not come out the same up to step 9"):
        fork(trace, 9)


def test_changed_settings_are_told_where_they_are_left_out() -> None:
    forked = fork(queue(), 2, order="shortest").trace
    what = whatif(forked, max_running_requests=2)
    assert any("settings changed in its middle" in note for note in what.notes)
    assert not any("settings" in note for note in whatif(queue(), max_running_requests=2).notes)
