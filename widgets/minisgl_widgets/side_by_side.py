"""SideBySide: two runs on one clock, and in what they differ."""

from __future__ import annotations

from typing import Any

from minisgl.events.diff import Diff
from minisgl.events.trace import Trace
from minisgl.events.types import StepFinished
from minisgl.events.words import count, describe
from minisgl_widgets.differences import say
from minisgl_widgets.document import Content, Document, facts_of
from minisgl_widgets.record import Encoder
from minisgl_widgets.session import Session
from minisgl_widgets.shown import Prose, Shown, heading, table, together
from minisgl_widgets.static_run import pool_picture
from minisgl_widgets.static_time import Timeline

CLOCKS = ("step", "time")


class SideBySide(Document):
    """Two recorded runs, one player: ``SideBySide(runs.reserve, runs.retract)`` as a cell's last expression.

    The address of an exported page leads to a step of both, as a Replay's does: ``#step=30``, with ``clock=time`` and
    ``beside=28`` where they share a time and the right run stands at another step.

    Args:
        a, b: the runs, of the same requests or not.
        clock: what they share at first; a reader can change it. "step": both stand at the same step. "time": both at
            the last step that was over at the same second since their first step began.
        titles: above each; by default the runs' own.
    """

    def __init__(self, a: Trace, b: Trace, clock: str = "step", titles: tuple[str, str] | None = None) -> None:
        if clock not in CLOCKS:
            raise ValueError(f"clock={clock!r}: must be one of {', '.join(map(repr, CLOCKS))}")
        named = titles or (a.title, b.title)
        self.sessions = tuple(Session(run, title=title) for run, title in zip((a, b), named, strict=True))
        self.clock = clock
        self.diff: Diff = a.diff(b)

    def content(self) -> Content:
        first = self.diff.first
        panel: dict[str, Any] = {
            "kind": "pair",
            "compact": True,
            "clock": self.clock,
            "times": [_times(session.trace) for session in self.sessions],
            "differing": list(map(list, self.diff.per_step.items())),
            "settings": [[name, *map(str, pair)] for name, pair in self.diff.config.items()],
            "first": first
            and [first.step, *(e and (describe(e) or type(e).__name__) for e in (first.this, first.other))],
        }
        facts = "; ".join(map(facts_of, self.sessions))
        # without answers: two stages side by side have no tab that shows them
        records = [Encoder(session.feed).record(title=session.title) for session in self.sessions]
        return Content(self.title, facts, records, panel)

    @property
    def title(self) -> str:
        return " | ".join(session.title or "a run" for session in self.sessions)

    def still(self) -> Shown:
        differing = count(len(self.diff), "differing event")
        what = f"SideBySide({self.title}: {differing} in {count(len(self.diff.per_step), 'step')})"
        heads = ("", *(session.title or "a run" for session in self.sessions))
        settings = [(Prose(name), *map(str, values)) for name, values in self.diff.config.items()]
        pair = zip(*(_figures(session.trace) for session in self.sessions), strict=True)
        rows = [*settings, *((Prose(name), mine, other) for (name, mine), (_, other) in pair)]
        return together(heading(what), table(self._parted(), heads, rows), *map(self._still, self.sessions))

    def _parted(self) -> str:
        first = self.diff.first
        if first is None:
            return "no event differs"
        said = [(e and (describe(e) or type(e).__name__)) or "nothing" for e in (first.this, first.other)]
        return f"they part in step {first.step}: {' | '.join(said)}"

    def _still(self, session: Session) -> Shown:
        """One of them, on the scale of the larger one, so that they can be compared."""
        histories = [s.history for s in self.sessions]
        steps = max(h.last - h.first for h in histories)
        pages = max(h.at(h.first).num_pages for h in histories)
        timeline = Timeline(session)
        drawn = pool_picture(session, steps=steps, pages=pages)
        return together(heading(session.title or "a run"), drawn, Shown(repr(timeline), timeline._repr_html_()))


def _figures(trace: Trace) -> list[tuple[str, str]]:
    f = trace.figures
    return [
        ("requests finished", f"{f.finished} of {f.num_requests}"),
        ("steps", str(f.steps)),
        ("time", say("s", f.duration)),
        ("time to first token, mean", say("s", f.ttft.mean)),
        ("prompt tokens found in the cache", say("%", f.hit_rate)),
        ("pages evicted", str(f.evicted_pages)),
        ("retractions", f"{f.retractions} ({count(f.lost_tokens, 'token')} lost)"),
    ]


def _times(trace: Trace) -> list[int]:
    """When each step was over, in microseconds since the run's start; the start itself is the first."""
    begin = trace.keyframe["t"]
    return [0, *(round(1e6 * (e.t - begin)) for e in trace.of(StepFinished))]
