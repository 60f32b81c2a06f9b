"""PageAllocator: the free list. Knows which pages are free and nothing else."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from minisgl.errors import LedgerError


class PageAllocator:
    """First in, first out: pages come back into use in the order in which they became free.

    Shortage is a value (None, nothing changed); misuse is a LedgerError (nothing changed either).
    """

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self.taken = 0  # pages that ever left the list; a free page's place in line is taken + its index
        self._free = deque(range(num_pages))
        self._is_free = bytearray(b"\x01" * num_pages)

    def __len__(self) -> int:
        return len(self._free)

    def __iter__(self) -> Iterator[int]:
        """Free pages, next one first."""
        return iter(self._free)

    def allocate(self, n: int) -> list[int] | None:
        """Take the ``n`` pages that have been free longest; None if there are not so many."""
        if not isinstance(n, int) or n < 0:
            raise LedgerError(f"allocate({n!r}): whole pages only")
        if n > len(self._free):
            return None
        pages = [self._free.popleft() for _ in range(n)]
        for page in pages:
            self._is_free[page] = 0
        self.taken += n
        return pages

    def free(self, pages: Sequence[int]) -> None:
        """Append pages to the free list, in the order given. A page that is free, or named twice, is an error."""
        for i, page in enumerate(pages):
            if not 0 <= page < self.num_pages or self._is_free[page]:
                for undo in pages[:i]:
                    self._is_free[undo] = 0
                what = "is free already" if 0 <= page < self.num_pages else f"is not in 0..{self.num_pages - 1}"
                raise LedgerError(f"free({list(pages)}): page {page} {what}")
            self._is_free[page] = 1
        self._free.extend(pages)

    def restore(self, order: Sequence[int], taken: int) -> None:
        """Be as ``pages.order`` (place in line, -1: not free) and ``queue.taken`` of a state say."""
        self._free = deque(sorted((page for page, place in enumerate(order) if place >= 0), key=order.__getitem__))
        self._is_free = bytearray(place >= 0 for place in order)
        self.taken = taken

    def __repr__(self) -> str:
        return f"PageAllocator(free={len(self)}, of={self.num_pages})"
