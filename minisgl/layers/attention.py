"""The attention half of a decoder layer: projections, norms and rotation; the attending itself is the backend's."""

from __future__ import annotations

from torch import Tensor, nn

from minisgl.attention.backend import AttentionBackend
from minisgl.layers.linear import FusedLinear, Linear
from minisgl.layers.norm import RMSNorm
from minisgl.layers.rotary import apply_rotary
from minisgl.models.config import ModelConfig


class AttentionLayer(nn.Module):
    """Grouped-query attention (Ainslie et al. 2023) with what the families add: qkv bias (Qwen2), q/k norm (Qwen3)."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = config.head_dim
        q_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        parts = {"q_proj": q_size, "k_proj": kv_size, "v_proj": kv_size}
        self.qkv_proj = FusedLinear(config.hidden_size, parts, config.qkv_bias)
        self.o_proj = Linear(q_size, config.hidden_size, config.output_bias)
        self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps) if config.qk_norm else None
        self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps) if config.qk_norm else None

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attention: AttentionBackend) -> Tensor:
        """``x`` ``[tokens, hidden]``, ``cos`` and ``sin`` ``[tokens, 1, head_dim]`` -> ``[tokens, hidden]``."""
        q, k, v = (part.unflatten(-1, (-1, self.head_dim)) for part in self.qkv_proj.forward_parts(x))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = apply_rotary(q, cos, sin), apply_rotary(k, cos, sin)
        return self.o_proj(attention.forward(q, k, v, self.layer).flatten(1))
