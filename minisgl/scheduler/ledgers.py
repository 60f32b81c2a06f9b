"""The live ledgers written as a state: the only code that reads them all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minisgl.core import Request
from minisgl.events.state import CACHE, FREE, RequestState, RowState, entry, initial_state

if TYPE_CHECKING:
    from minisgl.scheduler.scheduler import Scheduler


def ledger_state(s: Scheduler) -> dict:
    """The state between two steps, in the shape of ``minisgl.events.state``, read from the ledgers and nothing else."""
    cache, table, num_pages = s.cache, s.table, s.cache.num_pages
    state = initial_state(num_pages, s.config.page_size, s.config.max_running_requests)
    chunked = [s.prefill.chunked] if s.prefill.chunked else []
    seated = [*s.running.values(), *chunked]
    rows = [table.pages(r.row, r.num_pages) for r in seated]

    owner, node, order = [FREE] * num_pages, [-1] * num_pages, [-1] * num_pages
    for request, pages in zip(seated, rows, strict=True):
        for page in pages:
            owner[page] = request.uid
    nodes = cache.prefix.nodes()
    for i, n in nodes.items():
        for page in n["pages"]:
            owner[page], node[page] = CACHE, i
    for i, page in enumerate(cache.allocator):
        # a page that is both named by a row and free must show, so the row's claim is not overwritten
        order[page] = cache.allocator.taken + i

    state["step"], state["t"] = s.steps, s.executor.now()
    state["pages"] = {"owner": owner, "node": node, "order": order}
    state["queue"] = {"taken": cache.allocator.taken, "added": cache.allocator.taken + cache.free}
    state["nodes"] = nodes
    state["rows"] = [entry(RowState(generation=g)) for g in table.generations]
    for request in seated:
        state["rows"][request.row]["uid"] = request.uid
    state["requests"] = {r.uid: _request(r, p) for r, p in zip(seated, rows, strict=True)}
    state["requests"] |= {r.uid: _request(r, []) for r in s.prefill.waiting}
    state["waiting"] = [r.uid for r in s.prefill.waiting]
    state["running"] = sorted(s.running)
    state["counters"] = s.counters()
    return state


def _request(r: Request, pages: list[int]) -> dict:
    return entry(
        RequestState(
            uid=r.uid,
            status=r.status,
            prompt=tuple(r.token_ids[: r.prompt_len]),
            output=r.output_ids,
            max_tokens=r.max_tokens,
            matched=r.matched,
            cached_len=r.cached_len,
            device_len=r.device_len,
            row=r.row,
            pages=pages,
            node=r.handle.node.id if r.handle is not None and r.handle.length else 0,
            reserved=r.reserved,
        )
    )
