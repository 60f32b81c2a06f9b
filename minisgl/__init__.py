"""minisgl: a small LLM inference engine whose every memory and scheduling decision can be watched.

Everything is imported at first use, so that working with recorded runs needs neither torch nor a model.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minisgl.config import EngineConfig
    from minisgl.core import SamplingParams
    from minisgl.events.recorder import Recorder
    from minisgl.events.snapshot import Snapshot
    from minisgl.events.trace import Trace
    from minisgl.llm import LLM
    from minisgl.sim.answers import blame, explain, hits, lens, reservations, size, verify
    from minisgl.sim.fork import fork
    from minisgl.sim.replay import replay
    from minisgl.sim.simulator import Simulator
    from minisgl.sim.whatif import sweep, whatif
    from minisgl.sim.workload import Workload

__version__ = "0.1.0"
__all__ = [
    "LLM",
    "EngineConfig",
    "Recorder",
    "SamplingParams",
    "Simulator",
    "Snapshot",
    "Trace",
    "Workload",
    "blame",
    "explain",
    "fork",
    "hits",
    "lens",
    "replay",
    "reservations",
    "size",
    "sweep",
    "verify",
    "whatif",
]

_HOME = {
    "EngineConfig": "minisgl.config",
    "LLM": "minisgl.llm",
    "Recorder": "minisgl.events.recorder",
    "SamplingParams": "minisgl.core",
    "Simulator": "minisgl.sim.simulator",
    "Snapshot": "minisgl.events.snapshot",
    "Trace": "minisgl.events.trace",
    "Workload": "minisgl.sim.workload",
    "blame": "minisgl.sim.answers",
    "explain": "minisgl.sim.answers",
    "fork": "minisgl.sim.fork",
    "hits": "minisgl.sim.answers",
    "lens": "minisgl.sim.answers",
    "replay": "minisgl.sim.replay",
    "reservations": "minisgl.sim.answers",
    "size": "minisgl.sim.answers",
    "sweep": "minisgl.sim.whatif",
    "verify": "minisgl.sim.answers",
    "whatif": "minisgl.sim.whatif",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'minisgl' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
