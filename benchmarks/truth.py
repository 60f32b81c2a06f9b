"""How true the simulator is: to an independent prefix cache, and to what a real vLLM did.

The data are not part of this repository. ``--data DIR`` names a folder with

    mooncake/{conversation,synthetic}_trace.jsonl   github.com/kvcache-ai/Mooncake, FAST25-release/traces (Apache-2.0)
    vllm_runs/RTX4090_Llama-3.1-8B/                 github.com/casys-kaist/LLMServingSim, bench/examples (MIT)

or one of the two.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from measure import arguments, print_json, table

from minisgl.config import EngineConfig
from minisgl.core import Request, SamplingParams
from minisgl.scheduler.policies import worst_case
from minisgl.sim.arrival import FIRST_ID, Arrival
from minisgl.sim.costs import CostModel, LinearCost, Work
from minisgl.sim.outcome import Outcome
from minisgl.sim.roofline import roofline
from minisgl.sim.simulator import Simulator
from minisgl.sim.workload import Workload

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.sim.block_lru import Asked, hit_rate

Promise = Callable[[Request, float], int]
BLOCK = 512
# pool, in blocks: percent that another program, which is not part of this repository, found for the same oracle
LISTED = {
    "synthetic": {1_170: 14.6, 2_340: 25.1, 4_681: 40.9, 9_362: 58.7, 18_724: 75.8},
    "conversation": {1_170: 4.8, 2_340: 5.8, 4_681: 10.3, 9_362: 20.8, 18_724: 29.7, 37_449: 36.9, 74_898: 38.5},
}
RUN = "RTX4090_Llama-3.1-8B"
# What other simulators report, each against real runs of its own choice. None of them is this run.
PUBLISHED = (
    ("Vidur (MLSys 2024)", "request latency", "< 9 %"),
    ("LLMServingSim 2.0", "latency", "2 %"),
    ("LLMServingSim 2.0", "TTFT, up to", "14 %"),
    ("BLIS", "end-to-end latency", "7 %"),
    ("BLIS", "TTFT", "18 %"),
)


# -- prefix hits -----------------------------------------------------------------------------------------------------


def prefix_hits(folder: Path, name: str, listed: dict[int, float]) -> list[dict[str, float]]:
    """Hit rates in percent: the oracle's and the scheduler's; then in points what an engine's rules do, one by one.

    What is left after the first two is that whole leaves are evicted, and that a running request needs pages for its
    last, short block and for what it generates before it has them.
    """
    path = folder / f"{name}_trace.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    asked = [Asked(r["hash_ids"], r["input_length"], r["output_length"]) for r in lines]
    workload = one_by_one(Workload.mooncake(path))
    rows = []
    for pool, known in listed.items():
        oracle = hit_rate(asked, pool)
        matching = hit_rate(asked, pool, last_token=True)
        outputs = hit_rate(asked, pool, last_token=True, outputs=True)
        real = simulated_hit_rate(workload, pool)
        rows.append(
            {
                "pages": pool,
                "listed": known,
                "oracle": oracle * 100,
                "scheduler": real * 100,
                "gap": (real - oracle) * 100,
                "whole blocks, last token": (matching - oracle) * 100,
                "output pages": (outputs - matching) * 100,
                "whole leaves": (real - outputs) * 100,
            }
        )
    return rows


def one_by_one(workload: Workload) -> Workload:
    """The same requests, each long after the one before it has ended."""
    return Workload(tuple(replace(a, at=float(i)) for i, a in enumerate(workload.arrivals)), workload.title)


def simulated_hit_rate(workload: Workload, pool: int) -> float:
    """Of the second half of the requests, on the real scheduler, one at a time."""
    config = EngineConfig(
        num_pages=pool,
        page_size=BLOCK,
        max_running_requests=1,
        max_prefill_tokens=workload.longest,
        max_seq_len=workload.longest,
    )
    requests = Simulator(config, LinearCost(constant=1e-6)).run(workload).requests
    half = len(requests) // 2
    return float(requests.cached_tokens[half:].sum() / requests.prompt_tokens[half:].sum())


# -- a real engine ---------------------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """What vLLM did: seconds since the start of its own clock; one entry per request, in order of arrival."""

    workload: Workload
    times: dict[str, np.ndarray]  # queue_time, ttft, e2e
    curve: np.ndarray  # [seconds, 3]: time, running, waiting
    config: EngineConfig


def measured(folder: Path) -> Measured:
    lines = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
    lines.sort(key=lambda r: r["arrival_time"])
    meta = json.loads((folder / "meta.json").read_text())
    # arrivals are by the wall clock, the rest by a monotonic one; some request was queued at once
    shift = min(r["queued_ts"] - r["arrival_time"] for r in lines)
    start = datetime.fromisoformat(meta["started_at"].replace("Z", "+00:00")).timestamp()
    at = np.array([r["arrival_time"] for r in lines]) - start
    scheduled, first, last = (
        np.array([r[f"{name}_ts"] for r in lines]) - shift - start
        for name in ("scheduled", "first_token", "last_token")
    )
    arrivals = tuple(
        Arrival(
            t, np.array([FIRST_ID + i], np.int32), SamplingParams(max_tokens=r["output_toks"]), repeat=r["input_toks"]
        )
        for i, (t, r) in enumerate(zip(at.tolist(), lines, strict=True))
    )
    with open(folder / "timeseries.csv") as file:
        curve = np.array([[float(r["t"]), float(r["running"]), float(r["waiting"])] for r in csv.DictReader(file)])
    config = EngineConfig(
        num_pages=meta["kv_cache"]["num_gpu_blocks"],
        page_size=meta["kv_cache"]["block_size"],
        max_running_requests=meta["engine_kwargs"]["max_num_seqs"],
        max_prefill_tokens=meta["engine_kwargs"]["max_num_batched_tokens"],
        max_seq_len=meta["engine_kwargs"]["max_model_len"],
        admission="optimistic",
        phase="mixed",
    )
    # queued when the engine's loop took it in, which is up to 0.2 s after it arrived; its wait begins before
    times = {"queue_time": scheduled - at, "ttft": first - at, "e2e": last - at}
    return Measured(Workload(arrivals, folder.name), times, curve, config)


def as_vllm(request: Request, share: float) -> int:
    """What vLLM promises: the tokens there are. Ours adds all that is to come once a request has been retracted."""
    return request.prefill_len + 1


def simulated(run: Measured, costs: CostModel, promise: Promise = worst_case) -> Outcome:
    simulator = Simulator(run.config, costs)
    simulator.scheduler.prefill.promise = promise
    return simulator.run(run.workload)


def off(run: Measured, outcome: Outcome, of: slice) -> float:
    """What the search makes small: by how much first and last tokens miss, in proportion to the time they took."""
    missed = [np.abs(outcome.requests[name][of] - run.times[name][of]).sum() for name in ("ttft", "e2e")]
    return sum(missed) / sum(run.times[name][of].sum() for name in ("ttft", "e2e"))


def linear(costs: CostModel) -> LinearCost:
    """The roofline's slopes, where each of its terms rules: where a search may begin."""

    def seconds(**work: int) -> float:
        return float(costs.seconds(Work(**dict.fromkeys(Work.__struct_fields__, 0) | work)))

    idle = seconds(decode_requests=1)
    return LinearCost(
        constant=idle,
        prefill_token=(seconds(prefill_tokens=100_000) - seconds(prefill_tokens=50_000)) / 50_000,
        decode_request=1e-5,
        kv_token=(seconds(decode_requests=1, kv_tokens=100_000) - idle) / 100_000,
    )


