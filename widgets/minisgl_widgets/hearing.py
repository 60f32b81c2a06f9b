"""Hearing: all that an engine says from one moment on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from minisgl.events.recorder import origin
from minisgl.events.types import Event
from minisgl_widgets.feed import Feed

if TYPE_CHECKING:
    from minisgl.llm import LLM


class Hearing:
    """Feeds ``feed`` with every event, and then ``heard`` with it, on the thread that steps; ``end()`` ends it.

    The engine's lock must be held, so that no step falls between the keyframe and the first event.
    """

    def __init__(self, llm: LLM, title: str, heard: Callable[[Event], object]) -> None:
        checkpoint = llm.checkpoint()  # nothing is in flight after it
        keyframe = llm.snapshot().to_dict()
        self.feed = Feed(keyframe, llm.token_text, title, origin(llm), checkpoint)
        self._heard = heard
        self._subscription = llm.on(None, self._hear)

    def _hear(self, event: Event) -> None:
        self.feed.put(event)
        self._heard(event)

    def end(self) -> None:
        self._subscription.close()
