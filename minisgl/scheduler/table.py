"""TableManager: rows of the page table, and what the device's copies still have to be told."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from minisgl.core import pages_for


class TableManager:
    """The host's page table, int32 ``[max_running_requests + 1, max_seq_len rounded up to whole pages]``.

    Entry ``[row, j]`` is the KV slot of token j, whatever the page size. The last row is the dummy request's. The
    host's row changes at once; the same writes are queued for the device and travel with the next batch.
    """

    def __init__(self, num_rows: int, max_seq_len: int, page_size: int, num_pages: int) -> None:
        self.page_size = page_size
        width = pages_for(max_seq_len, page_size) * page_size
        self.page_table = np.full((num_rows + 1, width), num_pages * page_size, dtype=np.int32)
        self.generations = [0] * num_rows  # how often each row was handed out; only grows
        self.free_rows = list(range(num_rows))  # a heap: the lowest row first keeps pictures calm
        self._offsets = np.arange(page_size, dtype=np.int32)
        self._slot_writes: list[tuple[int, int, np.ndarray]] = []
        self._token_writes: list[tuple[int, int, np.ndarray]] = []

    @property
    def num_free(self) -> int:
        return len(self.free_rows)

    def allocate(self) -> tuple[int, int]:
        """A free row and its new generation."""
        row = heapq.heappop(self.free_rows)
        self.generations[row] += 1
        return row, self.generations[row]

    def free(self, row: int) -> None:
        assert row not in self.free_rows, f"row {row} is free already"
        heapq.heappush(self.free_rows, row)

    def slots(self, pages: Sequence[int] | np.ndarray) -> np.ndarray:
        """The slots of whole pages in a row, int32 ``[len(pages) * page_size]``."""
        starts = np.asarray(pages, dtype=np.int32) * self.page_size
        return (starts[:, None] + self._offsets).ravel()

    def write_slots(self, row: int, first: int, slots: np.ndarray) -> None:
        """Let the row from page ``first`` on be these slots: here now, on the device before the next forward.

        The slots are kept until then: nobody may change them.
        """
        start = first * self.page_size
        self.page_table[row, start : start + len(slots)] = slots
        self._slot_writes.append((row, start, slots))

    def write_pages(self, row: int, first: int, pages: Sequence[int]) -> None:
        """``write_slots``, by pages."""
        if pages:
            self.write_slots(row, first, self.slots(pages))

    def write_tokens(self, row: int, tokens: np.ndarray) -> None:
        """Queue a prompt for the device's token pool."""
        self._token_writes.append((row, 0, tokens))

    def take_writes(self) -> tuple[list, list]:
        """All writes since the last call, oldest first: slots, tokens."""
        writes = self._slot_writes, self._token_writes
        self._slot_writes, self._token_writes = [], []
        return writes

    def put_back(self, slot_writes: list, token_writes: list) -> None:
        """Queue writes again, before newer ones: the batch that took them never reached the device."""
        self._slot_writes[:0] = slot_writes
        self._token_writes[:0] = token_writes

    def pages(self, row: int, count: int) -> list[int]:
        """The row's first ``count`` pages, read from its slots. A copy: safe to keep while the row changes."""
        return (self.page_table[row, : count * self.page_size : self.page_size] // self.page_size).tolist()

    def misplaced(self, row: int, count: int) -> list[int]:
        """Positions within the row's first ``count`` pages whose slot is not at the same place in its page."""
        slots = self.page_table[row, : count * self.page_size].reshape(-1, self.page_size)
        first = slots[:, :1] // self.page_size * self.page_size
        return np.flatnonzero(slots != first + self._offsets).tolist()
