"""Workloads: who asks for what, and when."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from minisgl.core import SamplingParams
from minisgl.events import types as ev
from minisgl.events.trace import Trace


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """One request on its way.

    Args:
        at: when it is submitted, seconds since start.
        prompt: token ids, int32 ``[blocks]``.
        params: as for the engine; ``max_tokens`` and ``ignore_eos`` matter here.
        output: the tokens it generates; where a run goes on beyond them they are drawn, and never stop it.
        abort_at: when the user gives up, seconds since start.
        client_id: the caller's own name for it.
        repeat: each entry of ``prompt`` stands for so many tokens (traces that tell blocks, not tokens).
        length: prompt tokens, if the last block is not full.
    """

    at: float
    prompt: np.ndarray
    params: SamplingParams
    output: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))
    abort_at: float | None = None
    client_id: str | None = None
    repeat: int = 1
    length: int | None = None

    def tokens(self) -> np.ndarray:
        """The prompt, int32 ``[tokens]``."""
        whole = self.prompt if self.repeat == 1 else np.repeat(self.prompt, self.repeat)
        return whole[: self.length]

    @property
    def prompt_len(self) -> int:
        return len(self.prompt) * self.repeat if self.length is None else self.length


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
