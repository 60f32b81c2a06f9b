"""Metadata of a ragged batch, in the layout that paged attention kernels share."""

from __future__ import annotations

import numpy as np
import torch

from minisgl.attention import build_metadata
from minisgl.attention.metadata import ragged_arange, running_sum


def page_table() -> torch.Tensor:
    """Pages of 4: row 0 holds tokens 0..4 at slots 16..20, row 2 tokens 0..5 at 40..45; the rest must not be read."""
    table = torch.full((3, 8), -999, dtype=torch.int32)
    table[0, :5] = torch.arange(16, 21)
    table[2, :6] = torch.arange(40, 46)
    return table


def test_the_published_example():
    table = page_table()
    metadata = build_metadata(table, rows=(0, 2), starts=(3, 5), ends=(5, 6))
    assert metadata.qo_indptr.tolist() == [0, 2, 3]
    assert metadata.kv_indptr.tolist() == [0, 5, 11]
    assert metadata.kv_indices.tolist() == [*range(16, 21), *range(40, 46)]
    assert metadata.slots.tolist() == [19, 20, 45]
    assert metadata.positions.tolist() == [3, 4, 5]
    assert metadata.token_index.tolist() == [3, 4, 2 * 8 + 5]
    assert not metadata.decode
    # page numbers, for kernels that want them
    assert (table[[0, 2], :8:4] // 4).tolist() == [[4, 5], [10, 11]]


def test_rows_in_any_order_and_a_decode_batch():
    metadata = build_metadata(page_table(), rows=(2, 0), starts=(5, 4), ends=(6, 5))
    assert metadata.decode
    assert metadata.kv_indices.tolist() == [*range(40, 46), *range(16, 21)]
    assert metadata.slots.tolist() == [45, 20]


def test_the_batch_keeps_its_own_copy_of_the_slots():
    table = page_table()
    metadata = build_metadata(table, rows=(0,), starts=(0,), ends=(5,))
    table.zero_()
    assert metadata.kv_indices.tolist() == metadata.slots.tolist() == [*range(16, 21)]


def test_ragged_arange():
    assert ragged_arange(np.array([3, 10, 5]), np.array([2, 0, 3])).tolist() == [3, 4, 5, 6, 7]
    assert running_sum(np.array([2, 0, 3])).tolist() == [0, 2, 2, 5]
