"""A recorded run, run again without its model: event for event the same, from any point and through a file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings

from minisgl.errors import TraceError
from minisgl.events import types as ev
from minisgl.events.recorder import Recorder
from minisgl.events.trace import Trace
from minisgl.sim.replay import replay
from tests.events.runs import all_seen, traces
from tests.fakes import Run

EXAMPLES = 300


def same(trace: Trace, again: Trace) -> None:
    diff = trace.diff(again)
    assert len(diff) == 0 and not diff.start and not diff.config, diff
    for name in ("nodes", "requests", "pages", "rows", "queue", "waiting", "running"):
        assert again.keyframe[name] == trace.keyframe[name], name


def test_every_random_run():
    saw: Counter[str] = Counter()

    @settings(max_examples=EXAMPLES)
    @given(traces)
    def check(trace: Trace) -> None:
        same(trace, replay(trace))
        saw["runs"] += 1
        saw["in the middle"] += any(r["status"] == "running" for r in trace.keyframe["requests"].values())
        for kind in (
            ev.RequestRetracted,
            ev.RequestRejected,
            ev.AbortRequested,
            ev.CacheCleared,
            ev.SettingsChanged,
            ev.PipelineDrained,
        ):
            saw[kind.__name__] += bool(trace.of(kind))
        saw["broken"] += any(e.error for e in trace.of(ev.ForwardFinished))
        saw["dropped"] += any(any(e.dropped) for e in trace.of(ev.TokensSampled))

    check()
    all_seen(saw)


@settings(max_examples=EXAMPLES // 4)
@given(traces)
def test_through_a_file_and_once_more(trace):
    """A replay is itself a record that can be run again."""
    with TemporaryDirectory() as folder:
        read = Trace.load(trace.save(Path(folder) / "run.jsonl.zst"))
    again = replay(read)
    same(trace, again)
    same(again, replay(again))


def recorded_from(run: Run, steps: int) -> Trace:
    """All that comes after that many steps."""
    for _ in range(steps):
        run.scheduler.step()
    with Recorder(run) as recorder:
        run.play()
    return recorder.trace


def test_how_often_nodes_were_used_is_in_the_keyframe():
    run = Run(num_pages=6, max_seq_len=6, eviction="lfu")
    for prompt in ([1, 2], [1, 2], [1, 2], [3, 4]):
        run.submit(prompt, 1)
        run.play()
    run.submit([9, 9], 2)  # for whom the two pages of [3, 4] go, though the others are older
    trace = recorded_from(run, 0)
    (gone,) = trace.of(ev.PagesEvicted)
    assert [trace.keyframe["nodes"][i]["tokens"] for i in gone.nodes] == [(3, 4)]
    assert {n["tokens"]: n["uses"] for n in trace.keyframe["nodes"].values()} == {(): 1, (1,): 5, (2,): 3, (3, 4): 1}
    same(trace, replay(trace))


def test_who_was_admitted_first_is_not_in_the_keyframe():
    run = Run(num_pages=12, max_seq_len=12, admission="optimistic", max_running_requests=3, order="shortest")
    for prompt in ([7, 8, 9], [3, 4], [9, 9]):
        run.submit(prompt, 6)
    trace = recorded_from(run, 2)
    assert trace.of(ev.RequestRetracted)[0].uid == 0  # the first to come was the last to be admitted
    same(trace, replay(trace))


@pytest.mark.parametrize("where", ["launch", "collect"])
@pytest.mark.parametrize("overlap", [False, True])
def test_a_forward_that_broke_breaks_again(where, overlap):
    run = Run(overlap=overlap, max_prefill_tokens=4)
    run.executor.fail_at, run.executor.fail_in = 3, where
    for i in range(3):
        run.submit([i] * 6, 5)
    trace = recorded_from(run, 0)
    assert [e.batch for e in trace.of(ev.ForwardFinished) if e.error] == [3]
    same(trace, replay(trace))


def test_a_record_that_does_not_know_its_beginning_cannot_be_run_again():
    run = Run()
    run.submit([1, 2, 3], 30)
    with Recorder(run, last=8) as recorder:
        run.play()
    with pytest.raises(TraceError, match="no checkpoint"):
        replay(recorder.trace)


@pytest.mark.parametrize(
    ("name", "value", "says"), [("colour", 1, "unknown setting colour;"), ("order", "best", "best")]
)
def test_a_record_of_a_later_version_that_set_what_this_one_does_not_know(name, value, says):
    run = Run()
    run.submit([1, 2, 3], 3)
    with Recorder(run) as recorder:
        run.play()
    at_start, changed = recorder.trace, recorder.trace
    at_start.about = at_start.about | {"config": at_start.about["config"] | {name: value}}
    changed.events.insert(0, ev.SettingsChanged(step=1, t=0.0, names=(name,), values=(value,)))
    for trace in (at_start, changed):
        with pytest.raises(TraceError, match=f"{says}.*later version"):
            replay(trace)
