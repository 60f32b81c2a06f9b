"""Tour: prose about a recorded run, whose sentences move the player."""

from __future__ import annotations

from html import escape
from urllib.parse import parse_qsl

import msgspec

from minisgl.events.trace import Trace
from minisgl.events.words import count
from minisgl_widgets import runs
from minisgl_widgets.document import Content, Document, facts_of, still_of
from minisgl_widgets.markup import Sentence, sentences
from minisgl_widgets.session import Session
from minisgl_widgets.shown import Shown, heading, together


class Tour(Document):
    """A text that leads through a run: ``Tour.of("five_prompts")``, or your own: ``Tour(trace, text)``.

    Args:
        trace: the run.
        text: what to say; ``minisgl_widgets.markup`` says how a sentence names the step, the request or the view it
            speaks of, and what it claims.
        title: shown above; by default the run's.

    Raises TourError where the text names a place that is none, or that the run does not hold.
    """

    def __init__(self, trace: Trace, text: str, title: str = "") -> None:
        self.session = Session(trace, title=title)
        self.title = self.session.title or "A run of minisgl"
        self.sentences = sentences(text, trace)

    @classmethod
    def of(cls, name: str) -> Tour:
        """The tour of a packaged run, one of ``minisgl_widgets.runs.names``."""
        return cls(runs.load(name), runs.tour(name))

    def check(self) -> list[Sentence]:
        """The sentences whose claims the run does not bear out. Their Python is run: only for texts that you trust."""
        return [sentence for sentence in self.sentences if not sentence.holds(self.session.trace)]

    def content(self) -> Content:
        said = [{k: v for k, v in msgspec.structs.asdict(s).items() if k != "claim"} for s in self.sentences]
        panel = {"kind": "tour", "sentences": said}
        return Content(self.title, facts_of(self.session), [self.session.record()], panel)

    def text(self) -> str:
        """The prose alone."""
        paragraphs: dict[int, list[str]] = {}
        for sentence in self.sentences:
            paragraphs.setdefault(sentence.paragraph, []).append(sentence.text)
        return "\n\n".join(map(" ".join, paragraphs.values()))

    def still(self) -> Shown:
        what = f"Tour({self.title}: {count(len(self.sentences), 'sentence')})"
        return together(heading(what), self._prose(), still_of(self.session))

    def _prose(self) -> Shown:
        """The text, with the step that is spoken of wherever it is another one."""
        texts: dict[int, list[str]] = {}
        htmls: dict[int, list[str]] = {}
        here = ""
        for s in self.sentences:
            step = dict(parse_qsl(s.place)).get("step", here)
            where = f" (step {step})" if step != here else ""
            here = step
            marked = "".join(f"<u>{escape(said)}</u>" if place else escape(said) for said, place in s.parts)
            texts.setdefault(s.paragraph, []).append(s.text + where)
            htmls.setdefault(s.paragraph, []).append(f"{marked}<i>{where}</i>" if where else marked)
        return Shown(
            "\n\n".join(map(" ".join, texts.values())), "\n".join(f"<p>{' '.join(p)}</p>" for p in htmls.values())
        )
