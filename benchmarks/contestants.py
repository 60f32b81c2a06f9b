"""Who runs in the offline benchmark: minisgl in several modes, and transformers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from workload import Prompts, Workload

from minisgl import LLM, Recorder, SamplingParams
from minisgl.models.hub import resolve_model

MODEL = "smollm2-135m"
ONE, BATCH = "one at a time", "batch"
MINISGL, OVERLAP = "minisgl", "minisgl, overlap"
RECORDED, CACHED = "minisgl, every event recorded", "minisgl, preface in the cache"
TRANSFORMERS = "transformers"

Generate = Callable[[Prompts, int], Prompts]


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
    def new_tokens(self) -> int:
        """What it generates in a round."""
        return len(self.prompts(0)) * self.workload.new

    def prompts(self, round: int) -> Prompts:
        prompts = self.workload.prompts(round)
        return prompts[: self.workload.few] if self.mode == ONE else prompts

    def warm(self) -> None:
        self.generate(self.prompts(-1)[: 1 if self.mode == ONE else None], 2)

    def run(self) -> float:
        """One round; the seconds it took."""
        round = len(self.outputs)
        prompts = self.prompts(round)
        if self.before:
            self.before(round)
        started = time.perf_counter()
        outputs = self.generate(prompts, self.workload.new)
        seconds = time.perf_counter() - started
        self.outputs.append(outputs)
        return seconds


def minisgl_contestants(dtype: str, workload: Workload) -> list[Contestant]:
    """Without prefix cache, as transformers has none, with overlap as well; in float32 also with it, and recorded."""

    def engine(prefix_cache: str, overlap: bool = False) -> LLM:
        settings = {"num_pages": workload.pages, "prefix_cache": prefix_cache, "overlap": overlap}
        return LLM(MODEL, dtype=dtype, device="cpu", **settings)

    def batch(llm: LLM, prompts: Sequence[list[int]], new: int) -> Prompts:
        params = SamplingParams(max_tokens=new, ignore_eos=True)
        return [out.token_ids for out in llm.generate(prompts, params, progress=False)]

    def recorded(prompts: Prompts, new: int) -> Prompts:
        with Recorder(naive):
            return batch(naive, prompts, new)

    naive, ahead = engine("naive"), engine("naive", overlap=True)
    found = [
        Contestant(ONE, MINISGL, lambda prompts, new: [batch(naive, [p], new)[0] for p in prompts], workload),
        Contestant(BATCH, MINISGL, lambda prompts, new: batch(naive, prompts, new), workload),
        Contestant(BATCH, OVERLAP, lambda prompts, new: batch(ahead, prompts, new), workload),
    ]
    if dtype == "float32":
        radix = engine("radix")
        found += [
            Contestant(BATCH, RECORDED, recorded, workload),
            Contestant(
                BATCH,
                CACHED,
                lambda prompts, new: batch(radix, prompts, new),
                workload,
                before=lambda round: batch(radix, [workload.preface(round)], 1),
            ),
        ]
    return found


def transformers_contestants(dtype: str, workload: Workload) -> tuple[list[Contestant], Callable[..., float]]:
    """Its two modes, and a function for the gap between two tokens' logits."""
    from peer_transformers import Transformers

    peer = Transformers(resolve_model(MODEL), dtype)
    return [
        Contestant(ONE, TRANSFORMERS, peer.one_at_a_time, workload),
        Contestant(BATCH, TRANSFORMERS, peer.padded_batch, workload),
    ], peer.gap
