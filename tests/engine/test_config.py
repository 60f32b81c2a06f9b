"""EngineConfig refuses, when it is made, what no engine could run with; the message has the value and the rule."""

from __future__ import annotations

import math

import pytest
import torch

from minisgl.config import EngineConfig
from minisgl.errors import ConfigError


@pytest.mark.parametrize("seed", [1.5, "x", None, True])
def test_seed(seed):
    with pytest.raises(ConfigError, match=f"^seed={seed!r}: must be an integer$"):
        EngineConfig(seed=seed)


@pytest.mark.parametrize("kv_gib", ["4", math.inf, math.nan, 0, -1.0, True, [1]])
def test_kv_gib(kv_gib):
    with pytest.raises(ConfigError, match=r"^kv_gib=.*: must be a finite number above 0$"):
        EngineConfig(kv_gib=kv_gib)


@pytest.mark.parametrize("name", ["check", "overlap"])
@pytest.mark.parametrize("value", [1, 0, "no", None])
def test_switches(name, value):
    with pytest.raises(ConfigError, match=f"^{name}={value!r}: must be True or False$"):
        EngineConfig(**{name: value})


@pytest.mark.parametrize("device", [torch.device("cpu"), 0, None])
def test_device(device):
    with pytest.raises(ConfigError, match=r"^device=.*: must be a string: 'auto', 'cpu', "):
        EngineConfig(device=device)


@pytest.mark.parametrize("dtype", [torch.float32, "float64", None])
def test_dtype(dtype):
    with pytest.raises(ConfigError, match=r"^dtype=.*: must be one of 'auto', 'float32', 'bfloat16', 'float16'$"):
        EngineConfig(dtype=dtype)


@pytest.mark.parametrize("quantize", ["int4", "", False, 8])
def test_quantize(quantize):
    with pytest.raises(ConfigError, match=r"^quantize=.*: must be one of None, 'int8'$"):
        EngineConfig(quantize=quantize)


def test_what_is_right_passes():
    config = EngineConfig(kv_gib=2, seed=-(2**70), check=True, device="cuda:1", dtype="bfloat16")
    assert (config.kv_gib, config.seed) == (2, -(2**70))
