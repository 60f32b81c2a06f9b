"""EngineExecutor: runs batches on the model, and keeps the device's mirrors of page table and token pool."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minisgl.attention.metadata import ragged_arange
from minisgl.core import Batch, BatchResult, PageWrites, TokenWrite, pages_for, slots_of
from minisgl.engine.ghosts import check_reads
from minisgl.engine.runner import Runner
from minisgl.engine.sampler import sample
from minisgl.kvcache.pool import KVPool

Computed = tuple[Tensor, float, float]  # tokens sampled; when the forward began and ended, seconds since start


class EngineExecutor:
    """The real :class:`minisgl.scheduler.executor.Executor`.

    Page table and token pool are int32 ``[max_running_requests + 1, max_seq_len rounded up to whole pages]``. They
    follow the host's writes and decide nothing. Entries without a token, the dummy request's whole row (the last) among
    them, name the dummy page's first slot.

    Args:
        runner: computes batches over ``pool``.
        pool: the KV.
        max_running_requests: rows, the dummy row not counted.
        max_seq_len: tokens of a row.
        overlap: run ahead of the host. A CPU does so in one worker thread, since whatever computes releases Python's
            lock meanwhile; a GPU by itself. What fails in the worker is raised by ``collect``.
        poison: look for NaN in all KV about to be read.
    """

    def __init__(
        self,
        runner: Runner,
        pool: KVPool,
        max_running_requests: int,
        max_seq_len: int,
        overlap: bool = False,
        poison: bool = False,
    ) -> None:
        self.runner = runner
        self.pool = pool
        num_pages, page_size = pool.data.shape[2] - 1, pool.data.shape[3]
        shape = (max_running_requests + 1, pages_for(max_seq_len, page_size) * page_size)
        self.page_table = torch.full(shape, num_pages * page_size, dtype=torch.int32, device=pool.data.device)
        self.token_pool = torch.zeros_like(self.page_table)
        self.poison = poison
        in_thread = overlap and pool.data.device.type == "cpu"
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="minisgl-forward") if in_thread else None
        self._in_flight: deque[tuple[Batch, Future[Computed]]] = deque()
        self._origin = time.perf_counter()

    def now(self) -> float:
        """Seconds since the executor was made."""
        return time.perf_counter() - self._origin

    def launch(self, batch: Batch) -> None:
        """Apply the batch's writes, compute it, sample, and scatter the samples to their places in the token pool."""
        computed: Future[Computed] = Future()
        if self._worker:
            computed = self._worker.submit(self._compute, batch)
        else:
            computed.set_result(self._compute(batch))
        self._in_flight.append((batch, computed))

    @torch.inference_mode()
    def _compute(self, batch: Batch) -> Computed:
        started = self.now()
        self.pool.poison(batch.poison)
        scatter_tokens(self.token_pool, batch.token_writes)
        scatter_pages(self.page_table, batch.page_writes, self.pool.data.shape[3])
        if self.poison:
            check_reads(self.pool, self.page_table, batch)
        logits = self.runner.logits(batch, self.page_table, self.token_pool)
        return self._sample(batch, logits), started, self.now()

    def _sample(self, batch: Batch, logits: Tensor) -> Tensor:
        """Draw a token for each request that samples: int64 ``[samples]``, also written to the token pool."""
        drawn = [i for i, wanted in enumerate(batch.samples) if wanted]
        if not drawn:
            return torch.empty(0, dtype=torch.int64)
        ends = [batch.ends[i] for i in drawn]
        tokens = sample(logits, [batch.params[i] for i in drawn], [batch.seeds[i] for i in drawn], ends)
        width = self.token_pool.shape[1]
        # max_tokens is clamped to what max_seq_len leaves, so every token has its place; past it lies the next row
        assert max(ends) < width, f"samples for positions {ends}, and rows hold {width} tokens"
        places = np.array([batch.rows[i] * width + batch.ends[i] for i in drawn])
        if tokens.device.type == "cpu":
            self.token_pool.view(-1).numpy()[places] = tokens.numpy()
        else:
            self.token_pool.view(-1)[torch.from_numpy(places).to(tokens.device)] = tokens.int()
        return tokens

    def collect(self) -> BatchResult:
        """The result of the oldest batch launched and not collected; waits for it where the device runs ahead."""
        batch, computed = self._in_flight.popleft()
        tokens, started, finished = computed.result()
        drawn = iter(tokens.tolist())
        columns = [next(drawn) if wanted else -1 for wanted in batch.samples]
        return BatchResult(batch.number, columns, started, finished)

    def close(self) -> None:
        """Wait for what is in flight and end the worker."""
        if self._worker:
            self._worker.shutdown()


def scatter_tokens(pool: Tensor, writes: Sequence[TokenWrite]) -> None:
    """Write runs ``(row, start, tokens)`` into the token pool ``[rows, width]``; the later of two wins."""
    if writes:
        rows, starts, runs = zip(*writes, strict=True)
        _scatter(pool, rows, starts, [len(run) for run in runs], np.concatenate(runs, dtype=np.int32))


def scatter_pages(table: Tensor, writes: Sequence[PageWrites], page_size: int) -> None:
    """Write the slots of whole pages into the page table ``[rows, width]``; the later of two wins."""
    if writes:
        rows, firsts, counts, pages = (np.concatenate(column) for column in zip(*writes, strict=True))
        _scatter(table, rows, firsts * page_size, counts * page_size, slots_of(pages, page_size))


def _scatter(table: Tensor, rows: Any, starts: Any, lengths: Any, values: np.ndarray) -> None:
    """One copy of all ``values``, the runs one after the other."""
    place = ragged_arange(np.asarray(rows) * table.shape[1] + np.asarray(starts), np.asarray(lengths))
    if table.device.type == "cpu":  # NumPy, whose calls cost a fraction of torch's: a small model's step is short
        table.view(-1).numpy()[place] = values
    else:
        place, values = last_writes(place, values)
        table.view(-1)[torch.from_numpy(place).to(table.device)] = torch.from_numpy(values).to(table.device)


def last_writes(place: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Only the last write of each place: a scatter with repeated places has no defined winner on a GPU."""
    place, last = np.unique(place[::-1], return_index=True)
    return place, values[::-1][last]
