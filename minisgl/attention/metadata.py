"""AttentionMetadata: who attends to what in one batch, decided on the host, gathered on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class AttentionMetadata:
    """One ragged batch; request i computes tokens ``[starts[i], ends[i])`` and attends to ``[0, ends[i])``.

    The layout is the one paged attention kernels share (FlashInfer's with page size 1): ``qo_indptr`` and
    ``kv_indptr`` are running sums on the host, ``kv_indices`` the concatenated page-table rows on the device.

    Attributes:
        starts: first computed token of each request, int64 ``[requests]``, host.
        ends: end of each request, int64 ``[requests]``, host.
        qo_indptr: where each request's new tokens begin in the batch, int64 ``[requests + 1]``, host.
        kv_indptr: where each request's slots begin in ``kv_indices``, int64 ``[requests + 1]``, host.
        kv_indices: slots of all tokens attended to, int64 ``[sum(ends)]``, device; the batch's own copy.
        slots: where the new K and V are written, int64 ``[tokens]``, device.
        positions: position of each new token in its request, int64 ``[tokens]``, device.
        token_index: place of each new token in the flattened page table or token pool, int64 ``[tokens]``, device.
    """

    starts: np.ndarray
    ends: np.ndarray
    qo_indptr: np.ndarray
    kv_indptr: np.ndarray
    kv_indices: Tensor
    slots: Tensor
    positions: Tensor
    token_index: Tensor

    @property
    def decode(self) -> bool:
        """Whether every request computes exactly one token."""
        return int(self.qo_indptr[-1]) == len(self.ends)


def build_metadata(
    page_table: Tensor, rows: Sequence[int], starts: Sequence[int], ends: Sequence[int]
) -> AttentionMetadata:
    """Metadata for a batch from the device's page table, int32 ``[rows, width]``, and the host's integers.

    Every request must compute at least one token: ``starts[i] < ends[i] <= width``.
    """
    first, last = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
    lines = np.asarray(rows, np.int64) * page_table.shape[1]
    positions = ragged_arange(first, last - first)
    token_index = torch.from_numpy(positions + np.repeat(lines, last - first)).to(page_table.device)
    kv_index = torch.from_numpy(ragged_arange(lines, last)).to(page_table.device)
    slots = page_table.view(-1)
    return AttentionMetadata(
        starts=first,
        ends=last,
        qo_indptr=running_sum(last - first),
        kv_indptr=running_sum(last),
        kv_indices=slots.index_select(0, kv_index).long(),
        slots=slots.index_select(0, token_index).long(),
        positions=torch.from_numpy(positions).to(page_table.device),
        token_index=token_index,
    )


def running_sum(lengths: np.ndarray) -> np.ndarray:
    """``[0, l0, l0 + l1, ...]``, int64."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))


def ragged_arange(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """``starts[0], starts[0] + 1, ... (lengths[0] of them), starts[1], ...``, int64."""
    begins = running_sum(lengths)
    return np.arange(begins[-1]) + np.repeat(starts - begins[:-1], lengths)
