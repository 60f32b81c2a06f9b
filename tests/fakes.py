"""A model small enough to know by heart: its next token is a hash of the KV reached through the device's page table."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict
from threading import RLock

import numpy as np

from minisgl.config import EngineConfig
from minisgl.core import Batch, BatchResult, SamplingParams, pages_for
from minisgl.events.types import Event
from minisgl.scheduler import Scheduler

VOCAB = 1000
MASK = (1 << 61) - 1


def mix(*values: int) -> int:
    h = 0x9E3779B97F4A7C15
    for v in values:
        h = (h ^ (v + 1)) * 0xBF58476D1CE4E5B9 & MASK
        h ^= h >> 29
    return h


def expected(prompt: list[int], n: int, stop: frozenset[int] = frozenset()) -> list[int]:
    """What the request gives alone, with no cache and no pages."""
    tokens, total = list(prompt), 0
    for position, token in enumerate(prompt):
        total += mix(total, token, position)
    for _ in range(n):
        token = mix(total) % VOCAB
        total += mix(total, token, len(tokens))
        tokens.append(token)
        if token in stop:
            break
    return tokens[len(prompt) :]


class HashExecutor:
    """KV of token j is a hash of the token, its place and the sum of the KV before it, as read through the row.

    So a stale, foreign, missing or misplaced slot anywhere in a row changes what comes next.
    """

    def __init__(self, config: EngineConfig) -> None:
        assert config.num_pages and config.max_seq_len
        width = pages_for(config.max_seq_len, config.page_size) * config.page_size
        self.page_table = np.zeros((config.max_running_requests + 1, width), np.int32)
        self.token_pool = np.zeros_like(self.page_table)
        self.kv = np.full((config.num_pages + 1) * config.page_size, -1, object)
        self.batches: list[Batch] = []
        self.fail_at: int | None = None  # the number of a batch that breaks ...
        self.fail_in = "launch"  # ... here, or in "collect"
        self._clock = 0
        self._results: deque[BatchResult] = deque()

    def now(self) -> float:
        return self._clock / 1000

    def launch(self, batch: Batch) -> None:
        self.batches.append(batch)
        self._clock += 1
        if batch.number == self.fail_at and self.fail_in == "launch":
            raise RuntimeError("the device is gone")
        for table, writes in ((self.token_pool, batch.token_writes), (self.page_table, batch.slot_writes)):
            for row, start, values in writes:
                table[row, start : start + len(values)] = values
        tokens = []
        for row, start, end, samples in zip(batch.rows, batch.starts, batch.ends, batch.samples, strict=True):
            slots = self.page_table[row, :end]
            total = int(sum(self.kv[slots[:start]]))
            for j in range(start, end):
                self.kv[slots[j]] = mix(total, int(self.token_pool[row, j]), j)
                total += self.kv[slots[j]]
            tokens.append(mix(total) % VOCAB if samples else -1)
            if samples and end < self.token_pool.shape[1]:
                self.token_pool[row, end] = tokens[-1]
        self._results.append(BatchResult(batch.number, tokens, self.now(), self.now()))

    def collect(self) -> BatchResult:
        result = self._results.popleft()
        if result.number == self.fail_at and self.fail_in == "collect":
            raise RuntimeError("the device is gone")
        return result


class Run:
    """A Scheduler on a HashExecutor, its events kept."""

    def __init__(self, stop_tokens: tuple[int, ...] = (), record: bool = True, **settings) -> None:
        defaults = {"num_pages": 64, "max_running_requests": 8, "max_seq_len": 128, "check": True}
        self.config = EngineConfig(**(defaults | settings))
        self.executor = HashExecutor(self.config)
        self.scheduler = Scheduler(self.config, self.executor, vocab_size=VOCAB, stop_tokens=stop_tokens)
        self.lock = RLock()
        self.events: list[Event] = []
        if record:
            self.scheduler.bus.on(None, self.events.append)

    def submit(self, prompt: list[int], max_tokens: int = 8, **params):
        return self.scheduler.submit(prompt, SamplingParams(max_tokens=max_tokens, **params))

    def play(self, limit: int = 10_000) -> int:
        """Step until idle; the number of steps."""
        for steps in range(limit):
            if self.scheduler.step() is None:
                return steps
        raise AssertionError(f"still busy after {limit} steps")

    # -- what a Recorder wants of its source --------------------------------------------------------------------------

    def snapshot(self):
        return self.scheduler.snapshot()

    def on(self, event_type, fn):
        return self.scheduler.bus.on(event_type, fn)

    def drain(self) -> None:
        self.scheduler.drain()

    def token_text(self, token: int) -> str:
        return f"<{token}>"

    def about(self) -> dict:
        return {"model": "hash", "tokenizer": None, "vocab_size": VOCAB, "config": asdict(self.config)}

    def of(self, kind: type) -> list:
        return [e for e in self.events if type(e) is kind]
