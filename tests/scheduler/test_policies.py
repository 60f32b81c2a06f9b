"""Policies, one by one: each does what it says, and none of them changes a token."""

from __future__ import annotations

from itertools import pairwise

import pytest

from minisgl.core import Request
from minisgl.events import (
    AdmissionTested,
    BatchScheduled,
    PagesFreed,
    RequestAdmitted,
    RequestFinished,
    RequestRetracted,
    RowReleased,
    TokensSampled,
)
from minisgl.scheduler import prefill
from tests.fakes import Run, expected

HOW = {
    "in turn": {},
    "overlap": {"overlap": True},
    "adversary 1": {"overlap": True, "adversary": 1},
    "adversary 2": {"overlap": True, "adversary": 2},
}


@pytest.fixture(params=HOW.values(), ids=HOW.keys())
def make(request):
    """A Run with settings, whose requests must end with the tokens that each gives alone."""
    runs: list[tuple[Run, list[Request]]] = []

    def make(**settings) -> tuple[Run, list[Request]]:
        run, requests = Run(**request.param, **settings), []
        runs.append((run, requests))
        return run, requests

    yield make
    for run, requests in runs:
        run.play()
        assert requests and run.scheduler.idle
        for r in requests:
            assert r.output_ids == expected(r.prompt.tolist(), r.max_tokens), r


def order(run: Run) -> list[int]:
    """Who was admitted, in this order."""
    return [e.uid for e in run.of(RequestAdmitted)]


def most_at_once(run: Run) -> int:
    return max(len(e.uids) for e in run.of(BatchScheduled))


def received(run: Run, uid: int) -> list[int]:
    return [
        token
        for e in run.of(TokensSampled)
        for u, token, dropped in zip(e.uids, e.tokens, e.dropped, strict=True)
        if u == uid and not dropped
    ]


def test_every_policy_is_known_by_its_name():
    run = Run(order="lpm", phase="mixed", eviction="lfu", admission=0.25)
    assert "eviction" in repr(run.config) and run.scheduler.prefill.share == 0.25


class TestOrder:
    def one_at_a_time(self, make, policy, prompts, before=()) -> list[int]:
        """Somebody is at work in the only row; the prompts, with their max_tokens, wait. In which order do they go?"""
        run, requests = make(max_running_requests=1, order=policy)
        for prompt in before:
            requests.append(run.submit(prompt, 2))
            run.play()
        requests.append(run.submit([900], 3))
        run.scheduler.step()
        first = len(requests)
        requests += [run.submit(prompt, n) for prompt, n in prompts]
        run.play()
        return [uid - first for uid in order(run)[first:]]

    PROMPTS = (([50, 51, 52, 53], 9), ([1, 2, 3, 77], 8), ([60, 61], 4), ([1, 2, 3, 4, 5, 78], 5), ([70, 71], 4))

    def test_fcfs(self, make):
        assert self.one_at_a_time(make, "fcfs", self.PROMPTS, before=[[1, 2, 3, 4, 5, 6]]) == [0, 1, 2, 3, 4]

    def test_lpm_takes_who_has_most_in_the_cache(self, make):
        assert self.one_at_a_time(make, "lpm", self.PROMPTS, before=[[1, 2, 3, 4, 5, 6]]) == [3, 1, 0, 2, 4]

    def test_lpm_looks_anew_for_each_admission(self, make):
        """Who comes second may share with who came first."""
        prompts = (([50, 51, 52, 53], 2), ([60, 61], 2), ([50, 51, 52, 99], 2))
        assert self.one_at_a_time(make, "lpm", prompts) == [0, 2, 1]

    def test_shortest_counts_what_may_be_generated_as_well(self, make):
        assert self.one_at_a_time(make, "shortest", self.PROMPTS) == [2, 4, 3, 1, 0]

    def test_an_order_may_be_put_in_from_outside(self):
        run = Run(max_running_requests=1)
        run.scheduler.prefill.order = lambda waiting, matched: len(waiting) - 1  # last come, first served
        for i in range(4):
            run.submit([i], 2)
        run.play()
        assert order(run) == [3, 2, 1, 0]

    @pytest.mark.parametrize("policy", ["lpm", "shortest"])
    def test_who_is_passed_over_too_often_is_next(self, make, policy, monkeypatch):
        monkeypatch.setattr(prefill, "PATIENCE", 2)
        run, requests = make(max_running_requests=1, order=policy)
        requests.append(run.submit([7], 1))
        run.play()
        requests += [run.submit([50, 51], 9), *(run.submit([7, 8], 1) for _ in range(5))]
        run.play()
        assert order(run) == [0, 2, 3, 1, 4, 5, 6]

    @pytest.mark.parametrize("phase", ["prefill-first", "decode-first", "mixed"])
    @pytest.mark.parametrize("admission", ["conservative", "optimistic"])
    @pytest.mark.parametrize("policy", ["lpm", "shortest"])
    def test_nobody_waits_for_ever(self, make, policy, admission, phase, monkeypatch):
        """More keep coming, all of them better liked than one."""
        monkeypatch.setattr(prefill, "PATIENCE", 20)
        run, requests = make(
            num_pages=24, max_seq_len=24, max_running_requests=3, order=policy, admission=admission, phase=phase
        )
        requests += [run.submit([7, 8, i], 3) for i in range(3)]
        run.scheduler.step()
        unlucky = run.submit(list(range(50, 62)), 12)
        requests.append(unlucky)
        for i in range(300):
            while not unlucky.finished and sum(not r.finished for r in requests) < 9:
                requests.append(run.submit([7, 8, 100 + len(requests)], 2 + i % 3))
            run.scheduler.step()
        assert unlucky.finish_reason == "length"
        assert order(run).index(unlucky.uid) == 3 + prefill.PATIENCE


