"""Arrival: one request on its way, its prompt spelled out only when it arrives."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from minisgl.core import SamplingParams, nobody_writes
from minisgl.sim.executor import VOCAB

# Token ids of texts that nobody knows. Drawn tokens stay below them, so no two texts are the same by chance.
END = 2 * VOCAB  # stops a request whose output ends before its max_tokens
FIRST_ID = END + 1


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """One request on its way.

    Args:
        at: when it is submitted, seconds since start.
        prompt: token ids, int32 ``[runs]``; kept as a read-only copy, unless nobody can write to it anyway.
        params: as for the engine; ``max_tokens`` and ``ignore_eos`` matter here.
        output: the tokens it generates; where a run goes on beyond them they are drawn, and never stop it.
        abort_at: when the user gives up, seconds since start.
        client_id: the caller's own name for it.
        repeat: how many tokens each entry of ``prompt`` stands for: one number, or int ``[runs]``. Traces that tell
            lengths or blocks instead of tokens are kept in this form.
        length: prompt tokens, if the last run is cut short.
    """

    at: float
    prompt: np.ndarray
    params: SamplingParams
    output: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))
    abort_at: float | None = None
    client_id: str | None = None
    repeat: int | np.ndarray = 1
    length: int | None = None

    def __post_init__(self) -> None:
        if not nobody_writes(self.prompt):
            own = np.array(self.prompt, dtype=np.int32)
            own.flags.writeable = False
            object.__setattr__(self, "prompt", own)

    def tokens(self) -> np.ndarray:
        """The prompt, int32 ``[tokens]``; read-only, so that whoever keeps it need not copy it."""
        if isinstance(self.repeat, int):
            if self.repeat == 1:
                return self.prompt[: self.length]
            if len(self.prompt) == 1:  # one token again and again, which takes no memory
                return np.ndarray(self.prompt_len, np.int32, self.prompt, strides=(0,))
        whole = self.prompt.repeat(self.repeat)
        whole.flags.writeable = False
        return whole[: self.length]

    @property
    def prompt_len(self) -> int:
        if self.length is not None:
            return self.length
        return len(self.prompt) * self.repeat if isinstance(self.repeat, int) else int(self.repeat.sum())


class LengthOnly:
    """Parameters of requests of which a trace tells only how many tokens they generated; one object per length."""

    def __init__(self) -> None:
        self._made: dict[int, SamplingParams] = {}

    def __call__(self, max_tokens: int) -> SamplingParams:
        params = self._made.get(max_tokens)
        if params is None:
            params = self._made[max_tokens] = SamplingParams(max_tokens=max_tokens)
        return params
