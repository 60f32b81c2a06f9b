"""transformers' ``generate`` as a peer: greedy, a fixed number of new tokens, one by one or as a padded batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
import transformers
from torch import Tensor
from transformers import AutoModelForCausalLM


class Transformers:
    """A model of the same folder, so with the same weights.

    The attention mask is always given: without it, tokens equal to the pad token would be masked inside a prompt.
    """

    def __init__(self, folder: Path, dtype: str) -> None:
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
        self.model.generation_config.eos_token_id = None  # every prompt gets all its tokens
        self.pad = 0

    def one_at_a_time(self, prompts: Sequence[list[int]], new: Sequence[int]) -> list[list[int]]:
        return [self._generate([prompt], n)[0] for prompt, n in zip(prompts, new, strict=True)]

    def padded_batch(self, prompts: Sequence[list[int]], new: Sequence[int]) -> list[list[int]]:
        """Everybody computes until the longest output ends; the rest of the others' is thrown away."""
        return [tokens[:n] for tokens, n in zip(self._generate(prompts, max(new)), new, strict=True)]

    @torch.inference_mode()
    def _generate(self, prompts: Sequence[list[int]], new: int) -> list[list[int]]:
        """Padded on the left, as decoder-only models need it."""
        longest = max(map(len, prompts))
        ids = torch.tensor([[self.pad] * (longest - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
        out: Tensor = self.model.generate(
            ids, attention_mask=mask, max_new_tokens=new, do_sample=False, pad_token_id=self.pad
        )
        return out[:, longest:].tolist()

    @torch.inference_mode()
    def gap(self, tokens: list[int], a: int, b: int) -> float:
        """How far apart the logits of two candidates for the next token are."""
        logits = self.model(torch.tensor([tokens])).logits[0, -1]
        return abs(float(logits[a] - logits[b]))
