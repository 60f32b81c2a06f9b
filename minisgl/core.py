"""The words everything else speaks: SamplingParams, Request, Batch. No torch, no bookkeeping."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard

import msgspec
import numpy as np

from minisgl.errors import SamplingParamsError


def pages_for(tokens: int, page_size: int) -> int:
    """Pages that ``tokens`` tokens touch: ``ceil(tokens / page_size)``."""
    return -(-tokens // page_size)


def slots_of(pages: Sequence[int] | np.ndarray, page_size: int) -> np.ndarray:
    """The slots of whole pages, one after the other: int32 ``[len(pages) * page_size]``."""
    starts = np.asarray(pages, dtype=np.int32) * page_size
    return (starts[:, None] + np.arange(page_size, dtype=np.int32)).ravel()


def nobody_writes(tokens: Sequence[int] | np.ndarray) -> TypeGuard[np.ndarray]:
    """Is it int32 and read-only, and whatever it is a view of as well? Such a prompt can be kept without a copy."""
    if not isinstance(tokens, np.ndarray) or tokens.dtype != np.int32 or tokens.flags.writeable:
        return False
    base = tokens.base
    return base is None or (isinstance(base, np.ndarray) and not base.flags.writeable)


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How a request's tokens are chosen. Never changed by the engine, so one object may serve many requests.

    Args:
        max_tokens: new tokens at most; clamped per request to ``max_seq_len - prompt length``.
        temperature: 0 is greedy (argmax, whatever the other fields say).
        top_k: sample among the k most probable tokens; -1 is all of them, 1 is greedy.
        top_p: sample among the smallest set whose probabilities reach p (nucleus sampling, Holtzman et al. 2019).
        seed: the random number of a sample depends only on (seed, position); None takes one from the
            engine's seed and the request's uid.
        ignore_eos: do not stop at the model's own end tokens.
        stop_token_ids: further tokens to stop at; kept in the output, like the model's own.
    """

    max_tokens: int = 16
    temperature: float = 0.0
    top_k: int = -1
    top_p: float = 1.0
    seed: int | None = None
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        given: Any = self.stop_token_ids
        if isinstance(given, (list, set, frozenset, range)):  # what people write; sorted, because sets have no order
            msgspec.structs.force_setattr(self, "stop_token_ids", tuple(sorted(given)))

    @property
    def greedy(self) -> bool:
        return self.temperature == 0 or self.top_k == 1

    def validate(self) -> None:
        """Raise :class:`SamplingParamsError` naming the first field that is out of range."""
        for name, ok, rule in (
            ("max_tokens", _is_int(self.max_tokens) and self.max_tokens >= 1, "must be an integer of at least 1"),
            ("temperature", _is_number(self.temperature) and self.temperature >= 0, "must be a finite number >= 0"),
            ("top_k", _is_int(self.top_k) and (self.top_k == -1 or self.top_k >= 1), "must be -1 (all) or at least 1"),
            ("top_p", _is_number(self.top_p) and 0 < self.top_p <= 1, "must be above 0 and at most 1"),
            ("seed", self.seed is None or _is_int(self.seed), "must be an integer or None"),
            ("stop_token_ids", _are_ints(self.stop_token_ids), "must be a tuple or list of token ids (integers)"),
        ):
            if not ok:
                raise SamplingParamsError(f"{name}={getattr(self, name)!r}: {rule}")


def _is_int(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool)


def _are_ints(x: Any) -> bool:
    return isinstance(x, tuple) and all(map(_is_int, x))


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x)


