"""Rotary position embedding (Su et al. 2021)."""

from __future__ import annotations

import torch
from torch import Tensor


class Rotary:
    """Cosines and sines by position; computed once per forward and shared by all layers.

    Not a module: its frequencies are no weight and stay float32 whatever the model's dtype is.

    Args:
        frequencies: radians per token of each rotated pair, float32 ``[head_dim / 2]``, on the model's device.
        scale: what cosines and sines are multiplied by.
    """

    def __init__(self, frequencies: Tensor, scale: float = 1.0) -> None:
        self.frequencies = frequencies
        self.scale = scale

    def __call__(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Positions ``[tokens]`` -> cos and sin, each ``[tokens, 1, head_dim]`` in ``dtype``."""
        angles = positions.unsqueeze(1).float() * self.frequencies
        angles = torch.cat((angles, angles), dim=-1).unsqueeze(1)
        return (angles.cos() * self.scale).to(dtype), (angles.sin() * self.scale).to(dtype)


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair ``(x[i], x[i + head_dim / 2])`` of ``x`` ``[tokens, heads, head_dim]`` by its token's angle."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin
