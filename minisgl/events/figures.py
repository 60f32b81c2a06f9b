"""Figures: what a run comes to, under the names the field uses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import msgspec
import numpy as np

from minisgl.events import types as ev
from minisgl.events.table import Table, aligned
from minisgl.events.words import count

NAN = float("nan")


class Spread(msgspec.Struct, frozen=True):
    """How a time is spread over ``count`` requests, in seconds; percentiles interpolate linearly."""

    count: int
    mean: float
    p50: float
    p95: float
    p99: float
    max: float


class Level(msgspec.Struct, frozen=True):
    """A number of pages over all batches, as each was launched: after its allocation, before anything is processed."""

    mean: float
    least: int
    most: int


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What a run comes to. ``trace.requests`` and ``trace.steps`` say how each time and count is taken.

    Attributes:
        steps, num_requests, finished: how many; a rejected request has not finished.
        prompt_tokens, cached_tokens: of requests admitted in this run for the first time.
        output_tokens: tokens the host received.
        duration: seconds from the first submission (the start, if requests were alive then) to the end of the last
            step.
        output_throughput: output tokens per second of that; total_throughput: prompt tokens as well.
        ttft, tpot, queue_time, e2e: time to first token, time per output token after the first, submission to
            admission, submission to end.
        hit_rate: cached_tokens / prompt_tokens.
        hit_rate_ceiling: the hit rate if nothing were ever evicted and every prompt were cached as soon as its request
            is admitted: whole pages, in order of admission, up to the prompt's last-but-one token; what a request had
            put out counts once it was handed over, which is when it has finished, or has come back from a retraction.
        occupied: pages owned or locked by requests; evictable: cached and locked by nobody; free: in the free list.
            The three add up to the pool.
        promised: pages reserved for running requests and not yet taken.
        evicted_pages, dropped_samples, retractions: how many. lost_tokens: tokens whose KV retractions took back.
    """

    steps: int
    num_requests: int
    finished: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    duration: float
    output_throughput: float
    total_throughput: float
    ttft: Spread
    tpot: Spread
    queue_time: Spread
    e2e: Spread
    hit_rate: float
    hit_rate_ceiling: float
    num_pages: int
    occupied: Level
    evictable: Level
    free: Level
    promised: Level
    evicted_pages: int
    dropped_samples: int
    retractions: int
    lost_tokens: int

    def to_dict(self) -> dict[str, Any]:
        """Plain nested dicts; NaN where nothing was measured."""
        return msgspec.to_builtins(self)

    def __repr__(self) -> str:
        spreads = [("", *Spread.__struct_fields__)]
        for name in ("ttft", "tpot", "queue_time", "e2e"):
            s = getattr(self, name)
            spreads.append((name, str(s.count), *(_seconds(getattr(s, f)) for f in Spread.__struct_fields__[1:])))
        levels = [("pages", *Level.__struct_fields__)]
        for name in ("occupied", "evictable", "free", "promised"):
            level = getattr(self, name)
            levels.append((name, f"{level.mean:.1f}", str(level.least), str(level.most)))
        return "\n".join(
            [
                f"{count(self.num_requests, 'request')}, {self.finished} finished, in {count(self.steps, 'step')} and "
                f"{_seconds(self.duration)}",
                f"tokens: {self.prompt_tokens} prompt, {self.output_tokens} output; "
                f"{self.output_throughput:.1f} output tokens/s, {self.total_throughput:.1f} tokens/s in all",
                f"hit rate: {self.hit_rate:.1%} ({self.cached_tokens} of {count(self.prompt_tokens, 'prompt token')}), "
                f"at most {self.hit_rate_ceiling:.1%} with a cache that never forgets",
                f"pool of {self.num_pages} pages: {self.evicted_pages} evicted; "
                f"{count(self.retractions, 'retraction')} ({count(self.lost_tokens, 'token')} lost), "
                f"{count(self.dropped_samples, 'sample')} dropped",
                "",
                *aligned(spreads, left=[0]),
                "",
                *aligned(levels, left=[0]),
            ]
        )

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


