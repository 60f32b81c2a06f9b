"""Driver: plays the scheduler's part by hand, so that the executor is tested without one."""

from __future__ import annotations

import random

import numpy as np

from minisgl.core import Batch, BatchResult, PageWrites, SamplingParams, TokenWrite, pages_for
from minisgl.engine import EngineExecutor

GREEDY = SamplingParams()


class Driver:
    """Hands out rows and pages, the pages in a scrambled order, and keeps every request's tokens."""

    def __init__(self, executor: EngineExecutor) -> None:
        self.executor = executor
        num_pages, self.page_size = executor.pool.data.shape[2] - 1, executor.pool.data.shape[3]
        self.free_pages = random.Random(7).sample(range(num_pages), num_pages)
        self.prompts: dict[int, list[int]] = {}
        self.tokens: dict[int, list[int]] = {}
        self.pages: dict[int, list[int]] = {}
        self.params: dict[int, SamplingParams] = {}
        self.number = 0
        self.token_writes: list[TokenWrite] = []
        self.page_writes: list[PageWrites] = []

    def admit(self, row: int, prompt: list[int], prefix: int = 0, of: int = 0, params: SamplingParams = GREEDY) -> None:
        """Give ``row`` a prompt; its first ``prefix`` tokens, whole pages, use the pages of row ``of``."""
        self.prompts[row], self.tokens[row], self.params[row] = prompt, list(prompt), params
        self.pages[row] = self.pages[of][: prefix // self.page_size] if prefix else []
        self.token_writes.append((row, 0, np.array(prompt)))
        if prefix:
            self._write(row, 0)

    def _write(self, row: int, first: int) -> None:
        pages = tuple(self.pages[row][first:])
        self.page_writes.append(PageWrites((row,), (first,), (len(pages),), pages))

    def launch(self, spans: dict[int, tuple[int, int]]) -> Batch:
        """Compute tokens ``[start, end)`` of each row; a row samples when ``end`` reaches its prompt's end."""
        for row, (_, end) in spans.items():
            pages = self.pages[row]
            first = len(pages)
            while len(pages) < pages_for(end, self.page_size):
                pages.append(self.free_pages.pop())
            self._write(row, first)
        self.number += 1
        batch = Batch(
            number=self.number,
            phase="prefill" if any(end - start > 1 for start, end in spans.values()) else "decode",
            uids=tuple(spans),
            rows=tuple(spans),
            starts=tuple(start for start, _ in spans.values()),
            ends=tuple(end for _, end in spans.values()),
            samples=tuple(end >= len(self.prompts[row]) for row, (_, end) in spans.items()),
            params=tuple(self.params[row] for row in spans),
            seeds=tuple(1000 + row for row in spans),
            page_writes=self.page_writes,
            token_writes=self.token_writes,
        )
        self.page_writes, self.token_writes = [], []
        self.executor.launch(batch)
        return batch

    def run(self, spans: dict[int, tuple[int, int]]) -> BatchResult:
        batch = self.launch(spans)
        result = self.executor.collect()
        for row, token, sampled in zip(batch.rows, result.tokens, batch.samples, strict=True):
            if sampled:
                self.tokens[row].append(token)
        return result

    def prefill(self, *rows: int, start: int = 0) -> BatchResult:
        return self.run({row: (start, len(self.prompts[row])) for row in rows})

    def decode(self, *rows: int, steps: int = 1) -> None:
        for _ in range(steps):
            self.run({row: (len(self.tokens[row]) - 1, len(self.tokens[row])) for row in rows})

    def output(self, row: int) -> list[int]:
        return self.tokens[row][len(self.prompts[row]) :]
