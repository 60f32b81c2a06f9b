"""The benchmarks run and give figures; how large those are is no test's business."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def numbers(value: Any) -> Iterator[float]:
    """Every number in decoded JSON."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield value


def run(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=BENCHMARKS.parent, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_scheduler_is_measured() -> None:
    figures = json.loads(run("benchmarks/scheduler.py", "--quick", "--json").splitlines()[-1])
    assert figures["benchmark"] == "scheduler" and len(figures["results"]) == 12
    assert all(math.isfinite(n) and n > 0 for n in numbers(figures))


def test_recording_is_measured() -> None:
    figures = json.loads(run("benchmarks/record.py", "--quick", "--json").splitlines()[-1])
    assert figures["benchmark"] == "record" and figures["steps"] == 500 and figures["tokens"] > 25_000
    assert all(math.isfinite(n) for n in numbers(figures))  # what recording adds can come out below zero


def test_the_scheduler_without_events_has_none() -> None:
    """What the measurement takes as its base runs the same steps and never emits; the installed one still does."""
    script = f"""
import sys
sys.path.insert(0, {str(BENCHMARKS)!r})
from eventless import scheduler_without_events
from scheduler import BASE, Load
cut = scheduler_without_events()
for variant in (BASE, "nobody"):
    load, heard = Load(variant, cut, 4, 1, 20, True), []
    load.scheduler.bus.on(None, heard.append)
    load.run(20)
    load.scheduler.check_integrity()
    print(load.scheduler.steps, load.scheduler.cache.free, len(heard) > 0)
"""
    cut, whole = run("-c", script).splitlines()
    assert cut.split()[:2] == whole.split()[:2]
    assert (cut.split()[2], whole.split()[2]) == ("False", "True")


@pytest.mark.parametrize("script", ["offline.py", "startup.py"])
def test_the_slow_ones_say_what_they_do(script: str) -> None:
    assert "--quick" in run(f"benchmarks/{script}", "--help")
