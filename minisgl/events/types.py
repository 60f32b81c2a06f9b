"""The event vocabulary: every change of a page, a row, a tree node or a request is exactly one of these.

Events are frozen structs, one per *batch* where a batch acts (parallel tuples inside), so a step costs a handful of
objects. ``step`` is the step in which it happened (from 1), ``t`` seconds since start by the executor's clock.
Page numbers count from 0; lengths are in tokens unless the name says pages.
"""

from __future__ import annotations

import msgspec

from minisgl.core import SamplingParams

Ints = tuple[int, ...]


class Event(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Base of all events. They hold no cycles, so the garbage collector need not look at them: a trace has many."""

    step: int
    t: float


# -- requests --------------------------------------------------------------------------------------------------------


class RequestArrived(Event, frozen=True):
    """A request joined the queue; ``max_tokens`` is already clamped, ``submitted`` is when the user asked."""

    uid: int
    prompt: Ints
    max_tokens: int
    params: SamplingParams
    seed: int
    stop_tokens: Ints
    submitted: float
    client_id: str | None = None


class RequestRejected(Event, frozen=True):
    """A request that can never be served was refused at submission; ``error`` is the exception's class."""

    uid: int
    prompt_len: int
    error: str
    message: str
    submitted: float
    client_id: str | None = None


class AbortRequested(Event, frozen=True):
    uid: int
    submitted: float


class RequestFinished(Event, frozen=True):
    """``reason``: stop | length | abort | error."""

    uid: int
    reason: str
    num_output: int
    error: str = ""  # what broke, for the reason "error"


# -- admission -------------------------------------------------------------------------------------------------------


class RequestRetracted(Event, frozen=True):
    """Pages ran out, so a running request waits again, at the head of the queue, with what it has generated.

    Its own ``pages`` are freed, uncached; the KV of ``lost`` tokens will have to be computed again.
    """

    uid: int
    pages: Ints
    lost: int


class AdmissionTested(Event, frozen=True):
    """A waiting request, the one whose turn it is, was tested. ``verdict``: admitted | chunk | row | budget | pages.

    Tests run in that order (chunk: an unfinished chunk goes first), and a term is None when its test was not reached.
    The page test is ``need <= free + evictable + pending - reserved``, in pages, first as the cache stands and again
    with the matched prefix locked (``evictable_locked``), because a lock turns evictable pages into protected ones.
    """

    uid: int
    verdict: str
    prompt_len: int
    max_tokens: int
    worst: int | None = None  # tokens it is to be promised room for
    free_rows: int | None = None
    budget: int | None = None  # prefill tokens left in this batch
    matched: int | None = None  # tokens the cache already has
    need: int | None = None
    free: int | None = None
    evictable: int | None = None
    pending: int | None = None
    reserved: int | None = None
    evictable_locked: int | None = None

    @property
    def available(self) -> int | None:
        """Pages that could be had, before the lock."""
        if self.free is None or self.evictable is None or self.pending is None:
            return None
        return self.free + self.evictable + self.pending

    @property
    def available_locked(self) -> int | None:
        """Pages that could be had, after the lock."""
        if self.free is None or self.evictable_locked is None or self.pending is None:
            return None
        return self.free + self.evictable_locked + self.pending


class PrefixMatched(Event, frozen=True):
    """An admission looked a prompt up for use: the nodes on its path (root left out) are stamped with ``tick``."""

    uid: int
    length: int
    path: Ints
    tick: int


class RequestAdmitted(Event, frozen=True):
    """The request got a row; the first ``cached_len`` tokens of the row point at the cache's ``pages``."""

    uid: int
    row: int
    generation: int
    cached_len: int
    pages: Ints
    node: int  # the tree node it keeps locked; 0 is the root: nothing
    reserved: int  # pages promised


# -- pages and the tree ----------------------------------------------------------------------------------------------


class PagesAllocated(Event, frozen=True):
    """All pages one batch takes, in the free list's order: the first ``counts[0]`` for ``uids[0]``, and so on."""

    uids: Ints
    counts: Ints
    pages: Ints


class PagesEvicted(Event, frozen=True):
    """Whole leaves left the tree, in the policy's order; their pages join the end of the free list in this order."""

    nodes: Ints
    pages: Ints


class PagesFreed(Event, frozen=True):
    """The pages released while one batch's results were processed, appended to the free list in this order."""

    pages: Ints
    uids: Ints  # who owned each


class NodeSplit(Event, frozen=True):
    """``node`` was cut after its first ``length`` tokens: they now belong to the new node ``upper`` above it."""

    node: int
    upper: int
    length: int


class NodeInserted(Event, frozen=True):
    """A new leaf: ``pages`` pass from request ``uid`` to the prefix cache."""

    node: int
    parent: int
    tokens: Ints
    pages: Ints
    uid: int


class CacheCleared(Event, frozen=True):
    """Somebody asked for an empty prefix cache: what was unlocked has just been evicted, ``kept`` pages are in use."""

    evicted: int
    kept: int


class SettingsChanged(Event, frozen=True):
    """Somebody changed settings of the scheduler: from this step on they are ``values``, name by name."""

    names: tuple[str, ...]
    values: tuple[str | int | float, ...]


class NodeLocked(Event, frozen=True):
    """``node`` and everything above it is held once more, on behalf of request ``uid``."""

    node: int
    uid: int


class NodeUnlocked(Event, frozen=True):
    node: int
    uid: int


class Handoff(Event, frozen=True):
    """A request's KV ``[0, n)`` was offered to the prefix cache: the four segments of the design's section 4.4.

    ``pages`` are those its row covered before; ``replaced`` are the cache's own pages that now stand in the row for
    ``[old_len, hit_len)``. The nodes of ``path`` are stamped with ``tick``; ``node`` stays locked (0: nothing).
    ``pending``: a batch in flight still names this request, so the pages it gives up (duplicate, and tail if finished)
    stay its own until that batch has completed.
    """

    uid: int
    finished: bool
    n: int
    old_len: int
    hit_len: int
    new_len: int
    page_size: int
    pages: Ints
    replaced: Ints
    node: int
    path: Ints
    tick: int
    pending: bool = False

    def segments(self) -> list[tuple[str, int, int, Ints]]:
        """``(name, start, end, pages)`` of: locked, duplicate, inserted, tail."""
        held = len(self.pages) * self.page_size
        bounds = (0, self.old_len, self.hit_len, self.new_len, held)
        names = ("locked", "duplicate", "inserted", "tail")
        ps = self.page_size
        return [
            (name, a, b, self.pages[a // ps : b // ps]) for name, a, b in zip(names, bounds, bounds[1:], strict=False)
        ]


class RowReleased(Event, frozen=True):
    uid: int
    row: int
    generation: int


# -- batches ---------------------------------------------------------------------------------------------------------


class Counters(Event, frozen=True):
    """What both BatchScheduled and StepFinished report: the batch at hand and the pool, all of it in pages.

    ``free + owned + evictable + protected = num_pages``; ``pending`` are those among ``owned`` that come free when
    the batch in flight completes; ``reserved`` is promised to running requests and not yet taken.
    """

    phase: str  # prefill | decode | mixed | idle
    uids: Ints
    num_tokens: int
    waiting: int
    running: int
    free_pages: int
    reserved_pages: int
    owned_pages: int
    evictable_pages: int
    protected_pages: int
    pending_pages: int


class BatchScheduled(Counters, frozen=True):
    """A batch was put together; counters are taken after its pages were allocated, before anything is processed.

    Request ``uids[i]`` computes its tokens ``[starts[i], ends[i])`` and, if ``samples[i]``, draws token ``ends[i]``;
    ``reserved[i]`` pages are still promised to it.
    """

    batch: int
    starts: Ints
    ends: Ints
    samples: tuple[bool, ...]
    reserved: Ints


class ForwardStarted(Event, frozen=True):
    batch: int


class ForwardFinished(Event, frozen=True):
    """Processing of a batch's results begins; the device's own times, in seconds since start, are its fields.

    With an ``error`` there are no results: the forward broke, at its launch or later. Every batch has one of these.
    """

    batch: int
    started: float
    finished: float
    error: str = ""


class PipelineDrained(Event, frozen=True):
    """The batch in flight is processed before the next one is launched. ``reason``: pages | snapshot.

    pages: a batch needs ``short`` pages more than are free or evictable, and ``pending`` of them wait for the batch in
    flight. snapshot: somebody wants to look at a pipeline with nothing in it.
    """

    batch: int
    reason: str
    short: int = 0
    pending: int = 0


class TokensSampled(Event, frozen=True):
    """Every sample of a batch; ``dropped`` ones belong to requests that had ended before the sample was read."""

    batch: int
    uids: Ints
    tokens: Ints
    dropped: tuple[bool, ...]


class StepFinished(Counters, frozen=True):
    """The step is over; counters are taken after processing.

    ``launched`` and ``processed`` are batch numbers or None; ``uids`` and ``phase`` are those of the batch launched (of
    the one processed, if none was), ``processed_uids`` those of the batch processed.
    """

    launched: int | None
    processed: int | None
    processed_uids: Ints


EVENT_TYPES: tuple[type[Event], ...] = (
    RequestArrived,
    RequestRejected,
    AbortRequested,
    RequestRetracted,
    AdmissionTested,
    PrefixMatched,
    RequestAdmitted,
    PagesAllocated,
    PagesEvicted,
    CacheCleared,
    SettingsChanged,
    NodeSplit,
    NodeInserted,
    NodeLocked,
    NodeUnlocked,
    BatchScheduled,
    ForwardStarted,
    ForwardFinished,
    PipelineDrained,
    TokensSampled,
    Handoff,
    PagesFreed,
    RowReleased,
    RequestFinished,
    StepFinished,
)
