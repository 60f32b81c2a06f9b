"""Weights from safetensors, one tensor at a time, every name and shape accounted for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from tqdm.auto import tqdm

from minisgl.errors import ModelFormatError, ModelNotFoundError
from minisgl.layers import FusedLinear
from minisgl.models.config import ModelConfig, read_json
from minisgl.models.decoder import Decoder

HEAD = "lm_head.weight"
SHOW_PROGRESS_AFTER = 2.0  # seconds; a small model loads without a bar


def load_model(config: ModelConfig, folder: str | Path, dtype: torch.dtype, device: str | torch.device) -> Decoder:
    """Build the decoder and fill it from ``folder``'s safetensors, cast to ``dtype`` on ``device``.

    Names and shapes are checked against the file headers before any memory is taken; then tensors stream through one
    by one, so the weights exist once.

    Raises:
        ModelNotFoundError: the folder holds no safetensors.
        ModelFormatError: weights are missing, left over or of another shape, or a file is damaged.
    """
    model = Decoder(config, dtype, device)
    try:
        files = _tensor_files(Path(folder))
        _check(model, files)
        model.to_empty(device=device)
        model.tie()
        targets = _destinations(model)
        progress = tqdm(targets.items(), desc="loading weights", unit="tensor", delay=SHOW_PROGRESS_AFTER, leave=False)
        for name, target in progress:
            target.copy_(files[name].get_tensor(name))
    except SafetensorError as error:
        raise ModelFormatError(f"the weights in {folder} cannot be read: {error}") from error
    return model


def _tensor_files(folder: Path) -> dict[str, safe_open]:
    """Tensor name -> the open file that holds it."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
            raise ModelFormatError(f"{index} is damaged: it has no 'weight_map' from weights to file names")
        names = sorted(set(weight_map.values()))
    else:
        names = ["model.safetensors"]
    for name in names:
        if not (folder / name).exists():
            raise ModelNotFoundError(f"{folder} has no {name}; only weights in safetensors format are read")
    files = [safe_open(folder / name, framework="pt") for name in names]
    return {tensor: file for file in files for tensor in file.keys()}  # noqa: SIM118 (a safe_open is no dict)


def _destinations(model: Decoder) -> dict[str, Tensor]:
    """Checkpoint name -> the part of the model's memory (a view) that it fills."""
    places = {}
    for path, module in model.named_modules():
        for leaf, parameter in module.named_parameters(recurse=False):
            parent, _, own = path.rpartition(".")
            parts = module.parts if isinstance(module, FusedLinear) else {own: parameter.shape[0]}
            for part, view in zip(parts, parameter.data.split(tuple(parts.values())), strict=True):
                name = f"{parent}.{part}.{leaf}" if parent else f"{part}.{leaf}"
                places[name if part == "lm_head" else f"model.{name}"] = view
    if model.tied:
        del places[HEAD]
    return places


def _check(model: Decoder, files: dict[str, safe_open]) -> None:
    wanted = {name: tuple(view.shape) for name, view in _destinations(model).items()}
    harmless = {HEAD} if model.tied else set()
    # old checkpoints store the rotary frequencies, which config.json already determines
    found = {n for n in files if n not in harmless and not n.endswith("rotary_emb.inv_freq")}
    if missing := wanted.keys() - found:
        raise ModelFormatError(f"{len(missing)} weights are missing: {_some(missing)}")
    if left_over := found - wanted.keys():
        raise ModelFormatError(f"{len(left_over)} weights have no place in this architecture: {_some(left_over)}")
    for name, shape in wanted.items():
        stored = tuple(files[name].get_slice(name).get_shape())
        if stored != shape:
            raise ModelFormatError(f"{name} has shape {stored}; config.json asks for {shape}")


def _some(names: Iterable[str]) -> str:
    ordered = sorted(names)
    return ", ".join(ordered[:3]) + (", ..." if len(ordered) > 3 else "")
