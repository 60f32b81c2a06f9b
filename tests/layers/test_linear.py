"""Packed or plain, a linear layer computes the same; packed, a lone row like one among a few."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from minisgl.layers import FusedLinear, Linear, can_pack
from minisgl.layers import linear as module


def layer(in_features: int, out_features: int, bias: bool) -> Linear:
    made = Linear(in_features, out_features, bias)
    for parameter in made.parameters():
        parameter.normal_(generator=torch.Generator().manual_seed(parameter.dim()))
    return made


def rows(count: int, width: int) -> torch.Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(9))


needs_packing = pytest.mark.skipif(not can_pack("cpu", torch.float32), reason="this torch has no oneDNN to pack for")


@needs_packing
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("count", [1, 3, 4, 50])
def test_packed_computes_what_plain_does(count, bias):
    made, x = layer(96, 40, bias), rows(count, 96)
    wanted = F.linear(x.double(), made.weight.double(), made.bias.double() if bias else None)
    made.pack()
    assert made(x).shape == (count, 40)
    assert torch.allclose(made(x).double(), wanted, atol=1e-4)
    assert made.weight.numel() == 0


@needs_packing
def test_a_packed_row_is_the_same_in_a_batch_of_1_and_of_4():
    made, x = layer(1536, 576, False), rows(4, 1536)
    made.pack()
    for count in (1, 2, 3):
        assert torch.equal(made(x[:count]), made(x)[:count])


def test_without_the_private_operators_nothing_is_packed(monkeypatch):
    def missing(self):
        raise AttributeError("'_OpNamespace' 'mkldnn' object has no attribute '_reorder_linear_weight'")

    monkeypatch.setattr(module.Linear, "pack", missing)
    assert not can_pack("cpu", torch.float32)


def test_a_gpu_is_never_packed_for():
    assert not can_pack("cuda", torch.bfloat16)


def test_fused_parts_are_the_parts():
    fused = FusedLinear(8, {"q_proj": 6, "k_proj": 2, "v_proj": 2}, bias=True)
    for parameter in fused.parameters():
        parameter.normal_(generator=torch.Generator().manual_seed(parameter.dim()))
    x = rows(5, 8)
    q, k, v = fused.forward_parts(x)
    weights, biases = fused.weight.split([6, 2, 2]), fused.bias.split([6, 2, 2])
    for part, weight, bias in zip((q, k, v), weights, biases, strict=True):
        assert torch.allclose(part, F.linear(x, weight, bias), atol=1e-6)
