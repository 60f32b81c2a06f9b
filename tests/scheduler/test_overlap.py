"""Overlap scheduling: the same tokens, one step later, and nothing given away while a batch in flight uses it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minisgl import Recorder
from minisgl.events import (
    AdmissionTested,
    BatchScheduled,
    CacheCleared,
    ForwardFinished,
    ForwardStarted,
    Handoff,
    PagesAllocated,
    PagesFreed,
    PipelineDrained,
    RequestAdmitted,
    RequestFinished,
    RowReleased,
    StepFinished,
    TokensSampled,
)
from tests.fakes import Run, expected


def overlapping(**settings) -> Run:
    return Run(overlap=True, adversary=1, **settings)


def order(run: Run) -> list[str]:
    """Launches and processings as the oracle writes them."""
    words = {BatchScheduled: "launch", ForwardFinished: "process"}
    return [f"{words[type(e)]} {e.batch}" for e in run.events if type(e) in words]


def received(run: Run, uid: int = 0) -> list[tuple[int, bool]]:
    """What the user gets, token by token, and whether it is the last."""
    kept = [
        token
        for e in run.of(TokensSampled)
        for u, token, dropped in zip(e.uids, e.tokens, e.dropped, strict=True)
        if u == uid and not dropped
    ]
    (end,) = [e for e in run.of(RequestFinished) if e.uid == uid]
    assert end.num_output == len(kept)
    return [(token, i == end.num_output) for i, token in enumerate(kept, 1)]


def test_04_the_oracles_order_and_the_flag_with_the_last_token():
    run = overlapping()
    request = run.submit([1, 2, 3], 3)
    assert run.play() == 4
    assert order(run) == ["launch 1", "launch 2", "process 1", "launch 3", "process 2", "process 3"]
    tokens = expected([1, 2, 3], 3)
    assert request.output_ids == tokens and request.finish_reason == "length"
    assert received(run) == [(tokens[0], False), (tokens[1], False), (tokens[2], True)]
    sampled = run.of(TokensSampled)[-1]
    (ended,) = run.of(RequestFinished)
    assert (sampled.step, sampled.tokens, ended.step) == (4, (tokens[2],), 4)  # the flag comes with the third
    steps = [(e.step, e.launched, e.processed) for e in run.of(StepFinished)]
    assert steps == [(1, 1, None), (2, 2, 1), (3, 3, 2), (4, None, 3)]


def test_events_tell_launch_from_completion():
    run = overlapping()
    run.submit([1, 2, 3], 2)
    run.play()
    words = {BatchScheduled: "scheduled", ForwardStarted: "started", ForwardFinished: "finished"}
    assert [(words[type(e)], e.batch, e.step) for e in run.events if type(e) in words] == [
        *(("scheduled", 1, 1), ("started", 1, 1)),
        *(("scheduled", 2, 2), ("started", 2, 2), ("finished", 1, 2)),
        ("finished", 2, 3),
    ]


def test_03_a_stop_token_is_seen_one_step_late_and_nothing_follows_it():
    tokens = expected([1, 2, 3], 8)
    run = overlapping(stop_tokens=(tokens[2],))
    request = run.submit([1, 2, 3], 8)
    run.play()
    assert request.output_ids == tokens[:3] and request.finish_reason == "stop"
    assert received(run) == [(tokens[0], False), (tokens[1], False), (tokens[2], True)]
    extra = run.of(TokensSampled)[-1]
    assert (extra.batch, extra.tokens, extra.dropped) == (4, (tokens[3],), (True,))  # computed, recorded, not given
    (ended,), (row,) = run.of(RequestFinished), run.of(RowReleased)
    assert row.step == ended.step + 1 == extra.step
    assert run.scheduler.idle and run.scheduler.cache.pending == 0


@pytest.mark.parametrize("steps", range(1, 5))
@pytest.mark.parametrize("adversary", range(5))
def test_05_abort_while_in_flight(steps, adversary):
    run = Run(overlap=True, adversary=adversary, num_pages=40, max_seq_len=20)
    victim, other = run.submit([1, 2, 3, 4], 6), run.submit([9, 8, 7, 6, 5], 6)
    for _ in range(steps):
        run.scheduler.step()
    run.scheduler.abort(victim.uid)
    run.scheduler.step()
    assert victim.finished and victim.finish_reason == "abort" and victim.row == -1
    late = [run.submit([30 + i, 31, 32], 5) for i in range(3)]
    run.play()
    assert other.output_ids == expected([9, 8, 7, 6, 5], 6)
    assert [r.output_ids for r in late] == [expected([30 + i, 31, 32], 5) for i in range(3)]
    freed = [page for e in run.of(PagesFreed) for page, uid in zip(e.pages, e.uids, strict=True) if uid == victim.uid]
    assert len(freed) == len(set(freed)) and freed  # once
    rows = [e.row for e in run.of(RowReleased) if e.uid == victim.uid]
    assert len(rows) == 1
    cache = run.scheduler.cache
    assert cache.free + cache.prefix.evictable == 40 and run.scheduler.table.num_free == 8


@pytest.mark.parametrize("adversary", range(10))
def test_06_a_row_is_not_given_away_while_the_extra_step_writes_to_it(adversary):
    first = expected([5], 4)
    run = Run(overlap=True, adversary=adversary, max_running_requests=1, stop_tokens=(first[1],))
    prompts = [[5], [300, 301, 302, 303], [300, 301, 302, 303, 9]]
    requests = [run.submit(p, 4) for p in prompts]
    run.play()
    stop = frozenset(run.scheduler.inbox.stop_tokens)
    assert [r.output_ids for r in requests] == [expected(p, 4, stop) for p in prompts]
    released, admitted = run.of(RowReleased), run.of(RequestAdmitted)
    extra = next(e for e in run.of(TokensSampled) if any(e.dropped))
    assert released[0].step >= extra.step and admitted[1].step > released[0].step
    assert run.of(RequestAdmitted)[2].cached_len == 4  # and the tree kept the right KV


def test_pages_named_by_a_batch_in_flight_are_pending_and_owned():
    stop = expected([1, 2, 3], 3)[1]
    run = overlapping(stop_tokens=(stop,), prefix_cache="naive")
    run.submit([1, 2, 3], 8)
    for _ in range(3):
        event = run.scheduler.step()
    assert (event.pending_pages, event.owned_pages, event.running) == (5, 5, 0)
    (handoff,) = [e for e in run.of(Handoff) if e.finished]
    assert handoff.pending
    snap = run.snapshot()
    assert snap.requests[0].status == "finished" and snap.requests[0].row == 0
    assert sorted(snap.requests[0].pending) == [0, 1, 2, 3, 4]
    event = run.scheduler.step()
    assert (event.pending_pages, event.owned_pages, event.free_pages) == (0, 0, 64)


def test_duplicates_stay_readable_until_the_batch_in_flight_is_done():
    """Two equal prompts: at the handoff the second's copies are still read by its first decode."""
    run = overlapping()
    requests = [run.submit([1, 2, 3, 4], 6), run.submit([1, 2, 3, 4], 6)]
    run.scheduler.step()
    event = run.scheduler.step()
    assert event.pending_pages == 4 and run.of(PagesFreed) == []
    run.scheduler.step()
    (freed,) = run.of(PagesFreed)
    assert (freed.step, freed.uids) == (3, (1, 1, 1, 1))
    run.play()
    assert [r.output_ids for r in requests] == [expected([1, 2, 3, 4], 6)] * 2


