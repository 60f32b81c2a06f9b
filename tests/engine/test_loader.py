"""load_engine decides what the settings leave open, and refuses what cannot work."""

from __future__ import annotations

import json
import shutil

import pytest
from safetensors.torch import load_file

from minisgl.config import EngineConfig
from minisgl.engine import load_engine
from minisgl.errors import ConfigError, ModelFormatError, ModelNotFoundError
from minisgl.models.config import ModelConfig
from tests.models.tiny import FAMILIES


def test_what_was_left_open_is_decided(tiny_folder):
    folder = tiny_folder("llama")
    config = EngineConfig(num_pages=20, page_size=4, device="cpu", dtype="float32", kernels="torch")
    engine = load_engine(folder, config)
    assert (engine.config.num_pages, engine.config.max_seq_len) == (20, 80)  # the pool is the limit
    assert (engine.config.dtype, engine.config.device) == ("float32", "cpu")
    assert (engine.name, engine.folder) == (str(folder), folder)
    assert engine.executor.pool.data.shape == (2, 2, 21, 4, 2, 8)
    stored = load_file(folder / "model.safetensors")
    assert engine.memory.weight_bytes == sum(4 * weight.numel() for weight in stored.values())
    assert engine.memory.pool_bytes == engine.executor.pool.data.numel() * 4
    assert repr(engine) == f"LoadedEngine({str(folder)!r}, pages=20x4, float32 on cpu)"


def test_threads_of_one_engine_are_not_those_of_the_next(tiny_folder):
    folder = tiny_folder("llama")
    before = load_engine(folder, EngineConfig(num_pages=20, device="cpu")).config.threads
    load_engine(folder, EngineConfig(num_pages=20, device="cpu", threads=before + 1))
    assert load_engine(folder, EngineConfig(num_pages=20, device="cpu")).config.threads == before


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_are_counted_as_they_are_stored(tiny_folder, family):
    folder = tiny_folder(family)
    stored = load_file(folder / "model.safetensors").values()
    assert ModelConfig.from_folder(folder).params == sum(weight.numel() for weight in stored)


def test_the_models_positions_limit_a_large_pool(tiny_folder):
    engine = load_engine(tiny_folder("llama"), EngineConfig(kv_gib=0.001, page_size=4, device="cpu"))
    assert engine.config.num_pages == int(0.001 * 2**30) // (4 * engine.memory.kv_bytes_per_token)
    assert engine.config.max_seq_len == engine.model_config.max_seq_len == 256


def test_max_seq_len_above_the_model(tiny_folder):
    with pytest.raises(ConfigError, match=r"max_seq_len=257: .* at most 256 tokens"):
        load_engine(tiny_folder("llama"), EngineConfig(num_pages=400, max_seq_len=257, device="cpu"))


@pytest.mark.parametrize("device", ["toaster", "meta", "cuda:99"])
def test_devices_that_are_not_there(tiny_folder, device):
    with pytest.raises(ConfigError, match=f"device='{device}'"):
        load_engine(tiny_folder("llama"), EngineConfig(num_pages=20, device=device))


@pytest.fixture
def no_weights(monkeypatch) -> None:
    def refuse(*_):
        raise AssertionError("the weights were read")

    monkeypatch.setattr("minisgl.engine.loader.load_model", refuse)


@pytest.mark.parametrize(
    ("size", "message"), [({"num_pages": 10**12}, "lower num_pages"), ({"kv_gib": 1e-9}, "no room for 2 pages")]
)
def test_a_pool_that_cannot_be_is_refused_before_the_weights_are_read(tiny_folder, tmp_path, no_weights, size, message):
    # a copy, as no other test's engine may hold its weights
    folder = shutil.copytree(tiny_folder("llama"), tmp_path / "model")
    with pytest.raises(ConfigError, match=message):
        load_engine(folder, EngineConfig(device="cpu", **size))


def test_an_unknown_model():
    with pytest.raises(ModelNotFoundError, match="smollm2-135m"):
        load_engine("/no/such/folder", EngineConfig())


def test_end_tokens_of_both_files(tiny_folder, tmp_path):
    folder = shutil.copytree(tiny_folder("llama"), tmp_path / "model")
    (folder / "generation_config.json").write_text('{"eos_token_id": [7, 1]}')
    assert load_engine(folder, EngineConfig(num_pages=20, device="cpu")).eos_token_ids == (7, 1)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "eos_token_id": 9}))
    assert load_engine(folder, EngineConfig(num_pages=20, device="cpu")).eos_token_ids == (7, 1, 9)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", "[]", r"config\.json is damaged: it holds no JSON object, but a list"),
        ("generation_config.json", "{", r"generation_config\.json is not valid JSON"),
        ("generation_config.json", "[]", r"generation_config\.json is damaged"),
        ("generation_config.json", '{"eos_token_id": "2"}', r"generation_config\.json: eos_token_id=\['2'\]"),
        ("tokenizer.json", "{", r"tokenizer\.json is not valid JSON"),
        ("tokenizer.json", '{"model": 5}', r"the tokenizer in .*tokenizer\.json.* cannot be loaded"),
        ("tokenizer_config.json", "[]", r"tokenizer_config\.json is damaged"),
    ],
)
def test_a_damaged_file_is_named_before_the_weights_are_read(tiny_folder, tmp_path, no_weights, file, content, message):
    folder = shutil.copytree(tiny_folder("llama"), tmp_path / "model")
    (folder / file).write_text(content)
    with pytest.raises(ModelFormatError, match=message):
        load_engine(folder, EngineConfig(num_pages=20, device="cpu"))


def test_a_tokenizer_of_an_unknown_class(tiny_folder, tmp_path):
    folder = shutil.copytree(tiny_folder("llama"), tmp_path / "model")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "NoSuchTokenizer"}')
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelFormatError, match=r"the tokenizer in .* cannot be loaded"):
        load_engine(folder, EngineConfig(num_pages=20, device="cpu"))


def test_the_tokenizer_comes_along_and_may_be_absent(tiny_folder, tmp_path):
    engine = load_engine(tiny_folder("llama"), EngineConfig(num_pages=20, device="cpu"))
    assert engine.tokenizer.decode(engine.tokenizer.encode("an apple")) == "an apple"
    folder = shutil.copytree(tiny_folder("llama"), tmp_path / "bare")
    for file in folder.glob("tokenizer*"):
        file.unlink()
    assert load_engine(folder, EngineConfig(num_pages=20, device="cpu")).tokenizer is None
