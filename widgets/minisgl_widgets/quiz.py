"""Quiz: the player stops before a decision, the reader answers, and the engine's own next event marks it."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable
from html import escape
from random import Random

import msgspec

from minisgl.errors import QuizError
from minisgl.events.trace import Trace
from minisgl.events.words import count
from minisgl_widgets.decisions import questions
from minisgl_widgets.document import Content, Document, facts_of
from minisgl_widgets.feed import Feed
from minisgl_widgets.quiz_question import TOPICS, QuizQuestion
from minisgl_widgets.record import Encoder
from minisgl_widgets.session import Session
from minisgl_widgets.shown import Shown, heading, together

FORETELLERS = ("eviction", "questions")  # tabs that say what will happen


class Quiz(Document):
    """Questions about a recorded run, played in the browser: ``Quiz(trace)`` as a cell's last expression.

    The page holds the run in pieces, and the views get a piece only when the reader has answered, so that nothing on
    them can show a later step before.

    Args:
        trace: the run.
        topic: ask only about this: "admission", "pages", "eviction" or "handoff".
        seed: which of the possible questions are asked; the same seed asks the same.
        most: questions at most; no two are about the same step.
        title: shown above; by default the run's.

    Raises QuizError for an unknown topic, or where the run decides nothing that could be asked.
    """

    def __init__(self, trace: Trace, topic: str | None = None, seed: int = 0, most: int = 8, title: str = "") -> None:
        if topic is not None and topic not in TOPICS:
            raise QuizError(f"no topic is called {topic!r}; there are {', '.join(TOPICS)}")
        every = questions(trace)
        self.trace, self.topic, self.seed = trace, topic, seed
        self.title = title or trace.title or "A run of minisgl"
        self.questions = choose([q for q in every if topic in (None, q.topic)], most, seed)
        if not self.questions:
            there = Counter(q.topic for q in every)
            known = ", ".join(f"{count(there[t], 'question')} on {t}" for t in TOPICS if there[t]) or "nothing"
            raise QuizError(f"this run has nothing to ask about {topic or 'anything'} ({most} at most); it has {known}")

    def content(self) -> Content:
        first, pieces = self._pieces()
        panel = {
            "kind": "quiz",
            "without": FORETELLERS,
            "title": self.title,
            "topic": self.topic,
            "seed": self.seed,
            "questions": [msgspec.structs.asdict(q) for q in self.questions],
            "pieces": [None if piece is None else base64.b64encode(piece).decode() for piece in pieces],
        }
        return Content(f"Quiz: {self.title}", facts_of(Session(self.trace)), [first], panel)

    def _pieces(self) -> tuple[bytes, list[bytes | None]]:
        """The run up to the first question, and what follows: a piece for each answer, then one that leads to the next
        question (the last one to the run's end); None where there are no steps between."""
        texts = self.trace.texts
        feed = Feed(self.trace.keyframe, lambda token: texts.get(token, str(token)), self.title, self.trace.about)
        encoder = Encoder(feed)
        ends = [end for q in self.questions for end in (q.before, q.step)]
        events, at = self.trace.events, 0
        records: list[bytes | None] = []
        for end in [*ends, None]:
            while at < len(events) and (end is None or events[at].step <= end):
                feed.put(events[at])
                at += 1
            records.append(encoder.continuation() if records else encoder.record())
        assert records[0] is not None
        return records[0], records[1:]

    def still(self) -> Shown:
        """The questions alone: a picture of the run would answer them. In HTML the answers are folded away."""
        topics = Counter(q.topic for q in self.questions)
        said = ", ".join(f"{topics[t]} on {t}" for t in TOPICS if topics[t])
        what = f"Quiz({self.title}: {count(len(self.questions), 'question')}, {said}; seed {self.seed})"
        asked = "".join(map(_html, self.questions))
        return together(heading(what), Shown(self._text(_choices), f"<ol>{asked}</ol>"))

    def text(self) -> str:
        """Questions and answers for a terminal, or for whoever corrects."""
        return self._text(_answer)

    def _text(self, below: Callable[[QuizQuestion], list[str]]) -> str:
        lines = []
        for i, q in enumerate(self.questions, 1):
            lines += [f"{i}. [{q.topic}] {q.prompt}", *(f"   {line}" for line in below(q))]
        return "\n".join(lines)


def _choices(q: QuizQuestion) -> list[str]:
    return [f"- {choice}" for choice in q.choices]


def _answer(q: QuizQuestion) -> list[str]:
    choices = [f"{'*' if n == q.answer else '-'} {choice}" for n, choice in enumerate(q.choices)]
    return [*choices, q.why if choices else f"{q.said} {q.why}"]


def _html(q: QuizQuestion) -> str:
    choices = "".join(f"<li>{escape(choice)}</li>" for choice in q.choices)
    told = f"{q.choices[q.answer] if q.choices else q.said} {q.why}"
    answer = f"<details><summary>the answer</summary>{escape(told)}</details>"
    return f"<li><i>{q.topic}</i>: {escape(q.prompt)}{f'<ul>{choices}</ul>' if choices else ''}{answer}</li>"


def choose(candidates: list[QuizQuestion], most: int, seed: int) -> list[QuizQuestion]:
    """At most so many, one a step, in the order of the run. Topics take turns, and so do the kinds of decision in each;
    rare ones come first, so that a common one does not take the only step they have."""
    random = Random(seed)
    topics: dict[str, dict[str, list[QuizQuestion]]] = {}
    for question in candidates:
        topics.setdefault(question.topic, {}).setdefault(question.kind, []).append(question)
    turns = [list(kinds.values()) for kinds in topics.values()]
    turns.sort(key=lambda kinds: sum(map(len, kinds)))
    for kinds in turns:
        kinds.sort(key=len)
        for group in kinds:
            random.shuffle(group)
    chosen: dict[int, QuizQuestion] = {}
    while any(turns) and len(chosen) < most:
        for kinds in turns:
            taken = _take(kinds, chosen) if len(chosen) < most else None
            if taken:
                chosen[taken.step] = taken
        turns = [kinds for kinds in turns if kinds]
    return [chosen[step] for step in sorted(chosen)]


def _take(kinds: list[list[QuizQuestion]], chosen: dict[int, QuizQuestion]) -> QuizQuestion | None:
    """A question about a step that has none yet, from the kind whose turn it is, which then goes to the end."""
    while kinds:
        group = kinds.pop(0)
        while group:
            question = group.pop()
            if question.step not in chosen:
                kinds.append(group)
                return question
    return None
