"""Linear layers whose weights are made empty and filled once by the weight loader."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Linear(nn.Module):
    """``y = x W^T + b`` with ``W`` of shape ``[out_features, in_features]``."""

    def __init__(self, in_features: int, out_features: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(out_features), requires_grad=False) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """``[tokens, in_features] -> [tokens, out_features]``."""
        return F.linear(x, self.weight, self.bias)


class FusedLinear(Linear):
    """Several linear layers over one input, computed as one product: q, k and v, or gate and up.

    Args:
        in_features: width of the common input.
        parts: checkpoint name of each part and its output width, in the order of the output's columns.
        bias: whether every part has a bias.
    """

    def __init__(self, in_features: int, parts: dict[str, int], bias: bool = False) -> None:
        super().__init__(in_features, sum(parts.values()), bias)
        self.parts = parts

    def forward_parts(self, x: Tensor) -> tuple[Tensor, ...]:
        """``[tokens, in_features]`` -> one ``[tokens, width]`` view per part."""
        return self(x).split(tuple(self.parts.values()), dim=-1)
