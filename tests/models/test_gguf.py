"""A GGUF file becomes the Hugging Face folder it was made from."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFWriter
from safetensors.torch import load_file
from transformers import AutoTokenizer

from minisgl.errors import ModelFormatError
from minisgl.models import gguf as converter
from minisgl.models.config import ModelConfig
from minisgl.models.gguf import convert_gguf
from minisgl.models.gguf_tokenizer import build_tokenizer
from tests.models.tiny import tiny_model_folder

NAMES = {
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "o_proj": "attn_output",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    **{f"{part}_proj": f"attn_{part}" for part in "qkv"},
    **{f"{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")},
}
ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10_000.0, "factor": 32.0, "low_freq_factor": 1.0}
LLAMA3 = {**LLAMA3, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def llama_cpp_order(weight: np.ndarray, heads: int) -> np.ndarray:
    """How llama.cpp's own converter lays out q and k of the llama architecture."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def gguf_of(folder: Path, architecture: str, target: Path, keys: dict | None = None, rope_freqs=None) -> Path:
    """Write a Hugging Face folder as GGUF, float32, like llama.cpp's converter would."""
    config = json.loads((folder / "config.json").read_text())
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    writer = GGUFWriter(str(target), architecture)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    vocab = tokenizer["model"]["vocab"]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(list(vocab))
    writer.add_token_types([3 if token in ("<s>", "</s>") else 1 for token in vocab])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_chat_template("{% for m in messages %}<s>{{ m.content }}{% endfor %}")
    for key, value in {"tokenizer.ggml.pre": "gpt-2", **(keys or {})}.items():
        {str: writer.add_string, float: writer.add_float32, int: writer.add_uint32, bool: writer.add_bool}[type(value)](
            key, value
        )
    for name, tensor in load_file(folder / "model.safetensors").items():
        stem, leaf = name.removeprefix("model.").rsplit(".", 1)
        weight = tensor.numpy()
        if architecture == "llama" and stem.endswith("q_proj"):
            weight = llama_cpp_order(weight, config["num_attention_heads"])
        if architecture == "llama" and stem.endswith("k_proj"):
            weight = llama_cpp_order(weight, config["num_key_value_heads"])
        layer = f"blk.{stem.split('.')[1]}." if stem.startswith("layers.") else ""
        own = "output" if stem == "lm_head" else NAMES[stem.rsplit(".", 1)[-1]]
        writer.add_tensor(f"{layer}{own}.{leaf}", weight)
    if rope_freqs is not None:
        writer.add_tensor("rope_freqs.weight", rope_freqs)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def converted(source: Path, folder: Path) -> Path:
    folder.mkdir()
    convert_gguf(source, folder)
    return folder


@pytest.mark.parametrize("shard_bytes", [1 << 30, 100_000])
@pytest.mark.parametrize("family", ["llama", "llama-biased", "llama-tied", "mistral", "qwen2", "qwen3"])
def test_weights_and_configuration_come_back(family, shard_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr(converter, "SHARD_BYTES", shard_bytes)
    origin = tiny_model_folder(family, tmp_path / "hf", rms_norm_eps=1e-5)
    architecture = ARCHITECTURES[family.split("-")[0]]
    folder = converted(gguf_of(origin, architecture, tmp_path / "model.gguf"), tmp_path / "out")
    wanted = load_file(origin / "model.safetensors")
    files = sorted(folder.glob("*.safetensors"))
    found = {name: tensor for file in files for name, tensor in load_file(file).items()}
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name].bfloat16()) for name in wanted)
    if shard_bytes == 100_000:
        index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
        assert set(index.values()) == {file.name for file in files} and len(files) > 1
    else:
        assert [file.name for file in files] == ["model.safetensors"]
    before, after = (ModelConfig.from_folder(f) for f in (origin, folder))
    same = [f for f in before.__dataclass_fields__ if f not in ("architecture", "dtype")]
    assert {f: getattr(after, f) for f in same} == {f: getattr(before, f) for f in same}
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == [1]


def test_linear_and_yarn_scaling_keys(tmp_path):
    origin = tiny_model_folder("qwen2", tmp_path / "hf")
    keys = {"qwen2.rope.scaling.type": "yarn", "qwen2.rope.scaling.factor": 4.0}
    keys["qwen2.rope.scaling.original_context_length"] = 64
    rope = ModelConfig.from_folder(converted(gguf_of(origin, "qwen2", tmp_path / "y.gguf", keys), tmp_path / "y")).rope
    assert (rope.kind, rope.factor, rope.original_max_position) == ("yarn", 4.0, 64)
    keys = {"qwen2.rope.scaling.type": "linear", "qwen2.rope.scaling.factor": 2.0}
    rope = ModelConfig.from_folder(converted(gguf_of(origin, "qwen2", tmp_path / "l.gguf", keys), tmp_path / "l")).rope
    assert (rope.kind, rope.factor) == ("linear", 2.0)


