"""Whatever the batch, the chunks, the pages and the sharing: token for token what Hugging Face generates."""

from __future__ import annotations

import random

import pytest
import torch

from minisgl.config import EngineConfig
from minisgl.engine import load_engine
from minisgl.errors import ConfigError
from tests.engine.conftest import KERNELS
from tests.engine.driver import Driver
from tests.models.reference import reference_model, reference_tokens
from tests.models.tiny import FAMILIES, VOCAB_SIZE

NEW = 12
PROMPTS = [random.Random(n).choices(range(2, VOCAB_SIZE), k=n) for n in (1, 7, 19, 100)]

every_family = pytest.mark.parametrize("family", FAMILIES)
every_page_size = pytest.mark.parametrize("page_size", [1, 4, 16])


@pytest.fixture(params=KERNELS)
def drive(request):
    def make(folder, page_size=4, **settings) -> Driver:
        settings = {
            "num_pages": 512 // page_size,
            "max_running_requests": 8,
            "device": "cpu",
            "dtype": "float32",
        } | settings
        config = EngineConfig(page_size=page_size, kernels=request.param, **settings)
        return Driver(load_engine(folder, config).executor)

    return make


def assert_all_right(driver, folder):
    """One prefill of all prompts, then decode: every output is the reference's."""
    for row, prompt in enumerate(PROMPTS):
        driver.admit(row, prompt)
    driver.prefill(*range(len(PROMPTS)))
    driver.decode(*range(len(PROMPTS)), steps=NEW - 1)
    for row, prompt in enumerate(PROMPTS):
        assert driver.output(row) == reference_tokens(folder, prompt, NEW)


@every_family
@every_page_size
def test_one_prefill_of_all_then_ragged_decode(drive, tiny_folder, family, page_size):
    folder = tiny_folder(family)
    driver = drive(folder, page_size)
    assert_all_right(driver, folder)


@every_family
def test_prefill_in_chunks_beside_other_requests(drive, tiny_folder, family):
    folder = tiny_folder(family)
    driver = drive(folder)
    for row in (1, 2, 3):
        driver.admit(row, PROMPTS[row])
    driver.prefill(1)
    assert driver.run({3: (0, 33)}).tokens == [-1]
    driver.decode(1)
    driver.run({3: (33, 77), 2: (0, 5)})
    result = driver.run({2: (5, 19), 3: (77, 98)})
    assert result.tokens[0] >= 0 and result.tokens[1] == -1
    driver.run({3: (98, 99)})
    # the last chunk is one token long and computed like the decodes beside it
    driver.run({1: (8, 9), 2: (19, 20), 3: (99, 100)})
    driver.decode(1, 2, 3, steps=6)
    for row in (1, 2, 3):
        assert driver.output(row) == reference_tokens(folder, PROMPTS[row], len(driver.output(row)))


@every_family
@every_page_size
def test_prefix_read_through_another_rows_slots(drive, tiny_folder, family, page_size):
    folder = tiny_folder(family)
    driver = drive(folder, page_size)
    driver.admit(0, PROMPTS[3])
    driver.prefill(0)
    fork = PROMPTS[3][:48] + PROMPTS[1]
    driver.admit(1, fork, prefix=48, of=0)
    driver.admit(2, PROMPTS[3], prefix=96, of=0)
    driver.run({1: (48, len(fork)), 2: (96, 100)})
    driver.decode(0, 1, 2, steps=NEW - 1)
    assert driver.output(1) == reference_tokens(folder, fork, NEW)
    assert driver.output(2) == driver.output(0) == reference_tokens(folder, PROMPTS[3], NEW)


def test_prefilling_again_over_used_rows_and_pages(drive, tiny_folder):
    folder = tiny_folder("qwen3")
    driver = drive(folder, page_size=4)
    driver.admit(0, PROMPTS[3])
    driver.prefill(0)
    driver.decode(0, steps=5)
    driver.free_pages = driver.pages[0][:]
    driver.admit(0, PROMPTS[2])
    driver.prefill(0)
    driver.decode(0, steps=NEW - 1)
    assert driver.output(0) == reference_tokens(folder, PROMPTS[2], NEW)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_nan_in_the_dummy_page_reaches_no_output(drive, tiny_folder, family):
    folder = tiny_folder(family)
    driver = drive(folder, page_size=4)
    driver.executor.pool.data[:, :, -1] = torch.nan
    assert_all_right(driver, folder)


def test_nan_everywhere_but_in_what_was_stored(drive, tiny_folder):
    """The same for every slot nobody owns: what is not the request's own is never read."""
    folder = tiny_folder("llama")
    driver = drive(folder, page_size=4)
    driver.executor.pool.data.fill_(torch.nan)
    assert_all_right(driver, folder)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_logits_stay_near_float32(drive, tiny_folder, dtype, monkeypatch):
    folder = tiny_folder("qwen3")
    try:
        driver = drive(folder, dtype=dtype)
    except ConfigError as error:  # the C++ kernels know no float16
        assert dtype == "float16" and "kernels='cpp'" in str(error)
        return
    seen = []
    own = driver.executor.runner.logits
    monkeypatch.setattr(driver.executor.runner, "logits", lambda *args: seen.append(own(*args)) or seen[-1])
    driver.admit(0, PROMPTS[2])
    driver.prefill(0)
    wanted = reference_model(folder)(torch.tensor([PROMPTS[2]])).logits[0, -1]
    # bfloat16 keeps 8 bits: a few percent of the spread of the logits after two layers
    assert 0 < (seen[0][0].float() - wanted).abs().max() < 0.1 * wanted.std()