class TestAdmission:
    @pytest.mark.parametrize(
        ("admission", "worst"),
        [("conservative", 10), (1, 10), (0.5, 6), (0.3, 5), ("optimistic", 3), (0, 3)],
    )
    def test_what_is_promised(self, admission, worst):
        """Of 8 tokens that a prompt of 2 may generate; one at least, as it will be sampled at once."""
        run = Run(admission=admission)
        run.submit([1, 2], 8)
        run.play()
        (test,) = run.of(AdmissionTested)
        assert (test.worst, test.need) == (worst, worst)
        assert run.of(BatchScheduled)[0].reserved_pages == worst - 1 - 2  # the last token never gets KV

    def crowd(self, make, admission, **settings) -> Run:
        run, requests = make(num_pages=20, max_seq_len=20, admission=admission, **settings)
        requests += [run.submit([10 * i, 10 * i + 1], 8) for i in range(6)]
        run.play()
        return run

    def test_the_less_is_promised_the_more_are_let_in(self, make):
        runs = [self.crowd(make, a) for a in ("conservative", 0.5, "optimistic")]
        assert [most_at_once(run) for run in runs] == [2, 3, 6]

    @pytest.mark.parametrize("phase", ["prefill-first", "decode-first", "mixed"])
    @pytest.mark.parametrize("prefix_cache", ["radix", "naive"])
    @pytest.mark.parametrize("page_size", [1, 2, 4])
    def test_conservative_never_retracts_and_optimistic_does(self, make, page_size, prefix_cache, phase):
        settings = {"page_size": page_size, "num_pages": 20 // page_size, "prefix_cache": prefix_cache, "phase": phase}
        for admission in ("conservative", "optimistic"):
            run, requests = make(max_seq_len=20, admission=admission, **settings)
            requests += [run.submit([10 * i, 10 * i + 1], 8) for i in range(6)]
            run.play()
            assert bool(run.of(RequestRetracted)) == (admission == "optimistic")

    def test_everybody_ends_though_each_wants_the_whole_pool(self, make):
        run, requests = make(num_pages=12, max_seq_len=12, admission="optimistic", max_prefill_tokens=3)
        requests += [run.submit([i, i, i], 9) for i in range(8)]
        run.play()
        assert len(run.of(RequestRetracted)) >= 5
        assert len(run.of(RowReleased)) == len(run.of(RequestFinished)) + len(run.of(RequestRetracted))


class TestRetraction:
    """A and B go on together until 8 of 9 pages are taken; then there is one page for two tokens."""

    def until_then(self, make) -> tuple[Run, list[Request]]:
        run, requests = make(num_pages=9, max_seq_len=9, admission="optimistic")
        requests += [run.submit([1, 2], 4), run.submit([3, 4], 6)]
        while not run.of(RequestRetracted):
            run.scheduler.step()
        return run, requests

    def test_the_last_one_admitted_goes(self, make):
        run, (a, b) = self.until_then(make)
        (event,) = run.of(RequestRetracted)
        assert event.uid == b.uid and b.status == "waiting" and a.retractions == 0
        assert (b.row, b.pages, b.reserved, b.handle) == (-1, [], 0, None) and not run.scheduler.names(b)
        (row,) = [e for e in run.of(RowReleased) if e.uid == b.uid]
        assert row.step == event.step and b.uid not in run.scheduler.running

    def test_its_own_pages_are_freed_at_once_and_its_cached_prefix_stays(self, make):
        run, (_, b) = self.until_then(make)
        (event,) = run.of(RequestRetracted)
        freed = [p for e in run.of(PagesFreed) for p, uid in zip(e.pages, e.uids, strict=True) if uid == b.uid]
        assert freed == list(event.pages) and event.lost == len(freed) == 2
        assert run.scheduler.cache.prefix.peek(b.tokens(5)) == 2  # the prompt, as it was handed over

    def test_it_waits_before_all_others(self, make):
        run, requests = make(num_pages=9, max_seq_len=9, admission="optimistic", max_running_requests=2)
        requests += [run.submit([1, 2], 4), run.submit([3, 4], 6), run.submit([5, 6], 2)]
        while not run.of(RequestRetracted):
            run.scheduler.step()
        assert [r.uid for r in run.scheduler.prefill.waiting] == [1, 2]
        run.play()
        assert order(run) == [0, 1, 1, 2]

    def test_several_go_in_order_and_come_back_in_order(self, make):
        """Each step, the others of four take the pages of who has gone."""
        run, requests = make(num_pages=16, max_seq_len=16, admission="optimistic", prefix_cache="naive")
        requests += [run.submit([i, i], 9) for i in range(4)]
        run.play()
        assert [e.uid for e in run.of(RequestRetracted)] == [3, 2, 1]
        assert order(run) == [0, 1, 2, 3, 1, 2, 3]

    def test_it_comes_back_under_the_full_promise_with_what_it_has_generated(self, make):
        run, (_, b) = self.until_then(make)
        known = len(b.output_ids)
        assert known == 3
        run.play()
        (event,) = run.of(RequestRetracted)
        _, again = [e for e in run.of(AdmissionTested) if e.uid == b.uid and e.verdict == "admitted"]
        assert again.worst == 2 + 6
        (batch,) = [e for e in run.of(BatchScheduled) if b.uid in e.uids and e.step == again.step]
        at = batch.uids.index(b.uid)
        assert (batch.starts[at], batch.ends[at], batch.samples[at]) == (2, 2 + known, True)  # behind the prefix
        assert b.retractions == 1 and b.cached_tokens == 0 and again.step > event.step

    def test_no_token_is_given_twice(self, make):
        run, requests = self.until_then(make)
        run.play()
        for r in requests:
            assert received(run, r.uid) == r.output_ids == expected(r.prompt.tolist(), r.max_tokens)

    def test_an_abort_while_it_waits_again(self, make):
        run, requests = self.until_then(make)
        b = requests.pop()
        run.scheduler.abort(b.uid)
        run.play()
        assert b.finish_reason == "abort" and b.output_ids == expected([3, 4], 6)[:3]
        (end,) = [e for e in run.of(RequestFinished) if e.uid == b.uid]
        assert end.num_output == 3

    @pytest.mark.parametrize("phase", ["prefill-first", "mixed"])
    def test_a_prompt_that_is_not_computed_to_its_end(self, make, phase):
        """Its pages are promised, so whoever goes on beyond his own promise cannot have them while it is seated.

        In a mixed batch those who decode come first: it is not let in beside them only to be thrown out at once.
        """
        run, requests = make(num_pages=24, max_seq_len=24, admission="optimistic", max_prefill_tokens=4, phase=phase)
        requests += [run.submit([i], 20) for i in range(2)]
        run.scheduler.step()
        run.scheduler.step()
        requests.append(run.submit(list(range(30, 49)), 3))
        run.play()
        assert run.of(RequestRetracted)[0].uid == (2 if phase == "prefill-first" else 1)
        computed = {(e.step, uid) for e in run.of(BatchScheduled) for uid in e.uids}
        assert all((e.step, e.uid) in computed for e in run.of(RequestAdmitted))
        for e in run.of(BatchScheduled):
            assert e.reserved_pages <= e.free_pages + e.evictable_pages + e.pending_pages

    def test_a_prompt_under_way_gives_way_to_those_who_decode(self, make):
        """It was let in while there was room; each step two pages go to others, and two of its tokens are computed."""
        run, requests = make(num_pages=24, max_seq_len=24, admission="optimistic", max_prefill_tokens=4, phase="mixed")
        requests += [run.submit([i], 20) for i in range(2)]
        run.scheduler.step()
        run.scheduler.step()
        requests.append(run.submit(list(range(30, 45)), 3))
        run.play()
        first = run.of(RequestRetracted)[0]
        assert first.uid == 2 and 0 < first.lost < 15
        later = [e for e in run.of(BatchScheduled) if e.step >= first.step and 2 in e.uids]
        again = next(e for e in run.of(RequestAdmitted) if e.uid == 2 and e.step > first.step)
        assert later[0].step == again.step and later[0].starts[later[0].uids.index(2)] == again.cached_len
        for e in run.of(BatchScheduled):
            assert e.reserved_pages <= e.free_pages + e.evictable_pages + e.pending_pages


class TestPhase:
    def later(self, make, phase) -> tuple[Run, list[int]]:
        """Two at work, and two more come: the steps in which these are admitted."""
        run, requests = make(phase=phase)
        requests += [run.submit([i], 3 + 2 * i) for i in range(2)]
        run.scheduler.step()
        requests += [run.submit([40 + i], 2) for i in range(2)]
        run.play()
        return run, [e.step for e in run.of(RequestAdmitted) if e.uid >= 2]

    def test_prefill_first_and_mixed_let_in_at_once(self, make):
        for phase in ("prefill-first", "mixed"):
            _, admitted = self.later(make, phase)
            assert admitted == [2, 2]

    def test_decode_first_makes_static_batches(self, make):
        run, admitted = self.later(make, "decode-first")
        last = max(e.step for e in run.of(BatchScheduled) if 1 in e.uids)
        assert admitted == [last + 1] * 2  # no sooner, though seven rows and all but a few pages were free
        assert [e.uids for e in run.of(BatchScheduled) if e.phase == "prefill"] == [(0, 1), (2, 3)]

    def test_a_long_prompt_stops_others_unless_batches_are_mixed(self, make):
        for phase, gap in (("prefill-first", 6), ("mixed", 1)):
            run, requests = make(phase=phase, max_prefill_tokens=4)
            requests.append(run.submit([1], 16))
            run.scheduler.step()
            requests.append(run.submit(list(range(100, 118)), 2))
            run.play()
            steps = [e.step for e in run.of(BatchScheduled) if 0 in e.uids]
            assert max(b - a for a, b in pairwise(steps)) == gap
            assert len(steps) == 16

    @pytest.mark.parametrize("budget", [1, 2, 3, 5, 16])
    def test_a_mixed_batch_keeps_the_budget(self, make, budget):
        run, requests = make(phase="mixed", max_prefill_tokens=budget, num_pages=64)
        requests += [run.submit([i] * 5, 12) for i in range(4)]
        for i in range(12):
            run.scheduler.step()
            requests.append(run.submit([60 + i] * (1 + i % 4), 3))
        run.play()
        decoding: set[int] = set()
        for e in run.of(BatchScheduled):
            decodes = sum(uid in decoding for uid in e.uids)
            assert e.num_tokens <= max(budget, decodes)
            assert (e.phase == "mixed") == (0 < decodes < len(e.uids))
            decoding |= {uid for uid, samples in zip(e.uids, e.samples, strict=True) if samples}
        phases = {e.phase for e in run.of(BatchScheduled)}
        assert phases == ({"prefill", "decode"} if budget == 1 else {"prefill", "decode", "mixed"})
        if budget == 2:
            assert any(len(e.uids) > 1 and e.phase == "mixed" and e.num_tokens == 2 for e in run.of(BatchScheduled))

    def test_more_may_decode_than_the_budget_has_tokens(self, make):
        """Nothing is left for prompts then, and nobody is let in."""
        run, requests = make(phase="mixed", max_prefill_tokens=8)
        requests += [run.submit([i], 6) for i in range(8)]
        run.scheduler.step()
        requests.append(run.submit([99], 2))
        run.play()
        full = [e for e in run.of(BatchScheduled) if e.phase == "decode" and len(e.uids) == 8]
        assert len(full) == 5
        tests = [e for e in run.of(AdmissionTested) if e.uid == 8 and e.step <= full[-1].step]
        assert {e.verdict for e in tests} <= {"row", "budget"}

    @pytest.mark.parametrize("overlap", [False, True])
    def test_a_batch_is_called_what_it_is(self, overlap):
        run = Run(phase="mixed", overlap=overlap, max_prefill_tokens=3, num_pages=13, max_seq_len=13)
        for i in range(4):
            run.submit([i] * (1 + 3 * i), 3)
            run.scheduler.step()
        run.play()
        assert {e.phase for e in run.of(BatchScheduled)} == {"prefill", "mixed", "decode"}
        decoding: set[int] = set()
        for e in run.of(BatchScheduled):
            assert (e.phase == "mixed") == (0 < sum(uid in decoding for uid in e.uids) < len(e.uids))
            decoding |= {uid for uid, samples in zip(e.uids, e.samples, strict=True) if samples}
