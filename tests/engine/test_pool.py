"""The KV pool's shape, its slots, and how many pages it gets."""

from __future__ import annotations

import pytest
import torch

from minisgl.config import EngineConfig
from minisgl.engine.memory import GIB, MemoryReport, free_memory, human_bytes, size_pool
from minisgl.errors import ConfigError
from minisgl.kvcache.pool import KVPool
from minisgl.models.config import ModelConfig, RopeConfig

CPU = torch.device("cpu")


def model(layers: int, kv_heads: int, head_dim: int, dtype: str = "bfloat16") -> ModelConfig:
    return ModelConfig(
        architecture="Qwen3ForCausalLM",
        vocab_size=100,
        hidden_size=64,
        intermediate_size=64,
        num_layers=layers,
        num_heads=2 * kv_heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        rms_norm_eps=1e-6,
        max_seq_len=40_960,
        rope=RopeConfig(),
        dtype=dtype,
    )


QWEN3_06B, LLAMA31_8B = model(28, 8, 128), model(32, 8, 128)


def test_pool_shape_of_qwen3_06b():
    pool = KVPool(
        num_layers=28, num_kv_heads=8, head_dim=128, num_pages=64, page_size=16, dtype=torch.bfloat16, device="meta"
    )
    assert pool.data.shape == (2, 28, 65, 16, 8, 128)
    assert [view.shape for view in pool.layer(27)] == [(1040, 8, 128)] * 2


def test_store_three_tokens():
    pool = KVPool(num_layers=3, num_kv_heads=2, head_dim=4, num_pages=4, page_size=2, dtype=torch.float32, device="cpu")
    assert pool.data.shape == (2, 3, 5, 2, 2, 4)
    assert not pool.data.any()
    k, v = torch.randn(2, 3, 2, 4, generator=torch.Generator().manual_seed(0))
    pool.store(1, torch.tensor([9, 0, 4]), k, v)
    keys, values = pool.layer(1)
    assert torch.equal(keys[[9, 0, 4]], k) and torch.equal(values[[9, 0, 4]], v)
    assert torch.equal(pool.data[0, 1, 4, 1], k[0])  # slot 9: page 4, offset 1
    assert not pool.data[:, [0, 2]].any()
    assert not keys[[1, 2, 3, 5, 6, 7, 8]].any() and not values[[1, 2, 3, 5, 6, 7, 8]].any()


def test_kv_bytes_per_token():
    assert QWEN3_06B.kv_bytes_per_token() == 114_688
    assert LLAMA31_8B.kv_bytes_per_token() == 131_072
    assert QWEN3_06B.kv_bytes_per_token("float32") == 2 * 114_688


@pytest.mark.parametrize(
    ("config", "gib", "tokens"), [(QWEN3_06B, 4, 37_449), (QWEN3_06B, 40, 374_491), (LLAMA31_8B, 64, 524_288)]
)
def test_tokens_in_a_pool(config, gib, tokens, monkeypatch):
    monkeypatch.setattr("minisgl.engine.memory.free_memory", lambda device: 80 * GIB)
    assert size_pool(config, EngineConfig(kv_gib=gib), "bfloat16", CPU) == tokens
    assert size_pool(config, EngineConfig(kv_gib=gib, page_size=16), "bfloat16", CPU) == tokens // 16


def test_default_sizes(monkeypatch):
    monkeypatch.setattr("minisgl.engine.memory.free_memory", lambda device: 10 * GIB)
    assert size_pool(QWEN3_06B, EngineConfig(), "bfloat16", CPU) == GIB // 114_688
    assert size_pool(QWEN3_06B, EngineConfig(), "bfloat16", torch.device("cuda")) == 8 * GIB // 114_688
    assert size_pool(QWEN3_06B, EngineConfig(num_pages=7), "bfloat16", CPU) == 7


def test_a_pool_of_less_than_two_pages_is_refused_with_the_numbers():
    with pytest.raises(ConfigError, match=r"10\.2 MiB has no room for 2 pages of 7\.0 MiB \(64 tokens each\)"):
        size_pool(QWEN3_06B, EngineConfig(kv_gib=0.01, page_size=64), "bfloat16", CPU)


def test_a_pool_larger_than_the_memory_is_refused_with_the_numbers(monkeypatch):
    monkeypatch.setattr("minisgl.engine.memory.free_memory", lambda device: 1 << 20)
    with pytest.raises(ConfigError, match=r"9 pages of 112\.0 KiB take 1\.1 MiB and cpu has 1\.0 MiB"):
        size_pool(QWEN3_06B, EngineConfig(num_pages=9), "bfloat16", CPU)
    assert size_pool(QWEN3_06B, EngineConfig(num_pages=8), "bfloat16", CPU) == 8


def test_free_memory_of_this_machine_holds_this_process():
    assert free_memory(CPU) > 64 << 20


def test_memory_report():
    report = MemoryReport(weight_bytes=1_192_099_840, kv_bytes_per_token=114_688, page_size=16, num_pages=2340)
    assert report.page_bytes == 1_835_008
    assert report.tokens == 37_440
    assert report.pool_bytes == 2341 * 1_835_008
    assert "2,340 pages, 37,440 tokens, 4.00 GiB" in repr(report)
    assert "KV per token" in report._repr_html_() and "112.0 KiB" in report._repr_html_()


def test_human_bytes():
    assert [human_bytes(n) for n in (0, 1023, 1024, 3 << 20, 5 << 30)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "3.0 MiB",
        "5.00 GiB",
    ]
