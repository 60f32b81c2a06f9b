"""Events in words: one sentence each, with its numbers. Views, logs and the terminal all say the same."""

from __future__ import annotations

from minisgl.events import types as ev

WAITS = {  # why a request waits, by the verdict of its admission test; ``static/look.js`` says the same
    "row": "no free row",
    "budget": "this batch's prefill budget is used up",
    "pages": "not enough pages",
    "chunk": "an unfinished prompt goes first",
}


def describe(event: ev.Event) -> str:
    """The event as one sentence; "" for events that only carry times or counters."""
    say = _SENTENCES.get(type(event))
    return say(event) if say else ""


def pages(numbers: ev.Ints) -> str:
    """Page numbers, runs shortened: ``(3, 4, 5, 9)`` -> ``3-5, 9``."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or "none"


def _pages_are(numbers: ev.Ints) -> str:
    return f"page{'s' if len(numbers) != 1 else ''} {pages(numbers)} {'are' if len(numbers) != 1 else 'is'}"


def _requests(uids: ev.Ints) -> str:
    return f"request{'s' if len(uids) != 1 else ''} {', '.join(map(str, uids))}"


def count(n: int, noun: str, plural: str = "") -> str:
    """``1 page``, ``2 pages``, ``3 batches``: the plural, where it is not the noun with an s."""
    return f"{n} {noun if n == 1 else plural or noun + 's'}"


def _admission(e: ev.AdmissionTested) -> str:
    who = f"request {e.uid}"
    if e.verdict not in ("pages", "admitted"):
        return f"{who} waits: {WAITS[e.verdict]}"
    had = e.available if e.available_locked is None else e.available_locked
    sums = f"needs {e.need}, {e.reserved} promised, {had} in all"
    if e.verdict == "pages":
        locked = "" if e.available_locked is None else " once its matched prefix is locked"
        return f"{who} waits: {sums}{locked}"
    return f"{who} is admitted: {sums}" + (f", {count(e.matched, 'token')} already cached" if e.matched else "")


def _handoff(e: ev.Handoff) -> str:
    parts = {name: p for name, _, _, p in e.segments()}
    said = [f"request {e.uid} offers its KV [0, {e.n}) to the cache"]
    if parts["locked"]:
        said.append(f"{_pages_are(parts['locked'])} the cache's already")
    later = " when the batch in flight is done" if e.pending else ""
    if parts["duplicate"]:
        kept = f" for the cache's {pages(e.replaced)}" if e.replaced else ""
        copies = "a copy" if len(parts["duplicate"]) == 1 else "copies"
        said.append(f"{_pages_are(parts['duplicate'])} {copies} of the cache's, and freed{kept}{later}")
    if parts["inserted"]:
        said.append(f"{_pages_are(parts['inserted'])} the cache's from now on")
    if parts["tail"]:
        said.append(f"{_pages_are(parts['tail'])} {'freed' + later if e.finished else 'still its own'}")
    return "; ".join(said)


def _batch(e: ev.BatchScheduled) -> str:
    spans = zip(e.uids, e.starts, e.ends, strict=True)
    if e.phase == "prefill":
        who = ", ".join(f"{uid} [{start}:{end}]" for uid, start, end in spans)
    else:
        who = ", ".join(map(str, e.uids))
    return f"{e.phase} batch {e.batch}: {count(e.num_tokens, 'token')} of request{'s' if len(e.uids) > 1 else ''} {who}"


def _sampled(e: ev.TokensSampled) -> str:
    late = [uid for uid, dropped in zip(e.uids, e.dropped, strict=True) if dropped]
    if not e.tokens:
        return ""
    return f"{count(len(e.tokens), 'token')} sampled" + (f", dropped for {_requests(tuple(late))}" if late else "")


def _drained(e: ev.PipelineDrained) -> str:
    first = f"batch {e.batch} is waited for before anything else is launched"
    if e.reason == "pages":
        return f"{first}: {count(e.short, 'page')} short, and {count(e.pending, 'page')} come back with it"
    return f"{first}, so that nothing is in flight"


_SENTENCES = {
    ev.RequestArrived: lambda e: f"request {e.uid} arrives: {count(len(e.prompt), 'token')}, up to {e.max_tokens} new",
    ev.RequestRejected: lambda e: f"request {e.uid} is refused: {e.message}",
    ev.AbortRequested: lambda e: f"abort of request {e.uid} is asked for",
    ev.RequestRetracted: lambda e: (
        f"request {e.uid} is retracted: {_pages_are(e.pages)} taken back, "
        f"{count(e.lost, 'token')} must be computed again"
    ),
    ev.AdmissionTested: _admission,
    ev.RequestAdmitted: lambda e: f"request {e.uid} gets row {e.row}, generation {e.generation}",
    ev.PagesAllocated: lambda e: f"{_pages_are(e.pages)} taken for {_requests(e.uids)}",
    ev.PagesEvicted: lambda e: f"{_pages_are(e.pages)} evicted with {len(e.nodes)} of the tree's leaves",
    ev.CacheCleared: lambda e: (
        f"the prefix cache is cleared: {count(e.evicted, 'page')} evicted"
        + (f", {count(e.kept, 'page')} kept for running requests" if e.kept else "")
    ),
    ev.SettingsChanged: lambda e: (
        f"settings change: {', '.join(f'{name}={value}' for name, value in zip(e.names, e.values, strict=True))}"
    ),
    ev.PagesFreed: lambda e: f"{_pages_are(e.pages)} free again",
    ev.NodeSplit: lambda e: (
        f"tree node {e.node} splits after {count(e.length, 'token')}; node {e.upper} is the first part"
    ),
    ev.NodeInserted: lambda e: f"tree node {e.node} is new under {e.parent}: {count(len(e.tokens), 'token')}",
    ev.BatchScheduled: _batch,
    ev.PipelineDrained: _drained,
    ev.TokensSampled: _sampled,
    ev.Handoff: _handoff,
    ev.RequestFinished: lambda e: f"request {e.uid} ends ({e.error or e.reason}) with {count(e.num_output, 'token')}",
    ev.RowReleased: lambda e: f"row {e.row} is free again",
}

_SCHEDULER, _CACHE = "minisgl.scheduler.scheduler.Scheduler", "minisgl.scheduler.cache.CacheManager"
_PREFILL, _RADIX = "minisgl.scheduler.prefill.PrefillManager", "minisgl.kvcache.radix.RadixPrefixCache"
_RECEIVE, _LEAVING = "minisgl.scheduler.receive", "minisgl.scheduler.leaving"
# which functions make events of a type: where to read on
EMITTERS: dict[type[ev.Event], tuple[str, ...]] = {
    ev.RequestArrived: (f"{_RECEIVE}._arrive",),
    ev.RequestRejected: (f"{_RECEIVE}._refuse",),
    ev.AbortRequested: (f"{_RECEIVE}._abort",),
    ev.RequestRetracted: (f"{_LEAVING}.retract_last",),
    ev.AdmissionTested: (f"{_PREFILL}._admit",),
    ev.PrefixMatched: (f"{_RADIX}.match",),
    ev.RequestAdmitted: (f"{_PREFILL}._enter",),
    ev.PagesAllocated: (f"{_CACHE}.allocate",),
    ev.PagesEvicted: (f"{_RADIX}.evict",),
    ev.CacheCleared: (f"{_CACHE}.clear",),
    ev.SettingsChanged: (f"{_RECEIVE}._change",),
    ev.NodeSplit: (f"{_RADIX}._split",),
    ev.NodeInserted: (f"{_RADIX}.insert",),
    ev.NodeLocked: (f"{_RADIX}.lock",),
    ev.NodeUnlocked: (f"{_RADIX}.unlock",),
    ev.BatchScheduled: (f"{_SCHEDULER}._launch",),
    ev.ForwardStarted: (f"{_SCHEDULER}._launch",),
    ev.ForwardFinished: (f"{_SCHEDULER}._process", f"{_LEAVING}.fail"),
    ev.PipelineDrained: (f"{_SCHEDULER}._drained",),
    ev.TokensSampled: (f"{_SCHEDULER}._process",),
    ev.Handoff: (f"{_CACHE}.handoff",),
    ev.PagesFreed: (f"{_CACHE}.free_gathered",),
    ev.RowReleased: (f"{_LEAVING}._release", f"{_LEAVING}.retract_last"),
    ev.RequestFinished: (f"{_LEAVING}.finish",),
    ev.StepFinished: (f"{_SCHEDULER}.announce",),
}
