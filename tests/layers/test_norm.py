from __future__ import annotations

import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from minisgl.layers import RMSNorm


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [1.0, 1e-4, 300.0])
def test_rms_norm_equals_the_reference(dtype, scale):
    ours, reference = RMSNorm(24, eps=1e-5).to(dtype), LlamaRMSNorm(24, eps=1e-5).to(dtype)
    weight = torch.randn(24, generator=torch.Generator().manual_seed(0)).to(dtype)
    ours.weight.copy_(weight)
    reference.weight.data.copy_(weight)
    x = (scale * torch.randn(3, 4, 24, generator=torch.Generator().manual_seed(1))).to(dtype)
    assert ours(x).dtype == dtype
    assert torch.allclose(ours(x), reference(x), rtol=1e-6 if dtype == torch.float32 else 1e-2)
