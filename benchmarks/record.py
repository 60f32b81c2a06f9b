"""What recording a long run costs, and what its record takes to save, load and look into.

The executor computes nothing and answers at once with tokens drawn from a seed: nothing but the books and the record is
measured, and tokens are as hard to compress as they can be.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from threading import RLock
from typing import Any

from measure import arguments, interleaved, print_json, table, wait_for_quiet
from scheduler import NullExecutor

from minisgl.config import EngineConfig
from minisgl.core import BatchResult, SamplingParams
from minisgl.events.recorder import Recorder
from minisgl.events.types import TokensSampled
from minisgl.events.words import count
from minisgl.scheduler import Scheduler

ROWS = 64
GROUP = 8  # requests that arrive, and end, together
PROMPT = 128
SHARED = 64  # tokens that every other prompt begins with
NEW = 200
VOCAB = 49_152
CONFIG = EngineConfig(num_pages=32_768, max_running_requests=ROWS, max_seq_len=512, max_prefill_tokens=ROWS * PROMPT)
TURN = 20  # steps that one run takes while the other waits

# In a Python of its own, like somebody who was sent the file. All in CPU time, to leave the neighbours out of it; these
# are one thread's, and files are in the system's cache. {path}, {looks}: how many steps to look at.
READER = """
import json, random, resource, sys, time
from minisgl import Trace

unit = 1 if sys.platform == "darwin" else 1024
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
started = time.process_time()
trace = Trace.load({path!r})
loaded, load_peak = time.process_time(), peak()
history = trace.history
folded = time.process_time()
looks = []
for step in random.Random(0).choices(range(history.first, history.last + 1), k={looks}):
    before = time.process_time()
    trace.at(step)
    looks.append(time.process_time() - before)
