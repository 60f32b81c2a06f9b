"""Workloads: who asks for what, and when."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from minisgl.core import SamplingParams
from minisgl.events import types as ev
from minisgl.events.trace import Trace
from minisgl.sim import formats
from minisgl.sim.arrival import Arrival as Arrival
from minisgl.sim.generate import Lengths, Lognormal, Tree, conversations


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Arrivals in order of time; ``stop_tokens`` are the model's own ends, for those that do not ignore them."""

    arrivals: tuple[Arrival, ...]
    title: str = ""
    stop_tokens: tuple[int, ...] = ()

    @classmethod
    def from_trace(cls, trace: Trace) -> Workload:
        """The requests of a recorded run, with the tokens they generated; time 0 is the first arrival.

        What was submitted while the engine had nothing to do, and first seen by the same step, arrives together: in
        modelled time the engine would begin with the first one, but the real one was not stepped before the last.
        """
        outputs = recorded_outputs(trace)
        aborts = {e.uid: e.submitted for e in reversed(trace.of(ev.AbortRequested))}
        arrived = trace.of(ev.RequestArrived)
        together = _together(trace)
        at = {e.uid: together.get(e.step, e.submitted) for e in arrived}
        start = min(at.values(), default=0.0)
        return cls(
            tuple(
                Arrival(
                    at=at[e.uid] - start,
                    prompt=np.array(e.prompt, dtype=np.int32),
                    params=e.params,
                    output=outputs[e.uid],
                    abort_at=aborts[e.uid] - start if e.uid in aborts else None,
                    client_id=e.client_id,
                )
                for e in arrived
            ),
            trace.title,
            tuple(trace.about.get("stop_tokens", ())),
        )

    # -- from files --------------------------------------------------------------------------------------------------

    @classmethod
    def azure(cls, path: str | Path) -> Workload:
        """An Azure LLM inference trace of 2023: prompt and output lengths, prompts that share nothing.

        CSV with the columns TIMESTAMP, ContextTokens, GeneratedTokens; from github.com/Azure/AzurePublicDataset
        (CC-BY 4.0; Patel et al., "Splitwise", ISCA 2024). Time 0 is the first request.

        Raises:
            WorkloadError: the file, or a line of it, is not like that.
        """
        return cls(formats.read_azure(path), Path(path).stem)

    @classmethod
    def mooncake(cls, path: str | Path, block: int = 512) -> Workload:
        """A Mooncake trace: lengths, and a hash of every ``block`` prompt tokens and all that stand before them.

        JSON lines with timestamp (ms), input_length, output_length, hash_ids; from github.com/kvcache-ai/Mooncake
        (Apache-2.0; Qin et al., "Mooncake", FAST 2025). Each hash becomes a token that fills its block, so prompts
        share exactly the blocks whose hashes are equal. Time 0 is the first request.

        Raises:
            WorkloadError: the file, or a line of it, is not like that.
        """
        return cls(formats.read_mooncake(path, block), Path(path).stem)

    @classmethod
    def jsonl(cls, path: str | Path) -> Workload:
        """JSON lines, one request each; what ``save`` writes and what is easily written by hand.

        ``{"at": 0.5, "prompt": 374, "max_tokens": 100, "output": 44}`` is a prompt of 374 tokens that nobody else has,
        and it ends after 44 of at most 100 new ones. The fields:

        - ``at``: seconds since start.
        - ``prompt``: a number of tokens, or a list whose items are token ids or ``[what, n]``: n times the id ``what``;
          the first n tokens of a text called ``what``, the same in every line of this file; or, if ``what`` is null, n
          tokens that nobody else has. ``[["system", 512], [null, 40]]`` is a shared prefix and an own question.
        - ``max_tokens``: new tokens at most; as many as ``output`` has if left out.
        - ``output``: the same as ``prompt``, for what it generates. A number below ``max_tokens`` ends in a token that
          stops it. Left out: it generates ``max_tokens``.
        - ``abort_at``: seconds since start. ``id``: the caller's name for it. ``params``: other SamplingParams.

        Raises:
            WorkloadError: the file, or a line of it, is not like that.
        """
        return cls(formats.read_jsonl(path), Path(path).stem)

    def save(self, path: str | Path) -> None:
        """Write it as JSON lines that ``jsonl`` reads. Raises WorkloadError if it cannot be written there."""
        formats.write_jsonl(path, self.arrivals)

    # -- out of nothing ----------------------------------------------------------------------------------------------

    @classmethod
    def generate(
        cls,
        requests: int = 100,
        rate: float = 10.0,
        *,
        arrivals: str = "poisson",
        prompt: Lengths = Lognormal(256, 1.0, 4096),
        new: Lengths = Lognormal(128, 0.7, 1024),
        shared: Tree = 0,
        skew: float = 0.0,
        max_tokens: int | None = None,
        turns: Lengths = 1,
        further: Lengths | None = None,
        pace: float = 0.03,
        think: float = 0.0,
        seed: int = 0,
    ) -> Workload:
        """Requests that know nothing of each other, but for a prefix that they may share; or conversations of several.

        Args:
            requests: how many; of conversations, how many begin.
            rate: per second, on average.
            arrivals: "poisson"; "bursty" (gamma distributed gaps that vary 4 times as much as they last, as real load
                has them: Wang et al., "BurstGPT", 2024); "together" (all at 0).
            prompt, new: a request's own prompt tokens, and the tokens it generates: a number, ``(from, to)``, or a
                ``Lognormal``.
            shared: tokens that all prompts begin with; or a tree: ``[(4, 256), (8, 64)]`` is 4 beginnings of 256
                tokens, each with 8 continuations of 64, and each request takes one way through.
            skew: how uneven: the k-th branch is taken ``k ** -skew`` times as often as the first (Zipf).
            max_tokens: what every request asks for, though it ends earlier; None: what it generates.
            turns: requests of a conversation; each prompt is everything so far, answers included.
            further: own tokens of each prompt after a conversation's first; None: as in ``prompt``.
            pace, think: a turn comes when the last answer has been read, ``pace`` seconds per token, and thought about,
                ``think`` seconds on average (exponential). So times are known beforehand; where the simulated engine
                is slower than ``pace``, a turn may come too early.
            seed: the same seed gives the same workload.

        Raises:
            WorkloadError: a number that makes no sense.
        """
        made = conversations(
            np.random.default_rng(seed),
            requests,
            rate=rate,
            arrivals=arrivals,
            turns=turns,
            shared=shared,
            skew=skew,
            first=prompt,
            further=prompt if further is None else further,
            new=new,
            max_tokens=max_tokens,
            pace=pace,
            think=think,
        )
        return cls(made, f"{arrivals} requests")

    @classmethod
    def chats(
        cls,
        sessions: int = 20,
        rate: float = 1.0,
        *,
        turns: Lengths = (2, 8),
        prompt: Lengths = Lognormal(60, 0.8, 1000),
        new: Lengths = Lognormal(150, 0.6, 1000),
        shared: Tree = 128,
        think: float = 10.0,
        **others: Any,
    ) -> Workload:
        """People who talk in turns, behind a system prompt (``shared``); ``sessions`` begin at ``rate`` per second.

        All arguments, ``others`` too, are those of ``generate``.
        """
        made = cls.generate(sessions, rate, turns=turns, prompt=prompt, new=new, shared=shared, think=think, **others)
        return replace(made, title="chats")

    @classmethod
    def agents(
        cls,
        sessions: int = 10,
        rate: float = 0.5,
        *,
        steps: Lengths = (4, 16),
        task: Lengths = Lognormal(200, 0.5, 2000),
        result: Lengths = Lognormal(300, 1.0, 4000),
        new: Lengths = Lognormal(80, 0.6, 800),
        shared: Tree = 3000,
        tool: float = 1.0,
        **others: Any,
    ) -> Workload:
        """Agents in a loop: a long system prompt with its tools, a ``task``, then call by call a tool's ``result``.

        As in ``chats`` each prompt is everything so far; a call takes ``tool`` seconds on average. The other arguments
        are those of ``generate``.
        """
        made = cls.generate(
            sessions, rate, turns=steps, prompt=task, further=result, new=new, shared=shared, think=tool, **others
        )
        return replace(made, title="agents")

    def change(self, rate: float = 1.0, max_tokens: float = 1.0, ignore_eos: bool | None = None) -> Workload:
        """The same requests ``rate`` times as fast, with ``max_tokens`` times as many tokens, told to ignore ends."""

        def changed(a: Arrival) -> Arrival:
            params: dict[str, Any] = {"max_tokens": max(1, round(a.params.max_tokens * max_tokens))}
            if ignore_eos is not None:
                params["ignore_eos"] = ignore_eos
                params["stop_token_ids"] = () if ignore_eos else a.params.stop_token_ids
            return replace(
                a,
                at=a.at / rate,
                abort_at=None if a.abort_at is None else a.abort_at / rate,
                params=_replace(a.params, **params),
            )

        return replace(self, arrivals=tuple(map(changed, self.arrivals)))

    @property
    def longest(self) -> int:
        """Tokens of the longest request, prompt and all it may generate."""
        return max((a.prompt_len + a.params.max_tokens for a in self.arrivals), default=2)

    def __len__(self) -> int:
        return len(self.arrivals)

    def __repr__(self) -> str:
        if not self.arrivals:
            return "Workload(empty)"
        prompt, new = sum(a.prompt_len for a in self.arrivals), sum(a.params.max_tokens for a in self.arrivals)
        return (
            f"Workload({self.title + ': ' if self.title else ''}{len(self)} requests in {self.arrivals[-1].at:.1f} s, "
            f"{prompt} prompt tokens, {new} new at most)"
        )


