"""The fold: the one place where events become state (``minisgl.events.state`` has its shape)."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from minisgl.events import types as ev
from minisgl.events.state import (
    CACHE,
    COUNTERS,
    FREE,
    Change,
    Delta,
    NodeState,
    Path,
    RequestState,
    apply,
    column,
    entry,
    lookup,
)

OWNER, NODE, ORDER = (("pages", name, None) for name in ("owner", "node", "order"))
LOCKS, USED, USES = (("nodes", None, name) for name in ("locks", "used", "uses"))
OUTPUT, ROW = (("requests", None, name) for name in ("output", "pages"))
LENGTHS = tuple(("requests", None, name) for name in ("cached_len", "device_len", "reserved"))


class Fold:
    """Holds a state and moves it forward, event by event.

    An event that names what is not there raises a KeyError or an IndexError; the changes it made before that stay in
    the state and in the step's delta, which remain true to each other.
    """

    def __init__(self, state: dict) -> None:
        self.state = state
        self._delta: list[Change] = []

    def apply(self, event: ev.Event) -> Delta | None:
        """Fold one event. At the end of a step, return the step's delta; otherwise None."""
        getattr(self, "_" + type(event).__name__)(event)
        if not isinstance(event, ev.StepFinished):
            return None
        delta, self._delta = tuple(self._delta), []
        return delta

    # -- one for each kind of change ---------------------------------------------------------------------------------

    def _change(self, *change: Any) -> None:
        apply(self.state, change)
        self._delta.append(change)

    def _set(self, *path_and_value: Any) -> None:
        *path, value = path_and_value
        table = lookup(self.state, tuple(path[:-1]))
        old = table.get(path[-1]) if isinstance(table, dict) else table[path[-1]]
        if old != value:
            self._change("set", tuple(path), old, value)

    def _column(self, path: Path, keys: Sequence, news: Any) -> None:
        """``news``: a tuple, or the one value that all get."""
        olds, news = _short(column(self.state, path, keys)), _short(news)
        if keys and olds != news:
            self._change("column", path, keys, olds, news)

    def _append(self, path: Path, keys: Sequence, values: Sequence) -> None:
        column(self.state, path, keys)  # all of them are there, or nothing is done
        if keys:
            self._change("append", path, keys, values)

    def _splice(self, path: Path, at: int, length: int, inserted: Sequence) -> None:
        removed = tuple(lookup(self.state, path)[at : at + length])
        if removed or inserted:
            self._change("splice", path, at, removed, inserted)

    # -- what several events do --------------------------------------------------------------------------------------

    def _request(self, uid: int, **fields: Any) -> None:
        for name, value in fields.items():
            self._set("requests", uid, name, value)

    def _leave(self, name: str, uid: int) -> None:
        """Take a request out of ``waiting`` or ``running``, if it is there."""
        if uid in self.state[name]:
            self._splice((name,), self.state[name].index(uid), 1, ())

    def _commentary(self, name: str, event: ev.Event, **derived: Any) -> None:
        """Add to the list of a step's tests or handoffs; the first of a step replaces the last step's."""
        rows = self.state[name]
        row = {k: v for k, v in msgspec.structs.asdict(event).items() if k != "t"} | derived
        same_step = rows and rows[0]["step"] == event.step
        self._splice((name,), *((len(rows), 0) if same_step else (0, len(rows))), (row,))

    def _stamp(self, path: ev.Ints, tick: int) -> None:
        self._column(USED, path, tick)
        self._column(USES, path, tuple([n + 1 for n in column(self.state, USES, path)]))

    def _lock(self, node: int, by: int) -> None:
        nodes, path = self.state["nodes"], []
        while node > 0:
            path.append(node)
            node = nodes[node]["parent"]
        self._column(LOCKS, path, tuple([nodes[i]["locks"] + by for i in path]))

    def _release(self, pages: ev.Ints) -> None:
        """Pages join the end of the free list."""
        n, added = len(pages), self.state["queue"]["added"]
        self._column(OWNER, pages, FREE)
        self._column(NODE, pages, -1)
        self._column(ORDER, pages, tuple(range(added, added + n)))
        self._set("queue", "added", added + n)

    def _count(self, e: ev.Counters) -> None:
        now = self.state["counters"]
        names = tuple([name for name in COUNTERS if now[name] != getattr(e, name)])
        self._column(("counters", None), names, tuple([getattr(e, name) for name in names]))

    # -- requests ----------------------------------------------------------------------------------------------------

    def _RequestArrived(self, e: ev.RequestArrived) -> None:
        self._set("requests", e.uid, entry(RequestState(uid=e.uid, prompt=e.prompt, max_tokens=e.max_tokens)))
        self._splice(("waiting",), len(self.state["waiting"]), 0, (e.uid,))

    def _RequestRejected(self, e: ev.RequestRejected) -> None:
        refused = RequestState(uid=e.uid, status="finished", reason="error", error=e.message)
        self._set("requests", e.uid, entry(refused))

    def _AbortRequested(self, e: ev.AbortRequested) -> None:
        pass  # what it does is announced by the events that follow it

    def _RequestRetracted(self, e: ev.RequestRetracted) -> None:
        lengths = dict.fromkeys(("matched", "cached_len", "device_len", "reserved"), 0)
        self._request(e.uid, status="waiting", verdict="", **lengths)
        self._leave("running", e.uid)
        self._splice(("waiting",), 0, 0, (e.uid,))

    def _RequestFinished(self, e: ev.RequestFinished) -> None:
        self._request(e.uid, status="finished", reason=e.reason, error=e.error, reserved=0)
        self._leave("waiting", e.uid)
        self._leave("running", e.uid)

    # -- admission ---------------------------------------------------------------------------------------------------

    def _AdmissionTested(self, e: ev.AdmissionTested) -> None:
        self._commentary("tests", e)
        self._request(e.uid, verdict=e.verdict)

    def _PrefixMatched(self, e: ev.PrefixMatched) -> None:
        self._stamp(e.path, e.tick)

    def _RequestAdmitted(self, e: ev.RequestAdmitted) -> None:
        n = e.cached_len
        self._leave("waiting", e.uid)
        self._set("rows", e.row, "uid", e.uid)
        self._set("rows", e.row, "generation", e.generation)
        self._request(e.uid, status="prefill", row=e.row, node=e.node, reserved=e.reserved)
        self._request(e.uid, matched=n, cached_len=n, device_len=n)
        self._splice(("requests", e.uid, "pages"), 0, 0, e.pages)

    def _RowReleased(self, e: ev.RowReleased) -> None:
        self._set("rows", e.row, "uid", -1)
        self._request(e.uid, row=-1, node=0)
        self._splice(("requests", e.uid, "pages"), 0, len(self.state["requests"][e.uid]["pages"]), ())

    # -- pages and the tree ------------------------------------------------------------------------------------------

    def _PagesAllocated(self, e: ev.PagesAllocated) -> None:
        n = len(e.pages)
        # of a page each, as in most decode steps, the event's own tuple serves
        uids = (
            e.uids if n == len(e.uids) else tuple([u for u, c in zip(e.uids, e.counts, strict=True) for _ in range(c)])
        )
        self._column(OWNER, e.pages, uids)
        self._column(ORDER, e.pages, -1)
        self._append(ROW, uids, e.pages)
        self._set("queue", "taken", self.state["queue"]["taken"] + n)

    def _PagesFreed(self, e: ev.PagesFreed) -> None:
        freed = defaultdict(set)
        for page, uid in zip(e.pages, e.uids, strict=True):
            freed[uid].add(page)
        for uid, pages in freed.items():
            pending = self.state["requests"][uid]["pending"]
            if pending:
                left = tuple([p for p in pending if p not in pages])
                self._splice(("requests", uid, "pending"), 0, len(pending), left)
        self._release(e.pages)

    def _PagesEvicted(self, e: ev.PagesEvicted) -> None:
        for node in e.nodes:
            self._set("nodes", node, None)
        self._release(e.pages)

    def _CacheCleared(self, e: ev.CacheCleared) -> None:
        pass  # the PagesEvicted before it says what left

    def _SettingsChanged(self, e: ev.SettingsChanged) -> None:
        pass  # no state shows a setting

    def _NodeSplit(self, e: ev.NodeSplit) -> None:
        lower = self.state["nodes"][e.node]
        cut = e.length // self.state["page_size"]
        upper = lower | {"tokens": lower["tokens"][: e.length], "pages": lower["pages"][:cut]}
        self._set("nodes", e.upper, upper)
        self._column(NODE, upper["pages"], e.upper)
        self._set("nodes", e.node, "parent", e.upper)
        self._set("nodes", e.node, "tokens", lower["tokens"][e.length :])
        self._set("nodes", e.node, "pages", lower["pages"][cut:])

    def _NodeInserted(self, e: ev.NodeInserted) -> None:
        # its first use is counted with the handoff that inserted it
        self._set("nodes", e.node, entry(NodeState(parent=e.parent, tokens=e.tokens, pages=e.pages, uses=0)))
        self._column(OWNER, e.pages, CACHE)
        self._column(NODE, e.pages, e.node)

    def _NodeLocked(self, e: ev.NodeLocked) -> None:
        self._lock(e.node, 1)

    def _NodeUnlocked(self, e: ev.NodeUnlocked) -> None:
        self._lock(e.node, -1)

    def _Handoff(self, e: ev.Handoff) -> None:
        segments = e.segments()
        rows = [{"name": n, "start": a, "end": b, "pages": p} for n, a, b, p in segments]
        self._commentary("handoffs", e, segments=rows)
        self._stamp(e.path, e.tick)
        self._request(e.uid, node=e.node)
        self._splice(("requests", e.uid, "pages"), e.old_len // e.page_size, len(e.replaced), e.replaced)
        if e.pending:
            pages = {name: p for name, _, _, p in segments}
            given_up = (pages["tail"] if e.finished else ()) + pages["duplicate"]
            self._splice(("requests", e.uid, "pending"), len(self.state["requests"][e.uid]["pending"]), 0, given_up)

    # -- batches -----------------------------------------------------------------------------------------------------

    def _BatchScheduled(self, e: ev.BatchScheduled) -> None:
        self._count(e)
        columns = ("batch", "step", "phase", "uids", "starts", "ends", "samples", "num_tokens")
        self._set("batch", {name: getattr(e, name) for name in columns})
        # DESIGN 4.1: launch sets cached_len = device_len; a request that samples then gains its next token's place
        next_ends = tuple([end + samples for end, samples in zip(e.ends, e.samples, strict=True)])
        for path, news in zip(LENGTHS, (e.ends, next_ends, e.reserved), strict=True):
            self._column(path, e.uids, news)
        requests, running = self.state["requests"], self.state["running"]
        for uid, samples in zip(e.uids, e.samples, strict=True):
            if samples and requests[uid]["status"] != "running":
                self._set("requests", uid, "status", "running")
                self._splice(("running",), bisect_left(running, uid), 0, (uid,))
        self._splice(("flight",), len(self.state["flight"]), 0, ({"batch": e.batch, "uids": list(e.uids)},))

    def _ForwardStarted(self, e: ev.ForwardStarted) -> None:
        pass  # times only

    def _ForwardFinished(self, e: ev.ForwardFinished) -> None:
        for at, flying in enumerate(self.state["flight"]):
            if flying["batch"] == e.batch:
                self._splice(("flight",), at, 1, ())

    def _PipelineDrained(self, e: ev.PipelineDrained) -> None:
        pass  # what it does is announced by the events that follow it

    def _TokensSampled(self, e: ev.TokensSampled) -> None:
        uids, tokens = e.uids, e.tokens
        if any(e.dropped):
            kept = [(u, t) for u, t, dropped in zip(uids, tokens, e.dropped, strict=True) if not dropped]
            uids, tokens = tuple([u for u, _ in kept]), tuple([t for _, t in kept])
        self._append(OUTPUT, uids, tokens)

    def _StepFinished(self, e: ev.StepFinished) -> None:
        self._count(e)
        self._set("step", e.step)
        self._set("t", e.t)


def _short(values: Any) -> Any:
    """One value, if it is the same all along."""
    if isinstance(values, tuple) and values and values.count(values[0]) == len(values):
        return values[0]
    return values