print(json.dumps({{
    "load_s": loaded - started, "load_peak_mib": load_peak, "keyframes_s": folded - loaded, "peak_mib": peak(),
    "at_mean_ms": sum(looks) / len(looks) * 1e3, "at_max_ms": max(looks) * 1e3,
}}))
"""


class RandomExecutor(NullExecutor):
    """Any token of the vocabulary, at once."""

    def __init__(self) -> None:
        super().__init__()
        self._random = random.Random(1)
        self._started = time.perf_counter()

    def now(self) -> float:
        return time.perf_counter() - self._started

    def collect(self) -> BatchResult:
        batch, now = self.in_flight.popleft(), self.now()
        return BatchResult(batch.number, [self._random.randrange(VOCAB) for _ in batch.uids], now, now)


class Run:
    """A scheduler with ``ROWS`` requests at all times; what a Recorder wants of its source."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(CONFIG, RandomExecutor(), VOCAB)
        self.lock = RLock()
        self.snapshot, self.checkpoint = self.scheduler.snapshot, self.scheduler.checkpoint
        self.on, self.drain = self.scheduler.bus.on, self.scheduler.drain
        self.requests = 0
        self.seconds: list[float] = []  # CPU time of each step: what others do with the core does not count
        self.steady: list[bool] = []  # for each step: was it a decode of all rows, and nothing else?
        self._random = random.Random(0)
        self._shared = self._tokens(SHARED)

    def _tokens(self, n: int) -> list[int]:
        return [self._random.randrange(VOCAB) for _ in range(n)]

    def submit(self) -> None:
        prompt = self._tokens(PROMPT)
        if self.requests % 2:
            prompt[:SHARED] = self._shared
        # the first ones end group by group, so that from then on some end every few steps
        rounds = min(self.requests // GROUP + 1, ROWS // GROUP)
        self.scheduler.submit(prompt, SamplingParams(max_tokens=NEW * rounds * GROUP // ROWS))
        self.requests += 1

    def play(self, steps: int) -> float:
        """CPU seconds of so many steps."""
        for _ in range(steps):
            for _ in range(ROWS - len(self.scheduler.requests)):
                self.submit()
            started = time.thread_time()
            done = self.scheduler.step()
            self.seconds.append(time.thread_time() - started)
            self.steady.append(done is not None and done.phase == "decode" and done.running == ROWS)
        return sum(self.seconds[-steps:])

    def token_text(self, token: int) -> str:
        return f" t{token}"

    def about(self) -> dict[str, Any]:
        return {"model": "none", "tokenizer": None, "vocab_size": VOCAB, "config": {}}


def record(steps: int, patience: float) -> tuple[Recorder, dict[str, float]]:
    """Play the run twice, in turns, once with a recorder; microseconds a step that it adds."""
    plain, recorded = Run(), Run()
    wait_for_quiet(patience)
    with Recorder(recorded, "benchmarks/record.py") as recorder:
        turns = {"nobody": partial(plain.play, TURN), "recorder": partial(recorded.play, TURN)}
        interleaved(turns, steps // TURN)
    added = [b - a for a, b in zip(plain.seconds, recorded.seconds, strict=True)]
    return recorder, {
        "step_us": median(s for s, steady in zip(plain.seconds, plain.steady, strict=True) if steady) * 1e6,
        "recording_us": median(s for s, steady in zip(added, plain.steady, strict=True) if steady) * 1e6,
        "any_step_us": mean(plain.seconds) * 1e6,
        "recording_any_us": mean(added) * 1e6,
    }


def read(path: Path, looks: int) -> dict[str, float]:
    command = [sys.executable, "-c", READER.format(path=str(path), looks=looks)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr.strip())
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    options = arguments(__doc__).parse_args()
    steps, rounds, looks = (500, 1, 50) if options.quick else (10_000, 3, 200)
    recorder, figures = record(steps, options.patience)
    trace = recorder.trace
    tokens = sum(len(e.tokens) for e in trace.of(TokensSampled))
    with TemporaryDirectory() as folder:
        for kind, name in (("plain", "run.jsonl"), ("zst", "run.jsonl.zst")):
            started = time.process_time()
            path = trace.save(Path(folder) / name)
            figures[f"save_{kind}_s"] = time.process_time() - started
            figures[f"{kind}_bytes_per_token"] = path.stat().st_size / tokens
        runs = []
        for _ in range(rounds):
            wait_for_quiet(options.patience)
            runs.append(read(path, looks))
    figures |= {name: median(run[name] for run in runs) for name in runs[0]}

    requests = recorder.source.requests  # type: ignore[attr-defined]
    print(f"{steps} steps of {ROWS} rows, {requests} requests, {tokens} new tokens, {len(trace)} events.")
    print(f"Reading: medians of {count(rounds, 'round')}, each in a Python of its own.\n")
    rows = [(label, figures[name], unit) for label, name, unit in ROWS_OF_THE_TABLE]
    print(table(("what", "figure", "unit"), rows))
    if options.json:
        print_json({"benchmark": "record", "steps": steps, "requests": requests, "tokens": tokens, "results": figures})


ROWS_OF_THE_TABLE = (
    ("a decode step of 64 requests, nobody listens", "step_us", "µs of CPU"),
    ("what a Recorder adds to it", "recording_us", "µs of CPU"),
    ("any step, prefills and ends included (mean), nobody listens", "any_step_us", "µs of CPU"),
    ("what a Recorder adds to it", "recording_any_us", "µs of CPU"),
    ("the file", "plain_bytes_per_token", "bytes a new token"),
    ("the file, compressed", "zst_bytes_per_token", "bytes a new token"),
    ("Trace.save", "save_plain_s", "s of CPU"),
    ("Trace.save, compressed", "save_zst_s", "s of CPU"),
    ("Trace.load, compressed", "load_s", "s of CPU"),
    ("peak RSS of that", "load_peak_mib", "MiB"),
    ("keyframes, at the first look", "keyframes_s", "s of CPU"),
    ("peak RSS of that", "peak_mib", "MiB"),
    ("Trace.at, any step (mean)", "at_mean_ms", "ms of CPU"),
    ("Trace.at, any step (longest)", "at_max_ms", "ms of CPU"),
)


if __name__ == "__main__":
    main()
