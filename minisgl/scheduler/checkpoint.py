"""What a state of the events does not show and a scheduler needs to go on from it exactly: read here, and put back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from minisgl.core import Request, SamplingParams

if TYPE_CHECKING:
    from minisgl.scheduler.scheduler import Scheduler

# of a live request, beside what RequestState has
KEPT = (
    "uid",
    "max_tokens",
    "seed",
    "client_id",
    "submitted",
    "prefill_len",
    "worst",
    "admitted",
    "retractions",
    "passed",
    "done_len",
    "cached_tokens",
    "generation",
)


def checkpoint(s: Scheduler) -> dict[str, Any]:
    """Plain data; only while no batch is in flight. With the state of ``Scheduler.snapshot`` it is all there is."""
    assert not s.in_flight, "drain first: what is in flight cannot be written down"
    return {
        "batches": s.batches,
        "retest": s.prefill.retest,
        "admissions": s.prefill.admissions,
        "chunked": s.prefill.chunked.uid if s.prefill.chunked else None,
        "prefix": s.cache.prefix.clocks(),
        "requests": [
            {name: getattr(r, name) for name in KEPT}
            | {"params": msgspec.json.decode(msgspec.json.encode(r.params)), "stop_tokens": sorted(r.stop_tokens)}
            for r in s.requests.values()
        ],
    }


def restore(s: Scheduler, state: dict, hidden: dict[str, Any]) -> None:
    """Let a new scheduler go on where ``state`` and its ``checkpoint`` were taken."""
    s.steps, s.batches = state["step"], hidden["batches"]
    s.cache.allocator.restore(state["pages"]["order"], state["queue"]["taken"])
    handles = s.cache.prefix.restore(state["nodes"], hidden["prefix"])
    s.table.restore(state["rows"])
    for kept in hidden["requests"]:
        shown = state["requests"][kept["uid"]]
        request = Request(
            uid=kept["uid"],
            prompt=np.array(shown["prompt"], dtype=np.int32),
            params=msgspec.convert(kept["params"], SamplingParams),
            stop_tokens=frozenset(kept["stop_tokens"]),
            output_ids=list(shown["output"]),
            **{name: kept[name] for name in ("max_tokens", "seed")},
        )
        for name in KEPT:
            setattr(request, name, kept[name])
        for name in ("status", "matched", "cached_len", "device_len", "row", "reserved"):
            setattr(request, name, shown[name])
        s.requests[request.uid] = request
        s.cache.reserved += request.reserved
        if request.row >= 0:
            request.handle = handles[shown["node"]]
            request.pages = list(shown["pages"])
            s.table.write_pages(request.row, 0, request.pages)
            if request.status == "running":
                s.running[request.uid] = request
    s.prefill.waiting.extend(s.requests[uid] for uid in state["waiting"])
    s.prefill.retest, s.prefill.admissions = hidden["retest"], hidden["admissions"]
    s.prefill.chunked = s.requests.get(hidden["chunked"]) if hidden["chunked"] is not None else None
