"""SimulatedExecutor: batches take the time a cost model says, and their tokens are known beforehand."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import compress

import numpy as np

from minisgl.core import Batch, BatchResult, Request
from minisgl.sim.costs import CostModel, Work, work_of

VOCAB = 1 << 15  # drawn tokens are below it
# every token once, and again: each request starts elsewhere in this circle
_DRAWN = [i * 40_503 % VOCAB for i in range(VOCAB)] * 2


def _drawn(uid: int, first: int, end: int) -> list[int]:
    """Tokens ``[first, end)`` of a text that looks like nothing, the same whenever they are asked for."""
    start, n = (uid * 2_654_435_761 + first) % VOCAB, max(0, end - first)
    if n <= VOCAB:
        return _DRAWN[start : start + n]
    return (_DRAWN * (1 + n // VOCAB))[start : start + n]


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
        self._stops: dict[int, int] = {}  # how many it has when one stops it, if one ever does
        self.broken: dict[int, tuple[str, Exception]] = {}  # batch -> where it fails, launch or collect, and how

    def now(self) -> float:
        return self.clock

    def be_at(self, t: float) -> None:
        """It is then, and the device is done with what was launched so far."""
        self.clock = self._busy_until = t

    def wait_until(self, t: float) -> None:
        """Nothing happens until then."""
        self.clock = max(self.clock, t)

    def expect(self, request: Request, output: np.ndarray) -> None:
        """A request generates ``output``; beyond it tokens are drawn, by uid and position, that do not stop it."""
        known = output[: request.max_tokens + 1].tolist()
        drawn = _drawn(request.uid, len(known), request.max_tokens + 1)
        for end in sorted(request.stop_tokens, reverse=True):  # the one below is looked at next
            drawn = [VOCAB + end if token == end else token for token in drawn]
        tokens = known + drawn if known else drawn
        self._tokens[request.uid] = tokens
        self._prompts[request.uid] = request.prompt_len
        if request.stop_tokens:
            stop = next((i + 1 for i, token in enumerate(tokens) if token in request.stop_tokens), None)
            if stop is not None:
                self._stops[request.uid] = stop

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

    # many decode steps at once: see ``minisgl.scheduler.advance.DecodesAhead``

    def left(self, requests: Sequence[Request]) -> list[int]:
        left = [r.max_tokens - len(r.output_ids) for r in requests]
        if self._stops:
            for i, request in enumerate(requests):
                if request.uid in self._stops:
                    left[i] = min(left[i], self._stops[request.uid] - len(request.output_ids))
        return left

    def look_ahead(self, size: int, kv: int, n: int, clock: float, until: float) -> tuple[int, float, float]:
        seconds, began = self.costs.seconds, clock
        for step in range(1, n + 1):
            began = clock
            clock += seconds(Work(0, size, kv, kv))
            if clock >= until:
                return step, float(began), float(clock)
            kv += size
        return n, float(began), float(clock)

    def decode_ahead(self, requests: Sequence[Request], n: int, clock: float) -> None:
        tokens, last = self._tokens, self.last_token
        for request in requests:
            uid, output = request.uid, request.output_ids
            has = len(output)
            output += tokens[uid][has : has + n]
            last[uid] = clock
