"""The live ledgers written as a state: the only code that reads them all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minisgl.core import Request
from minisgl.events.integrity import violations
from minisgl.events.state import CACHE, COUNTERS, FREE, RequestState, RowState, entry, initial_state

if TYPE_CHECKING:
    from minisgl.scheduler.scheduler import Scheduler


def ledger_state(s: Scheduler) -> dict:
    """The state between two steps, in the shape of ``minisgl.events.state``, read from the ledgers and nothing else."""
    cache, table, num_pages = s.cache, s.table, s.cache.num_pages
    state = initial_state(num_pages, s.config.page_size, s.config.max_running_requests)
    seated = _seated(s)

    owner, node, order = [FREE] * num_pages, [-1] * num_pages, [-1] * num_pages
    for request in seated:
        for page in request.pages:
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
    state["requests"] = {r.uid: _request(r) for r in seated}
    for uid, pages in cache.waiting:
        state["requests"][uid]["pending"] += pages
        for page in pages:
            owner[page] = uid
    state["requests"] |= {r.uid: _request(r) for r in s.prefill.waiting}
    state["waiting"] = [r.uid for r in s.prefill.waiting]
    state["running"] = sorted(s.running)
    state["flight"] = [{"batch": batch.number, "uids": list(batch.uids)} for batch, *_ in s.flying]
    state["counters"] = dict(zip(COUNTERS, s.counters(), strict=True))
    return state


def _request(r: Request) -> dict:
    return entry(
        RequestState(
            uid=r.uid,
            status=r.status,
            reason=r.finish_reason or "",
            error=error_text(r.error),
            prompt=tuple(r.prompt.tolist()),
            output=list(r.output_ids),
            max_tokens=r.max_tokens,
            matched=r.matched,
            cached_len=r.cached_len,
            device_len=r.device_len,
            row=r.row,
            pages=r.pages[:],
            node=r.handle.node.id if r.handle is not None and r.handle.length else 0,
            reserved=r.reserved,
        )
    )


def _seated(s: Scheduler) -> list[Request]:
    """Everybody who has a row."""
    return [*s.running.values(), *([s.prefill.chunked] if s.prefill.chunked else []), *s.leaving]


def error_text(error: Exception | None) -> str:
    """What broke, in one line; empty if nothing did."""
    return "" if error is None else f"{type(error).__name__}: {error}"


def broken_rules(s: Scheduler) -> list[str]:
    """What is wrong with the ledgers, in words."""
    found = violations(ledger_state(s))
    seated = _seated(s)
    rows = sorted([*s.table.free_rows, *(r.row for r in seated)])
    if rows != list(range(s.config.max_running_requests)):
        found.append(f"free rows {sorted(s.table.free_rows)} and rows in use do not add up: {rows}")
    return found
