"""Rows and their writes against plain lists; the device is whoever applies the writes it is given, in order."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from minisgl.core import PageWrites
from minisgl.scheduler.table import TableManager
from tests.fuzz import ENOUGH, Machine, actions, explore, pick

NUM_PAGES = 12
WIDTH = 9  # of a row: pages, and tokens
numbers = st.integers(0, 99)


class TableMachine(Machine):
    @initialize(num_rows=st.integers(1, 4))
    def start(self, num_rows):
        self.table = TableManager(num_rows)
        self.num_rows = num_rows
        self.pages = [[NUM_PAGES] * WIDTH for _ in range(num_rows)]
        self.tokens = [[0] * WIDTH for _ in range(num_rows)]
        self.in_use: set[int] = set()
        self.generations = [0] * num_rows
        self.device_pages = np.array(self.pages)
        self.device_tokens = np.array(self.tokens)
        self.taken: tuple[list, list] | None = None  # on their way to the device, which may yet break
        self.begin()

    @rule(
        action=actions(
            ("allocate",),
            ("free", numbers),
            ("write_pages", numbers, numbers, st.lists(st.integers(0, NUM_PAGES - 1), max_size=5)),
            ("write_all_rows_at_once", numbers, numbers),
            ("write_tokens", numbers, st.lists(st.integers(1, 9), min_size=1, max_size=8)),
            ("take",),
            ("arrive",),
            ("put_back",),
        )
    )
    def do(self, action):
        self.act(action)

    def row(self, n: int) -> int:
        return pick(sorted(self.in_use), n)

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
        row, first = self.row(n), first % WIDTH
        pages = pages[: WIDTH - first]
        self.table.write_pages(row, first, pages)
        self.pages[row][first : first + len(pages)] = pages
        pages[:] = [NUM_PAGES] * len(pages)

    def write_all_rows_at_once(self, first, page):
        """As an allocation does: one list of pages, of which each row gets its part."""
        rows, first = sorted(self.in_use), first % WIDTH
        counts = [min(1 + i, WIDTH - first) for i in range(len(rows))]
        pages = [(page + i) % NUM_PAGES for i in range(sum(counts))]
        self.table.write(PageWrites(rows, [first] * len(rows), counts, pages))
        left = iter(pages)
        for row, n in zip(rows, counts, strict=True):
            self.pages[row][first : first + n] = islice(left, n)

    def write_tokens(self, n, tokens):
        if not self.in_use:
            return
        row = self.row(n)
        self.table.write_tokens(row, np.array(tokens, np.int32))
        self.tokens[row][: len(tokens)] = tokens

    def take(self):
        if self.taken is not None:
            return
        self.taken = self.table.take_writes()

    def arrive(self):
        if self.taken is None:
            return
        page_writes, token_writes = self.taken
        for rows, firsts, counts, pages in page_writes:
            left = iter(pages)
            for row, first, n in zip(rows, firsts, counts, strict=True):
                self.device_pages[row, first : first + n] = list(islice(left, n))
        for row, start, tokens in token_writes:
            self.device_tokens[row, start : start + len(tokens)] = tokens
        self.taken = None

    def put_back(self):
        if self.taken is None:
            return
        if any(self.taken):
            self.saw("put back")
        self.table.put_back(*self.taken)
        self.taken = None

    @invariant()
    def rows_are_free_or_in_use(self):
        assert self.table.num_free == self.num_rows - len(self.in_use)
        assert sorted([*self.table.free_rows, *self.in_use]) == list(range(self.num_rows))
        assert self.table.generations == self.generations

    def end(self):
        self.arrive()
        self.take()
        self.arrive()
        assert self.table.take_writes() == ([], [])
        assert self.device_pages.tolist() == self.pages
        assert self.device_tokens.tolist() == self.tokens


def test_what_is_put_back_comes_before_newer_writes():
    table = TableManager(1)
    table.write_pages(0, 0, [5])
    table.write_tokens(0, np.array([1]))
    pages, tokens = table.take_writes()
    table.write_pages(0, 0, [6])
    table.write_tokens(0, np.array([2]))
    table.put_back(pages, tokens)
    pages, tokens = table.take_writes()
    assert [w.pages for w in pages] == [(5,), (6,)]
    assert [values.tolist() for _, _, values in tokens] == [[1], [2]]


def test_rows_and_writes():
    saw = explore(TableMachine, runs=150, steps=30)
    if saw["runs"] < ENOUGH:
        return
    assert saw["put back"] > saw["runs"] / 50, saw
