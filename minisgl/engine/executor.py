"""EngineExecutor: runs batches on the model, and keeps the device's mirrors of page table and token pool."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minisgl.attention import AttentionBackend, TorchAttention, build_metadata
from minisgl.attention.metadata import ragged_arange
from minisgl.core import Batch, BatchResult, pages_for
from minisgl.engine.sampler import sample
from minisgl.kvcache.pool import KVPool
from minisgl.models.decoder import Decoder


class EngineExecutor:
    """The real :class:`minisgl.scheduler.executor.Executor`.

    Page table and token pool are int32 ``[max_running_requests + 1, max_seq_len rounded up to whole pages]``. They
    follow the host's writes and decide nothing. Entries without a token, the dummy request's whole row (the last) among
    them, name the dummy page's first slot, as on the host.
    """

    def __init__(
        self,
        model: Decoder,
        pool: KVPool,
        max_running_requests: int,
        max_seq_len: int,
        attention: AttentionBackend | None = None,
    ) -> None:
        self.model = model
        self.pool = pool
        self.attention = attention or TorchAttention(pool)
        num_pages, page_size = pool.data.shape[2] - 1, pool.data.shape[3]
        shape = (max_running_requests + 1, pages_for(max_seq_len, page_size) * page_size)
        self.page_table = torch.full(shape, num_pages * page_size, dtype=torch.int32, device=pool.data.device)
        self.token_pool = torch.zeros_like(self.page_table)
        self._in_flight: deque[tuple[Batch, Tensor, float, float]] = deque()
        self._origin = time.perf_counter()

    def now(self) -> float:
        """Seconds since the executor was made."""
        return time.perf_counter() - self._origin

    @torch.inference_mode()
    def launch(self, batch: Batch) -> None:
        """Apply the batch's writes, compute it, sample, and scatter the samples to their places in the token pool."""
        started = self.now()
        scatter(self.token_pool, batch.token_writes)
        scatter(self.page_table, batch.slot_writes)
        metadata = build_metadata(self.page_table, batch.rows, batch.starts, batch.ends)
        self.attention.prepare(metadata)
        token_ids = self.token_pool.view(-1).index_select(0, metadata.token_index)
        hidden = self.model(token_ids, metadata.positions, self.attention)
        tokens = self._sample(batch, hidden, metadata.qo_indptr)
        self._in_flight.append((batch, tokens, started, self.now()))

    def _sample(self, batch: Batch, hidden: Tensor, qo_indptr: np.ndarray) -> Tensor:
        """Draw a token for each request that samples: int64 ``[samples]``, also written to the token pool."""
        drawn = [i for i, wanted in enumerate(batch.samples) if wanted]
        if not drawn:
            return torch.empty(0, dtype=torch.int64)
        last = torch.from_numpy(qo_indptr[1:][drawn] - 1).to(hidden.device)
        logits = self.model.logits(hidden.index_select(0, last))
        ends = [batch.ends[i] for i in drawn]
        tokens = sample(logits, [batch.params[i] for i in drawn], [batch.seeds[i] for i in drawn], ends)
        width = self.token_pool.shape[1]
        # max_tokens is clamped to what max_seq_len leaves, so every token has its place; past it lies the next row
        assert max(ends) < width, f"samples for positions {ends}, and rows hold {width} tokens"
        places = torch.tensor([batch.rows[i] * width + batch.ends[i] for i in drawn], dtype=torch.int64)
        self.token_pool.view(-1)[places.to(tokens.device)] = tokens.int()
        return tokens

    def collect(self) -> BatchResult:
        """The result of the oldest batch launched and not collected; waits for it where the device runs ahead."""
        batch, tokens, started, finished = self._in_flight.popleft()
        drawn = iter(tokens.tolist())
        columns = [next(drawn) if wanted else -1 for wanted in batch.samples]
        return BatchResult(batch.number, columns, started, finished)


def scatter(table: Tensor, writes: Sequence[tuple[int, int, Any]]) -> None:
    """Write runs ``(row, start, values)`` into ``table`` ``[rows, width]`` in one copy; the later of two wins."""
    if not writes:
        return
    rows, starts, runs = zip(*writes, strict=True)
    lengths = np.array([len(run) for run in runs])
    place = ragged_arange(np.array(rows) * table.shape[1] + np.array(starts), lengths)
    values = np.concatenate([np.asarray(run, dtype=np.int32) for run in runs])
    # a scatter with repeated places has no defined winner on a GPU, so only the last write of each place is sent
    place, last = np.unique(place[::-1], return_index=True)
    values = values[::-1][last]
    table.view(-1)[torch.from_numpy(place).to(table.device)] = torch.from_numpy(values).to(table.device)
