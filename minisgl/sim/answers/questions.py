"""explain: questions about one request of a recorded run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minisgl.errors import UnknownQuestionError
from minisgl.events.trace import Trace
from minisgl.sim.answers.answer import Answer
from minisgl.sim.answers.missed import why_missed
from minisgl.sim.answers.slow import why_slow
from minisgl.sim.answers.waiting import why_waiting

_ANSWERS: dict[str, Callable[[Trace, int], Answer]] = {
    "why waiting": why_waiting,
    "why missed": why_missed,
    "why slow": why_slow,
}
QUESTIONS = tuple(_ANSWERS)


def explain(trace: Trace, question: Any, uid: int) -> Answer:
    """Answer a question about a request from a run's own record.

    Args:
        trace: the record.
        question: one of ``QUESTIONS``: "why waiting" (its time in the queue), "why missed" (how far its prompt was
            found in the prefix cache, and why not further), "why slow" (where its time went).
        uid: the request.

    Raises:
        UnknownQuestionError: another question.
        UnknownRequestError: the record has no such request.
    """
    if question not in _ANSWERS:
        known = ", ".join(map(repr, QUESTIONS))
        raise UnknownQuestionError(f"{question!r} is not a question that can be answered; there are {known}")
    return _ANSWERS[question](trace, uid)
