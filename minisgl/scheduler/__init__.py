"""The scheduler and its managers. No torch here: what computes is an ``Executor``."""

from minisgl.scheduler.executor import Executor
from minisgl.scheduler.scheduler import Scheduler

__all__ = ["Executor", "Scheduler"]
