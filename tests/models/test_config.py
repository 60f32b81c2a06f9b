"""ModelConfig reads what Hugging Face writes, in both its spellings, and names what it cannot run."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from minisgl.errors import ModelFormatError, ModelNotFoundError
from minisgl.models.config import ModelConfig, RopeConfig

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128_256,
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500_000.0,
    "torch_dtype": "bfloat16",
}
LLAMA3_SCALING = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def read(**changes) -> ModelConfig:
    return ModelConfig.from_hf({**LLAMA, **changes})


def test_llama_31_8b():
    config = read(rope_scaling={**LLAMA3_SCALING, "rope_type": "llama3"})
    assert (config.num_layers, config.num_kv_heads, config.head_dim, config.max_seq_len) == (32, 8, 128, 131_072)
    assert config.rope == RopeConfig("llama3", 500_000.0, 8.0, 8192, 1.0, 4.0)
    assert config.kv_bytes_per_token() == 131_072
    assert not (config.qkv_bias or config.output_bias or config.mlp_bias or config.qk_norm or config.tied_embeddings)


@pytest.mark.parametrize("kind", ["linear", "llama3", "yarn"])
def test_old_and_new_rope_keys_mean_the_same(kind):
    old = read(rope_scaling={**LLAMA3_SCALING, "type": kind})
    new = read(rope_theta=None, rope_parameters={**LLAMA3_SCALING, "rope_type": kind, "rope_theta": 500_000.0})
    assert old.rope == new.rope
    assert old.rope.kind == kind


def test_families_differ_in_biases_and_norms():
    def flags(architecture, **changes):
        config = read(architectures=[architecture], **changes)
        return config.qkv_bias, config.output_bias, config.mlp_bias, config.qk_norm

    assert flags("Qwen2ForCausalLM") == (True, False, False, False)
    assert flags("Qwen3ForCausalLM") == (False, False, False, True)
    assert flags("Qwen3ForCausalLM", attention_bias=True) == (True, True, False, True)
    assert flags("LlamaForCausalLM", attention_bias=True, mlp_bias=True) == (True, True, True, False)
    assert flags("MistralForCausalLM", attention_bias=True) == (False, False, False, False)


def test_head_dim_may_be_given_or_follow_from_the_width():
    assert read(head_dim=64).head_dim == 64
    assert read(head_dim=None).head_dim == 128


@pytest.mark.parametrize(
    ("changes", "longest"),
    [
        ({}, 131_072),
        ({"sliding_window": 4096}, 131_072),  # Llama has none, whatever the file says
        ({"architectures": ["MistralForCausalLM"]}, 131_072),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": None}, 131_072),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 4096}, 4096),
        ({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 4096, "use_sliding_window": False}, 131_072),
        ({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 4096, "use_sliding_window": True}, 4096),
    ],
)
def test_a_sliding_window_limits_the_sequence(changes, longest):
    assert read(**changes).max_seq_len == longest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"architectures": ["MambaForCausalLM"]},
            r"'MambaForCausalLM' is not supported; supported are LlamaForCausalLM",
        ),
        ({"architectures": None}, r"architecture None is not supported"),
        ({"hidden_act": "gelu"}, r"hidden_act 'gelu'"),
        ({"quantization_config": {"bits": 4}}, r"quantized weights"),
        ({"dtype": "float8_e4m3fn"}, r"dtype 'float8_e4m3fn' is not supported; supported are float32"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, r"rope type 'dynamic' .* default, linear, llama3, yarn"),
        ({"rope_scaling": {"type": "linear"}}, r"'linear' needs a factor"),
        ({"partial_rotary_factor": 0.5}, r"rotate the whole head"),
        ({"layer_types": ["full_attention", "linear_attention"]}, r"layer_types=.*'linear_attention'\]: supported are"),
        ({"layer_types": 5}, r"layer_types=5: supported are"),
        ({"architectures": 5}, r"architecture 5 is not supported"),
        ({"dtype": ["float32"]}, r"dtype \['float32'\] is not supported"),
        ({"hidden_size": "4096"}, r"hidden_size='4096': must be a number above 0"),
        ({"num_hidden_layers": 2.5}, r"num_hidden_layers=2\.5: must be an integer above 0"),
        ({"num_attention_heads": -1}, r"num_attention_heads=-1: must be a number above 0"),
        ({"vocab_size": 0}, r"vocab_size=0: must be a number above 0"),
        ({"hidden_size": 16}, r"head_dim=0: must be a number above 0"),
        ({"max_position_embeddings": True}, r"max_position_embeddings=True: must be"),
        ({"rms_norm_eps": "1e-5"}, r"rms_norm_eps='1e-5': must be a number above 0"),
        ({"rope_theta": "500000"}, r"rope_theta='500000': must be a number above 0"),
        ({"rope_scaling": {"type": "linear", "factor": "2"}}, r"factor='2': must be a number above 0"),
        ({"rope_scaling": "linear"}, r"rope_scaling='linear': must be an object of settings"),
        ({"num_key_value_heads": 5}, r"32 query heads cannot share 5 KV heads"),
    ],
)
def test_what_cannot_run_is_named(changes, message):
    with pytest.raises(ModelFormatError, match=message):
        read(**changes)


def test_a_missing_key_is_named():
    with pytest.raises(ModelFormatError, match="'intermediate_size' is missing"):
        ModelConfig.from_hf({k: v for k, v in LLAMA.items() if k != "intermediate_size"})


def test_folders_without_a_readable_config(tmp_path):
    with pytest.raises(ModelNotFoundError, match=r"has no config\.json"):
        ModelConfig.from_folder(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelFormatError, match=r"config\.json is not valid JSON"):
        ModelConfig.from_folder(tmp_path)
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ModelFormatError, match=r"config\.json is not valid JSON"):
        ModelConfig.from_folder(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ModelFormatError, match=r"config\.json is damaged: it holds no JSON object, but a list"):
        ModelConfig.from_folder(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "hidden_size": "4096"}))
    with pytest.raises(ModelFormatError, match=r"config\.json: hidden_size='4096'"):
        ModelConfig.from_folder(tmp_path)


def test_reading_a_config_and_finding_a_model_need_no_torch():
    code = "import sys, minisgl.models.config, minisgl.models.hub; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
