"""Weights from safetensors, one tensor at a time, every name and shape accounted for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from minisgl.errors import ModelFormatError, ModelNotFoundError
from minisgl.kvcache.pool import huge_zeros
from minisgl.layers import FusedLinear
from minisgl.models.config import ModelConfig, read_json
from minisgl.models.decoder import Decoder
from minisgl.progress import progress_bar

HEAD = "lm_head.weight"


def load_model(
    config: ModelConfig,
    folder: str | Path,
    dtype: torch.dtype,
    device: str | torch.device,
    filled: Callable[[nn.Module], object] = lambda module: None,
) -> Decoder:
    """Build the decoder and fill it from ``folder``'s safetensors, cast to ``dtype`` on ``device``.

    Names and shapes are checked against the file headers before any memory is taken. Then module after module gets its
    memory and its weights and is handed to ``filled``, which may lay them out anew and let go of what it was given; so
    the weights exist once at any time.

    Raises:
        ModelNotFoundError: the folder holds no safetensors.
        ModelFormatError: weights are missing, left over or of another shape, or a file is damaged.
    """
    model = Decoder(config, dtype, device)
    try:
        files = _tensor_files(Path(folder))
        _check(model, files)
        modules = dict(model.named_modules())
        for path, module in progress_bar("loading weights", "module", modules.items()):
            if path == "lm_head" and model.tied:
                model.tie()
            else:
                _fill(path, module, files, device)
            filled(module)
    except SafetensorError as error:
        raise ModelFormatError(f"the weights in {folder} cannot be read: {error}") from error
    return model


def _fill(path: str, module: nn.Module, files: dict[str, Path], device: str | torch.device) -> None:
    """Give a module's parameters memory, and read what belongs there."""
    for name, parameter in module.named_parameters(recurse=False):
        shape, dtype = parameter.shape, parameter.dtype
        # not from malloc, which keeps much of what is let go again: a third of the weights, all in all
        on_cpu = torch.device(device).type == "cpu"
        empty = huge_zeros(*shape, dtype=dtype) if on_cpu else torch.empty(shape, dtype=dtype, device=device)
        setattr(module, name, nn.Parameter(empty, requires_grad=False))
    for name, target in _destinations(path, module).items():
        with safe_open(files[name], framework="pt") as file:  # kept open, it keeps what was read in memory
            target.copy_(file.get_tensor(name))


def _tensor_files(folder: Path) -> dict[str, Path]:
    """Tensor name -> the file that holds it."""
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
    found = {}
    for name in names:
        with safe_open(folder / name, framework="pt") as file:
            found.update(dict.fromkeys(file.keys(), folder / name))
    return found


def _destinations(path: str, module: nn.Module) -> dict[str, Tensor]:
    """Checkpoint name -> the part of the memory of the module at ``path`` (a view) that it fills."""
    places = {}
    parent, _, own = path.rpartition(".")
    for leaf, parameter in module.named_parameters(recurse=False):
        parts = module.parts if isinstance(module, FusedLinear) else {own: parameter.shape[0]}
        for part, view in zip(parts, parameter.data.split(tuple(parts.values())), strict=True):
            name = f"{parent}.{part}.{leaf}" if parent else f"{part}.{leaf}"
            places[name if part == "lm_head" else f"model.{name}"] = view
    return places


def _check(model: Decoder, files: dict[str, Path]) -> None:
    modules = {path: module for path, module in model.named_modules() if not (model.tied and path == "lm_head")}
    places = {name: view for path, module in modules.items() for name, view in _destinations(path, module).items()}
    wanted = {name: tuple(view.shape) for name, view in places.items()}
    harmless = {HEAD} if model.tied else set()
    # old checkpoints store the rotary frequencies, which config.json already determines
    found = {n for n in files if n not in harmless and not n.endswith("rotary_emb.inv_freq")}
    if missing := wanted.keys() - found:
        raise ModelFormatError(f"{len(missing)} weights are missing: {_some(missing)}")
    if left_over := found - wanted.keys():
        raise ModelFormatError(f"{len(left_over)} weights have no place in this architecture: {_some(left_over)}")
    for path in dict.fromkeys(files.values()):
        with safe_open(path, framework="pt") as file:
            for name in sorted(wanted.keys() & file.keys()):
                stored = tuple(file.get_slice(name).get_shape())
                if stored != wanted[name]:
                    raise ModelFormatError(f"{name} has shape {stored}; config.json asks for {wanted[name]}")


def _some(names: Iterable[str]) -> str:
    ordered = sorted(names)
    return ", ".join(ordered[:3]) + (", ..." if len(ordered) > 3 else "")
