"""CacheManager against a naive one: every page has one owner, and moves between owners as the design's 4.3 and 4.4 say.

Requests are driven by hand here: who is let in and under which promise, which of them launch together, when a batch
completes, who is thrown out and who ends are the rules of this machine, so that orders come up which a scheduler would
not choose.
"""

from __future__ import annotations

from itertools import chain

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from minisgl.config import EngineConfig
from minisgl.core import Request, SamplingParams
from minisgl.events import EventBus, Handoff
from minisgl.scheduler.cache import CacheManager
from minisgl.scheduler.table import TableManager
from tests.fuzz import ENOUGH, Machine, actions, explore, pick
from tests.kvcache.naive_tree import NaiveTree

NEVER = 1 << 30  # a page that never gets full
WIDTH = 24  # tokens in a row, at most


copies = st.sampled_from([1, 1, 2, 3])


def can_go_on(r: Request) -> bool:
    return r.device_len < r.prompt_len + r.max_tokens - 1


class CacheMachine(Machine):
    @initialize(
        page_size=st.sampled_from([1, 2, 4, 8]),
        pool=st.integers(16, 32),
        prefix_cache=st.sampled_from(["radix"] * 5 + ["naive"]),
    )
    def start(self, page_size, pool, prefix_cache):
        num_pages = pool // page_size
        config = EngineConfig(page_size=page_size, num_pages=num_pages, prefix_cache=prefix_cache)
        self.page_size, self.num_pages = page_size, num_pages
        self.bus = EventBus(lambda: 0.0)
        self.table = TableManager(4)
        self.cache = CacheManager(config, self.table, self.bus)
        self.handoffs: list[Handoff] = []
        self.bus.on(Handoff, self.handoffs.append)
        # the naive one
        self.tree = NaiveTree(page_size if prefix_cache == "radix" else NEVER)
        self.free = list(range(num_pages))
        self.rows: dict[Request, list[int]] = {}
        self.locked: dict[Request, tuple[int, ...] | None] = {}
        self.pending: list[int] = []
        self.gathered: list[int] = []
        self.flying: list[Request] = []  # in the one batch in flight
        self.uid = 0
        self.begin()

    @rule(
        action=actions(
            ("arrive", st.integers(0, 4), st.integers(1, 12), st.integers(0, 2), st.integers(1, 4), st.none(), copies),
            ("arrive", st.integers(0, 4), st.integers(1, 12), st.integers(0, 2), st.just(6), st.integers(1, 2), copies),
            ("handoff", st.integers(0, 3), st.booleans()),
            ("launch", st.integers(1, 15), st.sampled_from([2, 100]), st.booleans()),
            ("launch", st.just(15), st.just(100), st.booleans()),
            ("handoff", st.integers(0, 3), st.booleans()),
            ("retract", st.integers(0, 3), st.sampled_from([False, False, False, True])),
            ("end_of_pass", st.sampled_from([False, False, False, True])),
        )
    )
    def do(self, action):
        self.act(action)

    @property
    def live(self) -> list[Request]:
        return [r for r in self.rows if not r.finished]

    def pages_for(self, tokens: int) -> int:
        return (tokens + self.page_size - 1) // self.page_size

    # -- rules -------------------------------------------------------------------------------------------------------

    def arrive(self, kind, n, own, more, promised, copies):
        """Prompts that begin alike, or are; all they may generate is promised, or less."""
        for _ in range(min(copies, self.table.num_free)):
            self.admit([kind] * n + [3] * own, more, promised or more)

    def admit(self, prompt: list[int], max_tokens: int, promised: int) -> None:
        request = Request(self.uid, np.array(prompt, np.int32), SamplingParams(), max_tokens, 0, frozenset())
        request.worst = len(prompt) + promised
        self.uid += 1
        known = tuple(prompt[:-1])
        matched = len(self.tree.cached(known)) * self.tree.page_size
        need = self.pages_for(request.worst) - self.pages_for(matched)
        assert self.cache.need(request.worst, matched) == need
        promised = sum(r.reserved for r in self.rows)
        fits = need + promised <= len(self.free) + self.tree.evictable + len(self.pending)
        assert self.cache.fits(need) == fits
        if not fits:
            self.saw("did not fit")
            return
        handle = self.cache.prefix.match(np.array(known, np.int32), request.uid)
        prefix = self.tree.use(known)
        self.cache.prefix.lock(handle, request.uid)
        self.tree.lock(prefix, 1)
        fits = need + promised <= len(self.free) + self.tree.evictable + len(self.pending)
        assert self.cache.fits(need) == fits
        if not fits:
            self.saw("did not fit once locked")
            self.cache.prefix.unlock(handle, request.uid)
            self.tree.lock(prefix, -1)
            return
        request.status, request.handle = "prefill", handle
        request.cached_len = request.device_len = request.done_len = handle.length
        request.row, request.generation = self.table.allocate()
        request.pages = self.cache.prefix.pages(handle)
        self.cache.reserve(request, need)
        self.rows[request] = self.tree.numbers(prefix)
        self.locked[request] = prefix

    def launch(self, some, chunk, waits):
        """Some requests compute a chunk of their prompts, or one more token; the batch stays in flight or completes."""
        if self.flying:
            self.complete()
        self.end_of_pass(clear=False)  # what a pass has gathered is free before anybody takes pages
        batch = [r for i, r in enumerate(self.live) if some >> i & 1 and can_go_on(r)]
        for r in batch:
            r.device_len = min(r.cached_len + chunk, r.prompt_len) if r.cached_len < r.prompt_len else r.cached_len + 1
        while self.short(batch) > 0:  # only who takes more than was promised to it can be short, with nothing in flight
            assert self.cache.short(self.cache.lacking(batch)) == self.short(batch)
            self.saw("short")
            greedy = [r for r in batch if self.wanted(r) > r.reserved]
            greedy[-1].device_len = greedy[-1].cached_len
            batch.remove(greedy[-1])
        assert self.cache.short(self.cache.lacking(batch)) == 0
        wanted = [self.wanted(r) for r in batch]
        evicts = sum(wanted) > len(self.free)
        if evicts:
            self.saw("evicted")
            self.free += self.tree.evict(sum(wanted) - len(self.free))
        assert self.cache.allocate(self.cache.lacking(batch)) == evicts
        for r, n in zip(batch, wanted, strict=True):
            self.rows[r] += self.free[:n]
            self.free = self.free[n:]
            while r.num_tokens < r.device_len:
                r.output_ids.append(r.num_tokens % 2)
            r.cached_len = r.device_len
        self.flying = batch
        if not waits:
            self.complete()

    def wanted(self, r: Request) -> int:
        return self.pages_for(r.device_len) - len(self.rows[r])

    def short(self, batch: list[Request]) -> int:
        """Pages lacking: for them all, or for those who take more than was promised, when all promises are kept."""
        there = len(self.free) + self.tree.evictable
        beyond = sum(max(0, self.wanted(r) - r.reserved) for r in batch)
        promised = sum(r.reserved for r in self.rows)
        lacking = beyond + promised - there - len(self.pending) if beyond else 0
        return max(0, sum(map(self.wanted, batch)) - there, lacking)

    def complete(self) -> None:
        self.cache.batch_completed()
        self.gathered += self.pending
        self.pending = []
        for r in self.flying:
            if not r.finished:
                r.done_len = r.cached_len
        flying, self.flying = self.flying, []
        for r in flying:
            if r.finished:
                self.leave(r)
        self.end_of_pass(clear=False)

    def handoff(self, which, finished):
        if not self.live:
            return
        r = pick(self.live, which)
        n, row, old = r.done_len, self.rows[r], self.locked[r]
        held = len(row) * self.page_size
        hit, new = self.tree.insert(tuple(r.token_ids[:n]), row[: n // self.page_size])
        segments = [
            ("locked", 0, len(old)),
            ("duplicate", len(old), hit),
            ("inserted", hit, len(new)),
            ("tail", len(new), held),
        ]
        own = {name: [row[j // self.page_size] for j in range(a, b, self.page_size)] for name, a, b in segments}
        if own["duplicate"]:
            self.saw("duplicates")
        released = own["duplicate"] if not finished else own["tail"] + own["duplicate"]
        (self.pending if r in self.flying else self.gathered).extend(released)
        if r in self.flying and released:
            self.saw("pending")
        if not finished:
            row[len(old) // self.page_size : hit // self.page_size] = self.tree.numbers(new[:hit])[
                len(old) // self.page_size :
            ]
        self.tree.lock(old, -1)
        keeps = not finished or r in self.flying
        if keeps:
            self.tree.lock(new, 1)
        self.locked[r] = new if keeps else None

        self.cache.handoff(r, finished, pending=r in self.flying)
        event = self.handoffs[-1]
        assert [(name, a, b) for name, a, b, _ in event.segments()] == segments
        assert {name: list(pages) for name, _, _, pages in event.segments()} == own
        assert (event.n, event.pending, event.finished) == (n, r in self.flying, finished)
        if finished:
            r.status = "finished"
            self.cache.reserve(r, -r.reserved)
            if r not in self.flying:
                self.leave(r)

    def retract(self, which, really):
        """Who is in no batch is thrown out: its own pages go back, uncached, and what it shares stays."""
        idle = [r for r in self.live if r not in self.flying]
        if not idle or not really:
            return
        r = pick(idle, which)
        own = self.rows[r][len(self.locked[r]) // self.page_size :]
        assert self.cache.retract(r) == own
        assert r.reserved == 0
        self.gathered += own
        self.saw("retracted with pages" if own else "retracted")
        self.leave(r)

    def leave(self, r: Request) -> None:
        self.cache.release(r)
        assert r.handle is None
        self.table.free(r.row)
        if self.locked[r] is not None:
            self.tree.lock(self.locked[r], -1)
        del self.rows[r], self.locked[r]

    def end_of_pass(self, clear):
        self.cache.free_gathered()
        self.free += self.gathered
        self.gathered = []
        if clear:
            self.cache.clear()
            self.free += self.tree.evict(self.tree.evictable)

    # -- what holds after each ---------------------------------------------------------------------------------------

    @invariant()
    def the_ledgers_are_the_models(self):
        assert list(self.cache.allocator) == self.free
        assert self.cache.prefix.nodes() == self.tree.nodes()
        assert [page for _, pages in self.cache.waiting for page in pages] == self.pending
        assert self.cache.pending == len(self.pending)
        assert self.cache.reserved == sum(r.reserved for r in self.rows)
        for r, pages in self.rows.items():
            if not r.finished:
                assert r.pages == pages
                assert r.reserved == max(0, self.pages_for(r.worst) - len(pages))

    @invariant()
    def every_page_has_one_owner(self):
        cached = [page.number for page in self.tree.pages.values()]
        own = [[p for p in pages if p not in cached] for r, pages in self.rows.items() if not r.finished]
        everywhere = [*self.free, *cached, *self.pending, *self.gathered, *chain(*own)]
        assert sorted(everywhere) == list(range(self.num_pages))
        c = self.cache
        assert (c.free, c.prefix.evictable, c.prefix.protected) == (
            len(self.free),
            self.tree.evictable,
            self.tree.protected,
        )
        assert c.owned == sum(map(len, own)) + len(self.pending) + len(self.gathered)

    def end(self):
        if self.flying:
            self.complete()
        for r in self.live:
            self.cache.handoff(r, True, pending=False)
            self.cache.reserve(r, -r.reserved)
            self.cache.release(r)
        self.cache.free_gathered()
        self.cache.clear()
        assert sorted(self.cache.allocator) == list(range(self.num_pages)) and self.cache.reserved == 0


def test_pages_change_hands():
    saw = explore(CacheMachine, runs=150, steps=40)
    if saw["runs"] < ENOUGH:
        return
    for what in ("did not fit", "duplicates", "pending", "evicted", "short", "retracted with pages"):
        assert saw[what] > saw["runs"] / 50, saw
