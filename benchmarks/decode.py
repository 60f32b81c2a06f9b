"""How near a decode step comes to what the machine could do at best, and how much of it is not the model.

At best a step reads every weight once and all KV it attends to, at the speed at which this machine reads memory, or
multiplies at the speed of a large matrix product, whichever takes longer. Both speeds are measured here, between the
steps, since neighbours slow them down as well.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

import torch
from measure import arguments, print_json, table, wait_for_quiet

from minisgl import LLM, Recorder, SamplingParams

MODEL = "smollm2-135m"
READ = torch.ones(1 << 27)  # 512 MiB, more than any cache holds


def read_seconds(count: float) -> float:
    """Seconds in which all threads read so many bytes."""
    started = time.perf_counter()
    READ.sum()
    return (time.perf_counter() - started) * count / (READ.numel() * READ.element_size())


def multiply_seconds(flops: float, a: torch.Tensor) -> float:
    """Seconds in which all threads do so many operations, as part of a large product."""
    started = time.perf_counter()
    torch.mm(a, a)
    return (time.perf_counter() - started) * flops / (2 * len(a) ** 3)


def prompt(i: int, length: int) -> list[int]:
    return [2 + (i * 7919 + j * 104_729) % 40_000 for j in range(length)]


def decode_steps(llm: LLM, running: int, context: int, steps: int, patience: float) -> Iterator[tuple[float, float]]:
    """Seconds of each decode step of ``running`` requests of about ``context`` tokens, and of the model in it."""
    runner = llm.scheduler.executor.runner
    own, spent = runner.logits, 0.0

    def timed(*args: object) -> torch.Tensor:
        nonlocal spent
        started = time.perf_counter()
        logits = own(*args)
        spent = time.perf_counter() - started
        return logits

    runner.logits = timed
    try:
        with Recorder(llm):
            for i in range(running):
                llm.submit(prompt(i, context - steps // 2), SamplingParams(max_tokens=steps + 1, ignore_eos=True))
            while not llm.idle:
                wait_for_quiet(patience)
                started = time.perf_counter()
                done = llm.step()
                seconds = time.perf_counter() - started
                if done and done.phase == "decode" and done.running == running:
                    yield seconds, spent
    finally:
        runner.logits = own


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--threads", type=int, help="default: what minisgl chooses")
    options = parser.parse_args()
    steps = 6 if options.quick else 40
    cases = [(1, 200), (32, 200)] if options.quick else [(1, 200), (8, 200), (32, 200), (1, 8000)]
    rows, results = [], []
    for dtype in ("bfloat16", "float32"):
        usual = {"prefix_cache": "naive", "num_pages": 10_000, "device": "cpu", "threads": options.threads}
        with LLM(MODEL, dtype=dtype, **usual) as llm:
            a = torch.ones(2048, 2048, dtype=getattr(torch, dtype))
            c, token = llm.model_config, llm.memory.kv_bytes_per_token
            for running, context in cases:
                count = llm.memory.weight_bytes + running * context * token
                # of a product the weights' part, of attention scores and sums
                flops = 2 * running * llm.memory.weight_bytes / a.element_size()
                flops += 4 * running * context * c.num_layers * c.num_heads * c.head_dim
                times, models, best = [], [], []
                for seconds, model in decode_steps(llm, running, context, steps, options.patience):
                    limit = max(read_seconds(count), multiply_seconds(flops, a))
                    times.append(seconds)
                    models.append(model)
                    best.append(limit)
                outside = median(t - m for t, m in zip(times, models, strict=True))
                # a quiet moment for both: the shortest of each
                share = min(best) / min(times)
                rows.append(
                    [
                        dtype, running, context, 1e3 * min(times), 1e3 * median(times), 1e3 * max(times),
                        1e3 * min(best), f"{share:.0%}", 1e6 * outside, f"{outside / median(times):.1%}",
                    ]
                )  # fmt: skip
                results.append(
                    {
                        "dtype": dtype, "running": running, "context": context, "min_ms": 1e3 * min(times),
                        "median_ms": 1e3 * median(times), "limit_ms": 1e3 * min(best), "share": share,
                        "host_us": 1e6 * outside, "host_share": outside / median(times),
                    }
                )  # fmt: skip
    print(f"{MODEL}, {llm.about()['kernels']}, {llm.config.threads} threads, {steps} steps a row, events recorded\n")
    head = ("dtype", "running", "context", "ms: min", "median", "max", "at best", "share", "host us", "of a step")
    print(table(head, rows))
    if options.json:
        print_json({"benchmark": "decode", "results": results})


if __name__ == "__main__":
    main()
