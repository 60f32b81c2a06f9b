"""Many decode steps at a time, in closed form: between two decisions a decode step only counts.

As long as nobody arrives or is admitted, every running request gets one token a step, and now and then a page, until
it ends. Decoding cannot change what a refused request lacks, so what n such steps leave behind is written down at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from minisgl.core import Request
from minisgl.events import types as ev
from minisgl.scheduler.cache import CacheManager
from minisgl.scheduler.executor import Executor
from minisgl.scheduler.leaving import received, release_completed
from minisgl.scheduler.policies import PHASES, decode_first, prefill_first

if TYPE_CHECKING:
    from minisgl.scheduler.scheduler import Scheduler


@runtime_checkable
class DecodesAhead(Executor, Protocol):
    """An executor whose tokens and times are known beforehand."""

    def left(self, requests: Sequence[Request]) -> list[int]:
        """How many tokens each will still get, the one that ends it included."""

    def look_ahead(self, size: int, kv: int, n: int, clock: float, until: float) -> tuple[int, float, float]:
        """How many of ``n`` decode steps of ``size`` requests come in time; when the last begins and ends, in seconds.

        The first reads the KV of ``kv`` tokens and begins at ``clock``. The last is the n-th, or the first that ends at
        ``until`` or later.
        """

    def decode_ahead(self, requests: Sequence[Request], n: int, clock: float) -> None:
        """Give each request its next ``n`` tokens, the last of which comes at ``clock``."""

    def be_at(self, t: float) -> None:
        """It is then, and what was launched so far is done."""


class Decoded(NamedTuple):
    """What an event tells of the last batch of several; as of a ``Batch``."""

    number: int
    uids: tuple[int, ...]
    phase: str = "decode"

    @property
    def num_tokens(self) -> int:
        return len(self.uids)


class Stretch(NamedTuple):
    """Decode steps of the same requests."""

    n: int
    began: float  # when the last of them begins, seconds
    clock: float  # when it ends
    alive: list[int]  # who decodes, as places in the list of requests
    ending: list[int]  # who of them ends with the last step

    def told(self) -> tuple[tuple[int, float, list[int]], ...]:
        """In how many steps, until when, and who ends then: the pool is fullest just before an end, so that is told."""
        if self.ending and self.n > 1:
            return (self.n - 1, self.began, []), (1, self.clock, self.ending)
        return ((self.n, self.clock, self.ending),)


def advance(s: Scheduler, n: int, until: float, ends: bool) -> list[ev.StepFinished]:
    """Take up to ``n`` steps as ``Scheduler.advance`` says; none if not even one can be taken in closed form."""
    executor = s.ahead
    if executor is None or not s.running or s.bus or s.config.overlap or s.flying or not s.inbox.empty:
        return []
    if s.phase not in PHASES.values():
        return []
    # a decode step gives nobody in the queue what he lacks, so a test that would change nothing need not be made
    refused = s.phase is prefill_first and s.prefill.refuses()
    if s.prefill.has_work and s.phase is not decode_first and not refused:
        return []
    # after an eviction it is tested again: that may tick the prefix cache, unless it is refused before that
    evicting = refused or not s.prefill.waiting or not s.table.num_free
    requests = [s.running[uid] for uid in sorted(s.running)]
    left = executor.left(requests)
    first = min(left)
    if not ends:
        n = min(n, max(1, first - 1))
    elif s.prefill.waiting or s.prefill.chunked:
        n = min(n, first)  # an end may let somebody in
    else:
        n = min(n, max(left))
    while n:
        stretches = _stretches(executor, requests, left, n, until)
        n = sum([stretch.n for stretch in stretches])
        wanted, unpromised = _wanted(requests, left, n, s.config.page_size)
        if s.cache.can_take(len(wanted), unpromised, evicting):
            break
        n //= 2
    else:
        return []
    s.prefill.retest = s.prefill.retest and not refused
    return _take(s, executor, requests, left, stretches, wanted)


def _stretches(
    executor: DecodesAhead, requests: Sequence[Request], left: Sequence[int], n: int, until: float
) -> list[Stretch]:
    """The next ``n`` steps from end to end, not beyond the first that ends at ``until`` or later."""
    alive, kv = list(range(len(requests))), sum([r.device_len for r in requests])
    clock, done, stretches = executor.now(), 0, []
    while True:
        end = min([left[i] for i in alive])
        taken, began, clock = executor.look_ahead(len(alive), kv, min(end, n) - done, clock, until)
        done += taken
        ending = [i for i in alive if left[i] == done]
        stretches.append(Stretch(taken, began, clock, alive, ending))
        if done < end or done == n or clock >= until:
            return stretches
        kv += len(alive) * taken - sum([requests[i].device_len + done for i in ending])
        alive = [i for i in alive if left[i] > done]


def _wanted(requests: Sequence[Request], left: Sequence[int], n: int, page_size: int) -> tuple[list[int], int]:
    """The pages that ``n`` steps take, step by step and within a step by uid, and how many of them nobody promised.

    Each is told as ``step * len(requests) + i``: the step, counted from 0, that needs it, and whose it is.
    """
    wanted: list[int] = []
    size, unpromised = len(requests), 0
    for i, first in enumerate([len(r.pages) * page_size + 1 - r.device_len for r in requests]):
        if first < n and first < left[i]:
            mine = range(first * size + i, min(left[i], n) * size, page_size * size)
            wanted += mine
            promised = requests[i].reserved
            if len(mine) > promised:
                unpromised += len(mine) - promised
    wanted.sort()
    return wanted, unpromised


def _take(
    s: Scheduler,
    executor: DecodesAhead,
    requests: Sequence[Request],
    left: Sequence[int],
    stretches: Sequence[Stretch],
    wanted: Sequence[int],
) -> list[ev.StepFinished]:
    """Leave behind what the stretches leave behind."""
    events, done, given, size = [], 0, 0, len(requests)
    for stretch in stretches:
        alive = stretch.alive
        uids = tuple([requests[i].uid for i in alive])
        for n, clock, ending in stretch.told():
            done += n
            before, given = given, bisect_left(wanted, done * size)
            if _give(s.cache, requests, wanted[before:given], done - 1):
                s.prefill.retest = True
            executor.be_at(clock)
            s.batches += n
            if ending:
                ended = [requests[i] for i in ending]
                _catch_up(executor, ended, done, clock)
                for request in ended:
                    received(s, request)
                release_completed(s)
            last = Decoded(s.batches, uids)
            events.append(s.announce(last, last, n))
    _catch_up(executor, [requests[i] for i in alive if left[i] > done], done, clock)
    s.decoding = None
    s.table.take_writes()  # who knows its tokens beforehand reads no KV
    s.cache.take_poison()
    return events


def _give(cache: CacheManager, requests: Sequence[Request], wanted: Sequence[int], final: int) -> bool:
    """Give each the pages it wants; whether step ``final`` evicts for them."""
    if not wanted:
        return False
    size, evicts = len(requests), False
    if len(wanted) <= cache.free:
        pages = cache.take(len(wanted))
    else:  # leaf by leaf, as each step would
        pages = []
        for step, group in groupby(wanted, lambda place: place // size):
            count = len(list(group))
            evicts = step == final and count > cache.free
            pages += cache.take(count)
    cache.give_each([requests[place % size] for place in wanted], pages)
    return evicts


def _catch_up(executor: DecodesAhead, requests: Sequence[Request], n: int, clock: float) -> None:
    """Each was in ``n`` batches, the last of which ended at ``clock``."""
    executor.decode_ahead(requests, n, clock)
    for request in requests:
        request.device_len = length = request.device_len + n
        request.cached_len = request.done_len = length - 1
