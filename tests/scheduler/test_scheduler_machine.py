"""The whole scheduler, driven at random: whatever is submitted, aborted, broken, retracted and evicted, and under every
policy, every request gives what it gives alone, everyone ends, and at every moment every page has one owner."""

from __future__ import annotations

import contextlib

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from minisgl.core import Request, pages_for
from minisgl.errors import PoolTooSmallError
from minisgl.events import (
    AdmissionTested,
    BatchScheduled,
    Handoff,
    History,
    NodeSplit,
    PagesEvicted,
    PipelineDrained,
    RequestAdmitted,
    RequestFinished,
    RequestRetracted,
    TokensSampled,
)
from minisgl.events.state import undo_delta
from tests.fakes import Run, expected
from tests.fuzz import ENOUGH, Machine, actions, explore, pick

LONGEST = 64
numbers = st.integers(0, 99)
lengths = st.integers(1, 8)
copies = st.sampled_from([1, 1, 2, 3])


class SchedulerMachine(Machine):
    @initialize(
        page_size=st.sampled_from([1, 1, 2, 4, 16, 64]),
        pool=st.integers(10, 60),  # tokens; for pages of 16 and 64 that is few, so two pages at least
        rows=st.sampled_from([1, 2, 4, 8]),
        budget=st.sampled_from([1, 3, 7, 16, 64]),
        prefix_cache=st.sampled_from(["radix", "radix", "naive"]),
        overlap=st.sampled_from([False, True, True, True]),
        adversary=st.sampled_from([None, 0, 1, 2, 3, 4, 5, 6, 7]),
        stop=st.sampled_from([0, 50, 200, 400]),
        order=st.sampled_from(["fcfs", "lpm", "shortest"]),
        admission=st.sampled_from(["conservative", "optimistic", "optimistic", 0.3, 0.7]),
        eviction=st.sampled_from(["lru", "lfu", "fifo"]),
        phase=st.sampled_from(["prefill-first", "prefill-first", "decode-first", "mixed", "mixed"]),
    )
    def start(self, page_size, pool, rows, budget, prefix_cache, overlap, adversary, stop, **policies):
        num_pages = max(2 + pool % 3, pool // page_size)
        self.run = Run(
            page_size=page_size,
            num_pages=num_pages,
            max_seq_len=min(LONGEST, num_pages * page_size),
            max_running_requests=rows,
            max_prefill_tokens=budget,
            prefix_cache=prefix_cache,
            overlap=overlap,
            adversary=adversary,
            stop_tokens=tuple(range(stop)),
            **policies,
        )
        self.scheduler = self.run.scheduler
        self.history = History(self.scheduler.snapshot().to_dict())
        self.run.scheduler.bus.on(None, self.history.feed)
        self.alone: dict[Request, list[int]] = {}
        self.aborted: set[int] = set()
        self.broken: list[int] = []  # numbers of batches that were to break
        self.begin()

    @rule(
        action=actions(
            ("submit", st.integers(0, 3), st.integers(1, 12), st.integers(0, 3), lengths, copies),
            ("submit", st.integers(0, 3), st.integers(1, 40), st.integers(0, 1), lengths, st.just(1)),
            ("crowd", st.integers(2, 6), st.integers(6, 24)),
            ("crowd", st.integers(4, 8), st.integers(8, 24)),
            ("go_on_from", numbers, lengths),
            ("step", st.just(1)),
            ("step", st.integers(1, 4)),
            ("step", st.integers(2, 12)),
            ("abort", numbers),
            ("drain",),
            ("clear_cache",),
            ("replace", numbers, st.integers(0, 9), lengths),
            ("break_the_next_batch", st.sampled_from([*["never mind"] * 6, "launch", "collect"])),
        )
    )
    def do(self, action):
        self.act(action)

    # -- from outside ------------------------------------------------------------------------------------------------

    def submit(self, kind, shared, own, max_tokens, copies):
        """A burst of prompts that begin alike, or are."""
        for i in range(copies):
            self.submit_one([kind] * shared + [kind + i % 2] * own, max_tokens)

    def crowd(self, number, max_tokens):
        """Short prompts that want much: who promises them little lets in too many."""
        for i in range(number):
            self.submit_one([7 + i, 7], max_tokens)

    def go_on_from(self, which, max_tokens):
        """The next turn of a conversation: what was said so far, and a little more."""
        if self.alone:
            self.submit_one([*pick(self.alone, which).token_ids, 5], max_tokens)

    def submit_one(self, prompt: list[int], max_tokens: int) -> None:
        prompt = prompt[: self.run.config.max_seq_len - 1]
        with contextlib.suppress(PoolTooSmallError):
            request = self.run.submit(prompt, max_tokens)
            self.alone[request] = expected(prompt, request.max_tokens, request.stop_tokens)

    def abort(self, which):
        """Any request, running, ended or aborted before."""
        if self.alone:
            request = pick(self.alone, which)
            self.scheduler.abort(request.uid)
            self.aborted.add(request.uid)

    def replace(self, which, longer, max_tokens):
        """Somebody gives up while a batch names him, and another comes at once: for his pages it must wait."""
        unfinished = [r for r in self.alone if not r.finished]
        if unfinished:
            self.scheduler.step()
            request = pick(unfinished, which)
            self.scheduler.abort(request.uid)
            self.aborted.add(request.uid)
            self.submit_one([6] * (request.prompt_len + longer), max_tokens)
            self.scheduler.step()

    def clear_cache(self):
        self.scheduler.clear_cache()

    def break_the_next_batch(self, where):
        if where == "never mind":
            return
        self.run.executor.fail_at = len(self.run.executor.batches) + 1
        self.run.executor.fail_in = where
        self.broken.append(self.run.executor.fail_at)

    def step(self, times):
        for _ in range(times):
            self.scheduler.step()

    def drain(self):
        self.scheduler.drain()
        assert not self.scheduler.cache.pending

    # -- what holds after each ---------------------------------------------------------------------------------------

    @invariant()
    def rules_hold(self):
        self.scheduler.check_integrity()
        for request, alone in self.alone.items():
            output, reason = request.output_ids, request.finish_reason
            if reason in ("stop", "length"):
                assert output == alone, request
                assert reason == ("stop" if alone[-1] in request.stop_tokens else "length"), request
            else:
                assert output == alone[: len(output)], request

    def end(self):
        self.run.play()
        self.rules_hold()
        self.all_is_given_back()
        self.the_record_is_right()
        self.note()

    def all_is_given_back(self) -> None:
        scheduler, cache = self.scheduler, self.scheduler.cache
        assert scheduler.idle and not scheduler.leaving and not scheduler.prefill.chunked
        assert cache.reserved == cache.pending == cache.owned == cache.prefix.protected == 0
        assert scheduler.table.num_free == self.run.config.max_running_requests
        ends = {e.uid: e for e in self.run.of(RequestFinished)}
        assert len(ends) == len(self.run.of(RequestFinished)) == len(self.alone)
        failed = {uid for n in self.broken for b in self.run.executor.batches[n - 1 : n] for uid in b.uids}
        for request in self.alone:
            end = ends[request.uid]
            assert (end.reason, end.num_output) == (request.finish_reason, len(request.output_ids))
            assert end.reason != "abort" or request.uid in self.aborted
            assert end.reason != "error" or request.uid in failed
        scheduler.clear_cache()
        scheduler.step()
        assert cache.free == cache.num_pages and len(scheduler.snapshot().tree) == 1

    def the_record_is_right(self) -> None:
        """It goes both ways, says at every step that the books are sound, and has every token once."""
        history, config = self.history, self.run.config
        assert all(not s["violations"] for s in history.steps)
        assert history.at(history.last).differences(self.run.snapshot()) == []
        state = history.at(history.last).to_dict()
        for step in range(history.last, 0, -1):
            undo_delta(state, history.deltas[step - 1])
        assert state == history.at(0).to_dict()

        computed: dict[int, int] = {}  # tokens, by uid
        decodes: set[int] = set()  # who has sampled since its admission
        for event in self.run.events:
            if isinstance(event, RequestAdmitted):
                computed[event.uid] = event.cached_len
                decodes.discard(event.uid)
            elif isinstance(event, BatchScheduled):
                assert event.phase == "decode" or 0 < event.num_tokens <= config.max_prefill_tokens
                assert event.free_pages + event.evictable_pages + event.pending_pages >= event.reserved_pages
                kinds = [uid in decodes for uid in event.uids]
                assert set(kinds) == {"prefill": {False}, "decode": {True}, "mixed": {False, True}}[event.phase]
                assert kinds == sorted(kinds, reverse=True)  # decodes first
                assert event.phase != "mixed" or config.phase == "mixed"
                assert list(event.uids[: sum(kinds)]) == sorted(event.uids[: sum(kinds)])
                for uid, start, end in zip(event.uids, event.starts, event.ends, strict=True):
                    assert start < end and start == computed[uid]  # no gap, nothing twice, nothing empty
                    assert pages_for(end, config.page_size) <= config.num_pages
                    computed[uid] = end
                decodes |= {uid for uid, samples in zip(event.uids, event.samples, strict=True) if samples}
        if config.admission == "conservative":
            assert not self.run.of(RequestRetracted)
        given: dict[int, list[int]] = {}
        for event in self.run.of(TokensSampled):
            for uid, token, dropped in zip(event.uids, event.tokens, event.dropped, strict=True):
                if not dropped:
                    given.setdefault(uid, []).append(token)
        for request in self.alone:
            assert given.get(request.uid, []) == request.output_ids

    def note(self) -> None:
        """What this run came across."""
        run = self.run
        for what, kind in (("evicted", PagesEvicted), ("split", NodeSplit)):
            if run.of(kind):
                self.saw(what)
        if any(e.reason == "pages" for e in run.of(PipelineDrained)):
            self.saw("drained for pages")
        for verdict in {e.verdict for e in run.of(AdmissionTested)} - {"admitted"}:
            self.saw(f"refused: {verdict}")
        if any(e.evictable_locked is not None and e.verdict == "pages" for e in run.of(AdmissionTested)):
            self.saw("refused after the lock")
        if any(e.replaced for e in run.of(Handoff)):
            self.saw("duplicates replaced")
        if any(any(e.dropped) for e in run.of(TokensSampled)):
            self.saw("extra sample")
        retractions = self.run.of(RequestRetracted)
        if self.run.config.admission == "optimistic":
            self.saw("optimistic")
            for what, least in (("retracted", 1), ("retracted 3 times", 3)):
                if len(retractions) >= least:
                    self.saw(what)
        if len({e.uid for e in retractions}) < len(retractions):
            self.saw("one retracted twice")
        if {e.step for e in retractions} & {e.step for e in run.of(PipelineDrained)}:
            self.saw("drained, then retracted")
        if any(r.retractions and r.finish_reason in ("stop", "length") for r in self.alone):
            self.saw("retracted, then ended well")
        for reason in {r.finish_reason for r in self.alone}:
            self.saw(f"ended by {reason}")


def test_every_request_gives_what_it_gives_alone():
    saw = explore(SchedulerMachine, runs=150, steps=30)
    if saw["runs"] < ENOUGH:
        return
    for what, share in (
        ("drained for pages", 0.0),
        ("evicted", 0.1),
        ("refused: pages", 0.2),
        ("duplicates replaced", 0.05),
        ("extra sample", 0.1),
        ("ended by error", 0.1),
        ("retracted, then ended well", 0.02),
        ("drained, then retracted", 0.0),
    ):
        assert saw[what] > share * saw["runs"], (what, saw)
    assert saw["retracted"] > saw["optimistic"] / 30, saw
    assert saw["retracted 3 times"], saw
