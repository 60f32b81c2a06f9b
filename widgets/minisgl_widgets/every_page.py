"""EveryPage: a run that would be, recorded with every event and shown page by page."""

from __future__ import annotations

import time
from collections.abc import Callable
from html import escape

import ipywidgets as W

from minisgl.events.recorder import origin
from minisgl.sim.simulator import Simulator
from minisgl.sim.whatif import WhatIf, said
from minisgl_widgets.feed import Feed
from minisgl_widgets.panel import button
from minisgl_widgets.stage import Stage

TOOLTIP = "Record every event of this run and show its pages, tree, queue and requests below, step by step."


class EveryPage(W.VBox):
    """A button, how far its work is, and a Stage. ``asked`` is called when it is pressed."""

    def __init__(self, asked: Callable[[], object]) -> None:
        self.progress = W.FloatProgress(0.0, max=1.0, layout=W.Layout(width="200px", display="none"))
        self.note = W.HTML()
        self._place = W.VBox()
        show = button("Show every page", "th", "180px", TOOLTIP, asked, "primary")
        super().__init__([W.HBox([show, self.progress, self.note], layout=W.Layout(align_items="center")), self._place])

    @property
    def stage(self) -> Stage:
        """LookupError before the first run was recorded."""
        if not self._place.children:
            raise LookupError("no pages are shown yet: show_pages() records them")
        return self._place.children[0]

    def record(self, what: WhatIf, check: Callable[[], None]) -> None:
        """Run it with every event, and show it in place of the one before. ``check()`` may end it early."""
        begun = time.perf_counter()
        changes = said(what.changes) or "as recorded"
        simulator = Simulator(what.config, what.costs)
        texts = what.record.texts
        about, checkpoint = origin(simulator), simulator.checkpoint()
        keyframe = simulator.snapshot().to_dict()
        feed = Feed(keyframe, lambda token: texts.get(token, str(token)), changes, about, checkpoint)
        whole = what.after.figures["duration"] or 1.0
        shown_at = begun

        def watch(now: float) -> None:
            nonlocal shown_at
            if time.perf_counter() - shown_at > 0.1:
                shown_at = time.perf_counter()
                self.progress.value = min(1.0, now / whole)
                check()

        self.progress.value, self.progress.layout.display = 0.0, ""
        try:
            with simulator.on(None, feed.put):
                simulator.run(what.workload, watch)
            stage = Stage(feed)
        finally:
            self.progress.layout.display = "none"
        earlier, self._place.children = self._place.children, [stage]
        for old in earlier:
            old.close()
        taken = time.perf_counter() - begun
        self.note.value = f"<b>{escape(changes)}</b>: {what.after.steps:,} steps recorded in {taken:.1f} s"
