"""Two runs compared: nothing, one thing, or everything differs, and the first of it is told in words."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from minisgl.events import types as ev
from minisgl.events.diff import TIMES, _distances
from minisgl.events.recorder import Recorder
from minisgl.events.trace import Trace
from tests.events.runs import traces
from tests.fakes import Run

EXAMPLES = 40


def played(prompts=([1, 2, 3], [1, 2, 3, 4], [9] * 9), **settings) -> Trace:
    run = Run(**({"num_pages": 16, "max_seq_len": 16} | settings))
    with Recorder(run) as recorder:
        for prompt in prompts:
            run.submit(list(prompt), 4)
        run.play()
    return recorder.trace


def changed(trace: Trace, events) -> Trace:
    return Trace(trace.keyframe, list(events), {}, about=trace.about)


def altered(event: ev.Event) -> ev.Event:
    """The event with one field that is no time changed."""
    skip = {"step", *TIMES.get(type(event), ("t",))}
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if name not in skip and type(value) is int:
            return msgspec.structs.replace(event, **{name: value + 1000})
        if type(value) is tuple and value:
            other = value[0] + ("!" if isinstance(value[0], str) else 1000)
            return msgspec.structs.replace(event, **{name: (other, *value[1:])})
    raise AssertionError(f"nothing to change in {event}")


def later(event: ev.Event, by: float) -> ev.Event:
    names = TIMES.get(type(event), ("t",))
    return msgspec.structs.replace(event, **{name: getattr(event, name) + by for name in names})


class TestProperties:
    @settings(max_examples=EXAMPLES)
    @given(traces)
    def test_itself(self, trace):
        diff = trace.diff(changed(trace, trace.events), times=True)
        assert (len(diff), bool(diff), diff.first, diff.per_step, diff.start, diff.config) == (
            0,
            False,
            None,
            {},
            [],
            {},
        )
        assert repr(diff) == "no event differs"

    @settings(max_examples=EXAMPLES)
    @given(traces, st.randoms(use_true_random=False))
    def test_one_event_dropped_changed_or_said_twice(self, trace, random):
        if not trace.events:
            return
        i = random.randrange(len(trace.events))
        event, events = trace.events[i], trace.events
        same = [k for k, e in enumerate(events) if later(e, -e.t) == later(event, -event.t)]

        fewer = changed(trace, events[:i] + events[i + 1 :])
        more = changed(trace, [*events[: i + 1], event, *events[i + 1 :]])
        for diff, ours, theirs in (
            (trace.diff(fewer), event, None),
            (fewer.diff(trace), None, event),
            (trace.diff(more), None, event),
            (more.diff(trace), event, None),
        ):
            assert len(diff) == 1 and diff.per_step == {event.step: 1} and diff.first.step == event.step
            if len(same) == 1:
                assert (diff.first.this, diff.first.other) == (ours, theirs)

        other = altered(event)
        diff = trace.diff(changed(trace, [*events[:i], other, *events[i + 1 :]]))
        assert len(diff) == 1 and (diff.first.this, diff.first.other) == (event, other)
        ((name, a, b),) = diff.first.fields
        assert a != b and f"{name}: {a!r}, {b!r}" in repr(diff)

    @settings(max_examples=EXAMPLES)
    @given(traces, traces)
    def test_both_ways_alike(self, a, b):
        ours, theirs = a.diff(b), b.diff(a)
        assert len(ours) == len(theirs) == sum(ours.per_step.values()) and ours.per_step == theirs.per_step
        assert (ours.first is None) == (len(ours) == 0)
        if ours.first:
            assert (ours.first.this, ours.first.other) == (theirs.first.other, theirs.first.this)
            assert ours.first.step == min(ours.per_step)

    @settings(max_examples=200)
    @given(*(st.lists(st.tuples(st.sampled_from([int, str]), st.integers(0, 2)), min_size=1, max_size=6) for _ in "ab"))
    def test_the_cost_is_the_least(self, x, y):
        def cost(i, j):
            if i == len(x) or j == len(y):
                return len(x) - i + len(y) - j
            pair = 0 if x[i] == y[j] else 1 if x[i][0] == y[j][0] else 2
            return min(cost(i + 1, j + 1) + pair, cost(i + 1, j) + 1, cost(i, j + 1) + 1)

        assume(x[0] != y[0])  # as after the common beginning was left out
        pair = 1 if x[0][0] == y[0][0] else 2
        assert _distances(x, y) == (cost(1, 0) + 1, cost(0, 1) + 1, cost(1, 1) + pair)


def test_times_count_only_when_asked():
    trace = played()
    slower = changed(trace, (later(e, 0.5) for e in trace.events))
    assert len(trace.diff(slower)) == 0 and not trace.diff(slower)
    diff = trace.diff(slower, times=True)
    assert len(diff) == len(trace.events)
    assert set(diff.first.fields) == {("t", 0.0, 0.5), ("submitted", 0.0, 0.5)}
    timed = {cls for cls in ev.EVENT_TYPES if set(cls.__struct_fields__) & {"submitted", "started"}}
    assert timed == TIMES.keys()


def test_in_words():
    a, b = played(), played(num_pages=14)
    told = str(a.diff(b))
    assert "settings differ:\nnum_pages: 16, 14" in told and "the runs begin differently:\nnum_pages: 16, 14" in told
    assert "this run:  AdmissionTested: request 0 is admitted: needs 7, 0 promised, 16 in all" in told
    assert "the other: AdmissionTested: request 0 is admitted: needs 7, 0 promised, 14 in all" in told
    assert "    free: 16, 14" in told and max(map(len, told.splitlines())) < 120
    assert a.diff(b)._repr_html_().startswith("<pre>settings differ")


def test_a_long_tuple_is_narrowed_down():
    trace = played()
    i = next(i for i, e in enumerate(trace.events) if isinstance(e, ev.RequestArrived) and e.uid == 2)
    prompt = (9,) * 5 + (8,) + (9,) * 3
    for asked, fields in (
        (prompt, [("prompt[5]", 9, 8)]),
        (prompt[:6], [("len(prompt)", 9, 6), ("prompt[5]", 9, 8)]),
        ((9,) * 6, [("len(prompt)", 9, 6)]),
    ):
        other = msgspec.structs.replace(trace.events[i], prompt=asked)
        diff = trace.diff(changed(trace, [*trace.events[:i], other, *trace.events[i + 1 :]]))
        assert list(diff.first.fields) == fields


def test_two_events_in_another_order():
    trace = played()
    i = next(i for i, e in enumerate(trace.events) if isinstance(e, ev.BatchScheduled))
    a, b = trace.events[i : i + 2]
    diff = trace.diff(changed(trace, [*trace.events[:i], b, a, *trace.events[i + 2 :]]))
    assert len(diff) == 2 and (diff.first.this, diff.first.other, diff.first.fields) == (a, b, ())


def test_a_run_that_ends_sooner():
    trace = played()
    half = changed(trace, (e for e in trace.events if e.step <= 2))
    diff = trace.diff(half)
    assert len(diff) == len(trace.events) - len(half.events)
    assert diff.first.step == 3 and diff.first.other is None and "nothing here" in str(diff)


def test_equal_events_from_another_start():
    trace = played()
    other = Trace(trace.at(0).to_dict() | {"step": 5}, trace.events, {}, about=trace.about)
    diff = trace.diff(other)
    assert len(diff) == 0 and diff and diff.start == ["step: 0, 5"] and "begin differently" in str(diff)


def test_settings_alone_make_no_difference():
    trace = played()
    other = Trace(trace.keyframe, trace.events, {}, about={"config": trace.about["config"] | {"check": False}})
    diff = trace.diff(other)
    assert not diff and diff.config == {"check": (True, False)} and "check: True, False" in str(diff)


def test_steps_of_many_events():
    """Hundreds of events in one step, every one another: no more than a moment, and counted as pairs."""
    prompts = [[i % 900, 1] for i in range(400)]
    a = played(prompts, num_pages=64)
    arrivals = [replace_seed(e) if isinstance(e, ev.RequestArrived) else e for e in a.events]
    assert a.diff(changed(a, arrivals)).per_step == {1: 400}


def replace_seed(event):
    return msgspec.structs.replace(event, seed=event.seed + 1)


@pytest.mark.parametrize("about", [{}, {"config": None}])
def test_runs_that_do_not_say_where_they_are_from(about):
    trace = played()
    diff = trace.diff(Trace(trace.keyframe, trace.events, {}, about=about))
    assert diff.config == {} and not diff
