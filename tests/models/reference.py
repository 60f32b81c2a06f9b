"""What Hugging Face's own models answer: the reference every exactness test compares with."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel


@lru_cache(maxsize=16)
def reference_model(folder: Path) -> PreTrainedModel:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None  # end tokens must not end the comparison
    return model


def reference_tokens(folder: Path, prompt: list[int], count: int) -> list[int]:
    """``count`` greedy tokens after ``prompt``, in float32."""
    ids = torch.tensor([prompt])
    # without a mask, generate() would take every pad token in the prompt for padding
    mask = torch.ones_like(ids)
    output = reference_model(folder).generate(
        ids, attention_mask=mask, do_sample=False, max_new_tokens=count, pad_token_id=0
    )
    return output[0, len(prompt) :].tolist()
