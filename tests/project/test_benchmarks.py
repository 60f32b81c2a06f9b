"""The benchmarks run and give figures; how large those are is no test's business."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
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


def test_truth_is_measured_on_what_is_there(tmp_path: Path) -> None:
    """A small trace of each kind; without any, it says where they are from."""
    assert "github.com/kvcache-ai/Mooncake" in run("benchmarks/truth.py")
    (tmp_path / "mooncake").mkdir()
    blocks = ([0, 1], [2, 3], [0, 1], [0, 4], [2, 3, 5])
    lines = [
        {"timestamp": i, "input_length": 512 * len(b), "output_length": 3, "hash_ids": b} for i, b in enumerate(blocks)
    ]
    (tmp_path / "mooncake" / "synthetic_trace.jsonl").write_text("\n".join(map(json.dumps, lines)))
    folder = tmp_path / "vllm_runs" / "RTX4090_Llama-3.1-8B"
    folder.mkdir(parents=True)
    engine = {"max_num_seqs": 4, "max_num_batched_tokens": 64, "max_model_len": 256}
    meta = {
        "started_at": "2026-01-01T00:00:00Z",
        "kv_cache": {"num_gpu_blocks": 20, "block_size": 16},
        "engine_kwargs": engine,
    }
    (folder / "meta.json").write_text(json.dumps(meta))
    start = datetime(2026, 1, 1, tzinfo=timezone.utc).timestamp()
    times = ("queued", "scheduled", "first_token", "last_token")
    measured = [
        {"arrival_time": start + i / 10, "input_toks": 40 + i, "output_toks": 20}
        | {f"{name}_ts": 1000 + i / 10 + late for name, late in zip(times, (0, 0.1, 0.2, 0.8), strict=True)}
        for i in range(12)
    ]
    (folder / "requests.jsonl").write_text("\n".join(map(json.dumps, measured)))
    (folder / "timeseries.csv").write_text("t,running,waiting\n1.0,4,2\n2.0,0,0\n")
    command = ("benchmarks/truth.py", "--data", str(tmp_path), "--quick", "--json")
    figures = json.loads(run(*command).splitlines()[-1])
    assert [row["oracle"] for row in figures["synthetic"]] == [pytest.approx(100 * 5 / 7)] * 2
    # whole prompts are never found, and the last one's third block is new
    assert [row["scheduler"] for row in figures["synthetic"]] == [pytest.approx(100 * 4 / 7)] * 2
    assert all(math.isfinite(n) for n in numbers(figures)) and len(figures["vllm"]) == 3


def test_decode_steps_are_measured_without_a_compiler(tiny_folder: Any, tmp_path: Path) -> None:
    """On a tiny model; PyTorch computes it, and what only the C++ kernels know is left out."""
    script = f"""
import os, sys
os.environ["PATH"] = {str(tmp_path)!r}
os.environ.pop("CXX", None)
sys.path.insert(0, {str(BENCHMARKS)!r})
import decode
decode.MODEL, decode.READ = {str(tiny_folder("llama"))!r}, decode.READ[: 1 << 20]
decode.prompt = lambda i, length: [2 + (31 * i + j) % 900 for j in range(length)]
sys.argv = ["decode.py", "--quick", "--profile", "--json", "--threads", "1"]
decode.main()
"""
    said, *lines = run("-c", script).splitlines()
    assert said == "PyTorch computes, without int8 and --profile: no C++ compiler is installed (g++, clang++, c++)"
    assert not any("attention" in line for line in lines), "no profile of zeros"
    figures = json.loads(lines[-1])["results"]
    cases = [(kind, running, 200) for kind in ("bfloat16", "float32") for running in (1, 32)]
    assert [(f["numbers"], f["running"], f["context"]) for f in figures] == cases
    assert all(math.isfinite(n) and n > 0 for n in numbers(figures))


@pytest.mark.parametrize("script", ["offline.py", "decode.py", "quality.py", "startup.py"])
def test_the_slow_ones_say_what_they_do(script: str) -> None:
    assert "--quick" in run(f"benchmarks/{script}", "--help")
