"""Host time of one scheduler step, what listeners add to it, and what it takes the usual way.

The executor computes nothing, so what is measured is the books alone: queues, pages, rows, prefix cache, events.
"tensors" are books kept with a few small tensor operations per request (``tensor_books.py``); they only decode.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from statistics import median

from eventless import scheduler_without_events
from measure import Times, arguments, interleaved, print_json, ratio, table, wait_for_quiet
from tensor_books import TensorBooks

from minisgl.config import EngineConfig
from minisgl.core import Batch, BatchResult, SamplingParams
from minisgl.events.types import StepFinished
from minisgl.scheduler import Scheduler

PROMPT = 64
LIFE = 16  # tokens of a short request
BASE = "events cut out"
VARIANTS = (BASE, "nobody", "nobody (again)", "StepFinished", "all events")
TENSORS = "tensors"


class NullExecutor:
    """Every token is 7, at once."""

    now = staticmethod(time.perf_counter)

    def __init__(self) -> None:
        self.in_flight: deque[Batch] = deque()

    def launch(self, batch: Batch) -> None:
        self.in_flight.append(batch)

    def collect(self) -> BatchResult:
        batch = self.in_flight.popleft()
        return BatchResult(batch.number, [7] * len(batch.uids), 0.0, 0.0)


class Load:
    """A scheduler that always has ``running`` requests: long ones that only decode, or short ones that come and go."""

    def __init__(self, variant: str, cut: type, running: int, page_size: int, steps: int, short: bool) -> None:
        self.running, self.short = running, short
        self.max_tokens = LIFE if short else steps + 8
        width = PROMPT + self.max_tokens
        config = EngineConfig(
            num_pages=running * (width // page_size + 2),
            page_size=page_size,
            max_running_requests=running,
            max_seq_len=width,
            max_prefill_tokens=running * PROMPT,
        )
        self.scheduler = (cut if variant == BASE else Scheduler)(config, NullExecutor())
        self.kept: list[object] = []
        if variant == "StepFinished":
            self.scheduler.bus.on(StepFinished, lambda event: None)
        if variant == "all events":
            self.scheduler.bus.on(None, self.kept.append)  # what a Recorder does
        self.numbers = itertools.count()
        for i in range(running):  # short ones begin out of step with each other, so that they end one by one
            self.submit(1 + i % LIFE if short else self.max_tokens)
        self.run(LIFE if short else 3)

    def submit(self, max_tokens: int) -> None:
        """A prompt whose first half is one of four that are seen over and over."""
        n = next(self.numbers)
        prompt = [n % 4] * (PROMPT // 2) + [n % 1000] * (PROMPT // 2)
        self.scheduler.submit(prompt, SamplingParams(max_tokens=max_tokens))

    def run(self, steps: int) -> None:
        step, scheduler = self.scheduler.step, self.scheduler
        for _ in range(steps):
            if self.short:
                for _ in range(self.running - len(scheduler.requests)):
                    self.submit(LIFE)
            step()

    def timed(self, steps: int) -> float:
        """CPU seconds of a step: time in which somebody else had the core does not count."""
        self.kept.clear()
        gc.collect()
        started = time.thread_time()
        self.run(steps)
        return (time.thread_time() - started) / steps


class TensorLoad:
    """The same decode steps, booked in tensors."""

    def __init__(self, running: int, page_size: int, steps: int) -> None:
        self.books = TensorBooks(running, PROMPT, steps + 8, page_size)

    def timed(self, steps: int) -> float:
        gc.collect()
        started = time.thread_time()
        for _ in range(steps):
            self.books.step()
        return (time.thread_time() - started) / steps


def measure(cut: type, short: bool, running: int, page_size: int, rounds: int, steps: int, patience: float) -> Times:
    """Seconds per step of each variant, one value a round."""
    variants: dict[str, Callable[[], float]] = {}
    for variant in VARIANTS:
        load = Load(variant, cut, running, page_size, (rounds + 1) * steps, short)
        load.timed(steps)  # warm
        variants[variant] = partial(load.timed, steps)
    if not short:
        tensors = TensorLoad(running, page_size, (rounds + 1) * steps)
        tensors.timed(steps)
        variants[TENSORS] = partial(tensors.timed, steps)
    wait_for_quiet(patience)
    gc.collect()
    gc.freeze()  # so that the collection before each run is short, whatever was built
    try:
        return interleaved(variants, rounds)
    finally:
        gc.unfreeze()


def main() -> None:
    options = arguments(__doc__).parse_args()
    rounds, steps = (11, 20) if options.quick else (81, 20)
    cut = scheduler_without_events()
    rows, results = [], []
    for short, running, page_size in itertools.product((False, True), (1, 64, 256), (1, 16)):
        times = measure(cut, short, running, page_size, rounds, steps, options.patience)
        microseconds = {v: median(taken) * 1e6 for v, taken in times.items()}
        ratios = {v: ratio(times, v, BASE) for v in times if v != BASE}
        kind = "come and go" if short else "decode"
        shown = (f"{ratios[v]:.3f}" for v in VARIANTS[1:])
        usual = f"{ratio(times, TENSORS, 'nobody'):.0f}x" if TENSORS in times else ""
        rows.append(
            (kind, running, page_size, *(microseconds[v] for v in (BASE, "nobody", "all events")), *shown, usual)
        )
        results.append(
            {"load": kind, "running": running, "page_size": page_size, "us_per_step": microseconds, "ratio": ratios}
        )
    print(f"CPU time of a step by who listens: medians of {rounds} rounds of {steps} steps, variants in turns.")
    print(f"First in microseconds, with {BASE} of the source, with nobody listening and with everything recorded;")
    print("then as multiples of the first. Last: what the same decode step takes with books in tensors, as a multiple")
    print('of "nobody".\n')
    head = ("requests", "running", "page size", "us, no events", "us, nobody", "us, recorded", *VARIANTS[1:], TENSORS)
    print(table(head, rows))
    print('\nThe two columns "nobody" run the same code: what differs between them is noise.')
    if options.json:
        print_json({"benchmark": "scheduler", "rounds": rounds, "steps": steps, "results": results})


if __name__ == "__main__":
    main()
