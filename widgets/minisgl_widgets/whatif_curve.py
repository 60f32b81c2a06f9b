"""Curve: what comes of every position of a knob, each computed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from minisgl.errors import ConfigError
from minisgl.sim.simulator import Simulator
from minisgl.sim.whatif import WhatIf
from minisgl_widgets.knobs import Knob
from minisgl_widgets.whatif_picture import Point

Changes = Mapping[str, Any]


class Curve:
    """The figures of every setting that was tried, or why it cannot be."""

    def __init__(self, unchanged: WhatIf) -> None:
        self._unchanged = unchanged
        self._known: dict[tuple, dict[str, Any] | ConfigError] = {}

    def learn(self, changes: Changes, figures: dict[str, Any]) -> None:
        self._known[_key(changes)] = figures

    def points(self, knob: Knob, changes: Changes) -> list[Point]:
        """One for each position of a knob, with the other changes as they are."""
        return [Point(v, self._known.get(_key(_at(knob, v, changes)))) for v in knob.values]

    def compute_one(self, knob: Knob, changes: Changes, check: Callable[[], None]) -> int:
        """Compute the next point, from coarse to fine; how many are missing then. ``check()`` may end it early."""
        missing = [i for i, point in enumerate(self.points(knob, changes)) if point.came_out is None]
        if not missing:
            return 0
        there = _at(knob, knob.values[min(missing, key=_coarse_to_fine)], changes)
        self._known[_key(there)] = self._come_out(there, check)
        return len(missing) - 1

    def _come_out(self, changes: Changes, check: Callable[[], None]) -> dict[str, Any] | ConfigError:
        try:
            there = self._unchanged.change(**changes)
            return Simulator(there.config, there.costs).run(there.workload, lambda _: check()).figures
        except ConfigError as error:
            return error


def _at(knob: Knob, value: Any, changes: Changes) -> Changes:
    """The changes with the knob at a value."""
    others = {name: v for name, v in changes.items() if name != knob.name}
    return others if value == knob.recorded else others | {knob.name: value}


def _key(changes: Changes) -> tuple:
    return tuple(sorted(changes.items(), key=lambda item: item[0]))


def _coarse_to_fine(i: int) -> tuple[int, int]:
    """First the numbers that a big power of two divides, so that a curve has its shape soon."""
    return (-(i & -i) if i else -(1 << 30), i)
