"""Events in words: one sentence each, with its numbers. Views, logs and the terminal all say the same."""

from __future__ import annotations

from minisgl.events import types as ev


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


def count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _admission(e: ev.AdmissionTested) -> str:
    who = f"request {e.uid}"
    if e.verdict == "chunk":
        return f"{who} waits: a longer prompt is not finished and goes first"
    if e.verdict == "row":
        return f"{who} waits: no free row"
    if e.verdict == "budget":
        return f"{who} waits: this batch's prefill budget is used up"
    had = e.available if e.available_locked is None else e.available_locked
    sums = f"needs {e.need}, {e.reserved} promised, {had} to be had"
    if e.verdict == "pages":
        locked = "" if e.available_locked is None else " once its matched prefix is locked"
        return f"{who} waits: {sums}{locked}"
    return f"{who} is admitted: {sums}" + (f", {e.matched} tokens already cached" if e.matched else "")


def _handoff(e: ev.Handoff) -> str:
    parts = {name: p for name, _, _, p in e.segments()}
    said = [f"request {e.uid} offers its KV [0, {e.n}) to the cache"]
    if parts["locked"]:
        said.append(f"pages {pages(parts['locked'])} were the cache's already")
    if parts["duplicate"]:
        said.append(f"its copies {pages(parts['duplicate'])} are freed for the cache's {pages(e.replaced)}")
    if parts["inserted"]:
        said.append(f"pages {pages(parts['inserted'])} become the cache's")
    if parts["tail"]:
        said.append(f"pages {pages(parts['tail'])} {'are freed' if e.finished else 'stay its own'}")
    return "; ".join(said)


def _batch(e: ev.BatchScheduled) -> str:
    spans = zip(e.uids, e.starts, e.ends, strict=True)
    who = ", ".join(f"{u}[{a}:{b}]" if e.phase == "prefill" else str(u) for u, a, b in spans)
    return f"{e.phase} batch {e.batch}: {count(e.num_tokens, 'token')} of requests {who}"


_SENTENCES = {
    ev.RequestArrived: lambda e: f"request {e.uid} arrives: {count(len(e.prompt), 'token')}, up to {e.max_tokens} new",
    ev.RequestRejected: lambda e: f"request {e.uid} is refused: {e.message}",
    ev.AbortRequested: lambda e: f"abort of request {e.uid} is asked for",
    ev.AdmissionTested: _admission,
    ev.RequestAdmitted: lambda e: f"request {e.uid} gets row {e.row}, generation {e.generation}",
    ev.PagesAllocated: lambda e: f"pages {pages(e.pages)} are taken for requests {', '.join(map(str, e.uids))}",
    ev.PagesEvicted: lambda e: f"pages {pages(e.pages)} are evicted with {len(e.nodes)} of the tree's leaves",
    ev.PagesFreed: lambda e: f"pages {pages(e.pages)} are free again",
    ev.NodeSplit: lambda e: (
        f"tree node {e.node} splits after {count(e.length, 'token')}; node {e.upper} is the first part"
    ),
    ev.NodeInserted: lambda e: f"tree node {e.node} is new under {e.parent}: {count(len(e.tokens), 'token')}",
    ev.BatchScheduled: _batch,
    ev.TokensSampled: lambda e: f"{count(len(e.tokens), 'token')} sampled" if e.tokens else "",
    ev.Handoff: _handoff,
    ev.RequestFinished: lambda e: f"request {e.uid} ends ({e.reason}) with {count(e.num_output, 'token')}",
    ev.RowReleased: lambda e: f"row {e.row} is free again",
}
