"""An LLM without a model: the surface that widgets use, around the scheduler on a fake executor."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from minisgl.config import EngineConfig
from minisgl.core import SamplingParams
from minisgl.errors import RequestError
from minisgl.events import Snapshot, StepFinished, Subscription
from minisgl.events.trace import Trace
from minisgl.sim.replay import Inputs
from minisgl.sim.rewind import rewound, steps_up_to
from tests.fakes import Run

ORACLE = [[100 * i + j for j in range(n)] for i, n in enumerate((5, 5, 4, 15, 5), 1)]  # prompts of the admission oracle
ORACLE_PARAMS = SamplingParams(max_tokens=8, ignore_eos=True)


class FakeLLM:
    """Token ids in; "text" prompts are one token per word, ``w17`` being token 17."""

    model_name = "fake"

    def __init__(self, **settings: Any) -> None:
        self.core = Run(record=False, **settings)
        self.lock = threading.RLock()
        self.stepping_threads: set[str] = set()
        self.before_step: Callable[[], None] = lambda: None

    @property
    def config(self) -> EngineConfig:
        return self.core.scheduler.config

    def encode(self, text: str) -> list[int]:
        try:
            return [int(word.removeprefix("w")) for word in text.split()]
        except ValueError:
            raise RequestError(f"not in this vocabulary: {text!r}") from None

    def token_text(self, token: int) -> str:
        return f" w{token}"

    def submit(self, prompt: str | Sequence[int], params: SamplingParams | None = None) -> int:
        tokens = self.encode(prompt) if isinstance(prompt, str) else prompt
        return self.core.scheduler.submit(tokens, params or SamplingParams()).uid

    def step(self) -> StepFinished | None:
        with self.lock:
            self.stepping_threads.add(threading.current_thread().name)
            self.before_step()
            return self.core.scheduler.step()

    def generate(self, prompts: Sequence[str | Sequence[int]], params: SamplingParams | None = None) -> list[int]:
        uids = [self.submit(prompt, params) for prompt in prompts]
        while self.step() is not None:
            pass
        return uids

    def change(self, **settings: Any) -> None:
        self.core.scheduler.change(**settings)

    def rewind(self, trace: Trace, step: int) -> Iterator[StepFinished]:
        with self.lock:
            steps = steps_up_to(trace, step)
            scheduler, coming = rewound(self.core.scheduler, trace)
            self.core.scheduler = scheduler
        return self._again(coming[:steps])

    def _again(self, coming: list[Inputs]) -> Iterator[StepFinished]:
        for each in coming:
            self.before_step()
            with self.lock:
                done = each.feed(self.core.scheduler, self.core.executor.now())
            if done is not None:
                yield done

    def abort(self, uid: int) -> None:
        self.core.scheduler.abort(uid)

    @property
    def idle(self) -> bool:
        return self.core.scheduler.idle

    def on(self, event_type: type | None, fn: Callable[[Any], None]) -> Subscription:
        return self.core.scheduler.bus.on(event_type, fn)

    def snapshot(self) -> Snapshot:
        with self.lock:
            return self.core.scheduler.snapshot()

    def checkpoint(self) -> dict[str, Any]:
        return self.core.checkpoint()

    def drain(self) -> None:
        with self.lock:
            self.core.scheduler.drain()

    def about(self) -> dict[str, Any]:
        return self.core.about()

    def check_integrity(self) -> None:
        self.core.scheduler.check_integrity()
