"""Convert a GGUF file of a Llama-like model into a Hugging Face folder: weights, configuration, tokenizer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader, ReaderTensor, dequantize
from safetensors.torch import save_file
from torch import Tensor
from tqdm.auto import tqdm

from minisgl.errors import ModelFormatError
from minisgl.models.config import RopeConfig
from minisgl.models.gguf_tokenizer import write_tokenizer
from minisgl.models.rope import inverse_frequencies

SHARD_BYTES = 2 << 30
ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
TENSORS = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class GGUFMetadata:
    """The file's key-value part. Keys are asked for without the architecture's prefix where they have one."""

    def __init__(self, reader: GGUFReader) -> None:
        self._fields = reader.fields
        self.architecture: str = self.get("general.architecture")
        if self.architecture not in ARCHITECTURES:
            raise ModelFormatError(
                f"GGUF architecture {self.architecture!r} is not supported; supported are {', '.join(ARCHITECTURES)}"
            )

    def get(self, key: str, default: Any = None) -> Any:
        """A value by its full key."""
        field = self._fields.get(key)
        return default if field is None else field.contents()

    def model(self, key: str, default: Any = None) -> Any:
        """A value by its key behind the architecture's prefix."""
        return self.get(f"{self.architecture}.{key}", default)

    def need(self, key: str) -> Any:
        """Like :meth:`model`; raises ModelFormatError where the file lacks it."""
        value = self.model(key)
        if value is None:
            raise ModelFormatError(f"the GGUF file has no {self.architecture}.{key}")
        return value


def convert_gguf(source: Path, folder: Path) -> None:
    """Write ``source`` as a Hugging Face model into the existing, empty ``folder``.

    Weights are dequantized to float32 and stored as bfloat16, shard by shard, so memory stays at one shard.

    Raises:
        ModelFormatError: no GGUF file, or an architecture, tensor, rope scaling or tokenizer that is not supported.
    """
    try:
        reader = GGUFReader(source)
    except (ValueError, IndexError, OSError) as error:
        raise ModelFormatError(f"{source} cannot be read as a GGUF file: {error}") from error
    metadata = GGUFMetadata(reader)
    if (metadata.get("split.count") or 1) > 1:
        raise ModelFormatError(f"{source} is one part of a split GGUF file; merge the parts first (llama-gguf-split)")
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    config = hf_config(metadata, tensors)
    write_tokenizer(metadata, folder, config["max_position_embeddings"])
    ends = [metadata.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("eos", "eot")]
    special = {
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": list(dict.fromkeys(end for end in ends if end is not None)),
        "pad_token_id": metadata.get("tokenizer.ggml.padding_token_id"),
    }
    _write_json(folder / "config.json", {**config, **special})
    _write_json(folder / "generation_config.json", special)
    tensors.pop("rope_freqs.weight", None)  # hf_config has turned it into rope parameters
    _write_weights(tensors, config, metadata.architecture == "llama", folder)


def hf_config(metadata: GGUFMetadata, tensors: dict[str, ReaderTensor]) -> dict[str, Any]:
    """The ``config.json`` of a GGUF model, without the ids of its special tokens."""
    heads = metadata.need("attention.head_count")
    hidden_size, positions = metadata.need("embedding_length"), metadata.need("context_length")
    head_dim = metadata.model("attention.key_length") or hidden_size // heads
    return {
        "architectures": [ARCHITECTURES[metadata.architecture]],
        "model_type": metadata.architecture,
        "hidden_size": hidden_size,
        "intermediate_size": metadata.need("feed_forward_length"),
        "num_hidden_layers": metadata.need("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": metadata.model("attention.head_count_kv") or heads,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": positions,
        # the file holds a float32; its shortest decimal is the number that was meant (1e-05, not 9.99999974e-06)
        "rms_norm_eps": float(str(np.float32(metadata.need("attention.layer_norm_rms_epsilon")))),
        "rope_parameters": _rope_parameters(metadata, tensors.get("rope_freqs.weight"), head_dim, positions),
        "vocab_size": int(tensors["token_embd.weight"].shape[1]),
        "tie_word_embeddings": "output.weight" not in tensors,
        "attention_bias": metadata.architecture == "llama" and "blk.0.attn_q.bias" in tensors,
        "mlp_bias": metadata.architecture == "llama" and "blk.0.ffn_down.bias" in tensors,
        "dtype": "bfloat16",
    }


def _rope_parameters(
    metadata: GGUFMetadata, factors: ReaderTensor | None, head_dim: int, positions: int
) -> dict[str, Any]:
    theta = float(metadata.model("rope.freq_base") or 10_000.0)
    if metadata.model("rope.dimension_count", head_dim) != head_dim:
        raise ModelFormatError("the GGUF model rotates only a part of each head, which is not supported")
    if factors is not None:
        return _llama3_parameters(factors.data, theta, head_dim)
    kind = metadata.model("rope.scaling.type") or "none"
    if kind == "none":
        return {"rope_type": "default", "rope_theta": theta}
    if kind not in ("linear", "yarn"):
        raise ModelFormatError(f"GGUF rope scaling {kind!r} is not supported; supported are none, linear, yarn")
    rope = {"rope_type": kind, "rope_theta": theta, "factor": float(metadata.need("rope.scaling.factor"))}
    if kind == "yarn":
        rope["original_max_position_embeddings"] = metadata.model("rope.scaling.original_context_length") or positions
    return rope


def _llama3_parameters(factors: np.ndarray, theta: float, head_dim: int) -> dict[str, Any]:
    """Llama 3.1's rope: GGUF stores only the resulting divisors, so the published parameters are put to the test."""
    rope = RopeConfig("llama3", theta, factor=float(factors.max()), original_max_position=8192)
    plain = inverse_frequencies(RopeConfig(theta=theta), head_dim)
    if not np.allclose((plain / inverse_frequencies(rope, head_dim)).numpy(), factors, rtol=1e-3):
        raise ModelFormatError("the GGUF model's rope_freqs are not those of Llama 3.1's scaling; not supported")
    return {
        "rope_type": rope.kind,
        "rope_theta": theta,
        "factor": rope.factor,
        "low_freq_factor": rope.low_freq_factor,
        "high_freq_factor": rope.high_freq_factor,
        "original_max_position_embeddings": rope.original_max_position,
    }


def _write_weights(tensors: dict[str, ReaderTensor], config: dict[str, Any], rotated_pairs: bool, folder: Path) -> None:
    """Dequantize and save, one shard in memory at a time. ``rotated_pairs``: q and k are in llama.cpp's own order."""
    shards = list(_shards(list(tensors.values())))
    weight_map: dict[str, str] = {}
    with tqdm(total=len(tensors), desc="converting weights", unit="tensor") as progress:
        for number, shard in enumerate(shards, 1):
            file = "model.safetensors" if len(shards) == 1 else f"model-{number:05}-of-{len(shards):05}.safetensors"
            state: dict[str, Tensor] = {}
            for tensor in shard:
                name, heads = _hf_name(tensor.name), 0
                if rotated_pairs and ".q_proj." in name:
                    heads = config["num_attention_heads"]
                if rotated_pairs and ".k_proj." in name:
                    heads = config["num_key_value_heads"]
                values = dequantize(tensor.data, tensor.tensor_type)
                values = _halves(values, heads) if heads else values
                state[name] = torch.tensor(values).bfloat16()
                weight_map[name] = file
                progress.update()
            save_file(state, folder / file, metadata={"format": "pt"})
    if len(shards) > 1:
        _write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})


def _shards(tensors: list[ReaderTensor]) -> Iterator[list[ReaderTensor]]:
    """Cut the list where the bfloat16 copies pass SHARD_BYTES."""
    shard: list[ReaderTensor] = []
    size = 0
    for tensor in tensors:
        if shard and size + 2 * tensor.n_elements > SHARD_BYTES:
            yield shard
            shard, size = [], 0
        shard.append(tensor)
        size += 2 * int(tensor.n_elements)
    yield shard


def _hf_name(name: str) -> str:
    """``blk.3.attn_q.weight`` -> ``model.layers.3.self_attn.q_proj.weight``."""
    parts = name.split(".")
    if parts[0] == "output":
        return f"lm_head.{parts[1]}"
    layer = f"layers.{parts[1]}." if parts[0] == "blk" else ""
    stem = parts[-2]
    if stem not in TENSORS:
        raise ModelFormatError(f"the GGUF file has a tensor {name!r} that no supported architecture knows")
    return f"model.{layer}{TENSORS[stem]}.{parts[-1]}"


def _halves(values: np.ndarray, heads: int) -> np.ndarray:
    """Undo llama.cpp's order for its rope, which turns neighbours, where HF turns element i with i + head_dim / 2."""
    pairs = values.reshape(heads, -1, 2, *values.shape[1:])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
