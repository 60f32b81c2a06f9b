"""Random runs: whatever is submitted, aborted and evicted, every request gives what it gives alone."""

from __future__ import annotations

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from minisgl.core import pages_for
from minisgl.errors import PoolTooSmallError, PromptTooLongError
from minisgl.events import BatchScheduled, History
from minisgl.events.integrity import violations
from minisgl.events.state import undo_delta
from tests.fakes import VOCAB, Run, expected

page_sizes = st.sampled_from([1, 2, 4, 16, 64])
prompts = st.lists(st.integers(0, 2), min_size=1, max_size=30)
actions = st.one_of(
    st.tuples(st.just("submit"), prompts, st.integers(1, 20)),
    st.tuples(st.just("abort"), st.integers(0, 9)),
    st.tuples(st.just("step")),
)
configs = st.fixed_dictionaries(
    {
        "page_size": page_sizes,
        "num_pages": st.integers(2, 40),
        "max_running_requests": st.sampled_from([1, 2, 8]),
        "max_prefill_tokens": st.sampled_from([1, 3, 7, 16, 64]),
        "prefix_cache": st.sampled_from(["radix", "radix", "naive"]),
        "overlap": st.booleans(),
        "adversary": st.integers(0, 9),
    }
)


def play(config, stop, script):
    run = Run(stop_tokens=stop, max_seq_len=min(64, config["num_pages"] * config["page_size"]), **config)
    requests, aborted = [], set()
    history = History(run.scheduler.snapshot().to_dict())
    run.scheduler.bus.on(None, history.feed)
    for what, *args in script:
        if what == "submit":
            with contextlib.suppress(PoolTooSmallError, PromptTooLongError):
                requests.append((args[0], run.submit(args[0], args[1])))
        elif what == "abort" and requests:
            request = requests[args[0] % len(requests)][1]
            run.scheduler.abort(request.uid)
            aborted.add(request.uid)
        else:
            run.scheduler.step()
    run.play()
    return run, requests, aborted, history


@settings(max_examples=300, deadline=None)
@given(configs, st.sets(st.integers(0, VOCAB - 1), max_size=300).map(tuple), st.lists(actions, max_size=40))
def test_outputs_and_ledgers(config, stop, script):
    run, requests, aborted, history = play(config, stop, script)
    for prompt, request in requests:
        alone = expected(prompt, request.max_tokens, request.stop_tokens)
        if request.uid in aborted:
            assert request.output_ids == alone[: len(request.output_ids)]
        else:
            assert request.output_ids == alone
    cache = run.scheduler.cache
    assert run.scheduler.idle and cache.reserved == 0
    assert cache.free + cache.prefix.evictable == cache.num_pages
    assert run.scheduler.table.num_free == run.config.max_running_requests

    # the record goes both ways, and says at every step that the books are sound
    assert all(not s["violations"] for s in history.steps)
    state = history.at(history.last).to_dict()
    for step in range(history.last, 0, -1):
        assert violations(state) == []
        undo_delta(state, history.deltas[step - 1])
    assert state == history.at(0).to_dict()

    # every computed token once, in whole, and never more than the budget
    for event in run.of(BatchScheduled):
        if event.phase == "prefill":
            assert event.num_tokens <= run.config.max_prefill_tokens
        assert event.free_pages + event.evictable_pages + event.pending_pages >= event.reserved_pages
        for end, uid in zip(event.ends, event.uids, strict=True):
            assert pages_for(end, run.config.page_size) <= run.config.num_pages, uid