def search(
    loss: Callable[[LinearCost], float], starts: list[LinearCost], rates: tuple[float, ...]
) -> tuple[LinearCost, int]:
    """Coordinate search: each price a step up or down while that helps, then with smaller steps; the number of tries.

    It begins at the best of some starts: who is retracted when is a matter of luck, so there are many valleys.
    """
    (least, _, best), tried = min((loss(c), i, c) for i, c in enumerate(starts)), len(starts)
    for rate in rates:
        better = True
        while better:
            better = False
            for name in ("constant", "prefill_token", "decode_request", "kv_token"):
                for factor in (rate, 1 / rate):
                    other = replace(best, **{name: getattr(best, name) * factor})
                    tried += 1
                    if (found := loss(other)) < least * 0.9999:
                        best, least, better = other, found, True
                        break
    return best, tried


def errors(run: Measured, outcome: Outcome, of: slice) -> list[dict[str, Any]]:
    rows = []
    for name in ("queue_time", "ttft", "e2e"):
        real, sim = run.times[name][of], outcome.requests[name][of]
        each = np.abs(sim - real) / real
        rows.append(
            {
                "time": name,
                "measured mean": real.mean(),
                "simulated mean": sim.mean(),
                **{
                    f"{what} off by": float(f(sim) / f(real) - 1) * 100
                    for what, f in (("mean", np.mean), ("p50", np.median), ("p90", lambda x: np.quantile(x, 0.9)))
                },
                "per request: mean": each.mean() * 100,
                "p50": float(np.median(each)) * 100,
                "p90": float(np.quantile(each, 0.9)) * 100,
            }
        )
    return rows