def _together(trace: Trace) -> dict[int, float]:
    """Of each step that woke an idle engine: when the last of the requests that it saw was submitted."""
    idle = all(r["status"] == "finished" for r in trace.keyframe["requests"].values())
    found: dict[int, float] = {}
    for e in trace.of(ev.RequestArrived, ev.StepFinished):
        if isinstance(e, ev.StepFinished):
            idle = not (e.running or e.waiting)
        elif idle:
            found[e.step] = max(e.submitted, found.get(e.step, e.submitted))
    return found


def recorded_outputs(trace: Trace) -> dict[int, np.ndarray]:
    """What each request of a record generated, int32, dropped samples included: they are what came next.

    -1 stands where a forward broke and a later sample is known all the same.
    """
    outputs = {uid: list(r["output"]) for uid, r in trace.keyframe["requests"].items()}
    lengths = {uid: len(r["prompt"]) for uid, r in trace.keyframe["requests"].items()}
    ends: dict[int, dict[int, int]] = {}
    for e in trace.of(ev.RequestArrived, ev.BatchScheduled, ev.TokensSampled):
        if isinstance(e, ev.RequestArrived):
            outputs[e.uid], lengths[e.uid] = [], len(e.prompt)
        elif isinstance(e, ev.BatchScheduled):
            ends[e.batch] = dict(zip(e.uids, e.ends, strict=True))
        elif e.batch in ends:
            positions = ends.pop(e.batch)
            for uid, token in zip(e.uids, e.tokens, strict=True):
                output, place = outputs[uid], positions[uid] - lengths[uid]
                output += [-1] * (place - len(output))
                output[place:] = [token]
    return {uid: np.array(output, dtype=np.int32) for uid, output in outputs.items()}


def _replace(params: SamplingParams, **changes: Any) -> SamplingParams:
    return msgspec.structs.replace(params, **changes)
