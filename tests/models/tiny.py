"""Tiny random models of every supported family, saved as Hugging Face folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

VOCAB_SIZE = 960
EOS = 1
SIZES: dict[str, Any] = dict(
    vocab_size=VOCAB_SIZE,
    hidden_size=48,
    intermediate_size=80,
    num_hidden_layers=2,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=256,
    initializer_range=0.4,  # wide enough that greedy outputs wander instead of repeating one token
    bos_token_id=0,
    eos_token_id=EOS,
    tie_word_embeddings=False,
)
STRETCH = {"rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 64}
FAMILIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "llama": (LlamaConfig, {}),
    "llama-tied": (LlamaConfig, {"tie_word_embeddings": True}),
    "llama-biased": (LlamaConfig, {"attention_bias": True, "mlp_bias": True}),
    "llama-linear": (LlamaConfig, {"rope_parameters": {**STRETCH, "rope_type": "linear"}}),
    "llama-llama3": (
        LlamaConfig,
        {"rope_parameters": {**STRETCH, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}},
    ),
    "llama-yarn": (LlamaConfig, {"rope_parameters": {**STRETCH, "rope_type": "yarn"}}),
    "mistral": (MistralConfig, {"sliding_window": None}),
    "qwen2": (Qwen2Config, {}),
    "qwen3": (Qwen3Config, {"tie_word_embeddings": True}),
}


def tiny_model_folder(family: str, folder: str | Path, seed: int = 0, **changes: Any) -> Path:
    """Save a random model of ``family`` (a key of FAMILIES), with a tokenizer, into ``folder`` and return it.

    ``changes`` override the Hugging Face config's fields. Vocabulary 960, 256 positions, end token 1. Biases and norm
    weights are random too: left at their defaults of 0 and 1, a model that ignores them would look right.
    """
    kind, special = FAMILIES[family]
    config = kind(**{**SIZES, **special, **changes})
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data += 0.3 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return Path(folder)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE of 960 tokens: two specials, the 256 bytes, 26 space + letter and 676 letter + letter merges."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    merges = [("Ġ", a) for a in letters] + [(a, b) for a in letters for b in letters]
    tokens = ["<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet()), *(a + b for a, b in merges)]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        chat_template="{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
    )
