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
    # 52 bits: the product with any float64 is then less than that float64, so a draw never ends past the last token
    return (_mix(_mix(seed & _MASK) ^ position) >> 12) / (1 << 52)


def _mix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def sample(logits: Tensor, params: Sequence[SamplingParams], seeds: Sequence[int], positions: Sequence[int]) -> Tensor:
    """One token per row of ``logits`` ``[rows, vocab_size]``, int64 ``[rows]`` on the same device.

    Row i draws with ``uniform(seeds[i], positions[i])``, position being the place the token will take in its request.
    Greedy rows take the argmax of the untouched logits. So does a row with a NaN or an infinity above all others, which
    only a broken model gives: it has no distribution to draw from.
    """
    tokens = logits.argmax(dim=-1) if logits.is_cuda else argmax(logits)
    for row, p in enumerate(params):
        if not p.greedy:
            tokens[row] = _draw(logits[row], tokens[row], p, uniform(seeds[row], positions[row]))
    return tokens


def argmax(logits: Tensor) -> Tensor:
    """The first of the largest in each row; NumPy finds it seven times as fast as torch does on a CPU."""
    if logits.dtype == torch.bfloat16:  # which NumPy does not know
        logits = logits.float()
    return torch.from_numpy(logits.numpy().argmax(axis=-1))


def _draw(logits: Tensor, argmax: Tensor, params: SamplingParams, number: float) -> Tensor:
    """The token of one row, int64 without dimensions: the inverse of the cumulative distribution, in float64.

    Rows are drawn one by one, each by its own parameters only: what others ask for cannot even change a rounding.
    """
    # less the largest, so that no temperature, however small, makes an infinity of it
    largest = logits.max()
    scaled = (logits.double() - largest) / params.temperature
    token_ids = torch.arange(len(logits), device=logits.device)
    if params.top_k > 0:
        scaled, token_ids = scaled.topk(min(params.top_k, len(scaled)))
    probabilities = scaled.softmax(dim=0)
    if params.top_p < 1:
        if not probabilities.is_cuda:  # sorting a whole vocabulary takes a CPU longer than a small model's forward
            # all tokens below this share together weigh less than 1 - top_p, so the nucleus is among the others
            likely = ~(probabilities <= (1 - params.top_p) / len(probabilities))  # so written, NaN stays
            probabilities, token_ids = probabilities[likely], token_ids[likely]
        probabilities, order = probabilities.sort(descending=True, stable=True)
        token_ids = token_ids[order]
        # a token is in the nucleus when those before it have not reached top_p yet; so the first always is
        before = probabilities.cumsum(dim=0) - probabilities
        probabilities = probabilities.masked_fill(before >= params.top_p, 0.0)
    cumulative = probabilities.cumsum(dim=0)
    chosen = torch.searchsorted(cumulative, number * cumulative[-1:], right=True)
    # a broken row has become NaN everywhere and its search ran off the end; asking first would wait for the device
    chosen = chosen.clamp(max=len(cumulative) - 1)
    return torch.where(largest.isfinite(), token_ids[chosen].squeeze(0), argmax)
