"""WayBack: a fork that is on its way to where it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minisgl.events.trace import Trace
from minisgl.events.types import RequestArrived, StepFinished
from minisgl.events.words import count

if TYPE_CHECKING:
    from minisgl.llm import LLM


class WayBack:
    """The steps of a record once more, on the engine that made it, from its start up to step ``to``.

    Making one takes the engine back to the start; raises as ``LLM.rewind`` does. ``left``: steps still to come.
    """

    def __init__(self, llm: LLM, before: Trace, to: int) -> None:
        self.before, self.to = before, to
        self._steps = llm.rewind(before, to)
        self.left = to - before.history.first

    def step(self) -> StepFinished | None:
        """The next one; None, and none is left, if there was nothing to do."""
        done = next(self._steps, None)
        self.left = self.left - 1 if done else 0
        return done

    def progress(self) -> str:
        """ "12 of 40 steps computed again"."""
        all_of = self.to - self.before.history.first
        return f"{all_of - self.left} of {count(all_of, 'step')} computed again"

    def note(self, at: int) -> str:
        """What has become of it, in a sentence: it ended after this step."""
        later = sum(e.step > at for e in self.before.of(RequestArrived))
        left_out = f"; what came later is left out: {count(later, 'request')}" if later else ""
        how = "which was computed again" if at == self.to else f"paused on the way back to step {self.to}"
        return f"forked after step {at}, {how}{left_out}"

    def difference(self, again: Trace) -> str:
        """Where what was computed again differs from what was; "" if it does not."""
        at = again.history.last
        events = [e for e in self.before.events if e.step <= at]
        was = Trace(self.before.keyframe, events, self.before.texts, about=self.before.about)
        first = was.diff(again).first
        return "" if first is None else f"the same steps came out differently: {' '.join(str(first).split())}"
