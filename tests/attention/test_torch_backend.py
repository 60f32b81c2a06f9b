"""Attention through scattered slots equals attention written out, for every mixture of requests."""

from __future__ import annotations

import math

import pytest
import torch

from minisgl.attention import TorchAttention, build_metadata
from minisgl.kvcache.pool import KVPool
from minisgl.models.config import ModelConfig, RopeConfig

HEAD_DIM = 8


def model(kv_heads: int, group: int) -> ModelConfig:
    return ModelConfig(
        architecture="LlamaForCausalLM",
        vocab_size=10,
        hidden_size=8,
        intermediate_size=8,
        num_layers=2,
        num_heads=kv_heads * group,
        num_kv_heads=kv_heads,
        head_dim=HEAD_DIM,
        rms_norm_eps=1e-6,
        max_seq_len=64,
        rope=RopeConfig(),
    )


def written_out(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, start: int) -> torch.Tensor:
    """Softmax attention, one query and one head at a time: ``q`` begins at position ``start`` of ``k`` and ``v``."""
    out = torch.empty_like(q)
    group = q.shape[1] // k.shape[1]
    for i in range(q.shape[0]):
        for head in range(q.shape[1]):
            keys, values = k[: start + i + 1, head // group], v[: start + i + 1, head // group]
            weights = (keys @ q[i, head] / math.sqrt(HEAD_DIM)).softmax(0)
            out[i, head] = weights @ values
    return out


SPANS = {
    "prefill": [(0, 9), (0, 1), (0, 4)],
    "chunks and prefixes": [(3, 9), (0, 5), (16, 17), (12, 20)],
    "decode": [(8, 9), (0, 1), (19, 20), (4, 5)],
    "decode of equal lengths": [(8, 9), (8, 9)],
    "one token": [(0, 1)],
}


@pytest.mark.parametrize("spans", SPANS.values(), ids=SPANS.keys())
@pytest.mark.parametrize(("kv_heads", "group"), [(2, 1), (2, 3), (1, 4), (3, 2)])
def test_every_mixture_equals_attention_written_out(spans, kv_heads, group):
    generator = torch.Generator().manual_seed(0)
    pool = KVPool(model(kv_heads, group), 31, 4, torch.float32, "cpu")
    pool.data.fill_(torch.nan)  # nothing but what is stored may be read
    slots = torch.randperm(31 * 4, generator=generator).int()
    table = torch.zeros(5, 24, dtype=torch.int32)
    attention = TorchAttention(pool)
    queries, wanted, new = [], [], []
    for row, (start, end) in enumerate(spans):
        table[row] = slots[row * 24 : (row + 1) * 24]
        q, k, v = (
            torch.randn(end, heads, HEAD_DIM, generator=generator) for heads in (kv_heads * group, kv_heads, kv_heads)
        )
        pool.store(1, table[row, :start].long(), k[:start], v[:start])
        queries.append(q[start:])
        new.append((k[start:], v[start:]))
        wanted.append(written_out(q[start:], k, v, start))
    starts, ends = zip(*spans, strict=True)
    attention.prepare(build_metadata(table, range(len(spans)), starts, ends))
    k, v = (torch.cat(side) for side in zip(*new, strict=True))
    found = attention.forward(torch.cat(queries), k, v, layer=1)
    assert torch.allclose(found, torch.cat(wanted), atol=1e-6)
    assert pool.data[:, 0].isnan().all()
