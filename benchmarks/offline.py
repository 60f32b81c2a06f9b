"""Tokens per second of LLM.generate beside transformers' generate: same prompts, weights, threads, tokens.

Greedy, with a fixed number of new tokens. Every round has prompts of its own, so that no cache remembers the last one.
In float32 the outputs must be equal token for token, near-ties aside; otherwise no speed is reported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from statistics import median

import torch
from contestants import BATCH, MINISGL, MODEL, TRANSFORMERS, Contestant, minisgl_contestants, transformers_contestants
from measure import arguments, interleaved, print_json, ratio, spread, table
from transformers import AutoTokenizer
from workload import Workload

from minisgl.models.hub import resolve_model

# By import name. Only transformers, which minisgl needs anyway, has a runner here so far.
PEERS = ("transformers", "vllm", "llama_cpp", "sglang")
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


def race(
    dtype: str, workload: Workload, rounds: int, peers: bool, patience: float
) -> tuple[list[list[object]], dict[str, float]]:
    """Everyone in one dtype, in turns: rows of the table, and how many times as fast as transformers each is."""
    print(f"{dtype}: loading", file=sys.stderr)
    ours = minisgl_contestants(dtype, workload)
    theirs, gap = transformers_contestants(dtype, workload) if peers else ([], None)
    everyone = [*ours, *theirs]
    for contestant in everyone:
        contestant.warm()
    print(f"{dtype}: {rounds} rounds", file=sys.stderr)
    times = interleaved({c.name: c.run for c in everyone}, rounds, patience)

    peer_of = {c.mode: c for c in theirs}
    if gap is not None:
        agreement = Agreement()
        for contestant in ours:
            agreement.add(contestant, peer_of[contestant.mode], gap)
        print(f"\n{dtype}: {agreement}\n")
        if dtype == "float32" and max(agreement.gaps, default=0) > NEAR_TIE:
            sys.exit("float32: that is more than a near-tie, so one of the two is wrong: no speed is reported")
    ratios = {c.name: ratio(times, peer_of[c.mode].name, c.name) for c in ours if c.mode in peer_of}
    return [
        [
            c.mode,
            c.engine,
            c.new_tokens / median(times[c.name]),
            spread([1 / t for t in times[c.name]]),
            ratios.get(c.name, 1.0 if c.engine == TRANSFORMERS else "-"),
        ]
        for c in sorted(everyone, key=lambda c: c.mode, reverse=True)
    ], ratios


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--threads", type=int, help="for every engine; default: what torch chooses")
    parser.add_argument("--no-peers", action="store_true", help="minisgl alone")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    rounds, requests, new, few = (2, 6, 8, 1) if options.quick else (5, 16, 48, 3)
    peers = not options.no_peers

    workload = Workload(AutoTokenizer.from_pretrained(resolve_model(MODEL)).encode, requests, new, few)
    lengths = [len(prompt) for prompt in workload.prompts(0)]
    print(
        f"{MODEL}, {torch.get_num_threads()} threads, {rounds} rounds in turns. A batch is {requests} prompts of "
        f"{min(lengths)} to {max(lengths)} tokens,\nhalf of them behind one preface of {len(workload.preface(0))}; "
        f"one at a time are the first {few}. {new} new tokens a prompt."
    )
    for name in PEERS[1:]:
        print(f"not run: {name} ({'installed, but no runner here' if find_spec(name) else 'not installed'})")
    ratios = {}
    for dtype in ("float32", "bfloat16"):
        rows, ratios[dtype] = race(dtype, workload, rounds, peers, options.patience)
        print(table(("prompts", "engine", "new tokens/s", "spread", "x transformers"), rows) + "\n", flush=True)
    if options.json:
        headline = ratios["float32"].get(f"{BATCH}: {MINISGL}")
        print_json({"benchmark": "offline", "rounds": rounds, "ratio_vs_transformers": headline, "ratios": ratios})


if __name__ == "__main__":
    main()
