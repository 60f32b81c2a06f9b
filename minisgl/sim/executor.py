"""SimulatedExecutor: batches take the time a cost model says, and their tokens are known beforehand."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import compress

import numpy as np

from minisgl.core import Batch, BatchResult
from minisgl.sim.costs import CostModel, work_of

VOCAB = 1 << 15  # drawn tokens are below it


class SimulatedExecutor:
    """A :class:`minisgl.scheduler.executor.Executor` on virtual time, in seconds since start.

    The device is one queue: a batch begins when it is launched and the one before it is done. The host's own time is
    part of the cost model's constant.
    """

    def __init__(self, costs: CostModel) -> None:
        self.costs = costs
        self.clock = 0.0
        self._busy_until = 0.0
        self._in_flight: deque[tuple[Batch, float, float]] = deque()
        self._outputs: dict[int, tuple[int, np.ndarray, frozenset[int]]] = {}  # prompt length, tokens, what stops
        self.broken: dict[int, tuple[str, Exception]] = {}  # batch -> where it fails, launch or collect, and how

    def now(self) -> float:
        return self.clock

    def wait_until(self, t: float) -> None:
        """Nothing happens until then."""
        self.clock = max(self.clock, t)

    def expect(self, uid: int, prompt_len: int, output: np.ndarray, stops: Iterable[int]) -> None:
        """Request ``uid`` generates ``output``; beyond it tokens are drawn that do not stop it."""
        self._outputs[uid] = (prompt_len, output, frozenset(stops))

    def launch(self, batch: Batch) -> None:
        where, failure = self.broken.get(batch.number, ("", None))
        if failure and where == "launch":
            raise failure
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
        return BatchResult(batch.number, tokens, started, finished)

    def token(self, uid: int, position: int) -> int:
        """What the request has, or gets, at a position: recorded, or drawn from (uid, position) alone."""
        prompt_len, output, stops = self._outputs[uid]
        at = position - prompt_len
        if at < len(output):
            return int(output[at])
        token = (uid * 2_654_435_761 + position * 40_503) % VOCAB
        while token in stops:
            token += 1
        return token
