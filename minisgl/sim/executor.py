"""SimulatedExecutor: batches take the time a cost model says, and their tokens are known beforehand."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import compress

import numpy as np

from minisgl.core import Batch, BatchResult, Request
from minisgl.sim.costs import CostModel, Work, work_of

VOCAB = 1 << 15  # drawn tokens are below it


class SimulatedExecutor:
    """A :class:`minisgl.scheduler.executor.Executor` on virtual time, in seconds since start.

    The device is one queue: a batch begins when it is launched and the one before it is done. The host's own time is
    part of the cost model's constant.
    """

    def __init__(self, costs: CostModel) -> None:
        self.costs = costs
        self.clock = 0.0
        # of each request, by the host's clock: its first forward was launched, its first and last token came
        self.began: dict[int, float] = {}
        self.first_token: dict[int, float] = {}
        self.last_token: dict[int, float] = {}
        self._busy_until = 0.0
        self._in_flight: deque[tuple[Batch, float, float]] = deque()
        self._tokens: dict[int, list[int]] = {}  # of each request, after its prompt
        self._prompts: dict[int, int] = {}  # length
        self._ends: dict[int, int] = {}  # how many tokens it has when one stops it
        self.broken: dict[int, tuple[str, Exception]] = {}  # batch -> where it fails, launch or collect, and how

    def now(self) -> float:
        return self.clock

    def wait_until(self, t: float) -> None:
        """Nothing happens until then."""
        self.clock = max(self.clock, t)

    def expect(self, request: Request, output: np.ndarray) -> None:
        """A request generates ``output``; beyond it tokens are drawn, by uid and position, that do not stop it."""
        known = output[: request.max_tokens + 1]
        drawn = (request.uid * 2_654_435_761 + np.arange(len(known), request.max_tokens + 1) * 40_503) % VOCAB
        for stop in sorted(request.stop_tokens, reverse=True):  # the one below is looked at next
            drawn[drawn == stop] = VOCAB + stop
        tokens = np.concatenate((known, drawn)).tolist()
        stops = (i for i, token in enumerate(tokens) if token in request.stop_tokens) if request.stop_tokens else ()
        self._tokens[request.uid] = tokens
        self._prompts[request.uid] = request.prompt_len
        self._ends[request.uid] = next(iter(stops), len(tokens)) + 1

    def launch(self, batch: Batch) -> None:
        where, failure = self.broken.get(batch.number, ("", None))
        if failure and where == "launch":
            raise failure
        if batch.phase != "decode":
            for uid in batch.uids:
                self.began.setdefault(uid, self.clock)
        started = max(self.clock, self._busy_until)
        self._busy_until = started + self.costs.seconds(work_of(batch))
        self._in_flight.append((batch, started, self._busy_until))

    def collect(self) -> BatchResult:
        batch, started, finished = self._in_flight.popleft()
        self.clock = max(self.clock, finished)
        where, failure = self.broken.get(batch.number, ("", None))
        if failure and where == "collect":
            raise failure
        tokens = [-1] * len(batch.uids)
        for i in compress(range(len(tokens)), batch.samples):
            tokens[i] = self.token(batch.uids[i], batch.ends[i])
        drawn = dict.fromkeys(compress(batch.uids, batch.samples), self.clock)
        self.last_token |= drawn
        if batch.phase != "decode":
            for uid in drawn:
                self.first_token.setdefault(uid, self.clock)
        return BatchResult(batch.number, tokens, started, finished)

    def token(self, uid: int, position: int) -> int:
        """What the request has at a position."""
        return self._tokens[uid][position - self._prompts[uid]]

    def decode_ahead(self, requests: Sequence[Request], n: int, until: float) -> list[list[int]]:
        """``n`` decode steps at once: see ``minisgl.scheduler.advance.DecodesAhead``."""
        have = [len(r.output_ids) for r in requests]
        n = min([n, *(self._ends[r.uid] - k for r, k in zip(requests, have, strict=True))])
        kv = sum(r.device_len for r in requests) + np.arange(n) * len(requests)
        ends = self.clock + np.cumsum(self.costs.seconds(Work(0, len(requests), kv, kv)) + np.zeros(n))
        n = min(n, int(np.searchsorted(ends, until)) + 1)
        self.clock = self._busy_until = float(ends[n - 1])
        self.last_token |= dict.fromkeys([r.uid for r in requests], self.clock)
        return [self._tokens[r.uid][k : k + n] for r, k in zip(requests, have, strict=True)]