def test_llama3_scaling_is_recognised_by_its_divisors(tmp_path):
    from minisgl.models.rope import inverse_frequencies

    origin = tiny_model_folder("llama", tmp_path / "hf", rope_parameters=LLAMA3, head_dim=64)
    rope = ModelConfig.from_folder(origin).rope
    plain = 1.0 / 10_000.0 ** (torch.arange(0, 64, 2) / 64)
    divisors = (plain / inverse_frequencies(rope, 64)).numpy()
    assert divisors.min() == 1 and divisors.max() == 32
    folder = converted(gguf_of(origin, "llama", tmp_path / "a.gguf", rope_freqs=divisors), tmp_path / "a")
    assert ModelConfig.from_folder(folder).rope == rope
    with pytest.raises(ModelFormatError, match=r"rope_freqs are not those of Llama 3\.1"):
        converted(gguf_of(origin, "llama", tmp_path / "b.gguf", rope_freqs=divisors[::-1].copy()), tmp_path / "b")


@pytest.mark.parametrize(
    ("architecture", "keys", "message"),
    [
        ("gemma3", {}, "architecture 'gemma3' is not supported; supported are llama, qwen2, qwen3"),
        ("llama", {"llama.rope.scaling.type": "longrope"}, "rope scaling 'longrope'"),
        ("llama", {"llama.rope.dimension_count": 4}, "rotates only a part"),
        ("llama", {"tokenizer.ggml.pre": "dbrx"}, r"pre-tokenizer 'dbrx' .* gpt-2, smollm, llama-bpe, qwen2"),
        ("llama", {"split.count": 3}, "merge the parts first"),
    ],
)
def test_what_cannot_be_converted_is_named(architecture, keys, message, tmp_path):
    source = gguf_of(tiny_model_folder("llama", tmp_path / "hf"), architecture, tmp_path / "model.gguf", keys)
    with pytest.raises(ModelFormatError, match=message):
        converted(source, tmp_path / "out")


def test_a_file_that_is_no_gguf(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GIF89a" * 100)
    with pytest.raises(ModelFormatError, match="cannot be read as a GGUF file"):
        converted(tmp_path / "model.gguf", tmp_path / "out")


def test_the_tokenizer_comes_back(tmp_path):
    origin = tiny_model_folder("llama", tmp_path / "hf")
    folder = converted(gguf_of(origin, "llama", tmp_path / "model.gguf"), tmp_path / "out")
    before, after = (AutoTokenizer.from_pretrained(f, local_files_only=True) for f in (origin, folder))
    for text in ("an apple a day", "It's 12345.\n\n1. été 猫 \t ok", "<s>user</s> and so on"):
        assert after.encode(text) == before.encode(text)
        assert after.decode(after.encode(text)) == text
    assert (after.bos_token, after.eos_token, after.pad_token) == ("<s>", "</s>", "</s>")
    assert after.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "<s>hi"


class Keys(dict):
    """A GGUF file's tokenizer keys, without the file."""

    def __init__(self, pre: str, **more) -> None:
        from tests.models.tiny import tiny_tokenizer

        model = json.loads(tiny_tokenizer().backend_tokenizer.to_str())["model"]
        tokens = {"model": "gpt2", "pre": pre, "tokens": list(model["vocab"]), "bos_token_id": 0}
        tokens["token_type"] = [3, 3] + [1] * (len(model["vocab"]) - 2)
        tokens["merges"] = [" ".join(pair) for pair in model["merges"]]
        super().__init__({f"tokenizer.ggml.{key}": value for key, value in {**tokens, **more}.items()})


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("gpt-2", ["It", "'s", "Ġ2024", "Ċ", "Ċ", "1234", ".", "Ġ", "Ġok", "!?", "Ċ"]),
        ("smollm", ["It", "'s", "Ġ", "2", "0", "2", "4", "ĊĊ", "1", "2", "3", "4", ".", "Ġ", "Ġok", "!?", "Ċ"]),
        ("llama-bpe", ["It", "'s", "Ġ", "202", "4", "ĊĊ", "123", "4", ".", "Ġ", "Ġok", "!?Ċ"]),
        ("qwen2", ["It", "'s", "Ġ", "2", "0", "2", "4", "ĊĊ", "1", "2", "3", "4", ".", "Ġ", "Ġok", "!?Ċ"]),
    ],
)
def test_text_is_split_as_each_name_says(pre, pieces):
    tokenizer = build_tokenizer(Keys(pre))
    assert [p for p, _ in tokenizer.pre_tokenizer.pre_tokenize_str("It's 2024\n\n1234.  ok!?\n")] == pieces


def test_a_bos_token_is_added_only_when_the_file_says_so():
    assert build_tokenizer(Keys("gpt-2", add_bos_token=True)).encode("ab").ids[0] == 0
    assert build_tokenizer(Keys("gpt-2", add_bos_token=False)).encode("ab").ids[0] != 0


def test_a_sentencepiece_tokenizer_is_refused():
    with pytest.raises(ModelFormatError, match="tokenizer 'llama' is not supported; supported is 'gpt2'"):
        build_tokenizer(Keys("default", model="llama"))
