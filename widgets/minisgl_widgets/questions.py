"""Questions that a run answers about itself, and the answers as HTML for the views.

Where there is a kernel a view asks it; a page without one brings along the answers that are quick to find. Each step
that an answer cites leads there (``data-step``), and every request it names points at itself (``data-uid``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from typing import Any, NamedTuple

from minisgl.errors import MinisglError
from minisgl.events.trace import Trace
from minisgl.sim.answers import Answer, blame, explain, hits, lens, reservations, size, verify
from minisgl_widgets import palette

READINGS = 800_000  # events that may be gone through for one page's answers, about 2 seconds


class Question(NamedTuple):
    """``passes``: how often its answer goes through the run's events, roughly: a replay counts about 75 times."""

    id: str
    title: str  # on its button
    each: bool  # asked of one request; else of the run
    passes: int
    ask: Callable[[Trace, int], Answer]
    code: str  # the same in Python; UID stands for the request

    def head(self) -> dict[str, Any]:
        """What a view needs to offer it; ``dear``: better asked for than asked by itself."""
        return {"id": self.id, "title": self.title, "each": self.each, "code": self.code, "dear": self.passes >= 100}


def _explain(id: str, title: str, question: str) -> Question:
    code = f'explain(trace, "{question}", uid=UID)'
    return Question(id, title, True, 1, lambda trace, uid: explain(trace, question, uid), code)


def _of_run(id: str, title: str, passes: int, ask: Callable[[Trace], Answer]) -> Question:
    return Question(id, title, False, passes, lambda trace, _: ask(trace), f"{ask.__name__}(trace)")


QUESTIONS = (
    _explain("waiting", "Why did it wait?", "why waiting"),
    Question("blame", "Who kept it out?", True, 1200, blame, "blame(trace, uid=UID)"),
    _explain("missed", "Why not cached?", "why missed"),
    _explain("slow", "Where did its time go?", "why slow"),
    _of_run("hits", "Hit rate", 20, hits),
    _of_run("reservations", "Promised, never used", 20, reservations),
    _of_run("lens", "Other page sizes", 35, lens),
    _of_run("size", "Capacity", 1, size),
    _of_run("verify", "Record = replay?", 100, verify),
)
_BY_ID = {question.id: question for question in QUESTIONS}


def key_of(id: str, uid: int) -> str:
    """How an answer is named in a record and in messages: ``waiting:4``, ``reservations``."""
    return f"{id}:{uid}" if _BY_ID[id].each else id


def answer(trace: Trace, id: str, uid: int = -1) -> str:
    """The answer to a question, as HTML; or why it cannot be answered. KeyError for an unknown one."""
    try:
        return html_of(_BY_ID[id].ask(trace, uid))
    except MinisglError as error:
        return f'<p class="msgl-empty">{escape(str(error))}</p>'


def answers(trace: Trace) -> dict[str, str]:
    """What a page without a kernel brings along, by ``key_of``: as much as ``READINGS`` allow.

    Half of them are for questions about the run, the rest for those about requests, of which those that waited longest
    come first. The same run gives the same answers.
    """
    given: dict[str, str] = {}
    left = 0
    for each in (False, True):
        left += READINGS // 2
        for question in sorted((q for q in QUESTIONS if q.each == each), key=lambda q: q.passes):
            cost = question.passes * len(trace.events)
            for uid in _longest_waiting(trace) if each else [-1]:
                if cost <= left:
                    left -= cost
                    given[key_of(question.id, uid)] = answer(trace, question.id, uid)
    return given


def _longest_waiting(trace: Trace) -> list[int]:
    waits = zip(trace.requests.queue_time.tolist(), trace.requests.uid.tolist(), strict=True)
    longest = sorted(waits, key=lambda row: (row[0] == row[0], -row[0], row[1]))  # NaN: it was never admitted
    return [uid for _, uid in longest]


# -- as HTML ---------------------------------------------------------------------------------------------------------

_STEPS = re.compile(r"\b([Ss]teps?) (\d+)(?:( to )(\d+))?(?:, ([A-Z]\w+))?")
_REQUESTS = re.compile(r"\b([Rr]equests) (\d+(?:, \d+)*)|\b([Rr]equest) (\d+)")  # not "request 3, 14 tokens"


def html_of(answer: Answer) -> str:
    """An answer as a fragment: its question, sentences, picture, and the numbers it rests on, folded away."""
    said = "".join(f"<li>{linked(sentence)}</li>" for sentence in answer.sentences)
    picture = f"<figure>{answer.picture}</figure>" if answer.picture else ""
    rows = len(answer.data)
    table = f"<details><summary>the numbers</summary>{answer.data._repr_html_()}</details>" if rows else ""
    return f"<p><b>{linked(answer.question)}</b></p><ul>{said}</ul>{picture}{table}"


def linked(sentence: str) -> str:
    """A sentence as HTML in which steps are links and requests are name tags."""
    return _REQUESTS.sub(_tagged, _STEPS.sub(_cited, escape(sentence, quote=False)))


def _cited(found: re.Match[str]) -> str:
    word, first, to, last, event = found.groups()
    kind = f' data-event="{event}"' if event else ""
    said = _link(first, f"{word} {first}{f', {event}' if event and not last else ''}", kind)
    return said + (to + _link(last, f"{last}{f', {event}' if event else ''}", kind) if last else "")


def _link(step: str, words: str, more: str) -> str:
    return f'<a class="msgl-cite" role="link" tabindex="0" data-step="{step}"{more}>{words}</a>'


def _tagged(found: re.Match[str]) -> str:
    word, numbers = found[1] or found[3], found[2] or found[4]
    return f"{word} {', '.join(map(_chip, map(int, numbers.split(', '))))}"


def _chip(uid: int) -> str:
    """The name tag that ``chip`` in ``static/look.js`` makes."""
    colours = len(palette.UIDS)
    look = f"msgl-c{uid % colours} msgl-p{uid // colours % 3}"
    return f'<span class="msgl-chip {look}" data-uid="{uid}" title="request {uid}"><b>{uid}</b></span>'
