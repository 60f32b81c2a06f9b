"""A run's events as tables. Each function says what its columns mean; ``Table`` says how the missing is written.

``step`` is a step's number, ``t`` and all times are seconds since start by the executor's clock. With overlap on, the
batch that a step launches is processed one step later, so batches are joined by number.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from minisgl.events import types as ev
from minisgl.events.state import CACHE, FREE
from minisgl.events.table import Table

NAN = float("nan")

REQUESTS = {
    "uid": "request",
    "prompt_tokens": "tokens",
    "cached_tokens": "tokens",
    "output_tokens": "tokens",
    "max_tokens": "tokens",
    "reason": "text",
    "refusals": "tests",
    "pages": "pages",
    "retractions": "times",
    "lost": "tokens",
    "queue_time": "s",
    "ttft": "s",
    "tpot": "s",
    "e2e": "s",
    "submitted": "s",
    "arrived": "s",
    "admitted": "s",
    "first_token": "s",
    "last_token": "s",
    "finished": "s",
    "arrived_step": "step",
    "admitted_step": "step",
    "first_token_step": "step",
    "finished_step": "step",
    "client_id": "text",
    "error": "text",
}


def requests(keyframe: dict, events: Iterable[ev.Event]) -> Table:
    """One row per request that arrived, was rejected, or was alive at the start, by uid.

    ``cached_tokens`` are those found in the prefix cache at its first admission: what it had computed itself when it
    came back is no gain; ``output_tokens`` those received by the host, dropped samples left out; ``reason`` is "" while
    it lives and "error" if it was rejected; ``refusals`` are admission tests it failed; ``pages`` is the most its row
    covered, the cache's own included; ``retractions`` says how often its pages were taken back, and ``lost`` how many
    tokens' KV with them. A token's time is when the host received it, ``admitted`` that of the first admission.

    ``queue_time`` = admitted - submitted; ``ttft`` (time to first token) = first_token - submitted; ``tpot`` (time per
    output token) = (last_token - first_token) / (output_tokens - 1), from two tokens on; ``e2e`` = finished -
    submitted. Of a request that was alive at the start, what came before is unknown; of a rejected one, there is none.
    """
    rows: dict[int, dict[str, Any]] = {}
    covered: dict[int, int] = {}  # pages of its row, by uid
    seated: set[int] = set()  # who was admitted before, here or before the start
    counted = ("output_tokens", "refusals", "pages", "retractions", "lost")

    def begin(uid: int, **known: Any) -> None:
        blank = {c: NAN if unit == "s" else "" if unit == "text" else -1 for c, unit in REQUESTS.items()}
        rows[uid] = blank | {"uid": uid, **dict.fromkeys(counted, 0)} | known

    def stamp(row: dict, what: str, event: ev.Event) -> None:
        row[what], row[f"{what}_step"] = event.t, event.step

    for r in keyframe["requests"].values():
        if r["status"] != "finished":
            begin(
                r["uid"],
                prompt_tokens=len(r["prompt"]),
                max_tokens=r["max_tokens"],
                cached_tokens=-1 if r["status"] == "waiting" else r["matched"],
                output_tokens=len(r["output"]),
                pages=len(r["pages"]),
            )
            covered[r["uid"]] = len(r["pages"])
            if r["status"] != "waiting" or r["output"]:  # one that waits and has put out something was retracted
                seated.add(r["uid"])
    for e in events:
        if isinstance(e, ev.TokensSampled):
            for uid, dropped in zip(e.uids, e.dropped, strict=True):
                if not dropped:
                    row = rows[uid]
                    row["output_tokens"] += 1
                    row["last_token"] = e.t
                    if row["output_tokens"] == 1:
                        stamp(row, "first_token", e)
        elif isinstance(e, ev.PagesAllocated):
            for uid, count in zip(e.uids, e.counts, strict=True):
                covered[uid] += count
                rows[uid]["pages"] = max(rows[uid]["pages"], covered[uid])
        elif isinstance(e, ev.RequestArrived):
            known = {"client_id": e.client_id or "", "submitted": e.submitted, "max_tokens": e.max_tokens}
            begin(e.uid, prompt_tokens=len(e.prompt), **known)
            stamp(rows[e.uid], "arrived", e)
        elif isinstance(e, ev.RequestRejected):
            known = {"client_id": e.client_id or "", "submitted": e.submitted, "reason": "error"}
            begin(e.uid, prompt_tokens=e.prompt_len, error=f"{e.error}: {e.message}", **known)
            stamp(rows[e.uid], "arrived", e)
        elif isinstance(e, ev.AdmissionTested):
            rows[e.uid]["refusals"] += e.verdict != "admitted"
        elif isinstance(e, ev.RequestAdmitted):
            covered[e.uid] = len(e.pages)
            rows[e.uid]["pages"] = max(rows[e.uid]["pages"], covered[e.uid])
            if e.uid not in seated:
                seated.add(e.uid)
                rows[e.uid]["cached_tokens"] = e.cached_len
                stamp(rows[e.uid], "admitted", e)
        elif isinstance(e, ev.RequestRetracted):
            rows[e.uid]["retractions"] += 1
            rows[e.uid]["lost"] += e.lost
        elif isinstance(e, ev.RequestFinished):
            rows[e.uid]["reason"], rows[e.uid]["error"] = e.reason, e.error
            stamp(rows[e.uid], "finished", e)
    for row in rows.values():
        row["queue_time"] = row["admitted"] - row["submitted"]
        row["ttft"] = row["first_token"] - row["submitted"]
        row["e2e"] = row["finished"] - row["submitted"]
        if row["output_tokens"] > 1:
            row["tpot"] = (row["last_token"] - row["first_token"]) / (row["output_tokens"] - 1)
    return Table.of_rows("requests", REQUESTS, (tuple(rows[uid].values()) for uid in sorted(rows)))


STEPS = {
    "step": "step",
    "t": "s",
    "phase": "text",
    "launched": "batch",
    "processed": "batch",
    "num_tokens": "tokens",
    "prefill_tokens": "tokens",
    "decode_tokens": "tokens",
    "waiting": "requests",
    "running": "requests",
    "free": "pages",
    "owned": "pages",
    "evictable": "pages",
    "protected": "pages",
    "pending": "pages",
    "promised": "pages",
    "evicted": "pages",
    "forward": "s",
    "arrived": "requests",
    "admitted": "requests",
    "refused": "tests",
    "finished": "requests",
    "sampled": "tokens",
    "dropped": "tokens",
    "retractions": "requests",
    "lost": "tokens",
}


def steps(keyframe: dict, events: Iterable[ev.Event]) -> Table:
    """One row per step; counters as they were after processing.

    ``phase`` and ``num_tokens`` are those of the batch launched (of the one processed, if none was);
    ``prefill_tokens`` and ``decode_tokens`` count the batch launched alone, so they can be added up. ``promised`` pages
    are reserved for running requests and not yet taken; ``pending`` ones are owned and come free with the batch in
    flight. ``forward`` is the device's time for the batch processed. The rest counts what happened in the step:
    pages evicted, requests arrived, admitted (those that come back, too) and finished (not those rejected), admission
    tests refused, tokens received, samples dropped because their request had ended, requests retracted, and tokens
    whose KV was lost by that.
    """
    prefilling = {uid for uid, r in keyframe["requests"].items() if r["status"] == "prefill"}  # have not sampled yet
    prefilled: dict[int, int] = {}  # of each batch, tokens of prompts
    batches: dict[int, ev.BatchScheduled] = {}
    forwards: dict[int, float] = {}
    happened: defaultdict[int, Counter[str]] = defaultdict(Counter)
    ends: list[ev.StepFinished] = []
    for e in events:
        if isinstance(e, ev.StepFinished):
            ends.append(e)
        elif isinstance(e, ev.BatchScheduled):
            batches[e.batch] = e
            columns = list(zip(e.uids, e.starts, e.ends, e.samples, strict=True))
            prefilled[e.batch] = sum(end - start for uid, start, end, _ in columns if uid in prefilling)
            prefilling.difference_update(uid for uid, _, _, samples in columns if samples)
        elif isinstance(e, ev.RequestRetracted):
            happened[e.step].update(retractions=1, lost=e.lost)
        elif isinstance(e, ev.ForwardFinished):
            forwards[e.batch] = e.finished - e.started
        elif isinstance(e, ev.TokensSampled):
            dropped = sum(e.dropped)
            happened[e.step].update(sampled=len(e.dropped) - dropped, dropped=dropped)
        elif isinstance(e, ev.AdmissionTested):
            happened[e.step].update(refused=e.verdict != "admitted")
        elif isinstance(e, ev.PagesEvicted):
            happened[e.step].update(evicted=len(e.pages))
        elif type(e) in _COUNTED:
            happened[e.step].update((_COUNTED[type(e)],))
            if isinstance(e, ev.RequestAdmitted):
                prefilling.add(e.uid)

    def row(e: ev.StepFinished) -> tuple:
        batch = batches.get(e.launched) if e.launched is not None else None
        prefill = prefilled[batch.batch] if batch else 0
        did = happened[e.step]
        return (
            e.step,
            e.t,
            e.phase,
            -1 if e.launched is None else e.launched,
            -1 if e.processed is None else e.processed,
            e.num_tokens,
            prefill,
            batch.num_tokens - prefill if batch else 0,
            e.waiting,
            e.running,
            e.free_pages,
            e.owned_pages,
            e.evictable_pages,
            e.protected_pages,
            e.pending_pages,
            e.reserved_pages,
            did["evicted"],
            NAN if e.processed is None else forwards.get(e.processed, NAN),
            *(did[name] for name in DID),
        )

    return Table.of_rows("steps", STEPS, map(row, ends))


DID = ("arrived", "admitted", "refused", "finished", "sampled", "dropped", "retractions", "lost")
_COUNTED: dict[type[ev.Event], str] = {
    ev.RequestArrived: "arrived",
    ev.RequestAdmitted: "admitted",
    ev.RequestFinished: "finished",
}

ADMISSIONS = {
    "step": "step",
    "t": "s",
    "uid": "request",
    "verdict": "text",
    "prompt_len": "tokens",
    "max_tokens": "tokens",
    "worst": "tokens",
    "free_rows": "rows",
    "budget": "tokens",
    "matched": "tokens",
    "need": "pages",
    "free": "pages",
    "evictable": "pages",
    "pending": "pages",
    "reserved": "pages",
    "evictable_locked": "pages",
}


def admissions(events: Iterable[ev.Event]) -> Table:
    """One row per admission test, the columns those of ``AdmissionTested``; -1 where a test was not reached."""
    tests = (e for e in events if isinstance(e, ev.AdmissionTested))
    rows = ([-1 if v is None else v for v in (getattr(e, c) for c in ADMISSIONS)] for e in tests)
    return Table.of_rows("admissions", ADMISSIONS, rows)


SEGMENTS = ("locked", "duplicate", "inserted", "tail")
HANDOFFS = {
    "step": "step",
    "t": "s",
    "uid": "request",
    "finished": "flag",
    "pending": "flag",
    "n": "tokens",
    **{f"{segment}_{unit}": unit for segment in SEGMENTS for unit in ("tokens", "pages")},
}


def handoffs(events: Iterable[ev.Event]) -> Table:
    """One row per handoff: KV of ``n`` tokens offered to the prefix cache, and what became of the row's pages.

    The four segments are the cache's already (locked), copies of the cache's and freed (duplicate), the cache's from
    now on (inserted), and the rest up to the end of the last page held (tail), freed if ``finished``. ``pending``: what
    it gives up comes free with the batch in flight.
    """

    def row(e: ev.Handoff) -> list:
        sizes = [size for _, start, end, pages in e.segments() for size in (end - start, len(pages))]
        return [e.step, e.t, e.uid, e.finished, e.pending, e.n, *sizes]

    return Table.of_rows("handoffs", HANDOFFS, (row(e) for e in events if isinstance(e, ev.Handoff)))


PAGES = {"page": "page", "owner": "request", "node": "node", "first_step": "step", "last_step": "step"}


def pages(keyframe: dict, events: Iterable[ev.Event]) -> Table:
    """Who owned each page, when: one row per interval, by page and time; every page is covered from start to end.

    ``owner`` is a uid, -1 free, -2 the prefix cache, then in tree node ``node`` (-1 otherwise). The owner after step k,
    ``trace.at(k).pages.owner``, is that of the interval with ``first_step <= k <= last_step``; what comes and goes
    within one step does not show.
    """
    ps, first = keyframe["page_size"], keyframe["step"]
    now = list(zip(keyframe["pages"]["owner"], keyframe["pages"]["node"], strict=True))
    nodes = {i: n["pages"] for i, n in keyframe["nodes"].items()}
    since = [(first, owner) for owner in now]  # of each page, the interval it is in
    rows = array("q")  # one after the other: a long run has a million of them
    touched: set[int] = set()
    last = first

    def move(numbers: Iterable[int], owner: int, node: int = -1) -> None:
        new = (owner, node)
        for page in numbers:
            now[page] = new
        touched.update(numbers)

    for e in events:
        if isinstance(e, ev.PagesAllocated):
            owners = (uid for uid, count in zip(e.uids, e.counts, strict=True) for _ in range(count))
            for page, uid in zip(e.pages, owners, strict=True):
                now[page] = (uid, -1)
            touched.update(e.pages)
        elif isinstance(e, ev.PagesFreed):
            move(e.pages, FREE)
        elif isinstance(e, ev.PagesEvicted):
            move(e.pages, FREE)
            for node in e.nodes:
                del nodes[node]
        elif isinstance(e, ev.NodeInserted):
            nodes[e.node] = e.pages
            move(e.pages, CACHE, e.node)
        elif isinstance(e, ev.NodeSplit):
            whole, cut = nodes[e.node], e.length // ps
            nodes[e.upper], nodes[e.node] = whole[:cut], whole[cut:]
            move(whole[:cut], CACHE, e.upper)
        elif isinstance(e, ev.StepFinished):
            last = e.step
            for page in touched:
                start, owner = since[page]
                if owner != now[page]:
                    rows.extend((page, *owner, start, last - 1))
                    since[page] = (last, now[page])
            touched.clear()
    for page, (start, owner) in enumerate(since):
        rows.extend((page, *owner, start, last))
    columns = np.frombuffer(rows, dtype=np.int64).reshape(-1, len(PAGES)).T
    return Table("pages", PAGES, list(columns[:, np.lexsort((columns[3], columns[0]))]))
