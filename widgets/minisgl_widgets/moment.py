"""Moment: where a run stands in the middle of a step, when something is decided."""

from __future__ import annotations

from typing import Any

from minisgl.events import types as ev
from minisgl.events.fold import Fold
from minisgl.events.state import fresh
from minisgl.events.trace import Trace
from minisgl.events.words import count

LONGEST = 28  # characters of a node's text


class Moment:
    """The run folded up to one event in the middle of a step, and what that step has done before it."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.config: dict[str, Any] = trace.about.get("config") or {}
        self.page_size: int = trace.keyframe["page_size"]
        # (step, uid) of every request that gives all up; its prefill may have ended in the same step
        self.gives_up = {(e.step, e.uid) for e in trace.of(ev.Handoff) if e.finished}
        self.gives_up |= {(e.step, e.uid) for e in trace.of(ev.RequestRetracted)}
        self._fold = Fold(fresh(trace.keyframe))
        self._begin()

    def _begin(self) -> None:
        self.admitted: list[int] = []
        self.changed: set[int] = set()  # nodes that were made, cut or added to: no view shows them like this
        self.taken: ev.PagesAllocated | None = None

    @property
    def state(self) -> dict[str, Any]:
        return self._fold.state

    def follow(self, event: ev.Event) -> None:
        """Go on to after the event."""
        self._fold.apply(event)
        if isinstance(event, ev.StepFinished):
            self._begin()
        elif isinstance(event, ev.RequestAdmitted):
            self.admitted.append(event.uid)
        elif isinstance(event, ev.NodeInserted):
            self.changed |= {event.node, event.parent}
        elif isinstance(event, ev.NodeSplit):
            self.changed |= {event.node, event.upper}
        elif isinstance(event, ev.PagesAllocated):
            self.taken = event
        elif isinstance(event, ev.SettingsChanged):
            self.config = self.config | dict(zip(event.names, event.values, strict=True))

    # -- in words ------------------------------------------------------------------------------------------------------

    @property
    def of_size(self) -> str:
        return "" if self.page_size == 1 else f" Pages hold {self.page_size} tokens."

    @property
    def limits(self) -> str:
        rows, budget = len(self.state["rows"]), self.config.get("max_prefill_tokens")
        most = f", and a batch computes at most {budget} prompt tokens" if budget else ""
        return f" The page table has {count(rows, 'row')}{most}."

    def node(self, node: int) -> str:
        """A node with the beginning of its text."""
        texts, tokens = self.trace.texts, self.state["nodes"][node]["tokens"]
        text = "".join(texts.get(t, f" #{t}") for t in tokens[:LONGEST]).replace("\n", "⏎")
        cut = len(text) > LONGEST or len(tokens) > LONGEST
        return f"node {node}: “{text[: LONGEST - 1]}…”" if cut else f"node {node}: “{text}”"
