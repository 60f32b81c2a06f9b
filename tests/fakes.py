"""A model small enough to know by heart: its next token is a hash of the KV reached through the device's page table."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import asdict, dataclass
from random import Random
from threading import RLock

import numpy as np

from minisgl.config import EngineConfig
from minisgl.core import Batch, BatchResult, SamplingParams, pages_for, slots_of
from minisgl.errors import LedgerError
from minisgl.events.recorder import Recorder
from minisgl.events.trace import Trace
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


POISON = -(1 << 70)  # KV of a page that nobody owns


@dataclass(eq=False)
class Lane:
    """What one request computes in one batch, with the slots it was launched with."""

    batch: int
    uid: int
    row: int
    start: int
    end: int
    samples: bool
    slots: np.ndarray
    token: int | None = None  # -1 where nothing is sampled; None until it has run

    def overwrites(self, other: Lane) -> bool:
        """Does it write a slot or a row that the other one uses?"""
        return self.row == other.row or not set(self.slots[self.start :].tolist()).isdisjoint(other.slots.tolist())


class HashExecutor:
    """KV of token j is a hash of the token, its place and the sum of the KV before it, as read through the row.

    So a stale, foreign, missing or misplaced slot anywhere in a row changes what comes next. Lanes run at launch.
    """

    def __init__(self, config: EngineConfig) -> None:
        assert config.num_pages and config.max_seq_len
        width = pages_for(config.max_seq_len, config.page_size) * config.page_size
        self.page_size = config.page_size
        self.page_table = np.zeros((config.max_running_requests + 1, width), np.int32)
        self.token_pool = np.zeros_like(self.page_table)
        self.kv = np.full((config.num_pages + 1) * config.page_size, POISON, object)
        self.batches: list[Batch] = []
        self.fail_at: int | None = None  # the number of a batch that breaks ...
        self.fail_in = "launch"  # ... here, or in "collect"
        self.lanes: list[Lane] = []  # launched, not yet run
        self._clock = 0
        self._flying: deque[list[Lane]] = deque()

    def now(self) -> float:
        return self._clock / 1000

    def launch(self, batch: Batch) -> None:
        self.batches.append(batch)
        self._clock += 1
        if batch.number == self.fail_at and self.fail_in == "launch":
            raise RuntimeError("the device is gone")
        for row, start, tokens in batch.token_writes:
            self.token_pool[row, start : start + len(tokens)] = tokens
        for rows, firsts, counts, pages in batch.page_writes:
            left = list(pages)
            for row, first, n in zip(rows, firsts, counts, strict=True):
                slots = slots_of(left[:n], self.page_size)
                self.page_table[row, first * self.page_size :][: len(slots)] = slots
                del left[:n]
        for page in batch.poison:
            self.kv[page * self.page_size : (page + 1) * self.page_size] = POISON
        for lanes in self._flying:
            for flying in lanes:
                named = {slot // self.page_size for slot in flying.slots.tolist()}
                if not named.isdisjoint(batch.poison):
                    raise LedgerError(f"pages {batch.poison} were freed, and {flying} still reads some of them")
        columns = zip(batch.uids, batch.rows, batch.starts, batch.ends, batch.samples, strict=True)
        lanes = [Lane(batch.number, *c, slots=self.page_table[c[1], : c[3]].copy()) for c in columns]
        for lane in lanes:
            for flying in itertools.chain(*self._flying):
                if lane.uid != flying.uid and lane.overwrites(flying):
                    raise LedgerError(f"{lane} overwrites what {flying} uses")
        self.lanes += lanes
        self._flying.append(lanes)
        self.progress()

    def progress(self) -> None:
        """Run lanes; which, and in what order, is this executor's own choice."""
        while self.lanes:
            self.run(self.lanes[0])

    def run(self, lane: Lane) -> None:
        self.lanes.remove(lane)
        total = int(sum(self.kv[lane.slots[: lane.start]]))
        for j in range(lane.start, lane.end):
            self.kv[lane.slots[j]] = mix(total, int(self.token_pool[lane.row, j]), j)
            total += self.kv[lane.slots[j]]
        lane.token = mix(total) % VOCAB if lane.samples else -1
        if lane.samples and lane.end < self.token_pool.shape[1]:
            self.token_pool[lane.row, lane.end] = lane.token

    def collect(self) -> BatchResult:
        lanes = self._flying.popleft()
        for lane in lanes:
            self.require(lane)
        number = lanes[0].batch
        if number == self.fail_at and self.fail_in == "collect":
            raise RuntimeError("the device is gone")
        return BatchResult(number, [lane.token for lane in lanes], self.now(), self.now())

    def require(self, lane: Lane) -> None:
        """Let this lane have run, with all that it depends on."""
        if lane.token is None:
            for other in self.before(lane):
                self.require(other)
            self.run(lane)

    def before(self, lane: Lane) -> list[Lane]:
        """Lanes not yet run whose token or KV this one reads. Nothing else forbids an order."""
        earlier = self.lanes[: self.lanes.index(lane)]
        read = set(lane.slots[: lane.start].tolist())
        return [e for e in earlier if e.uid == lane.uid or not read.isdisjoint(e.slots[e.start :].tolist())]


class AdversarialExecutor(HashExecutor):
    """Delays and reorders whatever no true dependency forbids.

    A write that waits for a read or for another write of the same place is no true dependency: keeping such places
    apart is the scheduler's duty (nothing is released while a batch in flight can still touch it). Table writes and
    page fills, which carry the host's decisions, are as early as they can be, lanes as late.
    """

    def __init__(self, config: EngineConfig, seed: int = 0) -> None:
        super().__init__(config)
        self.random = Random(seed)

    def progress(self) -> None:
        while self.lanes and self.random.random() < 0.5:
            ready = [lane for lane in self.lanes if not self.before(lane)]
            self.run(self.random.choice(ready))


DEFAULTS = {"num_pages": 64, "max_running_requests": 8, "max_seq_len": 128, "check": True, "poison": True}


class Run:
    """A Scheduler on a HashExecutor, its events kept."""

    def __init__(self, stop_tokens: tuple[int, ...] = (), record: bool = True, adversary=None, **settings) -> None:
        self.config = EngineConfig(**(DEFAULTS | settings))
        self.executor = HashExecutor(self.config) if adversary is None else AdversarialExecutor(self.config, adversary)
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

    def checkpoint(self) -> dict:
        return self.scheduler.checkpoint()

    def drain(self) -> None:
        self.scheduler.drain()

    def token_text(self, token: int) -> str:
        return f"<{token}>"

    def about(self) -> dict:
        return {
            "model": "hash",
            "tokenizer": None,
            "vocab_size": VOCAB,
            "config": asdict(self.scheduler.config),
            "stop_tokens": list(self.scheduler.inbox.stop_tokens),
        }

    def of(self, kind: type) -> list:
        return [e for e in self.events if type(e) is kind]


def thirty() -> Trace:
    """30 requests at once, three prefaces between them, each of 19 pages at most, in a pool of 64."""
    run = Run(num_pages=64, max_seq_len=40, check=False)
    with Recorder(run, "thirty") as recorder:
        for i in range(30):
            run.submit([i % 3] * 6 + [i], 12)
        run.play()
    return recorder.trace