def curves(run: Measured, outcome: Outcome) -> list[dict[str, float]]:
    """Running and waiting at the times at which vLLM said them."""
    at = np.maximum(np.searchsorted(outcome.curve.t, run.curve[:, 0], side="right") - 1, 0)
    return [
        {"t": t, "running": running, "simulated running": int(r), "waiting": waiting, "simulated waiting": int(w)}
        for (t, running, waiting), r, w in zip(
            run.curve.tolist(), outcome.curve.running[at], outcome.curve.waiting[at], strict=True
        )
    ]


# -- what is printed -------------------------------------------------------------------------------------------------


def show(title: str, rows: list[dict[str, Any]], digits: int = 1) -> None:
    print(f"\n{title}")
    cells = [[round(v, digits) if isinstance(v, float) else v for v in row.values()] for row in rows]
    print(table(list(rows[0]), [[str(c) for c in row] for row in cells]))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, metavar="DIR", help="where the traces are; without it: where to get them")
    options = parser.parse_args()
    if options.data is None:
        print(__doc__)
        return
    figures: dict[str, Any] = {"benchmark": "truth"}
    mooncake, vllm = options.data / "mooncake", options.data / "vllm_runs" / RUN
    for name, listed in LISTED.items():
        if (mooncake / f"{name}_trace.jsonl").exists():
            rows = prefix_hits(mooncake, name, dict(list(listed.items())[:2]) if options.quick else listed)
            show(f"Mooncake {name}: prompt tokens found in the prefix cache, percent; the gap in points", rows, 2)
            figures[name] = rows
    if vllm.exists():
        figures["vllm"] = against_vllm(measured(vllm), options.quick)
    if len(figures) == 1:
        sys.exit(f"{options.data} holds neither mooncake nor vllm_runs/{RUN}; they are from\n{__doc__}")
    if options.json:
        print_json(figures)


def against_vllm(run: Measured, quick: bool) -> dict[str, Any]:
    half = len(run.workload) // 2
    known, unseen = slice(0, half), slice(half, None)
    guess = roofline("Llama-3.1-8B", "RTX-4090")
    starts = [linear(replace(guess, compute=share)) for share in (0.6, 0.8, 1.0)]
    print(f"\nvLLM 0.19, Llama-3.1-8B on an RTX 4090: {len(run.workload)} requests, {run.config.num_pages} pages of 16")
    figures: dict[str, Any] = {}
    for name, promise in (("our optimistic admission", worst_case), ("vLLM's promise to the retracted", as_vllm)):

        def loss(costs: LinearCost, promise: Promise = promise) -> float:
            return off(run, simulated(run, costs, promise), known)

        costs, tried = search(loss, starts, (1.3,) if quick else (1.3, 1.1, 1.03))
        outcome = simulated(run, costs, promise)
        print(f"\n{name}; fitted to the first {half} requests in {tried} runs: {costs}\n{outcome}")
        figures[name] = {
            "prices": asdict(costs),
            "unseen": errors(run, outcome, unseen),
            "known": errors(run, outcome, known),
            "retractions": int(outcome.requests.retractions.sum()),
        }
        show("the requests it was not fitted to; times in s, errors in percent", figures[name]["unseen"])
        show("the requests it was fitted to", figures[name]["known"])
        points = curves(run, outcome)
        show("requests running and waiting, second by second (every tenth)", points[::10])
        for what in ("running", "waiting"):
            gap = float(np.mean([abs(p[what] - p[f"simulated {what}"]) for p in points]))
            print(f"mean difference, {what}: {gap:.1f}")
            figures[name][f"{what}_difference"] = gap
    figures["roofline"] = errors(run, simulated(run, guess), unseen)
    show(f"no fit at all: {guess}", figures["roofline"])
    print("\nerrors that others publish, for runs of their own")
    print(table(["simulator", "of", "error"], PUBLISHED))
    return figures


if __name__ == "__main__":
    main()
