"""A recorded run, run again without its model: event for event the same, from any point and through a file."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings

from minisgl.events import types as ev
from minisgl.events.trace import Trace
from minisgl.sim.replay import replay
from tests.events.runs import traces

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
        for kind in (ev.RequestRetracted, ev.RequestRejected, ev.AbortRequested, ev.CacheCleared, ev.PipelineDrained):
            saw[kind.__name__] += bool(trace.of(kind))
        saw["broken"] += any(e.error for e in trace.of(ev.ForwardFinished))
        saw["dropped"] += any(any(e.dropped) for e in trace.of(ev.TokensSampled))

    check()
    assert min(saw.values()) >= saw["runs"] / 100, saw  # each of these in some of them


@settings(max_examples=EXAMPLES // 4)
@given(traces)
def test_through_a_file_and_once_more(trace):
    """A replay is itself a record that can be run again."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        read = Trace.load(trace.save(f"{folder}/run.jsonl.zst"))
    again = replay(read)
    same(trace, again)
    same(again, replay(again))
