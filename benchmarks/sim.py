"""How long a simulated run takes: one replay, a move of a slider, a full record; beside simulators that can do it.

The run: 1,000 requests of 512 prompt tokens, half of them behind one of 20 shared prefaces, 200 new tokens each, on 64
rows and 4,000 pages of 16. ``sched-sim`` and ``kvcache-simulator`` (PyPI) are run on the same requests where they are
installed: the first simulates iterations and a prefix cache in blocks of 16, the second counts an LRU cache's hits.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import numpy as np
from measure import arguments, interleaved, print_json, spread, table, text

from minisgl import EngineConfig, Recorder, SamplingParams, Simulator, Trace, Workload, whatif
from minisgl.sim.costs import DEFAULT, LinearCost
from minisgl.sim.outcome import Outcome
from minisgl.sim.whatif import WhatIf
from minisgl.sim.workload import Arrival

PROMPT, NEW, ROWS, PAGES, PAGE_SIZE = 512, 200, 64, 4000, 16
CONFIG = EngineConfig(num_pages=PAGES, page_size=PAGE_SIZE, max_running_requests=ROWS, max_seq_len=1024)


def requests(n: int) -> Workload:
    rng = np.random.default_rng(0)
    prefaces = rng.integers(0, 30_000, (20, PROMPT // 2)).astype(np.int32)
    own = rng.integers(0, 30_000, (n, PROMPT // 2)).astype(np.int32)
    params = SamplingParams(max_tokens=NEW, ignore_eos=True)
    return Workload(
        tuple(
            Arrival(at=0.05 * i, prompt=np.concatenate((prefaces[rng.integers(20)], own[i])), params=params)
            for i in range(n)
        )
    )


def timed(run: Callable[[], object]) -> float:
    gc.collect()
    started = time.process_time()  # CPU seconds: time in which somebody else had the core does not count
    run()
    return time.process_time() - started


def replay(workload: Workload) -> object:
    return Simulator(CONFIG).run(workload)


def record(workload: Workload) -> Trace:
    simulator = Simulator(CONFIG)
    with Recorder(simulator) as recorder:
        simulator.run(workload)
    return recorder.trace


def slider(unchanged: WhatIf) -> object:
    """From a new number of pages to the figures, the curve and the table of differences."""
    what = unchanged.change(num_pages=PAGES // 2)
    return what.after.figures, what.after.curve, what.table


def sched_sim(workload: Workload) -> object:
    from sched_sim.core.event_engine import Simulator as Other
    from sched_sim.core.request import Request
    from sched_sim.hardware.presets import get_hardware_profile
    from sched_sim.schedulers.factory import create_scheduler

    hardware = get_hardware_profile("a100")
    scheduler = create_scheduler("cache_aware", hardware, max_batch_size=ROWS)
    scheduler.block_manager.free_gpu_blocks = list(range(PAGES))
    scheduler.block_manager.total_gpu_blocks = PAGES
    other = Other(hardware, scheduler)
    other.submit_workload(
        [
            Request(
                request_id=str(i),
                arrived_at=a.at,
                prompt_tokens=a.prompt_len,
                output_tokens=NEW,
                prompt_token_ids=a.tokens().tolist(),
            )
            for i, a in enumerate(workload.arrivals)
        ]
    )
    return other.run()


def kvcache_sim(workload: Workload) -> object:
    from kvcache_sim.plan import build_execution_plan
    from kvcache_sim.policies import simulate_policy
    from kvcache_sim.trace import parse_trace_lines

    lines = []
    for a in workload.arrivals:
        blocks = a.tokens().reshape(-1, PAGE_SIZE)
        names = [hash(block.tobytes()) & 0xFFFFFFFF for block in blocks]
        lines.append(json.dumps({"hash_ids": names, "input_length": a.prompt_len, "block_size": PAGE_SIZE}))
    return simulate_policy(build_execution_plan(parse_trace_lines(lines)), "lru", PAGES)


def public_traces(folder: Path, rounds: int) -> list[tuple[str, list[float], int]]:
    """Seconds of the CPU for two public traces as they lie in ``folder``, reading them left out; and their steps."""
    azure = Workload.azure(folder / "azure2023" / "conv.csv")
    mooncake = Workload.mooncake(folder / "mooncake" / "conversation_trace.jsonl")
    fast = LinearCost(constant=0.01, prefill_token=2e-5, decode_request=1e-4, kv_token=1e-8)
    found = []
    for name, workload, settings in (
        ("Azure conversation", azure, {"num_pages": 20_000, "page_size": 16, "prefix_cache": "naive"}),
        ("Mooncake conversation", mooncake, {"num_pages": 18_724, "page_size": 512}),
    ):
        config = EngineConfig(
            max_running_requests=256, max_prefill_tokens=8192, max_seq_len=workload.longest, **settings
        )
        outcomes: list[Outcome] = []
        seconds = []
        for _ in range(rounds):
            outcomes.clear()
            seconds.append(timed(lambda: outcomes.append(Simulator(config, fast).run(workload))))  # noqa: B023
        found.append((f"{name}, {len(workload)} requests", seconds, outcomes[0].steps))
    return found


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="also run the traces in DIR/azure2023 and DIR/mooncake"
    )
    options = parser.parse_args()
    n, rounds = (200, 3) if options.quick else (1000, 7)
    if options.data:  # first: what the rest leaves in memory is in the way of a run's own objects
        traces = [
            (name, f"{median(seconds):.2f}", spread(seconds), steps)
            for name, seconds, steps in public_traces(options.data, rounds)
        ]
        print(table(("trace", "CPU s", "spread", "steps"), traces), end="\n\n")
    workload = requests(n)
    unchanged = whatif(record(workload), DEFAULT)
    variants: dict[str, Callable[[], object]] = {
        "replay": lambda: replay(workload),
        "slider to charts and table": lambda: slider(unchanged),
        "recorded": lambda: record(workload),
    }
    peers = {"sched-sim": ("sched_sim", sched_sim), "kvcache-simulator, hits only": ("kvcache_sim", kvcache_sim)}
    missing = [name for name, (module, _) in peers.items() if find_spec(module) is None]
    for name, (module, run) in peers.items():
        if find_spec(module) is not None:
            variants[name] = lambda run=run: run(workload)
    for run in variants.values():
        run()
    times = interleaved({name: lambda run=run: timed(run) for name, run in variants.items()}, rounds, options.patience)
    outcome = Simulator(CONFIG).run(workload)
    print(f"{workload}\n{outcome}\n")
    one = median(times["replay"])
    rows = [(name, f"{median(t) * 1e3:.0f}", spread(t), text(median(t) / one)) for name, t in times.items()]
    print(table(("what", "CPU ms", "spread", "x replay"), rows))
    if missing:
        print(f"\nNot installed, so not run: {', '.join(missing)}.")
    if options.json:
        print_json({"benchmark": "sim", "requests": n, "seconds": {k: median(t) for k, t in times.items()}})


if __name__ == "__main__":
    main()
