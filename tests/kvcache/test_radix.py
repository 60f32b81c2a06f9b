"""The radix tree: the published examples, and cases that broke others. Against a flat dict: ``test_prefix_machine``."""

from __future__ import annotations

import numpy as np
import pytest

from minisgl.errors import LedgerError
from minisgl.events import EventBus
from minisgl.kvcache import NaivePrefixCache, RadixPrefixCache


def cache(page_size: int = 1) -> RadixPrefixCache:
    return RadixPrefixCache(page_size, EventBus(lambda: 0.0))


def ids(*tokens: int) -> np.ndarray:
    return np.array(tokens, dtype=np.int32)


def insert(tree, tokens, pages, uid=0):
    return tree.insert(ids(*tokens), pages, uid)


def edges(tree) -> dict[tuple, list[tuple]]:
    """Edge tokens by parent's edge."""
    nodes = tree.nodes()
    return {n["tokens"]: sorted(m["tokens"] for m in nodes.values() if m["parent"] == i) for i, n in nodes.items()}


@pytest.fixture
def example():
    tree = cache()
    insert(tree, [1, 2, 3, 4], [10, 11, 12, 13])
    assert insert(tree, [1, 2, 5, 6], [98, 99, 20, 21]).hit_len == 2
    insert(tree, [7, 8], [30, 31])
    return tree


def test_the_published_tree(example):
    assert edges(example) == {
        (): [(1, 2), (7, 8)],
        (1, 2): [(3, 4), (5, 6)],
        (3, 4): [],
        (5, 6): [],
        (7, 8): [],
    }
    handle = example.match(ids(1, 2, 3, 9), 0)
    assert handle.length == 3 and example.pages(handle) == [10, 11, 12]
    assert edges(example)[(3,)] == [(4,)]
    example.lock(handle, 0)
    assert (example.evictable, example.protected) == (5, 3)
    assert example.evict(2) == [13, 20, 21]  # the split-off [4] kept its old time; then [5, 6]
    assert example.evict(1) == [30, 31]
    assert edges(example) == {(): [(1, 2)], (1, 2): [(3,)], (3,): []}
    assert example.evict(9) == []


def test_a_look_changes_nothing(example):
    before = example.nodes(), example.tick
    assert example.peek(ids(1, 2, 3, 9)) == 3
    assert (example.nodes(), example.tick) == before


@pytest.mark.parametrize(("page_size", "tokens", "cached"), [(4, 10, 8), (16, 30, 16), (16, 5, 0), (1, 0, 0)])
def test_only_whole_pages_are_cached(page_size, tokens, cached):
    tree = cache(page_size)
    done = tree.insert(np.arange(tokens, dtype=np.int32), list(range(9)), 0)
    assert done.handle.length == cached == tree.evictable * page_size
    assert tree.peek(np.arange(tokens, dtype=np.int32)) == cached


def test_what_was_just_used_goes_last():  # case 11
    tree = cache()
    insert(tree, [1, 2, 3, 4], [0, 1, 2, 3])
    insert(tree, [9, 9], [4, 5])
    tree.match(ids(1, 2), 0)
    assert tree.evict(2) == [2, 3]
    assert tree.evict(2) == [4, 5]


def test_a_locked_leaf_stays(example):  # case 12
    handle = example.match(ids(7, 8), 0)
    example.lock(handle, 0)
    example.evict(100)
    assert edges(example) == {(): [(7, 8)], (7, 8): []}
    example.unlock(handle, 0)
    assert example.evict(1) == [30, 31]


def test_locks_survive_a_split(example):
    handle = example.match(ids(1, 2, 5, 6), 0)
    example.lock(handle, 0)
    example.match(ids(1, 2, 5), 1)  # cuts the locked edge
    assert example.pages(handle) == [10, 11, 20, 21] and example.protected == 4
    example.unlock(handle, 0)
    assert example.protected == 0
    with pytest.raises(LedgerError, match="nobody holds"):
        example.unlock(handle, 0)


def test_the_tree_keeps_copies():  # case 13
    tree, row = cache(), np.array([1, 2, 3, 4], dtype=np.int32)
    pages = [5, 6, 7, 8]
    tree.insert(row[:4], pages, 0)
    row[:] = 0
    pages[:] = [0] * 4
    assert tree.peek(ids(1, 2, 3, 4)) == 4 and tree.pages(tree.match(ids(1, 2, 3, 4), 0)) == [5, 6, 7, 8]


def test_an_evicted_prefix_is_a_miss():  # case 15, the tree's part
    tree = cache()
    insert(tree, [1, 2], [0, 1])
    tree.evict(2)
    insert(tree, [3, 4], [0, 1])
    assert tree.peek(ids(1, 2)) == 0


def test_eviction_does_not_walk_the_tree():  # case 21
    tree = cache()
    for i in range(20_000):
        insert(tree, [i], [i])
    for _ in range(1_000):
        assert len(tree.evict(1)) == 1
    assert tree.visited == 1_000
    for i in range(1_000, 3_000):  # each use leaves a stale entry behind; only those are skipped
        tree.match(ids(i), 0)
    tree.evict(1)
    assert tree.visited <= 1_000 + 2_001


def test_use_alone_does_not_grow_the_heap():
    tree = cache()
    insert(tree, [1], [1])
    for _ in range(10_000):
        tree.match(ids(1), 0)
    assert len(tree._leaves) < 100


def test_naive_never_shares():
    naive = NaivePrefixCache(1, EventBus(lambda: 0.0))
    done = naive.insert(ids(1, 2), [0, 1], 0)
    assert (done.hit_len, done.handle.length, naive.peek(ids(1, 2)), naive.evict(5)) == (0, 0, 0, [])


@pytest.mark.parametrize(
    ("eviction", "order"),
    [
        ("lru", [[2], [1], [3]]),  # used longest ago
        ("lfu", [[2], [3], [1]]),  # used once, twice, four times
        ("fifo", [[1], [2], [3]]),  # made first
    ],
)
def test_who_is_evicted_first(eviction, order):
    tree = RadixPrefixCache(1, EventBus(lambda: 0.0), eviction)
    for token in (1, 2, 3):
        insert(tree, [token], [token])
    for token in (1, 1, 1, 3):
        tree.match(ids(token), 0)
    assert [tree.evict(1) for _ in range(3)] == order


def test_lfu_counts_the_uses_of_both_parts_of_a_split_node():
    tree = RadixPrefixCache(1, EventBus(lambda: 0.0), "lfu")
    insert(tree, [1, 2, 3, 4], [1, 2, 3, 4])
    insert(tree, [9], [9])
    tree.match(ids(1, 2, 3, 4), 0)
    tree.match(ids(1, 2), 0)  # cut here: the rest keeps its two uses, the upper part has three
    tree.match(ids(9), 0)
    tree.match(ids(9), 0)  # three, too, and the older node
    assert [tree.evict(1) for _ in range(3)] == [[3, 4], [9], [1, 2]]
