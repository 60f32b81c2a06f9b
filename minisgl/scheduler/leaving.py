"""How requests leave: they end, give their row and pages back, fail, or are sent back to the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minisgl.core import Batch, Request
from minisgl.events import types as ev
from minisgl.scheduler.ledgers import error_text

if TYPE_CHECKING:
    from minisgl.scheduler.scheduler import Scheduler


def received(s: Scheduler, request: Request) -> None:
    """The request's last token has just come: does it end, or hand over its prompt?"""
    if request.output_ids[-1] in request.stop_tokens:
        finish(s, request, "stop")
    elif request.remain_len == 0:
        finish(s, request, "length")
    elif request.done_len == request.prefill_len:
        s.cache.handoff(request, finished=False, pending=s.names(request))
        s.prefill.retest = True


def finish(s: Scheduler, request: Request, reason: str) -> None:
    """End a request. Its pages go to the cache and to the free list, its row back, unless a batch names them."""
    if request.row >= 0:
        s.cache.handoff(request, finished=True, pending=s.names(request))
        s.cache.reserve(request, -request.reserved)
        _unseat(s, request)
        s.leaving.append(request)
    else:
        s.prefill.waiting.remove(request)
    request.status, request.finish_reason = "finished", reason
    del s.requests[request.uid]
    s.prefill.retest = True
    if s.bus:
        s.bus.emit(
            ev.RequestFinished,
            uid=request.uid,
            reason=reason,
            num_output=len(request.output_ids),
            error=error_text(request.error),
        )
    if request.row >= 0 and not s.names(request):
        _release(s, request)


def fail(s: Scheduler, batch: Batch, requests: list[Request], failure: Exception) -> None:
    """The forward broke: its requests end with an error, without the KV it should have made; the engine goes on."""
    now = s.executor.now()
    s.bus.emit(ev.ForwardFinished, batch=batch.number, started=now, finished=now, error=error_text(failure))
    for request in requests:
        if not request.finished:
            request.error = failure
            finish(s, request, "error")
    release_completed(s)


def retract_last(s: Scheduler, scheduled: list[Request]) -> bool:
    """Take back the pages of the last one admitted, and queue it again; False if there is only one to take from.

    The first one admitted always goes on, so somebody always ends.
    """
    seated = {r.uid: r for r in (*s.running.values(), *scheduled)}
    if s.prefill.chunked:
        seated[s.prefill.chunked.uid] = s.prefill.chunked
    if len(seated) < 2:
        return False
    request = max(seated.values(), key=lambda r: r.admitted)
    lost = request.cached_len - request.handle.length
    pages = s.cache.retract(request)
    s.table.free(request.row)
    _unseat(s, request)
    if s.bus:
        s.bus.emit(ev.RequestRetracted, uid=request.uid, pages=tuple(pages), lost=lost)
        s.bus.emit(ev.RowReleased, uid=request.uid, row=request.row, generation=request.generation)
    request.retract()
    s.prefill.put_back(request)
    s.cache.free_gathered()
    return True


def release_completed(s: Scheduler) -> None:
    """Everything that no batch in flight names any more goes back."""
    for request in [r for r in s.leaving if not s.names(r)]:
        _release(s, request)
    s.cache.free_gathered()


def _release(s: Scheduler, request: Request) -> None:
    """Give back a finished request's row, and the prefix that it may still hold."""
    s.leaving.remove(request)
    s.cache.release(request)
    s.table.free(request.row)
    if s.bus:
        s.bus.emit(ev.RowReleased, uid=request.uid, row=request.row, generation=request.generation)
    request.row, request.pages = -1, []
    s.prefill.retest = True


def _unseat(s: Scheduler, request: Request) -> None:
    """It is in no further batch."""
    s.running.pop(request.uid, None)
    s.decoding = None
    if s.prefill.chunked is request:
        s.prefill.chunked = None
