"""The real executor: model, device mirrors, sampling and memory sizing."""

from minisgl.engine.executor import EngineExecutor
from minisgl.engine.loader import LoadedEngine, load_engine
from minisgl.engine.memory import MemoryReport

__all__ = ["EngineExecutor", "LoadedEngine", "MemoryReport", "load_engine"]
