"""What the browser does with a Stage's messages, in Python: the same few lines as in ``static/record.js``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from minisgl.events import Snapshot
from minisgl.events.state import apply_delta, fresh
from minisgl_widgets.stage import Stage

BY_NUMBER = ("nodes", "requests")  # tables whose keys are numbers, and strings in JSON


class Browser:
    """Reads everything through JSON, as it travels."""

    def __init__(self, stage: Stage, monkeypatch: Any, acknowledges: bool = True) -> None:
        self.stage, self.acknowledges = stage, acknowledges
        self.tails: list[dict] = []
        self.load(stage.record)
        monkeypatch.setattr(stage, "send", self.receive)
        stage.observe(lambda change: self.load(change["new"]), "record")

    def load(self, record: str) -> None:
        whole = json.loads(record)
        assert whole["version"] == 2
        self.keyframe = whole["keyframe"]
        for table in BY_NUMBER:
            self.keyframe[table] = {int(key): entry for key, entry in self.keyframe[table].items()}
        self.deltas, self.steps, self.texts = whole["deltas"], whole["steps"], whole["texts"]

    def receive(self, content: dict, buffers: Any = None) -> None:
        tail = json.loads(json.dumps(content))
        self.tails.append(tail)
        assert tail["kind"] == "tail"
        if tail["first"] > len(self.deltas):
            self.stage._handle_custom_msg({"kind": "resync"}, [])
            return
        known = len(self.deltas) - tail["first"]
        self.deltas += tail["deltas"][known:]
        self.steps += tail["steps"][known:]
        self.texts |= tail["texts"]
        if self.acknowledges:
            self.stage._handle_custom_msg({"kind": "drawn", "step": self.keyframe["step"] + len(self.deltas)}, [])

    def at(self, step: int) -> dict:
        state = fresh(self.keyframe)
        for delta in self.deltas[: step - self.keyframe["step"]]:
            apply_delta(state, delta)
        return state


def through_json(snapshot: Snapshot) -> dict:
    """A snapshot as the browser would hold it."""
    state = json.loads(json.dumps(snapshot.to_dict()))
    for table in BY_NUMBER:
        state[table] = {int(key): entry for key, entry in state[table].items()}
    return state


def until(condition: Callable[[], Any], seconds: float = 60) -> None:
    """Wait for a condition; the limit only keeps a broken test from hanging."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)
