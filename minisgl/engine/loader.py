"""load_engine: from a model's name and the settings to an executor that is ready to launch."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import torch

from minisgl.config import EngineConfig
from minisgl.engine.executor import EngineExecutor
from minisgl.engine.memory import MemoryReport, size_pool
from minisgl.errors import ConfigError, ModelFormatError
from minisgl.kvcache.pool import KVPool
from minisgl.models.config import ModelConfig
from minisgl.models.decoder import Decoder
from minisgl.models.hub import resolve_model
from minisgl.models.weights import load_model

_loaded: WeakValueDictionary[tuple, Decoder] = WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class LoadedEngine:
    """Everything the offline API needs of a model.

    Attributes:
        name: the model as the caller named it.
        folder: the Hugging Face folder it was loaded from.
        executor: ready to launch batches.
        tokenizer: the folder's ``transformers`` tokenizer, or None if it has none (prompts are then token ids).
        model_config: the model's shape.
        config: the engine's settings with ``num_pages``, ``max_seq_len``, ``dtype`` and ``device`` decided.
        eos_token_ids: the model's own end tokens, from ``generation_config.json`` and ``config.json``.
        memory: what it all takes.
    """

    name: str
    folder: Path
    executor: EngineExecutor
    tokenizer: Any
    model_config: ModelConfig
    config: EngineConfig
    eos_token_ids: tuple[int, ...]
    memory: MemoryReport


def load_engine(model: str | Path, config: EngineConfig) -> LoadedEngine:
    """Find the model (see :func:`minisgl.models.hub.resolve_model`), load it, and allocate the KV pool.

    Raises:
        ModelNotFoundError: the name leads nowhere.
        ModelFormatError: the model cannot be run, or its tokenizer not loaded.
        ConfigError: the settings do not fit the model or the device.
    """
    folder = resolve_model(model)
    model_config = ModelConfig.from_folder(folder)
    if (config.max_seq_len or 0) > model_config.max_seq_len:
        raise ConfigError(
            f"max_seq_len={config.max_seq_len}: {model} handles at most {model_config.max_seq_len} tokens "
            f"(its max_position_embeddings, or its sliding window if that is shorter)"
        )
    device = _device(config.device)
    dtype = config.dtype if config.dtype != "auto" else "float32" if device.type == "cpu" else model_config.dtype
    torch_dtype = getattr(torch, dtype)
    if config.num_pages is not None:  # a pool that cannot fit is refused before the weights are read
        size_pool(model_config, config, dtype, device)
    decoder = _shared(model_config, folder, torch_dtype, device)
    num_pages = size_pool(model_config, config, dtype, device)
    max_seq_len = config.max_seq_len or min(model_config.max_seq_len, num_pages * config.page_size)
    pool = KVPool(model_config, num_pages, config.page_size, torch_dtype, device)
    return LoadedEngine(
        name=str(model),
        folder=folder,
        executor=EngineExecutor(decoder, pool, config.max_running_requests, max_seq_len),
        tokenizer=_tokenizer(folder),
        model_config=model_config,
        config=dataclasses.replace(
            config, num_pages=num_pages, kv_gib=None, max_seq_len=max_seq_len, dtype=dtype, device=str(device)
        ),
        eos_token_ids=_eos_token_ids(folder),
        memory=MemoryReport(
            weight_bytes=decoder.weight_bytes,
            kv_bytes_per_token=model_config.kv_bytes_per_token(dtype),
            page_size=config.page_size,
            num_pages=num_pages,
        ),
    )


def _shared(config: ModelConfig, folder: Path, dtype: torch.dtype, device: torch.device) -> Decoder:
    """Load a model, or take the one another engine of this process still holds: weights are read and never written.

    A changed file is another model, so the files' times are part of what must be equal.
    """
    times = tuple(
        sorted((f.name, f.stat().st_mtime_ns) for f in folder.iterdir() if f.suffix in (".safetensors", ".json"))
    )
    key = (folder.resolve(), times, dtype, device)
    decoder = _loaded.get(key)
    if decoder is None:
        decoder = _loaded[key] = load_model(config, folder, dtype, device)
    return decoder


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device={name!r}: use 'cpu', 'cuda', 'cuda:1' ... or 'auto'") from None
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device={name!r}: this engine runs on 'cpu' and 'cuda'")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device={name!r}: torch sees {torch.cuda.device_count()} CUDA devices here")
    return device


def _tokenizer(folder: Path) -> Any:
    if not any((folder / name).exists() for name in ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")):
        return None
    from transformers import AutoTokenizer  # takes seconds to import, and only this line needs it

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (ImportError, OSError, ValueError) as error:
        raise ModelFormatError(f"the tokenizer in {folder} cannot be loaded: {error}") from error


def _eos_token_ids(folder: Path) -> tuple[int, ...]:
    """Both files may name end tokens, one or several; order kept, doubles dropped."""
    found: list[int] = []
    for name in ("generation_config.json", "config.json"):
        if (folder / name).exists():
            ids = json.loads((folder / name).read_text(encoding="utf-8")).get("eos_token_id")
            found += ids if isinstance(ids, list) else [] if ids is None else [ids]
    return tuple(dict.fromkeys(found))
