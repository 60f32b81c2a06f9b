"""Policies: who goes first, how much is promised, what a batch is made of. None of them changes a token.

Each is a small object that only looks. The scheduler asks; ``EngineConfig`` names the ready-made ones, and another
object with the same method can be put in its place (``scheduler.prefill.order = ...``). Eviction orders stand with the
prefix cache (``minisgl.kvcache.radix``), whose heap they key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from minisgl.core import Request

if TYPE_CHECKING:
    from minisgl.scheduler.prefill import PrefillManager


class Order(Protocol):
    """Which waiting request is tested next: its index in ``waiting``, which is in order of arrival."""

    def __call__(self, waiting: Sequence[Request], matched: Callable[[Request], int]) -> int: ...


WINDOW = 128  # waiting requests that an order looks at: comparing a long queue at every step would cost too much


def fcfs(waiting: Sequence[Request], matched: Callable[[Request], int]) -> int:
    """First come, first served."""
    return 0


def longest_prefix(waiting: Sequence[Request], matched: Callable[[Request], int]) -> int:
    """Who has most in the prefix cache, so that it is used before it is evicted (RadixAttention's order)."""
    return max(range(min(len(waiting), WINDOW)), key=lambda i: (matched(waiting[i]), -i))


def shortest(waiting: Sequence[Request], matched: Callable[[Request], int]) -> int:
    """Who has least to compute and to generate, at most: short jobs first keeps the mean wait low."""
    return min(range(min(len(waiting), WINDOW)), key=lambda i: (waiting[i].prefill_len + waiting[i].remain_len, i))


ORDERS: dict[str, Order] = {"fcfs": fcfs, "lpm": longest_prefix, "shortest": shortest}


def promised_share(admission: str | float) -> float:
    """How much of ``max_tokens`` admission promises: 1 never has to retract, 0 promises the prompt alone."""
    return {"conservative": 1.0, "optimistic": 0.0}[admission] if isinstance(admission, str) else float(admission)


def worst_case(request: Request, share: float) -> int:
    """Tokens that a request is promised room for: what it has, and a share of what it may still generate.

    Who was retracted once comes back under the full promise, so that nobody is thrown out again and again.
    """
    share = 1.0 if request.retractions else share
    return request.prefill_len + max(1, math.ceil(share * request.remain_len))


Decodable = Callable[[], list[Request]]


class Phase(Protocol):
    """What the next batch is made of. ``decodable()`` are those who decode, by uid; they go before the prompts."""

    def __call__(self, prefill: PrefillManager, decodable: Decodable) -> list[Request]: ...


def prefill_first(prefill: PrefillManager, decodable: Decodable) -> list[Request]:
    """New prompts before anything else: first tokens come early, running requests wait for them."""
    return prefill.schedule(prefill.budget) or decodable()


def decode_first(prefill: PrefillManager, decodable: Decodable) -> list[Request]:
    """Nobody is let in while anybody decodes: static batches, as engines had them before continuous batching (Orca)."""
    return decodable() or prefill.schedule(prefill.budget)


def mixed(prefill: PrefillManager, decodable: Decodable) -> list[Request]:
    """Everybody decodes, and what is left of the token budget goes to prompts, in chunks (Sarathi-Serve, vLLM)."""
    running = decodable()
    return running + prefill.schedule(prefill.budget - len(running), running)


PHASES: dict[str, Phase] = {"prefill-first": prefill_first, "decode-first": decode_first, "mixed": mixed}
