"""The one decoder: Llama, Mistral, Qwen2 and Qwen3 differ only in what :class:`ModelConfig` says."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minisgl.attention.backend import AttentionBackend
from minisgl.layers import AttentionLayer, GatedMLP, Linear, RMSNorm, Rotary
from minisgl.models.config import ModelConfig
from minisgl.models.rope import inverse_frequencies


class Embedding(nn.Module):
    """Token vectors, ``[vocab_size, hidden_size]``."""

    def __init__(self, vocab_size: int, hidden_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, hidden_size), requires_grad=False)

    def forward(self, token_ids: Tensor) -> Tensor:
        """``[tokens] -> [tokens, hidden]``."""
        return F.embedding(token_ids, self.weight)


class DecoderLayer(nn.Module):
    """Attention, then MLP, each behind a norm and beside a residual."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = AttentionLayer(
            layer=layer,
            hidden_size=config.hidden_size,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            qkv_bias=config.qkv_bias,
            output_bias=config.output_bias,
            norm_eps=config.rms_norm_eps if config.qk_norm else None,
        )
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = GatedMLP(config.hidden_size, config.intermediate_size, config.mlp_bias)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attention: AttentionBackend) -> Tensor:
        """``[tokens, hidden] -> [tokens, hidden]``."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, attention)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """A whole dense decoder over flat (ragged) token batches.

    Weights are made on torch's "meta" device, without memory; :func:`minisgl.models.weights.load_model` fills them.
    Submodules carry the checkpoint's own names, so a weight's place is its name.
    """

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: str | torch.device) -> None:
        super().__init__()
        with torch.device("meta"):
            self.embed_tokens = Embedding(config.vocab_size, config.hidden_size)
            self.layers = nn.ModuleList(DecoderLayer(config, layer) for layer in range(config.num_layers))
            self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
            self.lm_head = Linear(config.hidden_size, config.vocab_size)
        self.to(dtype)
        self.config = config
        self.tied = config.tied_embeddings
        self.rotary = Rotary(inverse_frequencies(config.rope, config.head_dim).to(device), config.rope.attention_factor)

    def forward(self, token_ids: Tensor, positions: Tensor, attention: AttentionBackend) -> Tensor:
        """Token ids and positions ``[tokens]`` -> last hidden states ``[tokens, hidden]``, before the final norm.

        ``attention`` must have been prepared for exactly these tokens; it holds their K and V afterwards.
        """
        x = self.embed_tokens(token_ids)
        cos, sin = self.rotary(positions, x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin, attention)
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        """``[rows, hidden] -> [rows, vocab_size]``, for the rows that sample only."""
        return self.lm_head(self.norm(hidden))

    def tie(self) -> None:
        """Let the output layer use the embedding's memory, if the model says so."""
        if self.tied:
            self.lm_head.weight = self.embed_tokens.weight

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights. Packing a tied output layer adds a second copy of it."""
        packed = [m.packed for m in self.modules() if isinstance(m, Linear) and m.packed is not None]
        return sum(t.numel() * t.element_size() for t in (*self.parameters(), *packed))
