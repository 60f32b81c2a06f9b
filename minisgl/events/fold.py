"""The fold: the one place where events become state (``minisgl.events.state`` has its shape)."""

from __future__ import annotations

from typing import Any

import msgspec

from minisgl.events import types as ev
from minisgl.events.state import (
    CACHE,
    COUNTERS,
    FREE,
    Change,
    NodeState,
    RequestState,
    assign,
    entry,
    lookup,
)


class Fold:
    """Holds a state and moves it forward, event by event."""

    def __init__(self, state: dict) -> None:
        self.state = state
        self._delta: list[Change] = []

    def apply(self, event: ev.Event) -> list[Change] | None:
        """Fold one event. At the end of a step, return the step's delta; otherwise None."""
        getattr(self, "_" + type(event).__name__)(event)
        if not isinstance(event, ev.StepFinished):
            return None
        delta, self._delta = self._delta, []
        return delta

    def _set(self, *path_and_value: Any) -> None:
        *parts, value = path_and_value
        path = tuple(parts)
        old = lookup(self.state, path)
        if old != value:
            assign(self.state, path, value)
            self._delta.append((path, old, value))

    def _request(self, uid: int, **fields: Any) -> None:
        for name, value in fields.items():
            self._set("requests", uid, name, value)

    def _commentary(self, name: str, event: ev.Event, **derived: Any) -> None:
        """Add to the list of a step's tests or handoffs; the first of a step replaces the last step's."""
        rows = self.state[name]
        row = {k: v for k, v in msgspec.structs.asdict(event).items() if k != "t"} | derived
        same_step = rows and rows[0]["step"] == event.step
        self._set(name, [*rows, row] if same_step else [row])

    # -- requests ----------------------------------------------------------------------------------------------------

    def _RequestArrived(self, e: ev.RequestArrived) -> None:
        self._set("requests", e.uid, entry(RequestState(uid=e.uid, prompt=e.prompt, max_tokens=e.max_tokens)))
        self._set("waiting", [*self.state["waiting"], e.uid])

    def _RequestRejected(self, e: ev.RequestRejected) -> None:
        refused = RequestState(uid=e.uid, status="finished", reason="error", error=e.message)
        self._set("requests", e.uid, entry(refused))

    def _AbortRequested(self, e: ev.AbortRequested) -> None:
        pass  # what it does is announced by the events that follow it

    def _RequestFinished(self, e: ev.RequestFinished) -> None:
        self._request(e.uid, status="finished", reason=e.reason, error=e.error, reserved=0)
        for name in ("waiting", "running"):
            if e.uid in self.state[name]:
                self._set(name, [uid for uid in self.state[name] if uid != e.uid])

    # -- admission ---------------------------------------------------------------------------------------------------

    def _AdmissionTested(self, e: ev.AdmissionTested) -> None:
        self._commentary("tests", e)
        self._request(e.uid, verdict=e.verdict)

    def _PrefixMatched(self, e: ev.PrefixMatched) -> None:
        self._stamp(e.path, e.tick)

    def _stamp(self, path: ev.Ints, tick: int) -> None:
        for node in path:
            self._set("nodes", node, "used", tick)

    def _RequestAdmitted(self, e: ev.RequestAdmitted) -> None:
        self._set("waiting", [uid for uid in self.state["waiting"] if uid != e.uid])
        self._set("rows", e.row, "uid", e.uid)
        self._set("rows", e.row, "generation", e.generation)
        self._request(
            e.uid,
            status="prefill",
            row=e.row,
            node=e.node,
            pages=list(e.pages),
            matched=e.cached_len,
            cached_len=e.cached_len,
            device_len=e.cached_len,
            reserved=e.reserved,
        )

    # -- pages and the tree ------------------------------------------------------------------------------------------

    def _PagesAllocated(self, e: ev.PagesAllocated) -> None:
        pages = iter(e.pages)
        for uid, count in zip(e.uids, e.counts, strict=True):
            request = self.state["requests"][uid]
            for page in (next(pages) for _ in range(count)):
                self._set("pages", "owner", page, uid)
                self._set("pages", "order", page, -1)
                self._set("requests", uid, "pages", len(request["pages"]), page)
        self._set("queue", "taken", self.state["queue"]["taken"] + len(e.pages))

    def _release(self, pages: ev.Ints) -> None:
        added = self.state["queue"]["added"]
        for i, page in enumerate(pages):
            self._set("pages", "owner", page, FREE)
            self._set("pages", "node", page, -1)
            self._set("pages", "order", page, added + i)
        self._set("queue", "added", added + len(pages))

    def _PagesFreed(self, e: ev.PagesFreed) -> None:
        for page, uid in zip(e.pages, e.uids, strict=True):
            pending = self.state["requests"][uid]["pending"]
            if page in pending:
                self._request(uid, pending=[p for p in pending if p != page])
        self._release(e.pages)

    def _PagesEvicted(self, e: ev.PagesEvicted) -> None:
        for node in e.nodes:
            self._set("nodes", node, None)
        self._release(e.pages)

    def _CacheCleared(self, e: ev.CacheCleared) -> None:
        pass  # the PagesEvicted before it says what left

    def _NodeSplit(self, e: ev.NodeSplit) -> None:
        lower = self.state["nodes"][e.node]
        cut = e.length // self.state["page_size"]
        upper = dict(lower, tokens=lower["tokens"][: e.length], pages=lower["pages"][:cut])
        self._set("nodes", e.upper, upper)
        for page in upper["pages"]:
            self._set("pages", "node", page, e.upper)
        self._set("nodes", e.node, "parent", e.upper)
        self._set("nodes", e.node, "tokens", lower["tokens"][e.length :])
        self._set("nodes", e.node, "pages", lower["pages"][cut:])

    def _NodeInserted(self, e: ev.NodeInserted) -> None:
        self._set("nodes", e.node, entry(NodeState(parent=e.parent, tokens=e.tokens, pages=e.pages)))
        for page in e.pages:
            self._set("pages", "owner", page, CACHE)
            self._set("pages", "node", page, e.node)

    def _NodeLocked(self, e: ev.NodeLocked) -> None:
        self._lock(e.node, 1)

    def _NodeUnlocked(self, e: ev.NodeUnlocked) -> None:
        self._lock(e.node, -1)

    def _lock(self, node: int, by: int) -> None:
        while node > 0:
            self._set("nodes", node, "locks", self.state["nodes"][node]["locks"] + by)
            node = self.state["nodes"][node]["parent"]

    def _Handoff(self, e: ev.Handoff) -> None:
        segments = [{"name": n, "start": a, "end": b, "pages": p} for n, a, b, p in e.segments()]
        self._commentary("handoffs", e, segments=segments)
        self._stamp(e.path, e.tick)
        self._request(e.uid, node=e.node)
        first = e.old_len // e.page_size
        if e.pending:
            given = {n: p for n, _, _, p in e.segments()}
            pages = (*given["tail"], *given["duplicate"]) if e.finished else given["duplicate"]
            self._request(e.uid, pending=[*self.state["requests"][e.uid]["pending"], *pages])
        for i, page in enumerate(e.replaced):
            self._set("requests", e.uid, "pages", first + i, page)

    def _RowReleased(self, e: ev.RowReleased) -> None:
        self._set("rows", e.row, "uid", -1)
        self._request(e.uid, row=-1, pages=[], node=0)

    # -- batches -----------------------------------------------------------------------------------------------------

    def _BatchScheduled(self, e: ev.BatchScheduled) -> None:
        self._count(e)
        columns = ("batch", "step", "phase", "uids", "starts", "ends", "samples", "num_tokens")
        self._set("batch", {name: getattr(e, name) for name in columns})
        # DESIGN 4.1: launch sets cached_len = device_len; a request that samples then gains its next token's place
        for uid, end, samples, reserved in zip(e.uids, e.ends, e.samples, e.reserved, strict=True):
            self._request(uid, cached_len=end, device_len=end + samples, reserved=reserved)
            if samples and uid not in self.state["running"]:
                self._request(uid, status="running")
                self._set("running", sorted([*self.state["running"], uid]))

    def _ForwardStarted(self, e: ev.ForwardStarted) -> None:
        pass  # times only

    def _ForwardFinished(self, e: ev.ForwardFinished) -> None:
        pass  # times only

    def _PipelineDrained(self, e: ev.PipelineDrained) -> None:
        pass  # what it does is announced by the events that follow it

    def _TokensSampled(self, e: ev.TokensSampled) -> None:
        for uid, token, dropped in zip(e.uids, e.tokens, e.dropped, strict=True):
            if not dropped:
                self._set("requests", uid, "output", len(self.state["requests"][uid]["output"]), token)

    def _count(self, e: ev.Counters) -> None:
        for name in COUNTERS:
            self._set("counters", name, getattr(e, name))

    def _StepFinished(self, e: ev.StepFinished) -> None:
        self._count(e)
        self._set("step", e.step)
        self._set("t", e.t)
