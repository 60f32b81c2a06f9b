"""Root-mean-square norm."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """RMSNorm (Zhang & Sennrich 2019) over the last dimension, computed in float32 inside."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size), requires_grad=False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Any shape ending in ``size``; the same shape and dtype come back."""
        # the weight is applied after rounding to x's dtype, as the reference models do
        return self.weight * F.rms_norm(x, self.weight.shape, eps=self.eps)
