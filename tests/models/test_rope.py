"""Rotary frequencies equal Hugging Face's for every supported way of stretching."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from minisgl.layers import Rotary
from minisgl.models.config import RopeConfig
from minisgl.models.rope import inverse_frequencies

STRETCHED = {"rope_theta": 500_000.0, "factor": 8.0, "original_max_position_embeddings": 8192}
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
ROPES = {
    "default": {"rope_type": "default", "rope_theta": 1e6},
    "linear": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 3.0},
    "llama3": {"rope_type": "llama3", **STRETCHED, **LLAMA3},
    "llama3-wide": {"rope_type": "llama3", **STRETCHED, "low_freq_factor": 0.5, "high_freq_factor": 60.0},
    "yarn": {"rope_type": "yarn", **STRETCHED},
    "yarn-betas": {"rope_type": "yarn", **STRETCHED, "beta_fast": 8.0, "beta_slow": 2.0, "truncate": False},
    "yarn-attention": {"rope_type": "yarn", **STRETCHED, "attention_factor": 1.7},
    "yarn-mscale": {"rope_type": "yarn", **STRETCHED, "mscale": 1.0, "mscale_all_dim": 0.5},
    "yarn-no-ramp": {"rope_type": "yarn", **STRETCHED, "original_max_position_embeddings": 4},
}


@pytest.mark.parametrize("name", ROPES)
@pytest.mark.parametrize("head_dim", [8, 128])
def test_cos_and_sin_equal_the_reference(name, head_dim):
    positions = torch.tensor([0, 1, 2, 77, 4095, 8191, 20_000])
    config = LlamaConfig(head_dim=head_dim, max_position_embeddings=65_536, rope_parameters=dict(ROPES[name]))
    wanted = LlamaRotaryEmbedding(config)(torch.zeros(1), positions[None])
    rope = RopeConfig.from_hf({"rope_parameters": ROPES[name]}, 65_536)
    found = Rotary(inverse_frequencies(rope, head_dim), rope.attention_factor)(positions, torch.float32)
    for ours, reference in zip(found, wanted, strict=True):
        # frequencies agree to 1 part in 10^7, so angles of 20,000 radians to about 2e-3
        assert torch.allclose(ours[:, 0], reference[0], atol=3e-3)
        assert torch.allclose(ours[:4, 0], reference[0, :4], atol=3e-5)
