"""ModelConfig: what the decoder needs to know of a model, read from a Hugging Face ``config.json``. No torch."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minisgl.errors import ModelFormatError, ModelNotFoundError

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
ROPE_KINDS = ("default", "linear", "llama3", "yarn")
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def read_json(path: Path) -> dict[str, Any]:
    """The settings in one of a model folder's JSON files; raises ModelFormatError, naming the file, if it has none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # no JSON, or bytes that are no text at all
        raise ModelFormatError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise ModelFormatError(f"{path} is damaged: it holds no JSON object, but a {type(content).__name__}")
    return content


def _number(raw: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """A positive number; ``default`` where the key is absent, null or 0."""
    value = raw.get(key) or default
    if value is None and key not in raw:
        raise ModelFormatError(f"{key!r} is missing")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ModelFormatError(f"{key}={raw.get(key, value)!r}: must be a number above 0")
    return value


def _integer(raw: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """Like :func:`_number`, and whole."""
    value = _number(raw, key, default)
    if not isinstance(value, int):
        raise ModelFormatError(f"{key}={value!r}: must be an integer above 0")
    return value


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary embedding: the base ``theta`` and how it is stretched beyond ``original_max_position`` tokens.

    ``kind`` is "default" (Su et al. 2021), "linear" (position interpolation), "llama3" (Llama 3.1's smooth cut by
    wavelength) or "yarn" (Peng et al. 2023). The other fields mean what the same names mean in ``config.json``.
    """

    kind: str = "default"
    theta: float = 10_000.0
    factor: float = 1.0
    original_max_position: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float = 1.0

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any], max_position: int) -> RopeConfig:
        """Read the new key ``rope_parameters`` or the older ``rope_theta`` and ``rope_scaling``."""
        rope: dict[str, Any] = {}
        for name in ("rope_scaling", "rope_parameters"):
            part = raw.get(name) or {}
            if not isinstance(part, Mapping):
                raise ModelFormatError(f"{name}={part!r}: must be an object of settings")
            rope.update(part)
        kind = rope.get("rope_type") or rope.get("type") or "default"
        if kind not in ROPE_KINDS:
            raise ModelFormatError(f"rope type {kind!r} is not supported; supported are {', '.join(ROPE_KINDS)}")
        if (rope.get("partial_rotary_factor") or raw.get("partial_rotary_factor") or 1.0) != 1.0:
            raise ModelFormatError("partial_rotary_factor: only models that rotate the whole head are supported")
        if kind != "default" and not rope.get("factor"):
            raise ModelFormatError(f"rope type {kind!r} needs a factor, and config.json gives none")
        factor = _number(rope, "factor", 1.0)
        attention_factor = _yarn_attention_factor(rope, factor) if kind == "yarn" else 1.0
        return cls(
            kind=kind,
            theta=_number(rope, "rope_theta", _number(raw, "rope_theta", 10_000.0)),
            factor=factor,
            original_max_position=_integer(rope, "original_max_position_embeddings", max_position),
            low_freq_factor=_number(rope, "low_freq_factor", 1.0),
            high_freq_factor=_number(rope, "high_freq_factor", 4.0),
            beta_fast=_number(rope, "beta_fast", 32.0),
            beta_slow=_number(rope, "beta_slow", 1.0),
            truncate=bool(rope.get("truncate", True)),
            attention_factor=_number(rope, "attention_factor", attention_factor),
        )


def _yarn_attention_factor(rope: Mapping[str, Any], factor: float) -> float:
    def mscale(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    if rope.get("mscale") and rope.get("mscale_all_dim"):
        return mscale(_number(rope, "mscale")) / mscale(_number(rope, "mscale_all_dim"))
    return mscale(1.0)


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape of a Llama-like dense decoder. Lengths are in tokens, sizes in elements.

    ``max_seq_len`` is the longest sequence this engine computes exactly: the model's position limit, or its sliding
    window if that is shorter (a sequence within one window sees full attention).
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    max_seq_len: int
    rope: RopeConfig
    tied_embeddings: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    dtype: str = "float32"

    @property
    def params(self) -> int:
        """Weights, biases among them; an output layer that is tied to the embedding counts once."""
        return sum(outputs * inputs for outputs, inputs in self._matrices()) + self._vectors()

    @property
    def int8_bytes(self) -> int:
        """Bytes of the weights as int8: one in a matrix, four for each output's scale, for biases and norms.

        The C++ kernels lay matrices out in panels of 16 or 32 outputs; what fills up the last one comes on top.
        """
        return sum(outputs * (inputs + 4) for outputs, inputs in self._matrices()) + 4 * self._vectors()

    def _matrices(self) -> list[tuple[int, int]]:
        """``[outputs, inputs]`` of every matrix."""
        hidden, between = self.hidden_size, self.intermediate_size
        q, kv = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        layer = [(q + 2 * kv, hidden), (hidden, q), (2 * between, hidden), (hidden, between)]
        return self.num_layers * layer + (1 if self.tied_embeddings else 2) * [(self.vocab_size, hidden)]

    def _vectors(self) -> int:
        """Numbers in all biases and norms."""
        hidden, between = self.hidden_size, self.intermediate_size
        qkv = (self.num_heads + 2 * self.num_kv_heads) * self.head_dim
        biases = self.qkv_bias * qkv + self.output_bias * hidden
        biases += self.mlp_bias * (2 * between + hidden)
        norms = 2 * hidden + self.qk_norm * 2 * self.head_dim
        return self.num_layers * (biases + norms) + hidden

    def kv_bytes_per_token(self, dtype: str | None = None) -> int:
        """Bytes of K and V that one token takes over all layers, in ``dtype`` (None: the model's own)."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * DTYPE_BYTES[dtype or self.dtype]

    @classmethod
    def from_folder(cls, folder: str | Path) -> ModelConfig:
        """Read ``folder/config.json``.

        Raises:
            ModelNotFoundError: there is no such file.
            ModelFormatError: it is damaged, or describes a model that is not supported. The message names the file.
        """
        path = Path(folder) / "config.json"
        try:
            raw = read_json(path)
        except FileNotFoundError:
            raise ModelNotFoundError(f"{folder} has no config.json: it is not a Hugging Face model folder") from None
        try:
            return cls.from_hf(raw)
        except ModelFormatError as error:
            raise ModelFormatError(f"{path}: {error}") from None

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> ModelConfig:
        """Build from the dictionary in ``config.json``.

        Raises:
            ModelFormatError: an architecture, activation, rope type or quantization this engine does not run, or a
                key that is missing or no number. The message names it and lists what is supported.
        """
        names = raw.get("architectures")
        architecture = names[0] if names and isinstance(names, list) else names
        if architecture not in ARCHITECTURES:
            raise ModelFormatError(
                f"architecture {architecture!r} is not supported; supported are {', '.join(ARCHITECTURES)}"
            )
        if raw.get("hidden_act", "silu") != "silu":
            raise ModelFormatError(f"hidden_act {raw['hidden_act']!r} is not supported; supported is 'silu'")
        if raw.get("quantization_config"):
            raise ModelFormatError("quantized weights (quantization_config) are not supported; use float weights")
        dtype = raw.get("dtype") or raw.get("torch_dtype") or "float32"
        if dtype not in tuple(DTYPE_BYTES):
            raise ModelFormatError(f"dtype {dtype!r} is not supported; supported are {', '.join(DTYPE_BYTES)}")
        bias = bool(raw.get("attention_bias")) and architecture in ("LlamaForCausalLM", "Qwen3ForCausalLM")
        hidden_size, heads = _integer(raw, "hidden_size"), _integer(raw, "num_attention_heads")
        positions = _integer(raw, "max_position_embeddings")
        config = cls(
            architecture=architecture,
            vocab_size=_integer(raw, "vocab_size"),
            hidden_size=hidden_size,
            intermediate_size=_integer(raw, "intermediate_size"),
            num_layers=_integer(raw, "num_hidden_layers"),
            num_heads=heads,
            num_kv_heads=_integer(raw, "num_key_value_heads", heads),
            head_dim=_integer(raw, "head_dim", hidden_size // heads),
            rms_norm_eps=_number(raw, "rms_norm_eps"),
            max_seq_len=min(positions, _sliding_window(raw, architecture, positions)),
            rope=RopeConfig.from_hf(raw, positions),
            tied_embeddings=bool(raw.get("tie_word_embeddings")),
            qkv_bias=bias or architecture == "Qwen2ForCausalLM",
            output_bias=bias,
            mlp_bias=bool(raw.get("mlp_bias")) and architecture == "LlamaForCausalLM",
            qk_norm=architecture == "Qwen3ForCausalLM",
            dtype=dtype,
        )
        if config.num_heads % config.num_kv_heads:
            raise ModelFormatError(f"{heads} query heads cannot share {config.num_kv_heads} KV heads evenly")
        return config


def _sliding_window(raw: Mapping[str, Any], architecture: str, otherwise: int) -> int:
    kinds = raw.get("layer_types") or []
    if not isinstance(kinds, list) or any(kind not in ("full_attention", "sliding_attention") for kind in kinds):
        raise ModelFormatError(f"layer_types={kinds!r}: supported are 'full_attention' and 'sliding_attention'")
    used = raw.get("use_sliding_window", architecture == "MistralForCausalLM")
    return _integer(raw, "sliding_window", otherwise) if used else otherwise
