"""Until: conditions on events, by name or as a function; where a run stops, and what is looked for in a record."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, Protocol

from minisgl.errors import ConditionError
from minisgl.events import types as ev
from minisgl.events.bus import Subscription
from minisgl.events.words import describe

Holds = Callable[[Any], bool]
Condition = str | Holds  # what users write

# name -> the event, and what must be true of it (None: nothing more)
NAMES: dict[str, tuple[type[ev.Event], Holds | None]] = {
    "arrival": (ev.RequestArrived, None),
    "admission": (ev.RequestAdmitted, None),
    "refusal": (ev.AdmissionTested, lambda e: e.verdict != "admitted"),
    "hit": (ev.RequestAdmitted, lambda e: e.cached_len > 0),
    "eviction": (ev.PagesEvicted, None),
    "split": (ev.NodeSplit, None),
    "handoff": (ev.Handoff, None),
    "retract": (ev.RequestRetracted, None),
    "drain": (ev.PipelineDrained, None),
    "failure": (ev.ForwardFinished, lambda e: bool(e.error)),
    "finish": (ev.RequestFinished, None),
}
# counters, of the batch as it was launched or of the end of the step
COUNTERS = {
    "waiting": "waiting",
    "running": "running",
    "free": "free_pages",
    "promised": "reserved_pages",
    "owned": "owned_pages",
    "evictable": "evictable_pages",
    "protected": "protected_pages",
    "pending": "pending_pages",
}
OPERATORS: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    ">=": operator.ge,
    ">": operator.gt,
}

_EVENT = re.compile(r"(?P<name>[a-z]+)(?: of request (?P<uid>\d+))?")
_COUNTER = re.compile(r"(?P<counter>[a-z]+) *(?P<operator><=|<|==|>=|>) *(?P<number>\d+)")
_STEP = re.compile(r"step (?P<step>\d+)")


class Until:
    """A condition, read: ``kinds`` are the event types it looks at, ``holds(event)`` says whether this is one.

    Args:
        condition: a function of an event; or one of

            - a name of ``NAMES``: ``"eviction"``, ``"refusal"`` ..., also ``"finish of request 4"``;
            - a counter, an operator and a number: ``"free < 8"`` (pages, before or after a batch is processed);
            - ``"step 17"``.

    Raises:
        ConditionError: it cannot be read; the message lists what can.
    """

    def __init__(self, condition: Condition) -> None:
        self.condition = condition
        self.kinds: tuple[type[ev.Event], ...]
        self.holds: Holds
        if callable(condition):
            self.kinds, self.holds = ev.EVENT_TYPES, condition
        elif isinstance(condition, str):
            self.kinds, self.holds = _read(" ".join(condition.split()))
        else:
            raise ConditionError(f"{condition!r}: a condition is a text or a function of an event; {_known()}")

    def __repr__(self) -> str:
        return f"Until({self.condition!r})"


def _read(text: str) -> tuple[tuple[type[ev.Event], ...], Holds]:
    if found := _STEP.fullmatch(text):
        step = int(found["step"])
        return (ev.StepFinished,), lambda e: e.step == step
    if (found := _COUNTER.fullmatch(text)) and found["counter"] in COUNTERS:
        field, compare, number = COUNTERS[found["counter"]], OPERATORS[found["operator"]], int(found["number"])
        return (ev.BatchScheduled, ev.StepFinished), lambda e: compare(getattr(e, field), number)
    if (found := _EVENT.fullmatch(text)) and found["name"] in NAMES:
        kind, true = NAMES[found["name"]]
        if found["uid"] is None:
            return (kind,), true or (lambda e: True)
        if "uid" not in kind.__struct_fields__:
            raise ConditionError(f"{text!r}: {kind.__name__} is of no one request; leave out 'of request ...'")
        uid = int(found["uid"])
        return (kind,), lambda e: e.uid == uid and (true is None or true(e))
    raise ConditionError(f"{text!r} is no condition; {_known()}")


def _known() -> str:
    return (
        f"there are {', '.join(NAMES)} (also 'finish of request 4'), 'step 17', and {', '.join(COUNTERS)} with "
        f"{', '.join(OPERATORS)} and a number ('free < 8')"
    )


class Source(Protocol):
    """What can be listened to and stepped: an LLM, a Simulator, a Fork."""

    def on(self, event_type: type[ev.Event] | None, fn: Callable[[Any], object]) -> Subscription: ...

    def step(self) -> ev.StepFinished | None: ...


class Watch:
    """Listens until a condition holds: ``event`` is the first event for which it did, None so far.

    Where it is not used nothing is subscribed, so nothing is paid. What the condition itself raises is kept in
    ``error``: raised in a listener, it would only be printed.
    """

    def __init__(self, on: Callable[[Any, Callable[[Any], object]], Subscription], condition: Condition) -> None:
        self.until = Until(condition)
        self.event: ev.Event | None = None
        self.error: Exception | None = None
        self._subscriptions = [on(kind, self._look) for kind in self.until.kinds]

    @property
    def over(self) -> bool:
        """Is there nothing more to wait for?"""
        return self.event is not None or self.error is not None

    def _look(self, event: ev.Event) -> None:
        if self.over:
            return
        try:
            if self.until.holds(event):
                self.event = event
        except Exception as error:
            self.error = error

    def close(self) -> None:
        for subscription in self._subscriptions:
            subscription.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Stop:
    """Where a run stopped, and why.

    Attributes:
        end: the last step's StepFinished; None if no step was taken.
        event: the first event for which the condition held; None: nothing was left to do.
        why: the same in words.
    """

    def __init__(self, end: ev.StepFinished | None, event: ev.Event | None, condition: Condition) -> None:
        self.end = end
        self.event = event
        self.why = "nothing was left to do" if event is None else reason(condition, event)

    def __repr__(self) -> str:
        return f"Stop({f'after step {self.end.step}' if self.end else 'before any step'}: {self.why})"


def reason(condition: Condition, event: ev.Event) -> str:
    """Why a run stopped: the condition, and the event for which it held."""
    asked = condition if isinstance(condition, str) else getattr(condition, "__name__", "the condition")
    sentence = describe(event)
    return f"{asked} (step {event.step}, {type(event).__name__})" + (f": {sentence}" if sentence else "")


def run_until(source: Source, condition: Condition) -> Stop:
    """Step to the end of the first step in which the condition holds, or until nothing is left to do.

    Raises:
        ConditionError: the condition cannot be read.
        Exception: whatever a condition that is a function raises, after the step in which it did.
    """
    end = None
    with Watch(source.on, condition) as watch:
        while not watch.over:
            event = source.step()
            if event is None:
                break
            end = event
    if watch.error is not None:
        raise watch.error
    return Stop(end, watch.event, condition)
