"""What came in from outside takes effect: at the beginning of a step, in the order in which it came."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minisgl.core import Request
from minisgl.events import types as ev
from minisgl.scheduler.inbox import Abort, Change, Refusal
from minisgl.scheduler.leaving import finish
from minisgl.scheduler.settings import apply

if TYPE_CHECKING:
    from minisgl.scheduler.scheduler import Scheduler


def receive(s: Scheduler) -> bool:
    """Let all messages of the inbox take effect; whether there were any."""
    received = False
    for message in s.inbox.take():
        received = True
        if isinstance(message, Request):
            _arrive(s, message)
        elif isinstance(message, Refusal):
            _refuse(s, message)
        elif isinstance(message, Abort):
            _abort(s, message)
        elif isinstance(message, Change):
            _change(s, message)
        else:
            s.cache.clear()
            s.prefill.retest = True
    s.cache.free_gathered()
    return received


def _arrive(s: Scheduler, request: Request) -> None:
    s.requests[request.uid] = request
    s.prefill.add(request)
    if s.bus:
        s.bus.emit(
            ev.RequestArrived,
            uid=request.uid,
            prompt=tuple(request.prompt.tolist()),
            max_tokens=request.max_tokens,
            params=request.params,
            seed=request.seed,
            stop_tokens=tuple(sorted(request.stop_tokens)),
            submitted=request.submitted,
            client_id=request.client_id,
        )


def _refuse(s: Scheduler, refusal: Refusal) -> None:
    s.bus.emit(
        ev.RequestRejected,
        uid=refusal.uid,
        prompt_len=refusal.prompt_len,
        error=type(refusal.error).__name__,
        message=str(refusal.error),
        submitted=refusal.submitted,
        client_id=refusal.client_id,
    )


def _abort(s: Scheduler, abort: Abort) -> None:
    s.bus.emit(ev.AbortRequested, uid=abort.uid, submitted=abort.submitted)
    request = s.requests.get(abort.uid)
    if request is not None:
        finish(s, request, "abort")


def _change(s: Scheduler, change: Change) -> None:
    apply(s, change.settings)
    s.bus.emit(ev.SettingsChanged, names=tuple(change.settings), values=tuple(change.settings.values()))
