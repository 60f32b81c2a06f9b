"""How near a decode step comes to what the machine could do at best, and how much of it is not the model.

At best a step reads every weight once and all KV it attends to, at the speed at which this machine reads memory, or
multiplies at the speed of a large matrix product, whichever takes longer. Both speeds are measured here, between the
steps, since neighbours slow them down as well.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from measure import arguments, interleaved, print_json, table, wait_for_quiet
from peer import Peer

from minisgl import LLM, Recorder, SamplingParams
from minisgl.kernel.build import KernelsMissingError, library
from minisgl.kernel.native import PARTS
from minisgl.models.hub import resolve_model

MODEL = "smollm2-135m"
LONG = 8000  # tokens of context
KINDS = {
    "int8": {"dtype": "bfloat16", "quantize": "int8"},
    "bfloat16": {"dtype": "bfloat16"},
    "float32": {"dtype": "float32"},
}
EVERY = 3  # steps between two measurements of the machine
READ = torch.ones(1 << 27)  # 512 MiB, more than any cache holds


def read_seconds(count: float) -> float:
    """Seconds in which all threads read so many bytes."""
    started = time.perf_counter()
    READ.sum()
    return (time.perf_counter() - started) * count / (READ.numel() * READ.element_size())


def multiply_seconds(flops: float, a: torch.Tensor) -> float:
    """Seconds in which all threads do so many operations, as part of a large product."""
    product = torch._int_mm if a.dtype == torch.int8 else torch.mm
    started = time.perf_counter()
    product(a, a)
    return (time.perf_counter() - started) * flops / (2 * len(a) ** 3)


def without_kernels(options: Namespace) -> None:
    """Where the C++ kernels cannot be had, leave out what only they compute, and say so."""
    try:
        library()
    except KernelsMissingError as why:
        print(f"PyTorch computes, without int8 and --profile: {why}")
        options.kinds.remove("int8")
        options.profile = False


def engine(kind: str, threads: int | None) -> LLM:
    return LLM(MODEL, prefix_cache="naive", num_pages=10_000, device="cpu", threads=threads, **KINDS[kind])


def prompt(i: int, length: int) -> list[int]:
    return [2 + (i * 7919 + j * 104_729) % 40_000 for j in range(length)]


class Step(NamedTuple):
    """Seconds of one step: all of it, the model's part of it, and a thread's on average of each of ``PARTS``."""

    whole: float
    model: float
    parts: np.ndarray


def decode_steps(llm: LLM, running: int, context: int, steps: int, patience: float = 0) -> Iterator[Step]:
    """Each decode step of ``running`` requests of about ``context`` tokens."""
    runner = llm.scheduler.executor.runner
    own, spent = runner.logits, 0.0

    def timed(*args: object) -> torch.Tensor:
        nonlocal spent
        runner.seconds = np.zeros((llm.config.threads, len(PARTS)))  # torch leaves it as it is
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
                    yield Step(seconds, spent, runner.seconds.mean(0))
    finally:
        runner.logits, runner.seconds = own, None


def beside_the_limits(options: Namespace) -> None:
    steps = 9 if options.quick else 40
    cases = [(1, 200), (32, 200)] if options.quick else [(1, 200), (8, 200), (32, 200), (1, LONG)]
    rows, results, profiles = [], [], {}
    for kind in options.kinds:
        with engine(kind, options.threads) as llm:
            a = torch.ones(2048, 2048, dtype=torch.int8 if kind == "int8" else getattr(torch, kind))
            c, token = llm.model_config, llm.memory.kv_bytes_per_token
            # each weight once: torch keeps a tied output layer twice, and reads one of them
            weights = c.int8_bytes if kind == "int8" else c.params * a.element_size()
            for running, context in cases:
                count = weights + running * context * token
                # of a product the weights' part, of attention scores and sums
                flops = 2 * running * c.params
                flops += 4 * running * context * c.num_layers * c.num_heads * c.head_dim
                taken, best = [], []
                for i, step in enumerate(decode_steps(llm, running, context, steps, options.patience)):
                    if not i or (i - 1) % EVERY:  # else only READ is in the caches, as it never is in life
                        taken.append(step)
                    if i % EVERY == 0:
                        best.append(max(read_seconds(count), multiply_seconds(flops, a)))
                times = [step.whole for step in taken]
                outside = median(step.whole - step.model for step in taken)
                profiles[f"{kind}, {running} x {context}"] = min(taken).parts
                # a quiet moment for both: the shortest of each
                share = min(best) / min(times)
                rows.append(
                    [
                        kind, running, context, 1e3 * min(times), 1e3 * median(times), 1e3 * max(times),
                        1e3 * min(best), f"{share:.0%}", 1e6 * outside, f"{outside / median(times):.1%}",
                    ]
                )  # fmt: skip
                results.append(
                    {
                        "numbers": kind, "running": running, "context": context, "min_ms": 1e3 * min(times),
                        "median_ms": 1e3 * median(times), "limit_ms": 1e3 * min(best), "share": share,
                        "host_us": 1e6 * outside, "host_share": outside / median(times),
                    }
                )  # fmt: skip
    print(f"{MODEL}, {llm.about()['kernels']}, {llm.config.threads} threads, {steps} steps a row, events recorded\n")
    head = ("numbers", "running", "context", "ms: min", "median", "max", "at best", "share", "host us", "of a step")
    print(table(head, rows))
    if options.profile:
        print("\nA thread's ms on average, in the shortest of these steps:\n")
        parts = [[name, *(f"{1e3 * p[i]:.2f}" for p in profiles.values())] for i, name in enumerate(PARTS)]
        print(table(("part", *profiles), parts))
    if options.json:
        print_json({"benchmark": "decode", "results": results})


def long_context(options: Namespace) -> None:
    """One request of 8,000 tokens, beside llama.cpp in bfloat16 where ``--peers-python`` has it."""
    steps, found = 16 if options.quick else 48, {}
    engines = {kind: engine(kind, options.threads) for kind in options.kinds if kind != "float32"}
    threads = engines["bfloat16"].config.threads
    peer = Peer(options.peers_python, "peer_llama.py", str(resolve_model(MODEL)), "bfloat16", "steps", threads=threads)

    def ours(kind: str) -> float:
        times = [step.whole for step in decode_steps(engines[kind], 1, LONG, steps, options.patience)]
        found.setdefault(kind, []).extend(times)
        return median(times)

    def theirs() -> float:
        times = [us / 1e6 for us in peer.generate([prompt(0, LONG - steps // 2)], [steps + 1])[0]]
        found.setdefault("llama.cpp, bfloat16", []).extend(times)
        return median(times)

    variants = {kind: lambda kind=kind: ours(kind) for kind in engines}
    if peer.problem:
        print(f"not run: llama.cpp ({peer.problem})")
    else:
        variants["llama.cpp, bfloat16"] = theirs
    times = interleaved(variants, 1 if options.quick else 2, options.patience)
    peer.close()
    print(f"{MODEL}, a decode step of one request of {LONG} tokens, {threads} threads, {steps} steps a round\n")
    rows = [[n, 1e3 * min(found[n]), 1e3 * median(found[n]), 1 / median(found[n])] for n in times]
    print(table(("numbers", "ms: min", "median", "tokens/s"), rows))
    if options.json:
        print_json({"benchmark": "decode", "long": {n: {"median_ms": 1e3 * median(t)} for n, t in found.items()}})


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--threads", type=int, help="default: what minisgl chooses")
    parser.add_argument("--profile", action="store_true", help="also print which parts of the model a step goes to")
    parser.add_argument("--long", action="store_true", help=f"instead: {LONG} tokens of context, beside llama.cpp")
    parser.add_argument(
        "--peers-python", default=sys.executable, metavar="PYTHON", help="an environment with llama_cpp; default: this"
    )
    options = parser.parse_args(namespace=Namespace(kinds=list(KINDS)))
    without_kernels(options)
    if options.long:
        long_context(options)
    else:
        beside_the_limits(options)


if __name__ == "__main__":
    main()
