"""From logits to tokens: greedy, temperature, top-k, top-p; the same token whatever else is in the batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from minisgl.core import SamplingParams

_MASK = (1 << 64) - 1


def uniform(seed: int, position: int) -> float:
    """The random number in [0, 1) that belongs to (seed, position), and to nothing else.

    Counter-based: no generator carries state from one sample to the next, so a token depends neither on its batch nor
    on what was sampled before. The mixing function is splitmix64 (Steele, Lea & Flood 2014).
    """
    return (_mix(_mix(seed & _MASK) ^ position) >> 11) / (1 << 53)


def _mix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def sample(logits: Tensor, params: Sequence[SamplingParams], seeds: Sequence[int], positions: Sequence[int]) -> Tensor:
    """One token per row of ``logits`` ``[rows, vocab_size]``, int64 ``[rows]`` on the same device.

    Row i draws with ``uniform(seeds[i], positions[i])``, position being the place the token will take in its request.
    Greedy rows take the argmax of the untouched logits.
    """
    tokens = logits.argmax(dim=-1)
    drawn = [i for i, p in enumerate(params) if not p.greedy]
    if drawn:
        rows = torch.tensor(drawn, device=logits.device)
        numbers = [uniform(seeds[i], positions[i]) for i in drawn]
        tokens[rows] = _draw(logits[rows], [params[i] for i in drawn], numbers)
    return tokens


def _draw(logits: Tensor, params: Sequence[SamplingParams], numbers: Sequence[float]) -> Tensor:
    """Inverse of the cumulative distribution over the tokens in order of probability, in float64."""

    def column(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=logits.device).unsqueeze(1)

    ordered, token_ids = logits.double().sort(dim=-1, descending=True, stable=True)
    vocab_size = logits.shape[-1]
    ordered = ordered / column([p.temperature for p in params])
    rank = torch.arange(vocab_size, device=logits.device)
    ordered = ordered.masked_fill(rank >= column([p.top_k if p.top_k > 0 else vocab_size for p in params]), -torch.inf)
    probabilities = ordered.softmax(dim=-1)
    # a token is in the nucleus when those before it have not reached top_p yet; so the first always is
    before = probabilities.cumsum(dim=-1) - probabilities
    probabilities = probabilities.masked_fill(before >= column([p.top_p for p in params]), 0.0)
    cumulative = probabilities.cumsum(dim=-1)
    chosen = torch.searchsorted(cumulative, column(list(numbers)) * cumulative[:, -1:], right=True)
    return token_ids.gather(1, chosen).squeeze(1)
