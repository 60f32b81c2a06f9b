"""History: every step of a run, to be moved through in both directions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from minisgl.errors import TraceError
from minisgl.events.audit import Audit
from minisgl.events.fold import Fold
from minisgl.events.integrity import violations
from minisgl.events.snapshot import Snapshot
from minisgl.events.state import Delta, apply_delta, branch, fresh, pack, size, touched, undo_delta
from minisgl.events.types import Event
from minisgl.events.words import describe


class Steps(Sequence[dict[str, Any]]):
    """For each step: step, phase, uids, num_tokens, words, violations. The sentences are made when they are read."""

    def __init__(self) -> None:
        self._kept: list[tuple[Sequence[Event], Sequence[str]]] = []

    def add(self, events: Sequence[Event], violations: Sequence[str]) -> None:
        """``events``: all of the step's; the last is its StepFinished."""
        self._kept.append((events, violations))

    def events(self, i: int) -> Sequence[Event]:
        """All events of step number ``i``, counted from 0."""
        return self._kept[i][0]

    def violations(self, i: int) -> Sequence[str]:
        return self._kept[i][1]

    def __len__(self) -> int:
        return len(self._kept)

    def __getitem__(self, i: Any) -> Any:
        return [_told(*kept) for kept in self._kept[i]] if isinstance(i, slice) else _told(*self._kept[i])


def _told(events: Sequence[Event], violations: Sequence[str]) -> dict[str, Any]:
    end: Any = events[-1]
    return {
        "step": end.step,
        "phase": end.phase,
        "uids": end.uids,
        "num_tokens": end.num_tokens,
        "words": [sentence for sentence in map(describe, events) if sentence],
        "violations": violations,
    }


class History:
    """Folds events as they come and keeps the delta of every step, with keyframes between.

    A browser scrubs the same deltas: ``minisgl_widgets.record`` sends them.
    """

    def __init__(self, state: dict) -> None:
        self.first = state["step"]
        self.deltas: list[Delta] = []
        self.steps = Steps()  # one for each delta
        self._fold = Fold(fresh(state))
        self._keyframes = [(0, fresh(state))]  # (deltas before it, state); what they hold is shared and never changed
        self.cost = [0]  # values in all deltas before each, and in all: what walking costs
        self._audit = Audit(self._fold.state)
        self._events: list[Event] = []  # of the step that is not over
        self._found: list[str] = []  # by the audit, in that step
        self._broken = ""  # the first that was ever found, and since when
        self.findings = [(self.first, broken) for broken in violations(state)]  # (step, what it broke), each once
        if self.findings:
            self._broken = f"broken since step {self.first}, where the record begins: {self.findings[0][1]}"

    @property
    def last(self) -> int:
        """The last whole step."""
        return self.first + len(self.deltas)

    def feed(self, event: Event) -> None:
        self._events.append(event)
        self._found += self._audit.look(event)
        try:
            delta = self._fold.apply(event)
        except (LookupError, ValueError) as missing:  # the audit has said more, most likely
            self._found.append(f"step {event.step}, {type(event).__name__}: cannot be folded ({missing!r})")
            return
        if delta is None:
            return
        self.deltas.append(delta)
        self.steps.add(tuple(self._events), tuple(self._verdict(event.step)))
        self._events, self._found = [], []
        self.cost.append(self.cost[-1] + size(delta))
        if self._due():
            start, before = self._keyframes[-1]
            state = branch(self._fold.state, touched(self.deltas[start:]), before)
            self._keyframes.append((len(self.deltas), pack(state)))

    def _due(self) -> bool:
        """Time for a keyframe? It is mostly the table of pages; the deltas since the last should be as large."""
        table = len(self._fold.state["pages"]) * self._fold.state["num_pages"]
        return self.cost[-1] - self.cost[self._keyframes[-1][0]] >= max(4096, table)

    def _verdict(self, step: int) -> list[str]:
        """What the step broke; once something is broken, every later step says so."""
        self.findings += [(step, broken) for broken in self._found]
        if self._found and not self._broken:
            self._broken = f"broken since step {step}: {self._found[0]}"
        return self._found or [self._broken] * bool(self._broken)

    def at(self, step: int) -> Snapshot:
        """The state after StepFinished ``step``. Raises TraceError outside ``first..last``."""
        if not self.first <= step <= self.last:
            raise TraceError(f"step {step} is not in this run: it holds steps {self.first} to {self.last}")
        index = step - self.first
        after = bisect_right(self._keyframes, index, key=lambda k: k[0])
        around = self._keyframes[after - 1 : after + 1]
        start, keyframe = min(around, key=lambda k: abs(self.cost[k[0]] - self.cost[index]))
        between = self.deltas[min(start, index) : max(start, index)]
        state = branch(keyframe, touched(between))
        if start <= index:
            for delta in between:
                apply_delta(state, delta)
        else:
            for delta in reversed(between):
                undo_delta(state, delta)
        return Snapshot(state)

    def __repr__(self) -> str:
        return f"History(steps {self.first} to {self.last}, {len(self._keyframes)} keyframes)"
