"""Small inputs that broke other engines. Right is what the same requests give alone, with no cache and a large pool."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from minisgl.core import SamplingParams
from minisgl.errors import (
    EmptyPromptError,
    LedgerError,
    PoolTooSmallError,
    PromptTooLongError,
    RequestError,
    SamplingParamsError,
    TokenOutOfVocabularyError,
    UnknownRequestError,
)
from minisgl.events import (
    AbortRequested,
    AdmissionTested,
    BatchScheduled,
    PagesEvicted,
    RequestFinished,
    RequestRejected,
    StepFinished,
    TokensSampled,
)
from tests import fakes
from tests.fakes import VOCAB, Run, expected


@pytest.fixture(autouse=True, params=[False, True], ids=["in turn", "overlap"])
def overlap(request, monkeypatch):
    monkeypatch.setitem(fakes.DEFAULTS, "overlap", request.param)
    return request.param


def test_01_duplicates_in_one_batch_in_a_tight_pool():
    run = Run(num_pages=8, max_seq_len=8)
    prompts = [[100, 101], [100, 101], [500, 501]]
    requests = [run.submit(p, 2) for p in prompts]
    run.play()
    assert [r.output_ids for r in requests] == [expected(p, 2) for p in prompts]


def test_02_duplicates_and_a_third():
    run = Run(num_pages=100)
    a = list(range(20))
    requests = [run.submit(a, 30), run.submit(a, 30), run.submit(list(range(50, 60)), 10)]
    run.play()
    assert [r.output_ids for r in requests] == [expected(a, 30), expected(a, 30), expected(list(range(50, 60)), 10)]


def test_a_read_only_view_of_what_can_be_written_is_copied():
    tokens = np.array([1, 2, 3], np.int32)
    view = tokens[:]
    view.flags.writeable = False
    request = Run().submit(view, 2)
    tokens[0] = 9
    assert request.prompt.tolist() == [1, 2, 3]


def test_an_idle_engine_keeps_nobody():
    run = Run()
    request = run.submit([1, 2, 3], 4)
    run.play()
    assert [o for o in gc.get_referrers(request) if isinstance(o, list | tuple | dict)] == []


def test_stop_token_ends_a_request():
    free = expected([1, 2, 3], 8)
    run = Run(stop_tokens=(free[2],))
    stops = run.submit([1, 2, 3], 8)
    ignores = run.submit([1, 2, 3], 8, ignore_eos=True)
    own = run.submit([1, 2, 3], 8, ignore_eos=True, stop_token_ids=(free[4],))
    run.play()
    assert (stops.output_ids, stops.finish_reason) == (free[:3], "stop")
    assert (ignores.output_ids, ignores.finish_reason) == (free, "length")
    assert (own.output_ids, own.finish_reason) == (free[:5], "stop")


def test_09_params_are_clamped_per_request_and_never_changed():
    run = Run(max_seq_len=32, num_pages=64)
    params = SamplingParams(max_tokens=20)
    long, short = run.scheduler.submit(list(range(30)), params), run.scheduler.submit([1, 2, 3], params)
    run.play()
    assert (len(long.output_ids), len(short.output_ids), params.max_tokens) == (2, 20, 20)


def test_10_a_page_from_the_cache_is_whole():
    run = Run(page_size=4, num_pages=4, max_seq_len=16)
    run.submit(list(range(8)), 1)
    run.play()
    taken = run.scheduler.cache.allocator.allocate(2)
    assert taken == [2, 3] and run.scheduler.cache.prefix.evictable == 2
    prompt = [50, 51]
    request = run.scheduler.submit(prompt, SamplingParams(max_tokens=1))
    run.scheduler._check = None  # two pages were taken behind the ledgers' back
    run.play()
    assert request.output_ids == expected(prompt, 1)
    assert run.executor.page_table[0, :4].tolist() == [0, 1, 2, 3]  # one whole page, aligned


def test_14_a_request_that_can_never_fit_is_refused_with_the_numbers():
    run = Run(page_size=4, num_pages=2, max_seq_len=32)
    with pytest.raises(PoolTooSmallError, match=r"need 3 pages of 4 and the pool has 2"):
        run.submit(list(range(8)), 4)
    assert run.scheduler.cache.free == 2


def test_15_a_refilled_page_is_not_mistaken_for_its_old_content():
    run = Run(num_pages=8, max_seq_len=8)
    for prompt in ([1, 2, 3, 4], [5, 6, 7, 8], [1, 2, 3, 4]):
        request = run.submit(prompt, 3)
        run.play()
        assert request.output_ids == expected(prompt, 3)
    assert run.of(BatchScheduled)[-3].starts == (0,)  # a miss


@pytest.mark.parametrize("page_size", [1, 4])
def test_16_two_identical_prompts_in_chunks(page_size):
    run = Run(page_size=page_size, num_pages=64, max_prefill_tokens=8)
    prompt = list(range(30))
    requests = [run.submit(prompt, 5), run.submit(prompt, 5)]
    run.play()
    assert [r.output_ids for r in requests] == [expected(prompt, 5)] * 2


@pytest.mark.parametrize("abort_after", [1, 2, 3])
def test_17_prefilled_again_across_a_page_border(abort_after):
    run = Run(page_size=256, num_pages=8, max_seq_len=512, max_prefill_tokens=128)
    prompt = [i % 997 for i in range(257)]
    first = run.submit(prompt, 3)
    for _ in range(abort_after):
        run.scheduler.step()
    run.scheduler.abort(first.uid)
    again = run.submit(prompt, 3)
    run.play()
    assert first.finish_reason == "abort" and again.output_ids == expected(prompt, 3)


@pytest.mark.parametrize(
    ("prompt", "params", "error", "says"),
    [
        ([], {}, EmptyPromptError, "no tokens"),
        ([1], {"max_tokens": 0}, SamplingParamsError, "max_tokens=0"),
        ([1], {"max_tokens": -1}, SamplingParamsError, "max_tokens=-1"),
        ([1], {"temperature": float("nan")}, SamplingParamsError, "temperature=nan"),
        ([1], {"temperature": -0.5}, SamplingParamsError, "temperature=-0.5"),
        ([1], {"top_p": 0.0}, SamplingParamsError, "top_p=0.0"),
        ([1], {"top_k": 0}, SamplingParamsError, "top_k=0"),
        ([1, VOCAB], {}, TokenOutOfVocabularyError, f"token {VOCAB} at position 1"),
        ([-1], {}, TokenOutOfVocabularyError, "token -1"),
        (list(range(128)), {}, PromptTooLongError, "128 tokens and max_seq_len is 128"),
        (list(range(60)), {"max_tokens": 60}, PoolTooSmallError, "need 120 pages of 1 and the pool has 64"),
    ],
)
def test_19_20_a_bad_request_fails_alone(prompt, params, error, says):
    run = Run()
    before = run.submit([1, 2], 4)
    with pytest.raises(error, match=says) as caught:
        run.scheduler.submit(prompt, SamplingParams(**params))
    after = run.submit([3, 4], 4)
    run.play()
    assert isinstance(caught.value, RequestError) and caught.value.uid == 1
    assert (before.output_ids, after.output_ids) == (expected([1, 2], 4), expected([3, 4], 4))
    assert [(e.uid, e.error) for e in run.of(RequestRejected)] == [(1, error.__name__)]
    assert after.uid == 2  # uids are never reused


def test_23_calls_do_not_mix():
    run = Run()
    first = run.submit([1, 2, 3], 4)
    run.play()
    second = run.submit([1, 2, 3], 4)
    run.play()
    assert (first.uid, second.uid) == (0, 1) and first.output_ids == second.output_ids == expected([1, 2, 3], 4)


def test_27_exactly_as_large_as_the_pool(overlap):
    run = Run(num_pages=16, max_seq_len=32)
    prompt = list(range(10))
    request = run.submit(prompt, 6)
    assert run.play() == 6 + overlap
    assert request.output_ids == expected(prompt, 6)


class TestAbort:
    @pytest.mark.parametrize("steps", range(8))
    @pytest.mark.parametrize("budget", [3, 100])
    def test_at_any_step(self, steps, budget):
        run = Run(max_prefill_tokens=budget, num_pages=32, max_seq_len=32)
        victim, other = run.submit([1, 2, 3, 4], 6), run.submit([9, 8, 7, 6, 5], 6)
        for _ in range(steps):
            run.scheduler.step()
        ended = victim.finished
        run.scheduler.abort(victim.uid)
        run.play()
        assert victim.finish_reason == ("length" if ended else "abort")
        assert victim.output_ids == expected([1, 2, 3, 4], 6)[: len(victim.output_ids)]
        assert other.output_ids == expected([9, 8, 7, 6, 5], 6)
        cache = run.scheduler.cache
        assert cache.free + cache.prefix.evictable == 32 and cache.reserved == 0 and run.scheduler.table.num_free == 8
        assert run.scheduler.idle

    def test_of_the_last_request_is_a_step_of_its_own(self, overlap):
        run = Run()
        request = run.submit([1, 2, 3], 6)
        run.scheduler.step()
        run.scheduler.abort(request.uid)
        event = run.scheduler.step()
        phase = "prefill" if overlap else "idle"  # with overlap there was a batch to process
        assert (event.step, event.phase, event.owned_pages, event.running) == (2, phase, 0, 0)
        assert next(type(e) for e in run.events if e.step == 2) is AbortRequested
        assert run.scheduler.step() is None

    def test_gives_row_and_pages_to_who_is_admitted_in_the_same_step(self):
        run = Run(num_pages=12, max_seq_len=12, max_running_requests=1, prefix_cache="naive", overlap=False)
        first, second = run.submit([1, 2, 3, 4], 8), run.submit([5, 6, 7, 8], 8)
        run.scheduler.step()
        run.scheduler.abort(first.uid)
        event = run.scheduler.step()
        assert (event.uids, event.free_pages) == ((second.uid,), 8)

    def test_of_one_that_never_was(self):
        run = Run()
        with pytest.raises(UnknownRequestError, match="no request has uid 0"):
            run.scheduler.abort(0)

    def test_twice_or_after_the_end_does_nothing(self):
        run = Run()
        request = run.submit([1, 2, 3], 2)
        run.scheduler.abort(request.uid)
        run.scheduler.abort(request.uid)
        run.play()
        run.scheduler.abort(request.uid)
        assert len(run.of(RequestFinished)) == 1


class TestBrokenForward:
    """A forward that raises ends its own requests, with what had been computed before it; the rest stays right."""

    @pytest.mark.parametrize("where", ["launch", "collect"])
    @pytest.mark.parametrize(("budget", "fail_at"), [(100, 1), (100, 2), (100, 4), (2, 1), (2, 2), (2, 3)])
    def test_ends_its_own_requests_only(self, where, budget, fail_at):
        run = Run(num_pages=32, max_running_requests=1, max_prefill_tokens=budget)
        broken, waiting = run.submit([1, 2, 3], 4), run.submit([4, 5, 6], 4)
        run.executor.fail_at, run.executor.fail_in = fail_at, where
        run.play()
        assert broken.finish_reason == "error" and isinstance(broken.error, RuntimeError)
        assert broken.output_ids == expected([1, 2, 3], 4)[: len(broken.output_ids)]
        assert [e.error for e in run.of(RequestFinished)] == ["RuntimeError: the device is gone", ""]
        assert waiting.output_ids == expected([4, 5, 6], 4)
        again = run.submit([1, 2, 3], 4)
        run.play()
        assert again.output_ids == expected([1, 2, 3], 4)
        assert [e.step for e in run.of(StepFinished)] == list(range(1, run.scheduler.steps + 1))

    @pytest.mark.parametrize("where", ["launch", "collect"])
    def test_a_broken_rule_of_our_own_is_no_broken_forward(self, where, monkeypatch):
        run = Run()
        run.submit([1, 2, 3], 4)

        def broken(*args):
            raise LedgerError("two owners")

        monkeypatch.setattr(run.executor, where, broken)
        with pytest.raises(LedgerError, match="two owners"):
            run.play()

    def test_the_poison_it_carried_is_not_lost(self):
        run = Run(prefix_cache="naive")
        run.submit([1, 2, 3], 1)
        run.play()  # three pages are free again
        run.executor.fail_at = run.scheduler.batches + 1
        run.submit([4], 1)
        run.play()
        run.submit([5], 1)
        run.play()
        failed, next_one = run.executor.batches[-2:]
        assert set(failed.poison) == {0, 1, 2} <= set(next_one.poison)

    def test_the_writes_it_carried_for_others_are_not_lost(self):
        """The second of two equal prompts has its row rewritten, and the batch that was to tell the device fails."""
        run = Run(num_pages=26, max_seq_len=26)
        prompt = [1, 2, 3, 4, 5, 6]
        requests = [run.submit(prompt, 6), run.submit(prompt, 6)]
        run.scheduler.step()
        run.executor.fail_at = 2
        run.submit([7, 8], 2)
        run.scheduler.step()
        run.submit(list(range(50, 58)), 2)  # takes the pages that the second gave up
        run.play()
        assert [r.output_ids for r in requests] == [expected(prompt, 6)] * 2


def test_a_hook_may_abort_but_not_step(capsys):
    run = Run()
    request = run.submit([1, 2, 3], 6)
    run.scheduler.bus.on(BatchScheduled, lambda e: run.scheduler.step())
    run.scheduler.bus.on(TokensSampled, lambda e: run.scheduler.abort(request.uid) if e.batch == 3 else None)
    run.play()
    assert "a hook may submit and abort, but not step" in capsys.readouterr().err
    assert request.output_ids == expected([1, 2, 3], 6)[:3] and request.finish_reason == "abort"


@pytest.mark.parametrize("given", [[4, 2], {2, 4}, (2, 4), range(2, 5, 2)])
def test_stop_token_ids_may_be_any_collection(given):
    assert set(SamplingParams(stop_token_ids=given).stop_token_ids) == {2, 4}


@pytest.mark.parametrize("given", [5, None, ["a"], "ab"])
def test_stop_token_ids_that_are_none(given):
    with pytest.raises(SamplingParamsError, match="stop_token_ids"):
        SamplingParams(stop_token_ids=given).validate()


def test_every_verdict():
    """Each reason to wait, and that a batch without budget takes nobody in."""
    run = Run(num_pages=40, max_seq_len=40, max_running_requests=2, max_prefill_tokens=8)
    for prompt, new in (([6] * 8, 2), ([2, 3], 2), ([4, 5], 2), ([1] * 20, 2), ([7] * 20, 19), ([8], 5), ([9, 9], 20)):
        run.submit(prompt, new)
    run.play()
    tested = {e.verdict for e in run.of(AdmissionTested)}
    assert tested == {"admitted", "chunk", "row", "budget", "pages"}
    known = {"chunk": (None, None), "row": (0, None), "budget": (1, 0)}  # free rows and budget, as far as was asked
    for event in run.of(AdmissionTested):
        if event.verdict in known:
            assert (event.free_rows, event.budget) == known[event.verdict] and event.need is None
        else:
            assert event.free_rows and event.budget and event.need
    computed = {}
    for event in run.of(BatchScheduled):
        assert event.phase == "decode" or 0 < event.num_tokens <= 8
        for uid, start, end in zip(event.uids, event.starts, event.ends, strict=True):
            assert start < end and start == computed.get(uid, start)  # no gap, nothing twice, nothing empty
            computed[uid] = end


def test_a_rows_generation_grows():
    run = Run(max_running_requests=1)
    for expected_generation in (1, 2, 3):
        request = run.submit([1, 2], 2)
        run.scheduler.step()
        assert (request.row, request.generation) == (0, expected_generation)
        run.play()
    assert run.scheduler.snapshot().rows[0].generation == 3


def test_an_eviction_lets_a_refused_head_be_tested_again():
    run = Run(num_pages=16, max_seq_len=16)
    run.submit([1, 2, 3, 4, 5, 6, 7, 8], 1)
    run.play()
    run.submit([50, 51], 12)
    run.submit([60, 61], 5)
    run.play()
    evicted = [e.step for e in run.of(PagesEvicted)]
    assert evicted
    for step in evicted:
        assert any(e.step == step + 1 for e in run.of(AdmissionTested)) or step > max(
            e.step for e in run.of(AdmissionTested)
        )


def test_a_refused_head_is_not_tested_again_while_others_decode(overlap):
    run = Run(num_pages=20, max_seq_len=20, prefix_cache="naive")
    run.submit([1, 2, 3], 10)
    run.submit([4, 5, 6], 10)
    run.play()
    assert [(e.step, e.uid, e.verdict) for e in run.of(AdmissionTested)] == [
        (1, 0, "admitted"),
        (1, 1, "pages"),
        (2 + overlap, 1, "pages"),  # request 0's handoff came between; after that nothing but decoding
        (11 + overlap, 1, "admitted"),
    ]


def test_the_second_test_is_after_the_lock():
    """A matched prefix that is evictable counts until it is locked: then it no longer can be had."""
    run = Run(num_pages=20, max_seq_len=20)
    run.submit(list(range(8)), 1)  # leaves 8 pages cached
    run.play()
    run.submit([50, 51], 8)  # promised 10; 2 + 8 left of 20, of which 8 cached
    run.scheduler.step()
    run.submit([*list(range(8)), 99, 98], 3)  # matches 8, needs 5
    run.scheduler.step()
    refused = run.of(AdmissionTested)[-1]
    assert (refused.verdict, refused.matched, refused.need) == ("pages", 8, 5)
    assert refused.need + refused.reserved <= refused.available
    assert refused.need + refused.reserved > refused.available_locked
    run.play()


@pytest.mark.parametrize("what", ["an arrival", "an empty cache"])
def test_what_lets_a_refused_head_be_tested_again(what):
    run = Run(num_pages=20, max_seq_len=20)
    run.submit([1, 2, 3], 10)
    run.submit([4, 5, 6], 10)
    for _ in range(4):
        run.scheduler.step()
    before = len(run.of(AdmissionTested))
    run.scheduler.step()
    assert len(run.of(AdmissionTested)) == before
    if what == "an arrival":
        run.submit([7, 8, 9], 10)
    else:
        run.scheduler.clear_cache()
    run.scheduler.step()
    assert len(run.of(AdmissionTested)) == before + 1


def test_freed_and_evicted_pages_are_poisoned_with_the_next_batch():
    run = Run(num_pages=8, max_seq_len=8)
    run.submit([1, 2, 3, 4], 2)  # leaves its first 5 tokens cached
    run.play()
    assert [page for batch in run.executor.batches for page in batch.poison] == []
    run.submit([5, 6, 7, 8, 9], 2)  # takes the last 3 pages and 2 of those
    run.play()
    (evicted,) = run.of(PagesEvicted)
    assert [page for batch in run.executor.batches for page in batch.poison] == list(evicted.pages)


def test_with_check_a_wrong_ledger_stops_the_step_that_made_it():
    run = Run(check=True)
    run.submit([1, 2, 3], 4)
    run.scheduler.step()
    run.scheduler.running[0].pages[0] = 30
    with pytest.raises(LedgerError, match="after step 2"):
        run.scheduler.step()


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_same_input_gives_the_same_events(order):
    def events():
        run = Run(page_size=2, num_pages=16, max_seq_len=24, max_prefill_tokens=7)
        for i in range(6):
            run.submit([i % 2, 1, 2, 3, 4, i], 5)
            if i % order == 0:
                run.scheduler.step()
        run.play()
        return run.events

    assert events() == events()
