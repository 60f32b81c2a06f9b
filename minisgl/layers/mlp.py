"""The feed-forward half of a decoder layer."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from minisgl.layers.linear import FusedLinear, Linear


class GatedMLP(nn.Module):
    """``down(silu(gate(x)) * up(x))`` (SwiGLU, Shazeer 2020); gate and up are one product."""

    def __init__(self, hidden_size: int, intermediate_size: int, bias: bool) -> None:
        super().__init__()
        parts = {"gate_proj": intermediate_size, "up_proj": intermediate_size}
        self.gate_up_proj = FusedLinear(hidden_size, parts, bias)
        self.down_proj = Linear(intermediate_size, hidden_size, bias)

    def forward(self, x: Tensor) -> Tensor:
        """``[tokens, hidden] -> [tokens, hidden]``."""
        gate, up = self.gate_up_proj.forward_parts(x)
        return self.down_proj(F.silu(gate) * up)
