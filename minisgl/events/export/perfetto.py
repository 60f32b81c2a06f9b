"""A run as a timeline for Perfetto (https://ui.perfetto.dev) or chrome://tracing.

The file is the JSON object form of the Trace Event Format: complete events (``X``) for what lasts, instants (``i``),
counters (``C``) and metadata (``M``) that names the tracks; ``ts`` and ``dur`` are microseconds since start. The
process "scheduler" has a host lane (steps) and a device lane (forwards), so that overlap can be seen; in the process
"requests" each request has a track: waiting, prefill, decode.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from minisgl.events import types as ev
from minisgl.events.words import describe

if TYPE_CHECKING:
    from minisgl.events.trace import Trace

NAN = float("nan")
SCHEDULER, REQUESTS = 1, 2  # processes
HOST, DEVICE, FIRST_REQUEST = 11, 12, 100  # threads; some readers want their numbers unique among all processes
INSTANTS = {
    ev.PagesEvicted: "eviction",
    ev.AdmissionTested: "refusal",
    ev.RequestRejected: "rejection",
    ev.PipelineDrained: "drain",
    ev.CacheCleared: "cache cleared",
    ev.SettingsChanged: "settings changed",
}


def perfetto(trace: Trace) -> bytes:
    """The run as Trace Event Format JSON."""
    origin = {"title": trace.title, **{k: v for k, v in trace.about.items() if v is not None}}
    events = sorted(timeline(trace), key=lambda e: e["ts"])  # stable, so the names stay in front
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms", "otherData": origin})


def timeline(trace: Trace) -> Iterator[dict[str, Any]]:
    """The trace events, in no order of time."""
    yield from _process(SCHEDULER, "scheduler", {HOST: "host: steps", DEVICE: "device: forwards"})
    yield from _scheduler(trace)
    uids = trace.requests.uid.tolist()
    yield from _process(REQUESTS, "requests", {FIRST_REQUEST + uid: f"request {uid}" for uid in uids})
    yield from _requests(trace)


def _process(pid: int, name: str, threads: dict[int, str]) -> Iterator[dict[str, Any]]:
    def meta(what: str, tid: int, **args: Any) -> dict[str, Any]:
        return {"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": args}

    yield meta("process_name", 0, name=name)
    yield meta("process_sort_index", 0, sort_index=pid)
    for tid, thread in threads.items():
        yield meta("thread_name", tid, name=thread)
        yield meta("thread_sort_index", tid, sort_index=tid)


def _slice(pid: int, tid: int, name: str, start: float, end: float, args: dict[str, Any]) -> dict[str, Any]:
    ts = _microseconds(start)
    # the end is rounded, not the length: neighbours must meet and not overlap
    return {
        "ph": "X",
        "name": name,
        "cat": name.split()[0],
        "pid": pid,
        "tid": tid,
        "ts": ts,
        "dur": round(max(_microseconds(end) - ts, 0), 3),
        "args": args,
    }


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _scheduler(trace: Trace) -> Iterator[dict[str, Any]]:
    batches: dict[int, ev.BatchScheduled] = {}
    begun: float | None = None  # when the step's first event happened
    for e in trace.events:
        begun = e.t if begun is None else begun
        if isinstance(e, ev.BatchScheduled):
            batches[e.batch] = e
            yield from _counters(e)
        elif isinstance(e, ev.ForwardFinished):
            batch = batches.get(e.batch)
            name = f"{batch.phase} {e.batch}" if batch else f"batch {e.batch}"
            args = {"batch": e.batch, **({"tokens": batch.num_tokens, "uids": batch.uids} if batch else {})}
            yield _slice(SCHEDULER, DEVICE, name, e.started, e.finished, args)
        elif isinstance(e, ev.StepFinished):
            args = {"step": e.step, "launched": e.launched, "processed": e.processed, "tokens": e.num_tokens}
            yield _slice(SCHEDULER, HOST, e.phase, begun, e.t, args)
            yield from _counters(e)
            begun = None
        elif type(e) in INSTANTS and getattr(e, "verdict", "") != "admitted":
            yield {
                "ph": "i",
                "s": "t",
                "name": INSTANTS[type(e)],
                "cat": "decision",
                "pid": SCHEDULER,
                "tid": HOST,
                "ts": _microseconds(e.t),
                "args": {"step": e.step, "says": describe(e)},
            }


def _counters(e: ev.Counters) -> Iterator[dict[str, Any]]:
    """``pages`` adds up to the pool; pending ones are among the owned, promised ones not taken yet."""
    pool = {name: getattr(e, f"{name}_pages") for name in ("free", "owned", "evictable", "protected")}
    for name, values in (
        ("pages", pool),
        ("pages pending", {"pending": e.pending_pages}),
        ("pages promised", {"promised": e.reserved_pages}),
        ("requests", {"waiting": e.waiting, "running": e.running}),
    ):
        yield {"ph": "C", "name": name, "pid": SCHEDULER, "tid": HOST, "ts": _microseconds(e.t), "args": values}


def _requests(trace: Trace) -> Iterator[dict[str, Any]]:
    """Each request's life; what is unknown of its beginning or end is cut at the trace's."""
    start, end = trace.keyframe["t"], trace.events[-1].t if trace.events else trace.keyframe["t"]
    for row in trace.requests.rows():
        known = {k: row[k] for k in ("prompt_tokens", "cached_tokens", "output_tokens", "reason", "error", "client_id")}
        begin = _known(row["submitted"], start)
        # a rejected request ends as it arrives
        finished = _known(row["finished"], row["arrived"] if row["reason"] else NAN, end)
        admitted = _known(row["admitted"], begin if row["cached_tokens"] >= 0 else finished)
        token = _known(row["first_token"], admitted if row["output_tokens"] else finished)
        times = (begin, admitted, token, finished)
        for name, a, b in zip(("waiting", "prefill", "decode"), times, times[1:], strict=False):
            if a < b or (name == "waiting" and begin == finished):
                yield _slice(REQUESTS, FIRST_REQUEST + row["uid"], name, a, b, known)


def _known(*times: float) -> float:
    """The first time that is not NaN."""
    return next(t for t in times if t == t)
