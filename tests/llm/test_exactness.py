"""The whole engine against Hugging Face, token for token, in float32."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
import torch

from minisgl import LLM, SamplingParams
from minisgl.engine import cpu
from minisgl.events import RequestRetracted
from minisgl.models.hub import resolve_model
from tests.models.reference import reference_model, reference_tokens
from tests.models.tiny import FAMILIES, VOCAB_SIZE

CONFIGS = [
    {"page_size": ps, "prefix_cache": cache, "max_prefill_tokens": budget, "overlap": overlap}
    for ps, cache, budget, overlap in product([1, 4, 16], ["radix", "naive"], [2048, 13], [False, True])
]
every_config = pytest.mark.parametrize("config", CONFIGS, ids=lambda c: "-".join(map(str, c.values())))

# common beginnings, a repeated prompt, one longer than a chunk, one token alone
_head = random.Random(0).choices(range(2, VOCAB_SIZE), k=40)
TINY_PROMPTS = [_head[:7], _head[:33], _head[:33], [*_head[:20], 5, 6, 7], _head[1:2], _head[10:29]]

SMOL_PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n    ",
    "1, 1, 2, 3, 5, 8,",
    "The radix tree keeps the prefixes of all prompts, so that",
    "The radix tree keeps the prefixes of all prompts, and when",
    "Q: What is the largest planet?\nA:",
    "Die Hauptstadt von Deutschland ist",
]


@pytest.fixture(scope="module")
def smollm2() -> Iterator[Path]:
    """The model's folder; an engine that holds its weights for all configurations; both cores."""
    folder, threads = resolve_model("smollm2-135m"), torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch, LLM(folder, num_pages=2, device="cpu", dtype="float32", threads=2):
        patch.setattr(cpu, "CORES", 2)
        yield folder
    torch.set_num_threads(threads)


def outputs(folder, prompts, new, batched=True, events=None, **config):
    settings = {"num_pages": 1024 // config["page_size"], "max_running_requests": 8, "max_seq_len": 256}
    params = SamplingParams(max_tokens=new, ignore_eos=True)
    with LLM(folder, device="cpu", dtype="float32", check=True, poison=True, **(settings | config)) as llm:
        llm.on(None, (events if events is not None else []).append)
        if batched:
            outs = llm.generate(prompts, params, progress=False)
        else:
            outs = [llm.generate(prompt, params, progress=False) for prompt in prompts]
        llm.check_integrity()
        assert llm.idle
    return [out.token_ids for out in outs]


@pytest.mark.parametrize("family", FAMILIES)
@every_config
def test_tiny_models(tiny_folder, family, config):
    folder = tiny_folder(family)
    want = [reference_tokens(folder, prompt, 10) for prompt in TINY_PROMPTS]
    assert outputs(folder, TINY_PROMPTS, 10, **config) == want
    assert outputs(folder, TINY_PROMPTS, 10, batched=False, **config) == want


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_tiny_models_in_a_pool_that_is_too_small(tiny_folder, family):
    """Requests wait and prefixes are evicted; the tokens stay the same."""
    folder = tiny_folder(family)
    want = [reference_tokens(folder, prompt, 10) for prompt in TINY_PROMPTS]
    config = {"page_size": 4, "num_pages": 14, "max_seq_len": 56, "max_running_requests": 3, "max_prefill_tokens": 13}
    assert outputs(folder, TINY_PROMPTS, 10, **config) == want


@pytest.mark.parametrize("config", [c for c in CONFIGS if c["overlap"]], ids=lambda c: "-".join(map(str, c.values())))
def test_a_tiny_model_that_is_thrown_out_again_and_again(tiny_folder, config):
    """Too little is promised, prompts and decodes share batches, and whoever comes back computes its output again."""
    folder, events = tiny_folder("llama"), []
    want = [reference_tokens(folder, prompt, 20) for prompt in TINY_PROMPTS]
    tight = {"num_pages": 80 // config["page_size"], "max_seq_len": 80, "admission": "optimistic", "phase": "mixed"}
    assert outputs(folder, TINY_PROMPTS, 20, events=events, **(config | tight)) == want
    assert any(isinstance(e, RequestRetracted) for e in events)


@pytest.mark.parametrize("order", ["lpm", "shortest"])
def test_a_tiny_model_under_other_policies(tiny_folder, order):
    folder = tiny_folder("qwen3")
    want = [reference_tokens(folder, prompt, 10) for prompt in TINY_PROMPTS]
    config = {"page_size": 4, "num_pages": 14, "max_seq_len": 56, "max_running_requests": 3, "max_prefill_tokens": 13}
    config |= {"admission": 0.3, "eviction": "lfu" if order == "lpm" else "fifo", "phase": "decode-first"}
    assert outputs(folder, TINY_PROMPTS, 10, order=order, **config) == want


@pytest.fixture(scope="module")
def smollm2_reference(smollm2):
    with LLM(smollm2, num_pages=2, device="cpu", dtype="float32") as llm:
        prompts = [llm.encode(p) for p in SMOL_PROMPTS]
    wanted = [reference_tokens(smollm2, prompt, 64) for prompt in prompts]
    reference_model.cache_clear()
    return wanted


@every_config
def test_smollm2_batched(smollm2, smollm2_reference, config):
    assert outputs(smollm2, SMOL_PROMPTS, 64, **config) == smollm2_reference


def test_smollm2_on_torch(smollm2, smollm2_reference):
    config = {"page_size": 4, "prefix_cache": "radix", "max_prefill_tokens": 13, "kernels": "torch"}
    assert outputs(smollm2, SMOL_PROMPTS, 64, **config) == smollm2_reference


def test_smollm2_alone(smollm2, smollm2_reference):
    config = {"page_size": 4, "prefix_cache": "radix", "max_prefill_tokens": 13}
    assert outputs(smollm2, SMOL_PROMPTS, 64, batched=False, **config) == smollm2_reference
