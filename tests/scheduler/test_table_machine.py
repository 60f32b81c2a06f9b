"""Rows and their writes against plain lists; the device is whoever applies the writes it is given, in order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from minisgl.core import pages_for
from minisgl.scheduler.table import TableManager
from tests.fuzz import Machine, actions, explore, pick

NUM_PAGES = 12
numbers = st.integers(0, 99)


class TableMachine(Machine):
    @initialize(
        page_size=st.sampled_from([1, 2, 4, 16, 64]), num_rows=st.integers(1, 4), max_seq_len=st.integers(2, 150)
    )
    def start(self, page_size, num_rows, max_seq_len):
        self.table = TableManager(num_rows, max_seq_len, page_size, NUM_PAGES)
        self.page_size, self.num_rows = page_size, num_rows
        self.width = pages_for(max_seq_len, page_size)  # in pages
        first = NUM_PAGES * page_size  # the dummy page's first slot, wherever there is no page yet
        self.slots = [[first] * self.width * page_size for _ in range(num_rows + 1)]
        self.tokens: list[list[int]] = [[0] * self.width * page_size for _ in range(num_rows)]
        self.in_use: set[int] = set()
        self.generations = [0] * num_rows
        self.device = self.table.page_table.copy()
        self.device_tokens = np.zeros_like(self.device)
        self.taken: tuple[list, list] | None = None  # on their way to the device, which may yet break
        self.begin()

    @rule(
        action=actions(
            ("allocate",),
            ("free", numbers),
            ("write_pages", numbers, numbers, st.lists(st.integers(0, NUM_PAGES - 1), max_size=5)),
            ("write_slots_of_all_rows_at_once", numbers, numbers),
            ("write_tokens", numbers, st.lists(st.integers(1, 9), min_size=1, max_size=8)),
            ("take",),
            ("arrive",),
            ("put_back",),
            ("look", numbers, numbers),
            ("misplace", numbers, numbers, numbers),
        )
    )
    def do(self, action):
        self.act(action)

    def row(self, n: int) -> int:
        return pick(sorted(self.in_use), n)

    def place(self, row: int, first: int, pages: list[int]) -> None:
        slots = [p * self.page_size + i for p in pages for i in range(self.page_size)]
        self.slots[row][first * self.page_size : first * self.page_size + len(slots)] = slots

    def allocate(self):
        free = set(range(self.num_rows)) - self.in_use
        if not free:
            assert self.table.num_free == 0
            return
        row, generation = self.table.allocate()
        self.generations[row] += 1
        assert (row, generation) == (min(free), self.generations[row])
        self.in_use.add(row)

    def free(self, n):
        if not self.in_use:
            return
        row = self.row(n)
        self.table.free(row)
        self.in_use.remove(row)
        with pytest.raises(AssertionError, match=f"row {row} is free already"):
            self.table.free(row)

    def write_pages(self, n, first, pages):
        if not self.in_use:
            return
        row, first = self.row(n), first % self.width
        pages = pages[: self.width - first]
        self.table.write_pages(row, first, pages)
        self.place(row, first, pages)
        pages[:] = [NUM_PAGES] * len(pages)

    def write_slots_of_all_rows_at_once(self, first, page):
        """As an allocation does: one array of slots, of which each row gets its part."""
        rows, first = sorted(self.in_use), first % self.width
        pages = [(page + i) % NUM_PAGES for i in range(len(rows))]
        slots = self.table.slots(pages)
        assert slots.tolist() == [p * self.page_size + i for p in pages for i in range(self.page_size)]
        for i, (row, page) in enumerate(zip(rows, pages, strict=True)):
            self.table.write_slots(row, first, slots[i * self.page_size : (i + 1) * self.page_size])
            self.place(row, first, [page])

    def write_tokens(self, n, tokens):
        if not self.in_use:
            return
        row, tokens = self.row(n), tokens[: self.width * self.page_size]
        self.table.write_tokens(row, np.array(tokens, np.int32))
        self.tokens[row][: len(tokens)] = tokens

    def take(self):
        if self.taken is not None:
            return
        self.taken = self.table.take_writes()

    def arrive(self):
        if self.taken is None:
            return
        slot_writes, token_writes = self.taken
        for mirror, writes in ((self.device, slot_writes), (self.device_tokens, token_writes)):
            for row, start, values in writes:
                mirror[row, start : start + len(values)] = values
        self.taken = None

    def put_back(self):
        if self.taken is None:
            return
        if any(self.taken):
            self.saw("put back")
        self.table.put_back(*self.taken)
        self.taken = None

    def look(self, row, count):
        row, count = row % (self.num_rows + 1), count % (self.width + 1)
        pages = self.table.pages(row, count)
        assert pages == [self.slots[row][i * self.page_size] // self.page_size for i in range(count)]
        pages[:] = [-1] * count  # a copy

    def misplace(self, n, page, wrong):
        """A whole page in a row is in order; with one slot of it changed, that one is not (the first: all others)."""
        if not self.in_use:
            return
        row, page = self.row(n), page % self.width
        self.table.write_pages(row, page, [3])
        self.place(row, page, [3])
        places = range(page * self.page_size, (page + 1) * self.page_size)
        wrong = pick(places, wrong)
        for shift in (1, NUM_PAGES * self.page_size):
            self.table.page_table[row, wrong] += shift
            others = [p for p in places if p != wrong]
            found = [p for p in self.table.misplaced(row, self.width) if p in places]
            whole_page = self.page_size == 1 or (wrong == places[0] and shift > 1)
            assert found == (others if whole_page else [wrong]), (found, shift)
            self.table.page_table[row, wrong] -= shift

    @invariant()
    def rows_are_free_or_in_use(self):
        assert self.table.num_free == self.num_rows - len(self.in_use)
        assert sorted([*self.table.free_rows, *self.in_use]) == list(range(self.num_rows))
        assert self.table.generations == self.generations

    @invariant()
    def the_host_knows_at_once(self):
        assert self.table.page_table.tolist() == self.slots

    def end(self):
        self.arrive()
        self.take()
        self.arrive()
        assert self.table.take_writes() == ([], [])
        assert self.device.tolist() == self.table.page_table.tolist()
        assert self.device_tokens[: self.num_rows].tolist() == self.tokens


def test_what_is_put_back_comes_before_newer_writes():
    table = TableManager(1, 4, 1, NUM_PAGES)
    table.write_pages(0, 0, [5])
    table.write_tokens(0, np.array([1]))
    slots, tokens = table.take_writes()
    table.write_pages(0, 0, [6])
    table.write_tokens(0, np.array([2]))
    table.put_back(slots, tokens)
    slots, tokens = table.take_writes()
    assert [values.tolist() for _, _, values in slots + tokens] == [[5], [6], [1], [2]]


def test_rows_and_writes():
    saw = explore(TableMachine, runs=150, steps=30)
    assert saw["put back"] > saw["runs"] / 50, saw
