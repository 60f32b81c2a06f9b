"""The attention half of a decoder layer: projections, norms and rotation; the attending itself is the backend's."""

from __future__ import annotations

from torch import Tensor, nn

from minisgl.attention.backend import AttentionBackend
from minisgl.layers.linear import FusedLinear, Linear
from minisgl.layers.norm import RMSNorm
from minisgl.layers.rotary import apply_rotary


class AttentionLayer(nn.Module):
    """Grouped-query attention (Ainslie et al. 2023) with what the families add: qkv bias (Qwen2), q/k norm (Qwen3).

    Args:
        layer: which of the pool's layers is this one's.
        norm_eps: of the norms over each head of q and k; None for a model without them.
    """

    def __init__(
        self,
        *,
        layer: int,
        hidden_size: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        qkv_bias: bool,
        output_bias: bool,
        norm_eps: float | None,
    ) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = head_dim
        q_size, kv_size = num_heads * head_dim, num_kv_heads * head_dim
        parts = {"q_proj": q_size, "k_proj": kv_size, "v_proj": kv_size}
        self.qkv_proj = FusedLinear(hidden_size, parts, qkv_bias)
        self.o_proj = Linear(q_size, hidden_size, output_bias)
        self.q_norm = None if norm_eps is None else RMSNorm(head_dim, norm_eps)
        self.k_norm = None if norm_eps is None else RMSNorm(head_dim, norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attention: AttentionBackend) -> Tensor:
        """``x`` ``[tokens, hidden]``, ``cos`` and ``sin`` ``[tokens, 1, head_dim]`` -> ``[tokens, hidden]``."""
        q, k, v = (part.unflatten(-1, (-1, self.head_dim)) for part in self.qkv_proj.forward_parts(x))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = apply_rotary(q, cos, sin), apply_rotary(k, cos, sin)
        return self.o_proj(attention.forward(q, k, v, self.layer).flatten(1))
