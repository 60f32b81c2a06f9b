"""Random runs to be judged: what is submitted, aborted and stepped, on random pools."""

from __future__ import annotations

import contextlib
from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st

from minisgl.errors import PoolTooSmallError, PromptTooLongError
from minisgl.events.recorder import Recorder
from minisgl.events.trace import Trace
from tests.fakes import Run

_submits = st.tuples(st.just("submit"), st.lists(st.integers(0, 1), min_size=1, max_size=14), st.integers(1, 9))
_actions = st.one_of(
    _submits,
    st.tuples(st.just("abort"), st.integers(0, 9)),
    st.tuples(st.just("step")),
    st.tuples(st.just("step")),
    st.tuples(st.just("record")),  # begin the record here, in the middle of things
    st.tuples(st.just("clear_cache")),
    st.tuples(st.just("drain")),
    st.tuples(st.just("change"), st.sampled_from([{"admission": "optimistic"}, {"eviction": "lfu", "phase": "mixed"}])),
    st.tuples(st.just("break"), st.sampled_from(["launch", "collect"])),  # the next batch's forward
)
configs = st.fixed_dictionaries(
    {
        "page_size": st.sampled_from([1, 2, 4]),
        "num_pages": st.integers(6, 18),
        "max_running_requests": st.sampled_from([1, 2, 8]),
        "max_prefill_tokens": st.sampled_from([3, 7, 64]),
        "prefix_cache": st.sampled_from(["radix", "radix", "naive"]),
        "overlap": st.booleans(),
        "order": st.sampled_from(["fcfs", "lpm", "shortest"]),
        "admission": st.sampled_from(["conservative", "optimistic", "optimistic", 0.3]),
        "eviction": st.sampled_from(["lru", "lfu", "fifo"]),
        "phase": st.sampled_from(["prefill-first", "decode-first", "mixed"]),
    }
)
stops = st.sampled_from([(), tuple(range(0, 1000, 7))])  # no token ends a request, or one in seven does


def enact(run: Run, script: list[tuple], recorder: Recorder) -> None:
    """Do what the script says; it may not come to an end."""
    uids: list[int] = []
    for what, *args in script:
        if what == "submit":
            with contextlib.suppress(PoolTooSmallError, PromptTooLongError):
                uids.append(run.submit(args[0], args[1]).uid)
        elif what == "abort" and uids:
            run.scheduler.abort(uids[args[0] % len(uids)])
        elif what == "record":
            recorder.start()
        elif what == "clear_cache":
            run.scheduler.clear_cache()
        elif what == "change":
            run.scheduler.change(**args[0])
        elif what == "drain":
            run.scheduler.drain()
        elif what == "break":
            run.executor.fail_at, run.executor.fail_in = len(run.executor.batches) + 1, args[0]
        elif what == "step":
            run.scheduler.step()


def longest(config: dict) -> int:
    """Tokens of a row that make sense for a pool."""
    return min(48, config["num_pages"] * config["page_size"])


def record(config: dict, stops: tuple[int, ...], script: list[tuple]) -> Trace:
    """Play the script to its end; what the last "record" in it began (by default all) as a Trace."""
    run = Run(stop_tokens=stops, max_seq_len=longest(config), **config)
    recorder = Recorder(run).start()
    enact(run, script, recorder)
    run.play()
    recorder.stop()
    return recorder.trace


_begins = st.sampled_from([[], [], [("step",), ("step",), ("record",)]])  # some records begin with requests under way
scripts = st.builds(
    lambda first, begin, then: first + begin + then,
    st.lists(_submits, max_size=6),
    _begins,
    st.lists(_actions, max_size=25),
)
traces = st.builds(record, configs, stops, scripts)


def all_seen(saw: Counter[str]) -> None:
    """What was counted came up in some runs; not asked of runs that are others each time, where luck would decide."""
    assert min(saw.values()) >= settings.default.derandomize, saw
