"""The C++ kernels compute what torch computes, and every token's numbers whatever it is computed beside."""

from __future__ import annotations

import mmap
import random
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from minisgl import LLM, Recorder, size
from minisgl.config import EngineConfig
from minisgl.engine import load_engine, loader
from minisgl.kernel import build, native
from minisgl.kvcache import pool
from minisgl.layers import Linear
from minisgl.models.config import ModelConfig
from minisgl.models.decoder import Embedding
from minisgl.models.weights import load_model
from tests.chromium import skip_or_fail
from tests.engine.conftest import needs_cpp
from tests.engine.driver import Driver
from tests.models.tiny import FAMILIES, VOCAB_SIZE, tiny_model_folder

pytestmark = needs_cpp

PROMPTS = [random.Random(n).choices(range(2, VOCAB_SIZE), k=n) for n in (1, 18, 131)]
# what a compiler for x86-64 can be asked for: AVX2, AVX (as without any), SSE only
OLDER = ("-march=x86-64-v3", "-march=x86-64-v2")


def drive(folder, kernels="cpp", dtype="float32", threads=1, page_size=4, **settings):
    """A driver of an engine; "int8" is bfloat16 with such weights."""
    if dtype == "int8":
        dtype, settings["quantize"] = "bfloat16", "int8"
    usual = {"num_pages": 1024 // page_size, "max_running_requests": 8, "device": "cpu"}
    config = EngineConfig(page_size=page_size, kernels=kernels, dtype=dtype, threads=threads, **(usual | settings))
    driver = Driver(load_engine(folder, config).executor)
    driver.logits, own = [], driver.executor.runner.logits
    driver.executor.runner.logits = lambda *args: driver.logits.append(own(*args).clone()) or driver.logits[-1]
    driver.executor.pool.data.fill_(torch.nan)  # nothing may be read that was not stored
    return driver


def all_at_once(driver) -> torch.Tensor:
    """Logits of one prefill of all prompts and three decodes, the tokens given: ``[4, prompts, vocab]``."""
    for row, prompt in enumerate(PROMPTS):
        driver.admit(row, prompt)
    driver.prefill(*range(len(PROMPTS)))
    for step in range(3):
        for row in range(len(PROMPTS)):
            driver.tokens[row][-1] = 7 + 11 * row + step
            driver.token_writes.append((row, len(driver.tokens[row]) - 1, driver.tokens[row][-1:]))
        driver.decode(*range(len(PROMPTS)))
    return torch.stack(driver.logits)


def assert_near(found: torch.Tensor, wanted: torch.Tensor, tolerance: float) -> None:
    assert found.isfinite().all()
    assert (found.float() - wanted.float()).abs().max() <= tolerance * wanted.float().std()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_computes_what_torch_computes(tiny_folder, family):
    folder = tiny_folder(family)
    wanted = all_at_once(drive(folder, "torch"))
    assert_near(all_at_once(drive(folder)), wanted, 1e-4)
    ours, torchs = (all_at_once(drive(folder, kernels, "bfloat16")).float() - wanted for kernels in ("cpp", "torch"))
    assert 0 < ours.square().mean().sqrt() < min(1.5 * torchs.square().mean().sqrt(), 0.1 * wanted.std())


def rounded(x: torch.Tensor, group: int) -> torch.Tensor:
    """To 255 steps, each ``group`` of a row to its own."""
    groups = F.pad(x, (0, -x.shape[-1] % group)).unflatten(-1, (-1, group))
    step = groups.abs().amax(-1, keepdim=True) / 127
    return (groups / step.clamp(min=1e-30)).round().mul(step).flatten(-2)[..., : x.shape[-1]]


@pytest.mark.parametrize("family", FAMILIES)
def test_int8_is_float32_with_rounded_weights_and_inputs(tiny_folder, monkeypatch, family):
    folder = tiny_folder(family)
    exact, found = all_at_once(drive(folder, "torch")), all_at_once(drive(folder, quantize="int8"))

    def product(self, x):
        return F.linear(rounded(x, 32), rounded(self.weight, self.weight.shape[1]), self.bias)

    def embed(self, token_ids):
        return F.embedding(token_ids, rounded(self.weight, self.weight.shape[1]))

    monkeypatch.setattr(loader, "can_pack", lambda *args: False)
    monkeypatch.setattr(loader, "_loaded", {})
    monkeypatch.setattr(Linear, "forward", product)
    monkeypatch.setattr(Embedding, "forward", embed)
    wanted = all_at_once(drive(folder, "torch"))
    # where sums differ in their last digit an integer may be another, which is seldom; rounding itself is everywhere
    off, rounding = ((a - wanted).square().mean().sqrt() for a in (found, exact))
    assert 4 * off < rounding < 0.1 * wanted.std()


def test_int8_weights_are_shared_with_those_alike_only(tiny_folder):
    engines = [drive(tiny_folder("llama"), quantize=kind) for kind in (None, "int8", "int8")]
    plain, int8, same = (engine.executor.runner.decoder for engine in engines)
    assert same is int8 and 0.25 < int8.weight_bytes / plain.weight_bytes < 0.5


@pytest.mark.parametrize("family", ["llama", "llama-tied", "llama-biased", "qwen3"])
def test_size_says_what_int8_weights_really_take(tmp_path, family):
    """To the byte, where whole panels are filled; and from the record of a run as well."""
    whole = {"hidden_size": 64, "num_attention_heads": 4, "head_dim": 32, "intermediate_size": 96}
    folder = tiny_model_folder(family, tmp_path, **whole)
    with LLM(folder, num_pages=8, device="cpu", quantize="int8") as llm, Recorder(llm) as recorder:
        pass
    assert size(llm).facts["weight_bytes"] == size(recorder.trace).facts["weight_bytes"] == llm.memory.weight_bytes


@pytest.mark.parametrize("target", OLDER)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_older_cpus_compute_the_same(tmp_path, monkeypatch, target, dtype):
    """In particular AVX2 and SSE, which the machine at hand may not choose by itself."""
    folder = tiny_model_folder("qwen3", tmp_path, head_dim=40, intermediate_size=84, hidden_size=52)
    wanted = all_at_once(drive(folder, dtype=dtype))
    try:
        older = build.load(build.compiled(target))
    except build.KernelsMissingError as error:
        skip_or_fail(f"the compiler here makes no code for {target}: {error}")
    monkeypatch.setattr(native, "library", lambda: older)
    engine = drive(tmp_path.rename(tmp_path.with_name(f"{tmp_path.name}-older")), dtype=dtype)
    assert engine.executor.runner.decoder._width < 16
    # int8: without fused multiply-add, last digits differ and so do some integers
    assert_near(all_at_once(engine), wanted, {"float32": 1e-4, "bfloat16": 0.05, "int8": 0.3}[dtype])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_nan_stays_with_its_own_request(tmp_path, dtype):
    """Also where the vectors that compute a token are longer than what the model has of it."""
    driver = drive(tiny_model_folder("qwen3", tmp_path, hidden_size=52), dtype=dtype)
    driver.admit(0, PROMPTS[0])
    driver.prefill(0)
    driver.executor.pool.data.fill_(torch.nan)
    driver.decode(0)
    driver.admit(1, PROMPTS[1])
    driver.prefill(1)
    assert driver.logits[1].isnan().all() and driver.logits[2].isfinite().all()


@pytest.fixture(scope="module")
def long_folder(tmp_path_factory):
    return tiny_model_folder("llama", tmp_path_factory.mktemp("long"), max_position_embeddings=1024)


LONG = random.Random(1).choices(range(2, VOCAB_SIZE), k=700)


def test_a_prompt_longer_than_blocks_and_windows(long_folder):
    found = []
    for kernels in ("torch", "cpp"):
        driver = drive(long_folder, kernels)
        driver.admit(0, LONG)
        driver.prefill(0)
        found.append(driver.logits[0])
    assert_near(found[1], found[0], 1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
class TestOnlyItsOwnHistoryDecides:
    """Bit for bit: the last logits of a prompt, however and beside whomever they are computed."""

    def alone(self, folder, dtype) -> torch.Tensor:
        driver = drive(folder, dtype=dtype)
        driver.admit(0, LONG)
        driver.prefill(0)
        return driver.logits[-1][0]

    @pytest.mark.parametrize("cuts", [[1], [699], [128, 129], [300, 301, 302, 600], [512]], ids=str)
    def test_chunks(self, long_folder, dtype, cuts):
        driver = drive(long_folder, dtype=dtype, page_size=1)
        driver.admit(2, LONG)
        for start, end in pairwise([0, *cuts, 700]):
            driver.run({2: (start, end)})
        assert torch.equal(driver.logits[-1][0], self.alone(long_folder, dtype))

    @pytest.mark.parametrize("threads", [1, 3])
    def test_company(self, long_folder, dtype, threads):
        driver = drive(long_folder, dtype=dtype, threads=threads)
        for row, prompt in enumerate([PROMPTS[1], LONG[:40], PROMPTS[2], LONG]):
            driver.admit(row, prompt)
        driver.run({0: (0, 18), 1: (0, 39), 2: (0, 2), 3: (0, 699)})
        driver.run({2: (2, 131), 0: (18, 19), 3: (699, 700), 1: (39, 40)})
        assert torch.equal(driver.logits[-1][2], self.alone(long_folder, dtype))

    def test_a_prefix_of_somebody_else(self, long_folder, dtype):
        driver = drive(long_folder, dtype=dtype)
        driver.admit(0, [*LONG[:652], 5, 6])
        driver.prefill(0)
        driver.admit(1, LONG, prefix=652, of=0)
        driver.run({0: (654, 655), 1: (652, 700)})
        assert torch.equal(driver.logits[-1][1], self.alone(long_folder, dtype))


def test_packing_by_hand():
    weight, packed = torch.arange(10.0).view(5, 2), torch.zeros(2, 2, 4, dtype=torch.int32)  # five outputs, two inputs
    native.pack(weight, packed)
    assert packed.view(torch.float32).tolist() == [[[0, 2, 4, 6], [1, 3, 5, 7]], [[8, 0, 0, 0], [9, 0, 0, 0]]]
    native.pack(torch.arange(15.0).view(5, 3).bfloat16(), packed.zero_())  # the third input has no partner
    first = packed.view(torch.bfloat16)[0]
    assert first.tolist() == [[0, 1, 3, 4, 6, 7, 9, 10], [2, 0, 5, 0, 8, 0, 11, 0]]


def test_packing_gates_and_ups_by_hand():
    both = torch.tensor([1.0, 2, 3, 4, 5, -1, -2, -3, -4, -5])  # five of either
    packed = torch.zeros(3, 1, 4, dtype=torch.int32)
    native.pack(both[:, None], packed, gated=True)
    assert packed.view(torch.float32).flatten().tolist() == [1, 2, -1, -2, 3, 4, -3, -4, 5, 0, -5, 0]


def test_quantizing_by_hand():
    integers, scale = native.quantize(torch.tensor([[1.27, -0.634, 0.01], [0.0, 0.0, 0.0], [-254.0, 1.0, 3.1]]), 4)
    assert integers.tolist() == [[255, 65, 129, 128], [128, 128, 128, 128], [1, 128, 130, 128]]
    assert scale.tolist() == pytest.approx([0.01, 0, 2])


def test_where_a_pass_spends_its_time(tiny_folder):
    driver = drive(tiny_folder("llama"), quantize="int8", threads=2)
    runner = driver.executor.runner
    runner.seconds = np.zeros((2, len(native.PARTS)))
    driver.admit(0, PROMPTS[1])
    driver.prefill(0)
    assert (runner.seconds >= 0).all() and (runner.seconds.sum(0) > 0).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_weights_exist_once_while_they_are_loaded(tiny_folder, monkeypatch, dtype):
    """At most the panels, and of one module what was read and what it is made into; all of it in mappings."""
    live, most = 0, 0

    class Counted(mmap.mmap):
        def __init__(self, *args, **kwargs):
            nonlocal live, most
            live += len(self)
            most = max(most, live)

        def __del__(self):
            nonlocal live
            live -= len(self)

    monkeypatch.setattr(pool.mmap, "mmap", Counted)
    monkeypatch.setattr(pool, "SMALL", 0)
    monkeypatch.setattr(pool, "HUGE", 1)  # no rounding
    folder, itemsize = tiny_folder("qwen3"), 4 if dtype == "float32" else 2
    config = ModelConfig.from_folder(folder)
    decoder = native.NativeDecoder(config, torch.float32 if dtype == "float32" else torch.bfloat16, dtype == "int8")
    panels, sizes = live, []

    def take(module):
        sizes.append(sum(p.numel() for p in module.parameters(recurse=False)))
        decoder.take(module)

    decoder.finish(load_model(config, folder, decoder.dtype, "cpu", take))
    each = itemsize + (1 + 4 if dtype == "int8" else 0)  # int8: the integers, and some rows in float32
    assert max(sizes) * itemsize <= most - panels <= 1.3 * max(sizes) * each
    assert live - panels <= 0.1 * panels  # what is left are norms, which the model still has
