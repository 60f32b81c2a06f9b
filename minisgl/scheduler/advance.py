"""Many decode steps at a time, in closed form: between two decisions a decode step only counts.

As long as nobody arrives, ends or is admitted, every running request gets one token a step, and now and then a page.
Decoding cannot change what a refused request lacks, so what n such steps leave behind can be written down at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from minisgl.core import Request
from minisgl.events import types as ev
from minisgl.scheduler.cache import CacheManager
from minisgl.scheduler.policies import PHASES, decode_first, prefill_first

if TYPE_CHECKING:
    from minisgl.scheduler.scheduler import Scheduler


@runtime_checkable
class DecodesAhead(Protocol):
    """An executor whose tokens and times are known beforehand."""

    def look_ahead(self, requests: Sequence[Request], n: int, until: float) -> tuple[int, float]:
        """How many of ``n`` decode steps of this batch can be taken at once, and when the last ends, in seconds.

        At least one; fewer than ``n`` if one of the requests stops before, or when one ends at ``until`` or later.
        """

    def decode_ahead(self, requests: Sequence[Request], n: int, clock: float) -> list[list[int]]:
        """Take them: each request's next ``n`` tokens; from now on it is ``clock``."""


class Decoded(NamedTuple):
    """What an event tells of the last batch of several; as of a ``Batch``."""

    number: int
    uids: tuple[int, ...]
    phase: str = "decode"

    @property
    def num_tokens(self) -> int:
        return len(self.uids)


def advance(s: Scheduler, n: int, until: float) -> ev.StepFinished | None:
    """Take up to ``n`` steps as ``Scheduler.advance`` says; None if not even one can be taken in closed form."""
    executor = s.ahead
    if executor is None or not s.running or s.bus or s.config.overlap or s.flying or not s.inbox.empty:
        return None
    if s.phase not in PHASES.values():
        return None
    # a decode step gives nobody in the queue what he lacks, so a test that would change nothing need not be made
    refused = s.phase is prefill_first and s.prefill.refuses()
    if s.prefill.has_work and s.phase is not decode_first and not refused:
        return None
    # after an eviction it is tested again: that may tick the prefix cache, unless it is refused before that
    evicting = refused or not s.prefill.waiting or not s.table.num_free
    requests = [s.running[uid] for uid in sorted(s.running)]
    n = min([n, *[r.max_tokens - len(r.output_ids) for r in requests]])
    while n:
        n, clock = executor.look_ahead(requests, n, until)
        wanted, unpromised = _wanted(requests, n, s.config.page_size)
        if s.cache.can_take(len(wanted), unpromised, evicting):
            break
        n //= 2
    else:
        return None
    tokens = executor.decode_ahead(requests, n, clock)
    s.prefill.retest = _take(s.cache, requests, wanted, n) or (s.prefill.retest and not refused)
    ended = []
    for request, more in zip(requests, tokens, strict=True):
        output = request.output_ids
        output += more
        request.device_len = length = request.device_len + n
        request.cached_len = request.done_len = length - 1
        if len(output) == request.max_tokens or more[-1] in request.stop_tokens:
            ended.append(request)
    s.batches += n
    s.table.take_writes()  # who knows its tokens beforehand reads no KV
    s.cache.take_poison()
    last = Decoded(s.batches, tuple([r.uid for r in requests]))
    for request in ended:
        s.received(request)
    s.release_completed()
    return s.announce(last, last, n)


def _wanted(requests: Sequence[Request], n: int, page_size: int) -> tuple[list[int], int]:
    """The pages that ``n`` steps take, step by step and within a step by uid, and how many of them nobody promised.

    Each is told as ``step * len(requests) + i``: the step, counted from 0, that needs it, and whose it is.
    """
    wanted: list[int] = []
    size, unpromised = len(requests), 0
    for i, request in enumerate(requests):
        first = len(request.pages) * page_size + 1 - request.device_len
        if first < n:
            mine = range(first * size + i, n * size, page_size * size)
            wanted += mine
            if len(mine) > request.reserved:
                unpromised += len(mine) - request.reserved
    wanted.sort()
    return wanted, unpromised


def _take(cache: CacheManager, requests: Sequence[Request], wanted: list[int], n: int) -> bool:
    """Give each the pages it wants; whether the last of the ``n`` steps evicts for them."""
    if not wanted:
        return False
    size, evicts = len(requests), False
    if len(wanted) <= cache.free:
        taken = cache.take(len(wanted))
    else:  # leaf by leaf, as each step would
        taken = []
        for step, group in groupby(wanted, lambda place: place // size):
            count = len(list(group))
            evicts = count > cache.free and step == n - 1
            taken += cache.take(count)
    runs: dict[int, list[int]] = {}
    for place, page in zip(wanted, taken, strict=True):
        runs.setdefault(place % size, []).append(page)
    cache.give(
        [requests[i] for i in runs], [len(run) for run in runs.values()], [p for run in runs.values() for p in run]
    )
    return evicts
