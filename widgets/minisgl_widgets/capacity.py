"""What the capacity card computes with: the run's model, other known ones, and how wide their numbers are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minisgl.sim.answers.sizing import Shape, shape_of_run
from minisgl.sim.roofline import BYTES, MODELS


def sizing(about: Mapping[str, Any]) -> dict[str, Any]:
    """For a record's head, plain JSON: ``models`` (name and ``Shape``), the run's own first; ``own``: is it known?

    ``bytes`` of a number by dtype. ``static/capacity.js`` is the other side of ``minisgl.size``.
    """
    found = shape_of_run(dict(about))
    known = [(m.name, Shape(m.layers, m.kv_heads, m.head_dim, m.params)) for m in MODELS.values()]
    models = [found, *known] if found else known
    return {"models": [{"name": name} | shape._asdict() for name, shape in models], "own": bool(found), "bytes": BYTES}
