"""Requests over time in characters: for terminals, GitHub and nbconvert, as ``static/timeline.js`` draws it."""

from __future__ import annotations

from collections import Counter

from minisgl.events import types as ev
from minisgl.events.trace import Trace
from minisgl.events.words import WAITS
from minisgl_widgets.session import Run, Session
from minisgl_widgets.shown import characters

WIDTH = 100  # characters a line; a longer run has several steps in each
MOST = 60  # requests shown: the last ones
SIGNS = (
    f"waiting, and why: {', '.join(f'{name[0]} {why}' for name, why in WAITS.items())},\n"
    "w nobody was tested; # prefill, = decode; the end: S stop, L length, A abort, E error"
)


class Timeline:
    """One line a request, a character a step: print it, or let a cell end in it.

    Each character says what a step did, so the step that computes a prompt is ``#`` even where it gives the first token
    as well. Where a character stands for several steps it is what most of them did.
    """

    def __init__(self, run: Run) -> None:
        trace = Session.of(run).trace
        self._title = trace.title or "requests"
        self._first, self._last = trace.history.first + 1, trace.history.last
        self.lines = _lines(trace)

    def __repr__(self) -> str:
        steps = max(0, self._last - self._first + 1)
        each = max(1, -(-steps // WIDTH))
        shown = list(self.lines.items())[-MOST:]
        wide = max((len(str(uid)) for uid, _ in shown), default=1)
        said = [
            f"{self._title}: steps {self._first} to {self._last}, {each} in a character" if steps else "no step yet"
        ]
        said += [f"{uid:>{wide}} |{_squeezed(line, each)}" for uid, line in shown]
        left = len(self.lines) - len(shown)
        return "\n".join([*said, *([f"{left} earlier requests are left out"] if left else []), SIGNS])

    def _repr_html_(self) -> str:
        return characters(repr(self))


def _squeezed(line: str, each: int) -> str:
    """Several steps in a character; the end, which is the last character, stays."""
    if each == 1 or not line:
        return line
    end = line[-1] if line[-1].isupper() else ""
    steps = line[: len(line) - len(end)]
    return "".join(Counter(steps[at : at + each]).most_common(1)[0][0] for at in range(0, len(steps), each)) + end


def _lines(trace: Trace) -> dict[int, str]:
    """What each request did in each step, from the record's first on; spaces before it came."""
    requests = trace.keyframe["requests"]
    lines = dict.fromkeys((uid for uid, r in requests.items() if r["status"] != "finished"), "")
    waiting = dict.fromkeys(trace.keyframe["waiting"])
    entering = {uid for uid, r in requests.items() if r["status"] == "prefill"}
    refused = next(((t["uid"], t["verdict"]) for t in trace.keyframe["tests"] if t["verdict"] != "admitted"), None)
    alive = set(lines)
    steps = 0
    did: dict[int, str] = {}
    ends: dict[int, str] = {}
    for e in trace.events:
        if isinstance(e, ev.RequestArrived):
            lines[e.uid] = " " * steps
            waiting[e.uid] = None
            alive.add(e.uid)
        elif isinstance(e, ev.RequestRejected):
            lines[e.uid] = " " * steps + "E"
        elif isinstance(e, ev.AdmissionTested) and e.verdict != "admitted":
            refused = e.uid, e.verdict
        elif isinstance(e, ev.RequestAdmitted):
            waiting.pop(e.uid)
            entering.add(e.uid)
        elif isinstance(e, ev.RequestRetracted):
            waiting[e.uid] = None
            entering.discard(e.uid)
        elif isinstance(e, ev.BatchScheduled):
            did |= {uid: "#" if uid in entering else "=" for uid in e.uids}
            entering -= {uid for uid, samples in zip(e.uids, e.samples, strict=True) if samples}
        elif isinstance(e, ev.RequestFinished):
            ends[e.uid] = e.reason[0].upper()
        elif isinstance(e, ev.StepFinished):
            why = refused[1][0] if refused and refused[0] in waiting else "w"
            for uid in alive:
                sign = why if uid in waiting else did.get(uid, "#" if uid in entering else "=")
                lines[uid] += sign if uid not in ends else ends[uid] if uid in waiting else sign + ends[uid]
            for uid in ends:
                alive.discard(uid)
                waiting.pop(uid, None)
            did, ends = {}, {}
            steps += 1
    return lines
