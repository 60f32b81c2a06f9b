"""TableManager: rows of the page table, and what the device's copies still have to be told."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from minisgl.core import PageWrites, TokenWrite


class TableManager:
    """Hands out rows. What is in them the host keeps as ``Request.pages``, which change at once; the device's page
    table and token pool follow by the writes queued here, which travel with the next batch.
    """

    def __init__(self, num_rows: int) -> None:
        self.generations = [0] * num_rows  # how often each row was handed out; only grows
        self.free_rows = list(range(num_rows))  # a heap: the lowest row first keeps pictures calm
        self._given: set[int] = set()  # the others
        self._page_writes: list[PageWrites] = []
        self._token_writes: list[TokenWrite] = []

    @property
    def num_free(self) -> int:
        return len(self.free_rows)

    def allocate(self) -> tuple[int, int]:
        """A free row and its new generation."""
        row = heapq.heappop(self.free_rows)
        self._given.add(row)
        self.generations[row] += 1
        return row, self.generations[row]

    def free(self, row: int) -> None:
        assert row in self._given, f"row {row} is free already"
        self._given.remove(row)
        heapq.heappush(self.free_rows, row)

    def restore(self, rows: Sequence[dict]) -> None:
        """Be as ``rows`` of a state say."""
        self.generations = [row["generation"] for row in rows]
        self.free_rows = [i for i, row in enumerate(rows) if row["uid"] < 0]
        self._given = set(range(len(rows))).difference(self.free_rows)

    def write_pages(self, row: int, first: int, pages: Sequence[int]) -> None:
        """Queue pages for the device's row, from page ``first`` on. They are copied: the host's row may change."""
        if pages:
            self.write(PageWrites((row,), (first,), (len(pages),), tuple(pages)))

    def write(self, pages: PageWrites) -> None:
        """The same for many rows at once. Nobody may change what is given."""
        self._page_writes.append(pages)

    def write_tokens(self, row: int, tokens: np.ndarray) -> None:
        """Queue a prompt for the device's token pool. Nobody may change it."""
        self._token_writes.append((row, 0, tokens))

    def take_writes(self) -> tuple[list[PageWrites], list[TokenWrite]]:
        """All writes since the last call, oldest first."""
        writes = self._page_writes, self._token_writes
        self._page_writes, self._token_writes = [], []
        return writes

    def put_back(self, page_writes: list[PageWrites], token_writes: list[TokenWrite]) -> None:
        """Queue writes again, before newer ones: the batch that took them never reached the device."""
        self._page_writes[:0] = page_writes
        self._token_writes[:0] = token_writes
