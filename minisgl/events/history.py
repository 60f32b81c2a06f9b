"""History: every step of a run, to be moved through in both directions."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from minisgl.errors import TraceError
from minisgl.events.fold import Fold
from minisgl.events.integrity import violations
from minisgl.events.snapshot import Snapshot
from minisgl.events.state import Change, apply_delta, fresh
from minisgl.events.types import Event, StepFinished
from minisgl.events.words import describe


class History:
    """Folds events as they come and keeps the delta of every step, with keyframes between.

    ``record()`` is what a browser scrubs: one keyframe, the deltas, and for each step its sentences and violations.
    """

    def __init__(self, state: dict) -> None:
        self.first = state["step"]
        self.deltas: list[list[Change]] = []
        self.steps: list[dict[str, Any]] = []  # for each delta: step, phase, uids, num_tokens, words, violations
        self._fold = Fold(fresh(state))
        self._keyframes = [(0, fresh(state))]  # (deltas before it, state)
        self._since = 0  # changes since the last keyframe
        self._words: list[str] = []

    @property
    def last(self) -> int:
        """The last whole step."""
        return self.first + len(self.deltas)

    def feed(self, event: Event) -> None:
        sentence = describe(event)
        if sentence:
            self._words.append(sentence)
        delta = self._fold.apply(event)
        if delta is None:
            return
        assert isinstance(event, StepFinished)
        self.deltas.append(delta)
        words, self._words = self._words, []
        self.steps.append(
            {
                "step": event.step,
                "phase": event.phase,
                "uids": event.uids,
                "num_tokens": event.num_tokens,
                "words": words,
                "violations": violations(self._fold.state),
            }
        )
        # a keyframe costs one copy of the state: make one when walking the changes would cost about as much
        self._since += len(delta)
        if self._since >= max(4096, len(self._fold.state["pages"]["owner"])):
            self._keyframes.append((len(self.deltas), fresh(self._fold.state)))
            self._since = 0

    def at(self, step: int) -> Snapshot:
        """The state after StepFinished ``step``. Raises TraceError outside ``first..last``."""
        if not self.first <= step <= self.last:
            raise TraceError(f"step {step} is not in this run: it holds steps {self.first} to {self.last}")
        index = step - self.first
        start, state = self._keyframes[bisect_right(self._keyframes, index, key=lambda k: k[0]) - 1]
        state = fresh(state)
        for delta in self.deltas[start:index]:
            apply_delta(state, delta)
        return Snapshot(state)

    def record(self, texts: dict[int, str], title: str = "") -> dict[str, Any]:
        """The whole run as JSON-ready data; ``texts`` maps the token ids in it to what they say."""
        keyframe = self._keyframes[0][1]
        return {
            "version": 1,
            "title": title,
            "texts": texts,
            "keyframe": keyframe,
            "deltas": self.deltas,
            "steps": self.steps,
        }

    def __repr__(self) -> str:
        return f"History(steps {self.first} to {self.last}, {len(self._keyframes)} keyframes)"
