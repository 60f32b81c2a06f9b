"""The event types, who listens to them, and the state they fold into."""

from minisgl.events.bus import EventBus, Subscription
from minisgl.events.history import History
from minisgl.events.snapshot import Snapshot
from minisgl.events.types import *  # noqa: F403
from minisgl.events.types import EVENT_TYPES
from minisgl.events.words import describe

__all__ = ["EVENT_TYPES", "EventBus", "History", "Snapshot", "Subscription", "describe"]
__all__ += [cls.__name__ for cls in EVENT_TYPES]
