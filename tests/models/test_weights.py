"""Every weight has its place: none missing, none left over, none of another shape."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from minisgl.errors import ModelFormatError, ModelNotFoundError
from minisgl.models.config import ModelConfig
from minisgl.models.decoder import Decoder
from minisgl.models.weights import load_model
from tests.models.tiny import FAMILIES, tiny_model_folder


@pytest.fixture
def folder(tmp_path) -> Path:
    return tiny_model_folder("llama", tmp_path / "model")


def load(folder: Path, dtype: torch.dtype = torch.float32) -> Decoder:
    return load_model(ModelConfig.from_folder(folder), folder, dtype, "cpu")


def rewrite(folder: Path, change) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_stored_number_is_loaded_once(family, tmp_path):
    folder = tiny_model_folder(family, tmp_path)
    stored = load_file(folder / "model.safetensors")
    model = load(folder)
    parameters = dict(model.named_parameters())
    assert model.weight_bytes == sum(4 * weight.numel() for weight in stored.values())
    fused = torch.cat([stored[f"model.layers.1.self_attn.{part}_proj.weight"] for part in "qkv"])
    assert torch.equal(parameters["layers.1.self_attn.qkv_proj.weight"], fused)
    assert torch.equal(parameters["layers.1.mlp.down_proj.weight"], stored["model.layers.1.mlp.down_proj.weight"])


def test_weights_are_cast(folder):
    assert {p.dtype for p in load(folder, torch.bfloat16).parameters()} == {torch.bfloat16}


def test_shards_load_like_one_file(folder, tmp_path):
    weights = load_file(folder / "model.safetensors")
    parts = shutil.copytree(folder, tmp_path / "parts", ignore=shutil.ignore_patterns("*.safetensors"))
    names = {name: f"part-{i % 2}.safetensors" for i, name in enumerate(weights)}
    for file in set(names.values()):
        save_file({n: w for n, w in weights.items() if names[n] == file}, parts / file)
    (parts / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    one, two = load(folder).state_dict(), load(parts).state_dict()
    assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
    (parts / "part-1.safetensors").unlink()
    with pytest.raises(ModelNotFoundError, match=r"has no part-1\.safetensors"):
        load(parts)


def test_missing_weights_are_named(folder):
    rewrite(folder, lambda weights: [weights.pop(f"model.layers.{i}.self_attn.k_proj.weight") for i in (0, 1)])
    with pytest.raises(ModelFormatError, match=r"2 weights are missing: model\.layers\.0\.self_attn\.k_proj\.weight, "):
        load(folder)


def test_left_over_weights_are_named(folder):
    extra = {f"model.layers.{i}.self_attn.q_norm.weight": torch.ones(8) for i in range(4)}
    rewrite(folder, lambda weights: weights.update(extra))
    with pytest.raises(
        ModelFormatError, match=r"4 weights have no place .*layers\.2\.self_attn\.q_norm\.weight, \.\.\.$"
    ):
        load(folder)


def test_wrong_shapes_are_named(folder):
    rewrite(folder, lambda weights: weights.update({"model.norm.weight": torch.ones(47)}))
    with pytest.raises(ModelFormatError, match=r"model\.norm\.weight has shape \(47,\); config\.json asks for \(48,\)"):
        load(folder)


def test_stored_rotary_frequencies_are_harmless(folder):
    rewrite(folder, lambda weights: weights.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}))
    load(folder)


def test_a_second_copy_of_tied_embeddings_is_harmless_and_without_tying_needed(tmp_path):
    tied = tiny_model_folder("llama-tied", tmp_path / "tied")
    rewrite(tied, lambda weights: weights.update({"lm_head.weight": weights["model.embed_tokens.weight"].clone()}))
    model = load(tied)
    assert model.lm_head.weight is model.embed_tokens.weight
    untied = tiny_model_folder("llama", tmp_path / "untied")
    rewrite(untied, lambda weights: weights.pop("lm_head.weight"))
    with pytest.raises(ModelFormatError, match=r"1 weights are missing: lm_head\.weight"):
        load(untied)


def test_a_damaged_index(folder):
    for content in ('{"metadata": {}}', '{"weight_map": ["a"]}', '{"weight_map": {"a": 5}}', "[]"):
        (folder / "model.safetensors.index.json").write_text(content)
        with pytest.raises(ModelFormatError, match=r"index\.json is damaged: it "):
            load(folder)


def test_damaged_and_absent_files(folder):
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:2000])
    with pytest.raises(ModelFormatError, match="cannot be read"):
        load(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelNotFoundError, match="only weights in safetensors format"):
        load(folder)
