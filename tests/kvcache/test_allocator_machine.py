"""The free list against a plain list: order, shortage, misuse."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from minisgl.errors import LedgerError
from minisgl.kvcache import PageAllocator
from tests.fuzz import ENOUGH, Machine, explore


class AllocatorMachine(Machine):
    @initialize(num_pages=st.integers(2, 12))
    def start(self, num_pages):
        self.num_pages = num_pages
        self.allocator = PageAllocator(num_pages)
        self.free = list(range(num_pages))
        self.taken: set[int] = set()
        self.ever = 0
        self.begin()

    @rule(n=st.integers(0, 5))
    def allocate(self, n):
        pages = self.allocator.allocate(n)
        if n > len(self.free):
            assert pages is None
            self.saw("short")
            return
        assert pages == self.free[:n]
        assert not self.taken & set(pages)  # case 24: nobody's page twice
        self.free, self.ever = self.free[n:], self.ever + n
        self.taken |= set(pages)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def give_back(self, data):
        pages = data.draw(st.lists(st.sampled_from(sorted(self.taken)), unique=True, max_size=5))
        self.allocator.free(pages)
        self.free += pages
        self.taken -= set(pages)

    @rule(data=st.data())
    def give_back_what_is_not_taken(self, data):  # case 25: any list with one page that is free, doubled or unknown
        good = data.draw(
            st.lists(st.sampled_from(sorted(self.taken)), unique=True, max_size=3) if self.taken else st.just([])
        )
        bad = data.draw(st.sampled_from([*self.free, *good, -1, -self.num_pages, self.num_pages]))
        pages = [*good, bad]
        with pytest.raises(LedgerError, match=f"page {bad} is"):
            self.allocator.free(pages)
        self.saw("misused")

    @rule(n=st.sampled_from([-1, 0.5, 2.0, "1", None]))
    def allocate_what_is_no_number_of_pages(self, n):  # case 26
        with pytest.raises(LedgerError, match="whole pages only"):
            self.allocator.allocate(n)

    @invariant()
    def the_list_is_the_models(self):
        assert list(self.allocator) == self.free and len(self.allocator) == len(self.free)
        assert self.allocator.taken == self.ever

    def end(self):
        self.allocator.free(sorted(self.taken))
        assert sorted(self.allocator) == list(range(self.num_pages))  # no misuse lost one or made one


def test_against_a_plain_list():
    saw = explore(AllocatorMachine, runs=200, steps=30)
    if saw["runs"] < ENOUGH:
        return
    assert saw["short"] > saw["runs"] / 10 and saw["misused"] > saw["runs"] / 10, saw
