"""Outcome: what a simulated run came to, without a record of it."""

from __future__ import annotations

from functools import cached_property
from html import escape
from typing import Any

import numpy as np

from minisgl.core import Request
from minisgl.errors import RequestError
from minisgl.events.figures import Spread, spread
from minisgl.events.table import Table
from minisgl.events.types import StepFinished
from minisgl.events.words import count
from minisgl.sim.executor import SimulatedExecutor
from minisgl.sim.workload import Workload

REQUESTS = {
    "uid": "request",
    "prompt_tokens": "tokens",
    "cached_tokens": "tokens",
    "output_tokens": "tokens",
    "reason": "text",
    "retractions": "times",
    "submitted": "s",
    "queue_time": "s",
    "ttft": "s",
    "tpot": "s",
    "e2e": "s",
}
CURVE = {
    "step": "step",
    "t": "s",
    "running": "requests",
    "waiting": "requests",
    "free": "pages",
    "occupied": "pages",
    "evictable": "pages",
    "promised": "pages",
}


class Outcome:
    """Times and counts of one simulated run, by the names that ``trace.figures`` uses.

    ``requests`` has one row per arrival (a refused one has the reason "error"), ``curve`` one per step taken alone or
    at a time (``Scheduler.advance``): the pool and the queues after it.
    """

    def __init__(
        self,
        workload: Workload,
        requests: list[Request | RequestError],
        executor: SimulatedExecutor,
        steps: list[StepFinished],
        num_pages: int,
    ) -> None:
        self.workload = workload
        self.num_pages = num_pages
        self.steps = steps[-1].step if steps else 0
        self._requests = requests
        self._executor = executor
        self._steps = steps

    @cached_property
    def requests(self) -> Table:
        ex, rows = self._executor, []
        for arrival, r in zip(self.workload.arrivals, self._requests, strict=True):
            if isinstance(r, RequestError):
                rows.append((r.uid, arrival.prompt_len, 0, 0, "error", 0, arrival.at, *[np.nan] * 4))
                continue
            began, first, last = (times.get(r.uid, np.nan) for times in (ex.began, ex.first_token, ex.last_token))
            new = len(r.output_ids)
            tpot = (last - first) / (new - 1) if new > 1 else np.nan
            waits = (began - r.submitted, first - r.submitted, tpot, last - r.submitted)
            reason = r.finish_reason or ""
            rows.append((r.uid, r.prompt_len, r.cached_tokens, new, reason, r.retractions, r.submitted, *waits))
        return Table.of_rows("requests", REQUESTS, rows)

    @property
    def refusals(self) -> list[RequestError]:
        """Why requests were refused, in order of arrival; each error knows its ``uid``."""
        return [r for r in self._requests if isinstance(r, RequestError)]

    @cached_property
    def curve(self) -> Table:
        return Table.of_rows(
            "curve",
            CURVE,
            [
                (
                    e.step,
                    e.t,
                    e.running,
                    e.waiting,
                    e.free_pages,
                    e.owned_pages + e.protected_pages,
                    e.evictable_pages,
                    e.reserved_pages,
                )
                for e in self._steps
            ],
        )

    @cached_property
    def figures(self) -> dict[str, Any]:
        """One number each: what a curve over many runs is made of. Times in seconds."""
        table, curve = self.requests, self.curve
        asked = table.prompt_tokens[table.reason != "error"].sum()
        duration = float(curve.t[-1] - table.submitted.min()) if len(curve) and len(table) else 0.0
        spreads: dict[str, Spread] = {n: spread(table[n]) for n in ("queue_time", "ttft", "tpot", "e2e")}
        out = int(table.output_tokens.sum())
        return {
            "finished": int(np.isin(table.reason, ("stop", "length")).sum()),
            "refused": int((table.reason == "error").sum()),
            "steps": self.steps,
            "duration": duration,
            "output_tokens": out,
            "output_throughput": out / duration if duration else 0.0,
            "hit_rate": float(table.cached_tokens.sum() / asked) if asked else 0.0,
            **{f"{n}_{p}": getattr(s, p) for n, s in spreads.items() for p in ("mean", "p50", "p95", "max")},
            "retractions": int(table.retractions.sum()),
            "occupied_most": int(curve.occupied.max()) if len(curve) else 0,
            "waiting_most": int(curve.waiting.max()) if len(curve) else 0,
        }

    def __repr__(self) -> str:
        f = self.figures
        return (
            f"Outcome({f['finished']} of {len(self.workload)} requests in {self.steps} steps and {f['duration']:.2f} s "
            f"modelled: hit rate {f['hit_rate']:.1%}, TTFT {f['ttft_mean']:.3f} s, queue {f['queue_time_mean']:.3f} s, "
            f"{f['output_throughput']:.1f} tokens/s, {count(f['retractions'], 'retraction')})"
        )

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{escape(k)}</th><td>{v:.6g}</td></tr>" for k, v in self.figures.items())
        return f"<table>{rows}</table>"
