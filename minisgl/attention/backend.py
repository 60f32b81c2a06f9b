"""What the decoder asks of whoever attends."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from minisgl.attention.metadata import AttentionMetadata


class AttentionBackend(Protocol):
    """Stores new K and V in the pool and attends over each request's slots.

    ``prepare`` once per batch, then ``forward`` once per layer.
    """

    def prepare(self, metadata: AttentionMetadata) -> None: ...

    def forward(self, q: Tensor, k: Tensor, v: Tensor, layer: int) -> Tensor:
        """``q`` ``[tokens, heads, head_dim]``, ``k`` and ``v`` ``[tokens, kv_heads, head_dim]`` -> like ``q``."""
        ...
