"""Both prefix caches against a flat dict: what is found, split, locked and evicted, and in which order."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from minisgl.errors import LedgerError
from minisgl.events import EventBus
from minisgl.kvcache import NaivePrefixCache, RadixPrefixCache
from tests.fuzz import ENOUGH, Machine, actions, explore
from tests.kvcache.naive_tree import NaiveTree, Prefix

NEVER = 1 << 30  # a page that never gets full

# In units of a page a prompt is a word of two letters, so that prefixes are shared, and often cut in the middle; the
# few tokens after it do not fill a page, or differ from what is there in the page's last token.
words = st.lists(st.integers(0, 1), max_size=8)
tails = st.integers(0, 15)
numbers = st.integers(0, 99)


class PrefixMachine(Machine):
    @initialize(
        kind=st.sampled_from(["radix"] * 5 + ["naive"]),
        page_size=st.sampled_from([1, 2, 4, 16]),
        eviction=st.sampled_from(["lru", "lfu", "fifo"]),
    )
    def start(self, kind, page_size, eviction):
        cls = {"radix": RadixPrefixCache, "naive": NaivePrefixCache}[kind]
        self.page_size = page_size
        self.cache = cls(page_size, EventBus(lambda: 0.0), eviction)
        self.model = NaiveTree(page_size if kind == "radix" else NEVER, eviction)
        self.held: list = []  # (handle, the prefix it stands for), each locked once
        self.next_page = 0
        self.begin()

    @rule(
        action=actions(
            ("peek", words, tails),
            ("use", words, tails),
            ("match_and_lock", words, tails),
            ("insert", words, tails, st.integers(0, 2), st.booleans()),
            ("insert", words, tails, st.just(0), st.just(False)),
            ("unlock", numbers),
            ("evict", st.integers(0, 12)),
        )
    )
    def do(self, action):
        self.act(action)

    def tokens(self, word, tail) -> Prefix:
        """Page i of letter x: ``x 0 0 ... x``; then a page's beginning."""
        page = {x: (x,) * (self.page_size > 1) + (0,) * (self.page_size - 2) + (x,) for x in (0, 1)}
        return sum((page[x] for x in word), ()) + page[0][: tail % self.page_size]

    def with_row(self, tokens, call):
        """Call with a view of a row, and use that row for something else afterwards."""
        row = np.array([*tokens, 7, 7], dtype=np.int32)
        result = call(row[: len(tokens)])
        row[:] = 9
        return result

    def peek(self, word, tail):
        tokens = self.tokens(word, tail)
        found = len(self.model.cached(tokens)) * self.page_size
        assert self.with_row(tokens, self.cache.peek) == found

    def match(self, word, tail):
        tokens = self.tokens(word, tail)
        nodes = len(self.model.ends)
        prefix = self.model.use(tokens)
        handle = self.with_row(tokens, lambda row: self.cache.match(row, 0))
        assert handle.length == len(prefix) and self.cache.pages(handle) == self.model.numbers(prefix)
        if len(self.model.ends) > nodes:
            self.saw("cut an edge")
            if self.model.pages[prefix].locks:
                self.saw("cut a locked edge")
        return handle, prefix

    def use(self, word, tail):
        self.match(word, tail)

    def match_and_lock(self, word, tail):
        self.hold(*self.match(word, tail))

    def hold(self, handle, prefix):
        self.cache.lock(handle, 0)
        self.model.lock(prefix, 1)
        self.held.append((handle, prefix))

    def insert(self, word, tail, more, lock):
        tokens = self.tokens(word, tail)
        count = len(tokens) // self.page_size + more  # a row may have pages for tokens still to come
        pages = list(range(self.next_page, self.next_page + count))
        self.next_page += count
        hit, prefix = self.model.insert(tokens, pages)
        done = self.with_row(tokens, lambda row: self.cache.insert(row, pages, 0))
        pages[:] = [-1] * count
        assert (done.hit_len, done.handle.length, done.path) == (hit, len(prefix), self.model.path(prefix))
        assert {self.cache.nodes()[node]["used"] for node in done.path} <= {done.tick}
        if lock:
            self.hold(done.handle, prefix)

    def unlock(self, n):
        if not self.held:
            return
        handle, prefix = self.held.pop(n % len(self.held))
        self.cache.unlock(handle, 0)
        self.model.lock(prefix, -1)
        if prefix and not self.model.pages[prefix].locks:
            with pytest.raises(LedgerError, match="nobody holds"):
                self.cache.unlock(handle, 0)

    def evict(self, n):
        evictable = self.model.evictable
        gone = self.model.evict(n)
        assert self.cache.evict(n) == gone
        assert len(gone) >= min(n, evictable)
        if gone:
            self.saw("evicted")

    @invariant()
    def the_tree_is_the_models(self):
        assert self.cache.nodes() == self.model.nodes()

    @invariant()
    def counters_equal_a_walk(self):
        nodes = self.cache.nodes().values()
        assert self.cache.evictable == sum(len(n["pages"]) for n in nodes if not n["locks"])
        assert self.cache.protected == sum(len(n["pages"]) for n in nodes if n["locks"])
        assert (self.cache.evictable, self.cache.protected) == (self.model.evictable, self.model.protected)

    @invariant()
    def handles_stay_valid(self):
        for handle, prefix in self.held:
            assert self.cache.pages(handle) == self.model.numbers(prefix)

    def end(self):
        for handle, prefix in self.held:
            self.cache.unlock(handle, 0)
            self.model.lock(prefix, -1)
        assert self.cache.evict(NEVER) == self.model.evict(NEVER)
        assert self.cache.evictable == self.cache.protected == 0 and len(self.cache.nodes()) == 1


def test_against_a_flat_dict():
    saw = explore(PrefixMachine, runs=200, steps=40)
    if saw["runs"] < ENOUGH:
        return
    assert saw["evicted"] > saw["runs"] / 20 and saw["cut a locked edge"] > saw["runs"] / 30, saw


def test_a_long_life():
    """Many uses; each time the eviction heap drops its stale entries, the next to go are still the right ones."""
    random, tree, model, held = Random(0), RadixPrefixCache(1, EventBus(lambda: 0.0)), NaiveTree(1), []
    entries, drops = 0, 0
    for page in range(20_000):
        tokens = tuple(random.choices(range(5), k=random.randrange(1, 4)))
        what = random.choices(["use", "lock", "unlock", "insert"], [60, 10, 15, 10])[0]
        if what == "insert":
            row = [page * 10 + i for i in range(len(tokens))]
            assert tree.insert(np.array(tokens, np.int32), row, 0).hit_len == model.insert(tokens, row)[0]
        elif what == "unlock" and held:
            handle, prefix = held.pop(random.randrange(len(held)))
            tree.unlock(handle, 0)
            model.lock(prefix, -1)
        else:
            handle, prefix = tree.match(np.array(tokens, np.int32), 0), model.use(tokens)
            if what == "lock":
                tree.lock(handle, 0)
                model.lock(prefix, 1)
                held.append((handle, prefix))
        if len(tree._leaves) < entries:
            drops += 1
            assert [tree.evict(1) for _ in range(5)] == [model.evict(1) for _ in range(5)]
        entries = len(tree._leaves)
    assert drops > 10
