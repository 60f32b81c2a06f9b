"""Attention through scattered slots equals attention written out, for every mixture of requests."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as functional

from minisgl.attention import TorchAttention, build_metadata
from minisgl.kvcache.pool import KVPool

HEAD_DIM = 8


def kv_pool(kv_heads: int) -> KVPool:
    shape = {"num_layers": 2, "num_kv_heads": kv_heads, "head_dim": HEAD_DIM, "num_pages": 31, "page_size": 4}
    return KVPool(**shape, dtype=torch.float32, device="cpu")


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
    pool = kv_pool(kv_heads)
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


@pytest.mark.parametrize("spans", [SPANS["chunks and prefixes"], SPANS["decode"]], ids=["prefill", "decode"])
def test_masks_are_made_once_for_all_layers(spans, monkeypatch):
    masks = []
    own = functional.scaled_dot_product_attention

    def noted(*args, attn_mask=None, **options):
        masks.append(attn_mask)
        return own(*args, attn_mask=attn_mask, **options)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", noted)
    attention = TorchAttention(kv_pool(2))
    starts, ends = zip(*spans, strict=True)
    table = torch.arange(len(spans) * 24, dtype=torch.int32).view(-1, 24)
    attention.prepare(build_metadata(table, range(len(spans)), starts, ends))
    tokens = sum(ends) - sum(starts)
    for layer in (0, 1):
        attention.forward(*torch.zeros(3, tokens, 2, HEAD_DIM), layer)
    half = len(masks) // 2
    assert all(first is second for first, second in zip(masks[:half], masks[half:], strict=True))
    assert any(mask is not None for mask in masks)
