"""Session: a run, the step that is looked at, and what is pointed at; everything that shows the run shares it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Union

from minisgl.errors import TraceError
from minisgl.events.history import History
from minisgl.events.snapshot import Snapshot
from minisgl.events.trace import Trace
from minisgl_widgets.feed import Feed
from minisgl_widgets.questions import answers
from minisgl_widgets.record import Encoder
from minisgl_widgets.static_views import summary, view

Selection = dict[str, Any] | None  # as in the browser: its kind, and the numbers that this kind has
KINDS = {"page": ("page",), "node": ("node",), "uid": ("uid",), "token": ("uid", "at")}
Run = Union[Trace, History, Feed, "Session"]  # whatever can be shown


class Session:
    """A Trace, a History or a live Feed, with a step and a selection that its views share.

    Moving a player in the browser moves ``step``, and setting ``step`` moves the players of every Stage of the session.

    Args:
        run: what to look at. A session is given back as one that shares nothing but the run.
        texts: what token ids say, for a History (a Trace and a Feed bring their own).
        title: shown above the views.
    """

    def __init__(self, run: Run, texts: Mapping[int, str] | None = None, title: str = "") -> None:
        self.feed: Feed = run.feed if isinstance(run, Session) else Feed.of(run, texts, title)
        self._title = title or (run.title if isinstance(run, Session) else "")
        self._step: int | None = None  # None: nobody has chosen one
        self._selection: Selection = None
        self._observers: list[Callable[[Session], object]] = []

    @classmethod
    def of(cls, run: Run, texts: Mapping[int, str] | None = None, title: str = "") -> Session:
        """The session itself, or a new one of a run."""
        return run if isinstance(run, Session) else cls(run, texts, title)

    # -- the run -------------------------------------------------------------------------------------------------------

    @property
    def title(self) -> str:
        return self._title or self.feed.title

    @property
    def history(self) -> History:
        """Every step so far."""
        return self.feed.history

    @property
    def trace(self) -> Trace:
        """The run so far as events, complete in itself."""
        return self.feed.trace

    @property
    def texts(self) -> dict[int, str]:
        """What the token ids that have appeared say."""
        return dict(self.feed.texts)

    # -- what is looked at ---------------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The step that is looked at; a recorded run opens at its first. TraceError for one that it does not hold."""
        history = self.history
        return min(history.first + 1, history.last) if self._step is None else self._step

    @step.setter
    def step(self, step: int) -> None:
        history = self.history
        if not history.first <= step <= history.last:
            raise TraceError(f"step {step} is not in this run: it holds steps {history.first} to {history.last}")
        self.look(step, self._selection)

    @property
    def selection(self) -> Selection:
        """What is held: None, ``{"kind": "page", "page": 3}``, and so for "node" and "uid"; or a request's token by its
        place, ``{"kind": "token", "uid": 4, "at": 12}``. ValueError for others."""
        return self._selection

    @selection.setter
    def selection(self, selection: Selection) -> None:
        if selection is not None:
            numbers = KINDS.get(selection.get("kind", ""), ())
            if not numbers or any(type(selection.get(name)) is not int for name in numbers):
                raise ValueError(f"selection {selection!r}: None, or a kind of {', '.join(KINDS)} with its numbers")
        self.look(self._step, selection)

    def look(self, step: int | None, selection: Selection) -> None:
        """Both at once; whoever observes is told if anything is new."""
        if (step, selection) != (self._step, self._selection):
            self._step, self._selection = step, selection
            for fn in list(self._observers):
                fn(self)

    def begin_again(self, feed: Feed) -> None:
        """Look at another run instead; nobody has chosen a step of it yet."""
        self.feed = feed
        self._step = self._selection = None

    def observe(self, fn: Callable[[Session], object]) -> Callable[[], None]:
        """Call ``fn(session)`` when step or selection change, in the thread that changes them; returns what ends it."""
        self._observers.append(fn)

        def end() -> None:
            if fn in self._observers:
                self._observers.remove(fn)

        return end

    def at(self, step: int | None = None) -> Snapshot:
        """The state after a step, by default the one that is looked at. TraceError if the run does not hold it."""
        return self.history.at(self.step if step is None else step)

    # -- files ---------------------------------------------------------------------------------------------------------

    def export_html(self, path: str | Path, title: str = "") -> Path:
        """One HTML file that plays the run without a kernel or a network."""
        from minisgl_widgets.export import export_html

        return export_html(self, path, title)

    def save(self, path: str | Path) -> Path:
        """The run's events as a file: see ``Trace.save``."""
        self.trace.save(path)
        return Path(path)

    def record(self) -> bytes:
        """The run for a browser without a kernel, compressed, with answers: see ``minisgl_widgets.record``."""
        return Encoder(self.feed).record(title=self.title, answers=answers(self.trace))

    # -- without a browser ---------------------------------------------------------------------------------------------

    def summary(self) -> str:
        """The numbers after the last step, in one line."""
        history = self.history
        return summary(history.at(history.last))

    def __repr__(self) -> str:
        history = self.history
        return f"Session(steps {history.first} to {history.last}, at {self.step}: {summary(self.at())})"

    def _repr_html_(self) -> str:
        return view(self.at(), "all", self.feed.texts)._repr_html_()
