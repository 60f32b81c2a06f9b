"""Workloads out of nothing: arrivals, lengths and shared prefixes drawn from a seed.

A conversation is a chain of texts, each with an id of its own: what everybody shares, then by turns what the user adds
and what the model answers. A turn's prompt is the chain so far, so prefixes share exactly what they have in common.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minisgl.core import SamplingParams
from minisgl.errors import WorkloadError
from minisgl.sim.arrival import END, FIRST_ID, Arrival, LengthOnly
from minisgl.sim.formats import in_order

# squared coefficient of variation of the gaps between arrivals, gamma distributed: 1 is a Poisson process
ARRIVALS = {"poisson": 1.0, "bursty": 16.0, "together": None}


@dataclass(frozen=True, slots=True)
class Lognormal:
    """Lengths as prompts and answers have them: most are short, some very long.

    Args:
        median: half are longer.
        sigma: standard deviation of the logarithm; 1 puts 1 in 6 above 2.7 medians.
        most: longer ones are cut to this.
    """

    median: float
    sigma: float = 1.0
    most: int | None = None

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        drawn = np.rint(self.median * np.exp(self.sigma * rng.standard_normal(n)))
        return np.clip(drawn, 1, self.most).astype(np.int64)


Lengths = int | tuple[int, int] | Lognormal  # always so many, from .. to (both included), or a lognormal
Tree = int | Sequence[tuple[int, int]]  # tokens that all share, or for each level (branches, tokens)


def conversations(
    rng: np.random.Generator,
    n: int,
    *,
    rate: float,
    arrivals: str,
    turns: Lengths,
    shared: Tree,
    skew: float,
    first: Lengths,
    further: Lengths,
    new: Lengths,
    max_tokens: int | None,
    pace: float,
    think: float,
) -> tuple[Arrival, ...]:
    """``n`` conversations of ``turns`` turns each. See ``Workload.generate`` and ``Workload.chats``."""
    _at_least("requests or sessions", n, 1)
    for name, value in (("skew", skew), ("pace", pace), ("think", think)):
        _at_least(name, value, 0)
    starts = _starts(rng, n, rate, arrivals)
    lasts = np.cumsum(_draw("turns", turns, rng, n))
    turn_count = int(lasts[-1]) if n else 0
    opening = np.zeros(turn_count, bool)
    opening[np.concatenate(([0], lasts[:-1]))] = True
    added = np.where(
        opening,
        _draw("prompt", first, rng, turn_count),
        _draw("further prompts", further, rng, turn_count),
    ).tolist()
    answers = _draw("new", new, rng, turn_count)
    if max_tokens is not None:
        _at_least("max_tokens", max_tokens, 1)
        answers = np.minimum(answers, max_tokens)
    # the time until a conversation's next turn: the answer is read as it comes, then the user thinks
    pauses = (answers * pace + think * rng.standard_exponential(turn_count)).tolist()
    answers = answers.tolist()
    paths = _paths(shared, skew, rng, n)
    params = _Params(max_tokens)
    made, next_id, turn = [], paths.next_id, 0
    for i, (at, last) in enumerate(zip(starts.tolist(), lasts.tolist(), strict=True)):
        ids, counts = list(paths.ids[i]), list(paths.counts)
        while turn < last:
            ids.append(next_id)
            counts.append(added[turn])
            answer, answer_ids, answer_counts = params.answer(next_id + 1, answers[turn])
            made.append(
                Arrival(at, np.array(ids, np.int32), params(answers[turn]), answer, repeat=np.array(counts, np.int64))
            )
            ids += answer_ids
            counts += answer_counts
            next_id += 2
            at += pauses[turn]
            turn += 1
    return in_order(made)


class _Params:
    """Parameters and output of requests that generate a known number of tokens, however many they ask for."""

    def __init__(self, max_tokens: int | None) -> None:
        self.max_tokens = max_tokens
        self.exact = LengthOnly()
        stop = (END,)
        self.stopped = SamplingParams(max_tokens=max_tokens, stop_token_ids=stop) if max_tokens else None

    def __call__(self, new: int) -> SamplingParams:
        return self.exact(new) if self.stopped is None or new == self.max_tokens else self.stopped

    def answer(self, token: int, new: int) -> tuple[np.ndarray, list[int], list[int]]:
        """The output, and the same as runs."""
        if self.stopped is None or new == self.max_tokens:
            return np.broadcast_to(np.int32(token), new), [token], [new]  # one number in memory, whatever its length
        output = np.full(new, token, np.int32)
        output[-1] = END
        return (output, [token, END], [new - 1, 1]) if new > 1 else (output, [END], [1])


@dataclass(frozen=True, slots=True)
class _Paths:
    ids: list[list[int]]  # of each conversation, the shared texts it begins with
    counts: list[int]  # their lengths, the same for all
    next_id: int


def _paths(shared: Tree, skew: float, rng: np.random.Generator, n: int) -> _Paths:
    """For each conversation a way from the root of the tree of shared texts to a leaf."""
    levels: list[tuple[int, int]] = [(1, shared)] if isinstance(shared, int) else list(shared)
    for branches, tokens in levels:
        _at_least("branches of a shared prefix", branches, 1)
        _at_least("tokens of a shared prefix", tokens, 0)
    levels = [level for level in levels if level[1]]
    node, base = np.zeros(n, np.int64), FIRST_ID
    columns: list[list[int]] = []
    width = 1
    for branches, _ in levels:
        popularity = np.arange(1, branches + 1) ** -float(skew)
        node = node * branches + rng.choice(branches, n, p=popularity / popularity.sum())
        columns.append((node + base).tolist())
        width *= branches
        base += width
    ids = [list(path) for path in zip(*columns, strict=True)] if columns else [[] for _ in range(n)]
    return _Paths(ids, [tokens for _, tokens in levels], base)


def _starts(rng: np.random.Generator, n: int, rate: float, arrivals: str) -> np.ndarray:
    if arrivals not in ARRIVALS:
        raise WorkloadError(f"arrivals={arrivals!r}: must be one of {', '.join(map(repr, ARRIVALS))}")
    variation = ARRIVALS[arrivals]
    if variation is None:
        return np.zeros(n)
    if not 0 < rate < math.inf:
        raise WorkloadError(f"rate={rate!r}: must be a finite number of requests per second above 0")
    gaps = rng.gamma(1 / variation, variation / rate, n)
    return np.cumsum(gaps) - gaps[0]


def _draw(name: str, lengths: Lengths, rng: np.random.Generator, n: int) -> np.ndarray:
    if isinstance(lengths, Lognormal):
        _at_least(f"median of {name}", lengths.median, 1)
        _at_least(f"sigma of {name}", lengths.sigma, 0)
        return lengths.draw(rng, n)
    low, high = (lengths, lengths) if isinstance(lengths, int) else lengths
    _at_least(name, low, 1)
    _at_least(f"the upper end of {name}", high, low)
    return rng.integers(low, high + 1, n)


def _at_least(name: str, value: Any, least: float) -> None:
    if not least <= value < math.inf:
        raise WorkloadError(f"{name}={value!r}: must be a finite number of at least {least}")
