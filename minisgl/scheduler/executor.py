"""What the scheduler asks of whoever computes: the real engine, the simulator and the tests' fakes all fit here."""

from __future__ import annotations

from typing import Protocol

from minisgl.core import Batch, BatchResult


class Executor(Protocol):
    """One ordered queue of device work. ``launch`` puts a batch in, ``collect`` takes the oldest result out.

    ``launch`` applies the batch's writes, then the forward, then scatters each sample to position ``ends[i]`` of its
    row in the token pool; it must not keep the caller waiting for results where the device can run ahead.
    ``now`` is the only clock of a run, in seconds since the executor was made.
    """

    def now(self) -> float: ...

    def launch(self, batch: Batch) -> None: ...

    def collect(self) -> BatchResult: ...
