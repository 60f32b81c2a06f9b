"""QuizQuestion: a question about one decision of a run."""

from __future__ import annotations

from typing import Any

import msgspec

from minisgl.events import types as ev
from minisgl.events.words import EMITTERS, count, describe

TOPICS = ("admission", "pages", "eviction", "handoff")


class QuizQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """One decision to guess. ``choices`` are texts, and ``answer`` is the index of the right one; without choices,
    ``answer`` is the number asked for, in ``unit``.

    ``event`` is the deciding event's sentence, ``type`` its class, ``made`` the function that made it; ``why`` says in
    words how the answer follows. ``kind`` tells questions of one topic apart; ``uid`` is the request, -1 for none.
    """

    topic: str
    kind: str
    step: int
    prompt: str
    choices: tuple[str, ...] = ()
    unit: str = ""
    answer: int
    event: str
    type: str
    made: str
    why: str
    uid: int = -1

    @classmethod
    def of(cls, event: ev.Event, topic: str, kind: str, why: str, **fields: Any) -> QuizQuestion:
        """A question that ``event`` decides; ``why`` gets the event and its step as a source."""
        return cls(
            topic=topic,
            kind=kind,
            step=event.step,
            event=describe(event),
            type=type(event).__name__,
            made=" or ".join(EMITTERS[type(event)]),
            why=f"{why} ({type(event).__name__}, step {event.step})",
            **fields,
        )

    @property
    def before(self) -> int:
        """The step after which the views stand while it is asked."""
        return self.step - 1

    @property
    def said(self) -> str:
        """The right answer in words."""
        return self.choices[self.answer] if self.choices else count(self.answer, self.unit)