def test_an_allocation_that_needs_pending_pages_drains_the_pipeline():
    stop = expected([1, 2, 3], 3)[1]
    run = overlapping(stop_tokens=(stop,), prefix_cache="naive", num_pages=8, max_seq_len=8)
    first, second = run.submit([1, 2, 3], 4), run.submit([4, 5, 6, 7, 8], 2)
    run.play()
    assert second.output_ids == expected([4, 5, 6, 7, 8], 2, frozenset([stop]))
    assert first.output_ids == expected([1, 2, 3], 2)
    (drain,) = run.of(PipelineDrained)
    tested = [e for e in run.of(AdmissionTested) if e.uid == 1 and e.verdict == "admitted"]
    assert [(e.step, e.free, e.pending, e.available) for e in tested] == [(drain.step, 3, 5, 8)]
    assert (drain.reason, drain.batch, drain.short, drain.pending) == ("pages", 3, 2, 5)
    of_step = [type(e) for e in run.events if e.step == drain.step]
    assert of_step.index(PipelineDrained) < of_step.index(PagesFreed) < of_step.index(PagesAllocated)
    ended = [e for e in run.of(StepFinished) if e.step == drain.step]
    assert [(e.launched, e.processed) for e in ended] == [(4, 3)]


def test_a_drain_may_end_a_request_that_was_about_to_be_launched():
    """The batch waited for breaks: the prompt of which it computed a chunk ends, and must not be launched again."""
    run = overlapping(prefix_cache="naive", num_pages=14, max_seq_len=14, max_prefill_tokens=8)
    aborted, chunked = run.submit([1, 2, 3, 4], 1), run.submit(list(range(10, 18)), 1)
    run.executor.fail_at, run.executor.fail_in = 1, "collect"
    run.scheduler.step()
    run.scheduler.abort(aborted.uid)
    last = run.submit([5, 6, 7, 8], 1)  # fits into what the aborted one gives back
    run.scheduler.step()
    (drain,) = run.of(PipelineDrained)
    assert (drain.step, drain.short, drain.pending) == (2, 2, 4)
    assert [e.uids for e in run.of(BatchScheduled)] == [(0, 1), (2,)]
    run.play()
    assert (aborted.finish_reason, chunked.finish_reason) == ("abort", "error")
    assert last.output_ids == expected([5, 6, 7, 8], 1)
    assert run.scheduler.cache.free == 14


