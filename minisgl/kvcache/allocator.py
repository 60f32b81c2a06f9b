"""PageAllocator: the free list. Knows which pages are free and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from minisgl.errors import LedgerError


class PageAllocator:
    """First in, first out: pages come back into use in the order in which they became free.

    Shortage is a value (None, nothing changed); misuse is a LedgerError (nothing changed either).
    """

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self.taken = 0  # pages that ever left the list; a free page's place in line is taken + its index
        self.num_free = num_pages
        self._free = list(range(num_pages))  # from _first on; what is before it was taken
        self._first = 0
        self._used: set[int] = set()  # the others

    def __len__(self) -> int:
        return self.num_free

    def __iter__(self) -> Iterator[int]:
        """Free pages, next one first."""
        return islice(self._free, self._first, None)

    def allocate(self, n: int) -> list[int] | None:
        """Take the ``n`` pages that have been free longest; None if there are not so many."""
        if not isinstance(n, int) or n < 0:
            raise LedgerError(f"allocate({n!r}): whole pages only")
        if n > self.num_free:
            return None
        pages = self._free[self._first : self._first + n]
        self._first += n
        self.num_free -= n
        if 2 * self._first > len(self._free):  # seldom enough to cost nothing
            del self._free[: self._first]
            self._first = 0
        self._used.update(pages)
        self.taken += n
        return pages

    def free(self, pages: Sequence[int]) -> None:
        """Append pages to the free list, in the order given. A page that is free, or named twice, is an error."""
        left = len(self._used) - len(pages)
        self._used.difference_update(pages)
        if len(self._used) != left:  # not all of them were in use
            self._used = set(range(self.num_pages)).difference(self)
            raise LedgerError(f"free({list(pages)}): {self._misuse(pages)}")
        self._free.extend(pages)
        self.num_free += len(pages)

    def _misuse(self, pages: Sequence[int]) -> str:
        """What is wrong with the first page that must not be freed."""
        for i, page in enumerate(pages):
            if not 0 <= page < self.num_pages:
                return f"page {page} is not in 0..{self.num_pages - 1}"
            if page not in self._used or page in pages[:i]:
                return f"page {page} is free already"
        raise AssertionError(pages)

    def restore(self, order: Sequence[int], taken: int) -> None:
        """Be as ``pages.order`` (place in line, -1: not free) and ``queue.taken`` of a state say."""
        self._free = sorted((page for page, place in enumerate(order) if place >= 0), key=order.__getitem__)
        self._first, self.num_free = 0, len(self._free)
        self._used = {page for page, place in enumerate(order) if place < 0}
        self.taken = taken

    def __repr__(self) -> str:
        return f"PageAllocator(free={len(self)}, of={self.num_pages})"