@dataclass(slots=True, eq=False)
class Request:
    """One prompt on its way through the engine. Only the scheduler changes it.

    Three lengths are its state, in tokens: KV is valid up to ``cached_len``; the device knows the tokens up to
    ``device_len``; the host knows ``num_tokens``.  ``cached_len <= device_len`` always.
    """

    uid: int
    prompt: np.ndarray  # int32 [prompt tokens], never changed
    params: SamplingParams
    max_tokens: int  # params.max_tokens clamped to what max_seq_len leaves
    seed: int
    stop_tokens: frozenset[int]
    client_id: str | None = None
    submitted: float = 0.0  # executor's clock, seconds since start
    output_ids: list[int] = field(default_factory=list)  # what was generated, as the host knows it

    status: str = "waiting"  # waiting | prefill | running | finished
    finish_reason: str | None = None  # stop | length | abort | error
    error: Exception | None = None

    end: int = field(init=False)  # tokens it has when it ends by length
    prefill_len: int = 0  # tokens to compute before it samples: the prompt; after a retraction, its output as well
    worst: int = 0  # tokens it is promised room for
    admitted: int = 0  # its place in the order of admissions
    retractions: int = 0  # how often its pages were taken back
    passed: int = 0  # later arrivals admitted before it while it was the first to wait

    cached_len: int = 0
    device_len: int = 0
    done_len: int = 0  # KV computed for certain: where the last completed batch that named it ended
    matched: int = 0  # tokens found in the prefix cache at its last admission
    cached_tokens: int = 0  # the same, at its first: what it had computed itself is no gain
    row: int = -1
    generation: int = 0
    handle: Any = None  # the prefix cache's handle this request keeps locked
    pages: list[int] = field(default_factory=list)  # its row of the page table, as the host keeps it
    reserved: int = 0  # pages promised to it and not yet taken

    def __post_init__(self) -> None:
        self.prefill_len = self.prompt_len
        self.end = self.prompt_len + self.max_tokens

    @property
    def prompt_len(self) -> int:
        return len(self.prompt)

    @property
    def num_tokens(self) -> int:
        """Tokens that the host knows: the prompt's, and those generated."""
        return len(self.prompt) + len(self.output_ids)

    @property
    def token_ids(self) -> list[int]:
        """The same tokens, as a list."""
        return self.prompt.tolist() + self.output_ids

    def tokens(self, n: int) -> np.ndarray:
        """The first ``n`` of them, int32; a view of the prompt if they lie in it."""
        if n <= len(self.prompt):
            return self.prompt[:n]
        return np.concatenate((self.prompt, np.array(self.output_ids[: n - len(self.prompt)], dtype=np.int32)))

    @property
    def extend_len(self) -> int:
        """Tokens the next forward computes."""
        return self.device_len - self.cached_len

    @property
    def remain_len(self) -> int:
        """Tokens it may still generate, counted by what the host has received."""
        return self.max_tokens - len(self.output_ids)

    def retract(self) -> None:
        """Back to the queue: what was computed is lost, what was generated is kept and will be computed again."""
        self.status, self.retractions = "waiting", self.retractions + 1
        self.prefill_len = self.num_tokens
        self.cached_len = self.device_len = self.done_len = self.matched = 0
        self.row, self.pages = -1, []

    @property
    def finished(self) -> bool:
        return self.status == "finished"

    def __repr__(self) -> str:
        return (
            f"Request(uid={self.uid}, {self.finish_reason or self.status}, prompt={self.prompt_len}, "
            f"output={len(self.output_ids)}/{self.max_tokens}, "
            f"cached={self.cached_len}, device={self.device_len})"
        )


class PageWrites(NamedTuple):
    """What rows of the page table are to become: ``rows[i]`` from its page ``firsts[i]`` on gets the next ``counts[i]``
    of ``pages``."""

    rows: Sequence[int]
    firsts: Sequence[int]
    counts: Sequence[int]
    pages: Sequence[int]


TokenWrite = tuple[int, int, np.ndarray]  # row, first position, the tokens from there on


@dataclass(slots=True)
class Batch:
    """What one forward computes: plain host data, complete in itself, so it stays true while the ledgers move on.

    Column i speaks of request ``uids[i]``: its tokens ``[starts[i], ends[i])`` are computed, attending to the KV of
    ``[0, ends[i])`` through row ``rows[i]`` of the device's page table.  ``samples[i]`` says whether a token is drawn
    for position ``ends[i]`` (not for a chunk that stops short of its prompt's end).

    ``page_writes`` are for the device's page table, ``token_writes`` for its token pool, ``poison`` are pages whose KV
    becomes NaN. The executor applies them, in order, before this forward.
    """

    number: int
    phase: str  # prefill | decode | mixed
    uids: tuple[int, ...]
    rows: tuple[int, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    samples: tuple[bool, ...]
    params: tuple[SamplingParams, ...]
    seeds: tuple[int, ...]
    page_writes: list[PageWrites] = field(default_factory=list)
    token_writes: list[TokenWrite] = field(default_factory=list)
    poison: list[int] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        return len(self.uids) if self.phase == "decode" else sum(self.ends) - sum(self.starts)


@dataclass(slots=True)
class BatchResult:
    """What a forward gave back: ``tokens[i]`` for ``uids[i]`` (-1 where nothing was sampled); times in seconds."""

    number: int
    tokens: list[int]
    started: float
    finished: float