def figures(keyframe: dict, events: Sequence[ev.Event], requests: Table, steps: Table) -> Figures:
    """The figures of a run, from its events and the tables of them."""
    batches = [e for e in events if isinstance(e, ev.BatchScheduled)]
    prompt, cached, possible = _hits(keyframe, events)
    output = int(steps.sampled.sum())
    begun = [e.submitted for e in events if isinstance(e, ev.RequestArrived)]
    if any(r["status"] != "finished" for r in keyframe["requests"].values()):
        begun.append(keyframe["t"])
    duration = float(steps.t[-1]) - min(begun) if len(steps) and begun else NAN
    return Figures(
        steps=len(steps),
        num_requests=len(requests),
        finished=int(steps.finished.sum()),
        prompt_tokens=prompt,
        cached_tokens=cached,
        output_tokens=output,
        duration=duration,
        output_throughput=_ratio(output, duration),
        total_throughput=_ratio(prompt + output, duration),
        ttft=spread(requests.ttft),
        tpot=spread(requests.tpot),
        queue_time=spread(requests.queue_time),
        e2e=spread(requests.e2e),
        hit_rate=_ratio(cached, prompt),
        hit_rate_ceiling=_ratio(possible, prompt),
        num_pages=keyframe["num_pages"],
        occupied=_level([e.owned_pages + e.protected_pages for e in batches]),
        evictable=_level([e.evictable_pages for e in batches]),
        free=_level([e.free_pages for e in batches]),
        promised=_level([e.reserved_pages for e in batches]),
        evicted_pages=int(steps.evicted.sum()),
        dropped_samples=int(steps.dropped.sum()),
        retractions=int(steps.retractions.sum()),
        lost_tokens=int(steps.lost.sum()),
    )


class _Everything:
    """The prefix cache that never forgets: every whole page of tokens it was shown, by what stands before it."""

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.pages: dict[tuple[int, tuple[int, ...]], int] = {}  # (the page before, tokens) -> page

    def _split(self, tokens: Sequence[int]) -> Iterable[tuple[int, ...]]:
        ps = self.page_size
        return (tuple(tokens[i : i + ps]) for i in range(0, len(tokens) - ps + 1, ps))

    def add(self, tokens: Sequence[int]) -> None:
        page = 0
        for part in self._split(tokens):
            page = self.pages.setdefault((page, part), len(self.pages) + 1)

    def match(self, tokens: Sequence[int]) -> int:
        """How many leading tokens are known, in whole pages."""
        page, pages = 0, 0
        for part in self._split(tokens):
            page = self.pages.get((page, part), 0)
            if not page:
                break
            pages += 1
        return pages * self.page_size


def _hits(keyframe: dict, events: Iterable[ev.Event]) -> tuple[int, int, int]:
    """Prompt tokens of requests admitted for the first time, how many were cached, and how many could have been."""
    everything = _Everything(keyframe["page_size"])
    nodes = keyframe["nodes"]
    for leaf in sorted(nodes.keys() - {n["parent"] for n in nodes.values()}):
        path: list[tuple[int, ...]] = []
        while leaf > 0:
            path.append(nodes[leaf]["tokens"])
            leaf = nodes[leaf]["parent"]
        everything.add([token for run in reversed(path) for token in run])
    tokens: dict[int, list[int]] = {}  # prompt and output of each request
    length: dict[int, int] = {}  # of its prompt
    seated: set[int] = set()  # who was admitted before
    for uid, r in keyframe["requests"].items():
        tokens[uid], length[uid] = [*r["prompt"], *r["output"]], len(r["prompt"])
        if r["status"] in ("prefill", "running"):
            everything.add(r["prompt"])
        if r["status"] != "waiting" or r["output"]:
            seated.add(uid)

    prompt = cached = possible = 0
    for e in events:
        if isinstance(e, ev.RequestArrived):
            tokens[e.uid], length[e.uid] = list(e.prompt), len(e.prompt)
        elif isinstance(e, ev.RequestAdmitted) and e.uid not in seated:
            seated.add(e.uid)
            asked = tokens[e.uid][: length[e.uid]]
            prompt += len(asked)
            cached += e.cached_len
            possible += everything.match(asked[:-1])
            everything.add(asked)
        elif isinstance(e, ev.TokensSampled):
            for uid, token, dropped in zip(e.uids, e.tokens, e.dropped, strict=True):
                if not dropped:
                    tokens[uid].append(token)
        elif isinstance(e, ev.Handoff):
            everything.add(tokens[e.uid][: e.n])
    return prompt, cached, possible


def _ratio(a: float, b: float) -> float:
    return a / b if b > 0 else NAN


def spread(times: np.ndarray) -> Spread:
    """How times are spread, those that are NaN left out."""
    times = times[~np.isnan(times)]
    if not len(times):
        return Spread(0, NAN, NAN, NAN, NAN, NAN)
    p50, p95, p99 = np.percentile(times, (50, 95, 99)).tolist()
    return Spread(len(times), float(times.mean()), p50, p95, p99, float(times.max()))


def _level(pages: list[int]) -> Level:
    return Level(sum(pages) / len(pages), min(pages), max(pages)) if pages else Level(NAN, -1, -1)


def _seconds(value: float) -> str:
    if value != value:
        return "-"
    for unit, size in (("s", 1), ("ms", 1e-3)):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-6:.3g} us" if value else "0 s"
