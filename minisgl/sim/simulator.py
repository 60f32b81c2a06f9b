"""Simulator: drives the scheduler through a workload on virtual time."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

from minisgl.collector import no_collection
from minisgl.config import EngineConfig
from minisgl.core import Request
from minisgl.errors import ConfigError, RequestError
from minisgl.events import StepFinished
from minisgl.events.until import Condition, Stop, run_until
from minisgl.scheduler import Scheduler
from minisgl.sim.costs import DEFAULT, CostModel
from minisgl.sim.executor import SimulatedExecutor
from minisgl.sim.outcome import Outcome
from minisgl.sim.source import SchedulerSource
from minisgl.sim.workload import Workload

FAR = 1 << 30  # steps at a time, at most


class Simulator(SchedulerSource):
    """The engine's scheduler without a model; a ``Recorder`` takes it as it takes an LLM.

    Args:
        config: ``num_pages`` must be given; ``max_seq_len`` None is what the pool holds.
        costs: how long a batch takes.

    Raises:
        ConfigError: no ``num_pages``.
    """

    def __init__(self, config: EngineConfig, costs: CostModel = DEFAULT) -> None:
        if config.num_pages is None:
            raise ConfigError("num_pages=None: a simulation has no memory to measure; say how many pages the pool has")
        if config.max_seq_len is None:
            config = replace(config, max_seq_len=config.num_pages * config.page_size)
        self.config = config
        self.executor = SimulatedExecutor(costs)
        super().__init__(Scheduler(config, self.executor))
        self._steps: Iterator[StepFinished] = iter(())  # of the workload that was begun

    def run(self, workload: Workload, watch: Callable[[float], object] | None = None) -> Outcome:
        """Submit each arrival at its time and step until all have ended.

        ``watch`` is called between steps with the seconds since the start; what it raises ends the run.
        """
        requests: list[Request | RequestError] = []
        with no_collection():  # it would be an eighth of a run
            steps = list(self._play(workload, requests, watch, ends=True))
        return Outcome(workload, requests, self.executor, steps, self.scheduler.cache.num_pages)

    def begin(self, workload: Workload) -> None:
        """Let :meth:`step` and :meth:`run_until` take this workload's steps; its time begins now."""
        self._steps = self._play(workload, [])

    def step(self) -> StepFinished | None:
        """The next step of the workload that was begun; None when it is over. Where nobody listens, several at once."""
        return next(self._steps, None)

    def run_until(self, condition: Condition) -> Stop:
        """Take the steps of the workload that was begun until something happens: see ``LLM.run_until``."""
        return run_until(self, condition)

    def _play(
        self,
        workload: Workload,
        requests: list[Request | RequestError],  # in order of arrival; an error is why one was refused
        watch: Callable[[float], object] | None = None,
        ends: bool = False,
    ) -> Iterator[StepFinished]:
        scheduler, executor = self.scheduler, self.executor
        scheduler.inbox.stop_tokens = workload.stop_tokens
        origin = executor.now()
        aborts: list[tuple[float, int]] = []
        arrivals = iter(workload.arrivals)
        arrival = next(arrivals, None)
        while True:
            now = executor.now() - origin
            if watch is not None:
                watch(now)
            while arrival is not None and arrival.at <= now:
                try:
                    request = scheduler.submit(arrival.tokens(), arrival.params, arrival.client_id, origin + arrival.at)
                except RequestError as error:  # announced as RequestRejected
                    requests.append(error)
                else:
                    requests.append(request)
                    executor.expect(request, arrival.output)
                    if arrival.abort_at is not None:
                        heapq.heappush(aborts, (arrival.abort_at, request.uid))
                arrival = next(arrivals, None)
            while aborts and aborts[0][0] <= now:
                at, uid = heapq.heappop(aborts)
                scheduler.abort(uid, origin + at)
            due = min(arrival.at if arrival else math.inf, aborts[0][0] if aborts else math.inf)
            events = scheduler.advance(FAR, origin + due, ends)
            if events:
                yield from events
            elif arrival is None:
                return
            else:
                executor.wait_until(origin + arrival.at)

    # -- what a Recorder wants of its source -------------------------------------------------------------------------

    def token_text(self, token: int) -> str:
        return str(token)

    def about(self) -> dict[str, Any]:
        costs = repr(self.executor.costs)
        return {"model": "simulated", "tokenizer": None, "config": asdict(self.scheduler.config), "costs": costs}

    def __repr__(self) -> str:
        return f"Simulator({self.scheduler}, {self.executor.costs})"
