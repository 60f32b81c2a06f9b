"""The free list by example; against a plain list in ``test_allocator_machine``."""

from __future__ import annotations

import pytest

from minisgl.errors import LedgerError
from minisgl.kvcache import PageAllocator


def test_two_requests_get_two_different_pages():  # case 24
    allocator = PageAllocator(8)
    assert allocator.allocate(1) != allocator.allocate(1)


def test_first_freed_is_first_reused():
    allocator = PageAllocator(4)
    assert allocator.allocate(3) == [0, 1, 2]
    allocator.free([2, 0])
    assert allocator.allocate(3) == [3, 2, 0]


def test_shortage_is_a_value_and_changes_nothing():
    allocator = PageAllocator(4)
    allocator.allocate(3)
    assert allocator.allocate(2) is None
    assert list(allocator) == [3] and allocator.taken == 3


@pytest.mark.parametrize("pages", [[0], [2, 2], [1, 0], [4], [-1]])
def test_freeing_what_is_not_taken_is_an_error_and_changes_nothing(pages):  # case 25
    allocator = PageAllocator(4)
    taken = allocator.allocate(4)
    allocator.free([0])
    with pytest.raises(LedgerError, match="page"):
        allocator.free(pages)
    assert list(allocator) == [0]
    allocator.free(taken[1:])  # none of them was lost on the way
    assert len(allocator) == 4


@pytest.mark.parametrize("n", [1.5, -1, "2"])
def test_only_whole_pages(n):  # case 26
    with pytest.raises(LedgerError):
        PageAllocator(4).allocate(n)
