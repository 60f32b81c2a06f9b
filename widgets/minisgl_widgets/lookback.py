"""LookBack: what can be asked of whoever holds a run."""

from __future__ import annotations

from abc import abstractmethod

from minisgl.events.history import History
from minisgl.events.snapshot import Snapshot
from minisgl.events.trace import Trace
from minisgl_widgets.feed import Feed
from minisgl_widgets.static_pool import summary


class LookBack:
    """Base of what holds a run as its ``feed``: live or recorded, whole or the steps so far."""

    @property
    @abstractmethod
    def feed(self) -> Feed:
        """The run."""

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

    def last(self) -> Snapshot:
        """The state after the last step so far."""
        history = self.history
        return history.at(history.last)

    def summary(self) -> str:
        """The numbers after the last step, in one line."""
        return summary(self.last())