def test_a_finished_requests_prefix_stays_locked_while_a_batch_in_flight_reads_it():
    """It stopped, its KV is in the cache, and the step after its last still attends to it: nobody may have it yet."""
    stop = expected([1, 2, 3], 3)[1]
    run = overlapping(stop_tokens=(stop,), num_pages=8, max_seq_len=8)
    run.submit([1, 2, 3], 4)
    for _ in range(3):
        event = run.scheduler.step()
    assert (event.running, event.protected_pages, event.evictable_pages, event.pending_pages) == (0, 4, 0, 1)
    second = run.submit([4, 5, 6, 7, 8], 2)  # needs pages of that prefix
    event = run.scheduler.step()
    assert (event.waiting, event.protected_pages, event.evictable_pages) == (1, 0, 4)
    run.play()
    assert second.output_ids == expected([4, 5, 6, 7, 8], 2, frozenset([stop]))


@pytest.mark.parametrize("where", ["launch", "collect"])
@pytest.mark.parametrize("fail_at", [1, 2, 3])
def test_a_failed_forward_with_another_in_flight(where, fail_at):
    run = overlapping(num_pages=32, max_seq_len=32)
    broken = [run.submit([1, 2, 3], 5), run.submit([1, 2, 3], 5)]
    run.executor.fail_at, run.executor.fail_in = fail_at, where
    run.play()
    assert all(r.finish_reason == "error" for r in broken)
    assert all(r.output_ids == expected([1, 2, 3], 5)[: len(r.output_ids)] for r in broken)
    again = run.submit([1, 2, 3], 5)
    run.play()
    assert again.output_ids == expected([1, 2, 3], 5)
    cache = run.scheduler.cache
    assert cache.free + cache.prefix.evictable == 32 and run.scheduler.idle


def test_a_recorder_attached_in_mid_flight_drains_first():
    run = overlapping()
    request = run.submit([1, 2, 3], 6)
    run.scheduler.step()
    run.scheduler.step()
    with Recorder(run) as recorder:
        (drain,) = run.of(PipelineDrained)
        assert (drain.step, drain.reason, drain.batch) == (3, "snapshot", 2)
        assert run.of(StepFinished)[-1].launched is None
        run.play()
    trace = recorder.trace
    assert trace.history.first == 3
    for step in range(3, trace.history.last + 1):
        assert trace.at(step).requests[0].output == expected([1, 2, 3], 6)[: len(trace.at(step).requests[0].output)]
    assert trace.at(trace.history.last).differences(run.snapshot()) == []
    assert request.output_ids == expected([1, 2, 3], 6)


def test_draining_an_empty_pipeline_is_no_step():
    run = overlapping()
    run.scheduler.drain()
    assert run.events == [] and run.scheduler.steps == 0


def test_clear_cache():
    run = overlapping()
    run.submit([1, 2, 3, 4], 2)
    run.play()
    busy = run.submit([5, 6, 7], 8)
    for _ in range(3):
        run.scheduler.step()
    run.scheduler.clear_cache()
    run.scheduler.step()
    (cleared,) = run.of(CacheCleared)
    assert (cleared.evicted, cleared.kept) == (5, 3)
    run.play()
    again = run.submit([1, 2, 3, 4], 2)
    run.play()
    assert again.matched == 0 and again.output_ids == expected([1, 2, 3, 4], 2)
    assert busy.output_ids == expected([5, 6, 7], 8)


configs = st.fixed_dictionaries(
    {
        "page_size": st.sampled_from([1, 2, 4, 16]),
        "num_pages": st.integers(8, 24),
        "max_running_requests": st.sampled_from([1, 2, 4]),
        "max_prefill_tokens": st.sampled_from([3, 16, 64]),
        "prefix_cache": st.sampled_from(["radix", "naive"]),
    }
)
prompts = st.lists(st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=12), st.integers(1, 8)), max_size=10)


@settings(max_examples=200, deadline=None)
@given(configs, prompts, st.sets(st.integers(0, 999), max_size=300).map(tuple), st.integers(0, 99))
def test_on_or_off_the_tokens_are_the_same(config, prompts, stop, adversary):
    outputs = []
    longest = min(20, config["num_pages"] * config["page_size"])
    for way in ({}, {"overlap": True, "adversary": adversary}):
        run = Run(stop_tokens=stop, max_seq_len=longest, **config, **way)
        fitting = [(p, n) for p, n in prompts if len(p) < run.config.max_seq_len]
        requests = [run.submit(p, n) for p, n in fitting]
        run.play()
        outputs.append([(r.output_ids, r.finish_reason) for r in requests])
    assert outputs[0] == outputs[1]
