"""What the browser does with a Stage's messages, in Python: as ``static/widget.js`` and ``static/record.js`` do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from minisgl.events import Snapshot
from minisgl.events.state import apply_delta, fresh
from minisgl_widgets.stage import Stage
from tests.widgets.packed import numbered, parts_of, read_part


class Browser:
    """Reads everything through its packed form, as it travels."""

    def __init__(self, stage: Stage, monkeypatch: Any, acknowledges: bool = True) -> None:
        self.stage, self.acknowledges = stage, acknowledges
        self.tails: list[dict] = []
        self.load(stage.record)
        monkeypatch.setattr(stage, "send", self.receive)
        stage.observe(lambda change: self.load(change["new"]), "record")

    def load(self, record: bytes) -> None:
        parts = parts_of(record)
        head = parts[0][3]
        self.title = head["title"]
        self.keyframe = numbered(head["keyframe"])
        self.deltas: list[list] = []
        self.leaps: list[list] = []
        self.events: list[dict] = []
        self.changes: list[dict] = []
        self.index: dict[str, list[int]] = {name: [] for name in head["index"]}
        self.marks: list[list] = [[], [], [], []]
        self.texts: dict[int, str] = {}
        self.learned: list[int] = []  # token ids, as often as their text came
        self.take(parts)

    def take(self, parts: list[tuple[str, int, int, Any]]) -> None:
        kept = {"steps": self.deltas.extend, "leap": self.leaps.append}
        kept |= {"events": self.events.append, "changes": self.changes.append, "head": self.head}
        for name, _, _, value in parts:
            kept[name](value)

    def head(self, head: dict) -> None:
        for name, values in head["index"].items():
            self.index[name] += values
        for column, values in zip(self.marks, head["marks"], strict=True):
            column += values
        self.texts |= dict(zip(*head["texts"], strict=True))
        self.learned += head["texts"][0]
        self.extent = head["extent"]

    def receive(self, content: dict, buffers: Any = None) -> None:
        message = json.loads(json.dumps(content))
        if message["kind"] != "tail":
            return
        self.tails.append(message)
        if message["first"] > len(self.deltas):
            self.stage._handle_custom_msg({"kind": "resync"}, [])
            return
        assert message["first"] == len(self.deltas)
        self.take(
            [(*part, read_part(part[0], bytes(data))) for part, data in zip(message["parts"], buffers, strict=True)]
        )
        if self.acknowledges:
            self.stage._handle_custom_msg({"kind": "drawn", "step": self.keyframe["step"] + len(self.deltas)}, [])

    def at(self, step: int) -> dict:
        state = fresh(self.keyframe)
        for delta in self.deltas[: step - self.keyframe["step"]]:
            apply_delta(state, delta)
        return state


def through_json(snapshot: Snapshot) -> dict:
    """A snapshot as the browser would hold it."""
    return numbered(json.loads(json.dumps(snapshot.to_dict())))


def until(condition: Callable[[], Any], seconds: float = 60) -> None:
    """Wait for a condition; the limit only keeps a broken test from hanging."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)
