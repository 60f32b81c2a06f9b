"""Rotation equals Hugging Face's, and positions are never rounded."""

from __future__ import annotations

import torch
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from minisgl.layers import Rotary, apply_rotary

FREQUENCIES = 10_000.0 ** -(torch.arange(8) / 8)


def test_rotation_equals_the_reference():
    x = torch.randn(5, 3, 16, generator=torch.Generator().manual_seed(0))
    cos, sin = Rotary(FREQUENCIES)(torch.arange(5), torch.float32)
    wanted, _ = apply_rotary_pos_emb(x[None].transpose(1, 2), x[None].transpose(1, 2), cos[None, :, 0], sin[None, :, 0])
    assert torch.allclose(apply_rotary(x, cos, sin), wanted[0].transpose(0, 1))


def test_frequencies_stay_float32_in_a_half_precision_model():
    cos, _ = Rotary(FREQUENCIES)(torch.tensor([1001]), torch.bfloat16)
    assert cos.dtype == torch.bfloat16
    # in bfloat16, position 1001 itself would round to 1000
    assert torch.equal(cos[0, 0, 0], torch.tensor(1001.0).cos().bfloat16())
