"""How fast each pair of dimensions turns, in the ways that published models stretch their rotary embedding."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minisgl.models.config import RopeConfig


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> Tensor:
    """Radians per token of each rotated pair: float32, ``[head_dim / 2]``, on the CPU."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device="cpu") / head_dim
    plain = 1.0 / rope.theta**exponents
    if rope.kind == "linear":
        return plain / rope.factor
    if rope.kind == "llama3":  # long wavelengths are interpolated, short ones kept, a ramp lies between
        turns = rope.original_max_position / (2 * math.pi / plain)
        keep = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
        keep = keep.clamp(0, 1)
        return (1 - keep) * plain / rope.factor + keep * plain
    if rope.kind == "yarn":  # the same idea, the ramp laid over dimensions instead of turns
        low, high = _yarn_range(rope, head_dim)
        ramp = (torch.arange(head_dim // 2, dtype=torch.float32, device="cpu") - low) / (high - low)
        keep = 1 - ramp.clamp(0, 1)
        return 1.0 / (rope.factor * rope.theta**exponents) * (1 - keep) + plain * keep
    return plain


def _yarn_range(rope: RopeConfig, head_dim: int) -> tuple[float, float]:
    """Dimensions between which yarn goes from keeping to interpolating (Peng et al. 2023, section 3.2)."""

    def dimension(turns: float) -> float:
        return head_dim * math.log(rope.original_max_position / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = dimension(rope.beta_fast), dimension(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    return low, high if high != low else high + 0.001
