"""load_engine: from a model's name and the settings to an executor that is ready to launch."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import nn

from minisgl.attention import TorchAttention
from minisgl.config import EngineConfig
from minisgl.core import pages_for
from minisgl.engine.cpu import default_threads, has_bfloat16
from minisgl.engine.executor import EngineExecutor
from minisgl.engine.memory import MemoryReport, size_pool
from minisgl.engine.runner import Runner, TorchRunner
from minisgl.errors import ConfigError, ModelFormatError
from minisgl.kernel import KernelsMissingError, NativeDecoder, NativeRunner, library
from minisgl.kernel.native import DTYPES
from minisgl.kvcache.pool import KVPool
from minisgl.layers import Linear, can_pack
from minisgl.models.config import ModelConfig, read_json
from minisgl.models.decoder import Decoder
from minisgl.models.hub import resolve_model
from minisgl.models.weights import load_model

_loaded: WeakValueDictionary[tuple, Decoder | NativeDecoder] = WeakValueDictionary()


@dataclass(frozen=True, slots=True, repr=False)
class LoadedEngine:
    """Everything the offline API needs of a model.

    Attributes:
        name: the model as the caller named it.
        folder: the Hugging Face folder it was loaded from.
        executor: ready to launch batches.
        tokenizer: the folder's ``transformers`` tokenizer, or None if it has none (prompts are then token ids).
        model_config: the model's shape.
        config: the engine's settings with everything decided that was left open.
        kernels: a line that says what computes, and why.
        eos_token_ids: the model's own end tokens, from ``generation_config.json`` and ``config.json``.
        memory: what it all takes.
    """

    name: str
    folder: Path
    executor: EngineExecutor
    tokenizer: Any
    model_config: ModelConfig
    config: EngineConfig
    kernels: str
    eos_token_ids: tuple[int, ...]
    memory: MemoryReport

    def __repr__(self) -> str:
        c = self.config
        return f"LoadedEngine({self.name!r}, pages={c.num_pages}x{c.page_size}, {c.dtype} on {c.device})"


def load_engine(model: str | Path, config: EngineConfig) -> LoadedEngine:
    """Find the model (see :func:`minisgl.models.hub.resolve_model`), load it, and allocate the KV pool.

    Everything that can be refused without the weights is refused before they are read.

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
    dtype = config.dtype if config.dtype != "auto" else _dtype(model_config, device)
    torch_dtype = getattr(torch, dtype)
    kernels, why = _kernels(config.kernels, torch_dtype, device)
    if config.quantize and kernels != "cpp":
        raise ConfigError(
            f"quantize={config.quantize!r}: only the C++ kernels compute such weights, and here it is {why}; "
            f"leave quantize out, or make them possible with a C++ compiler, device='cpu' and kernels='auto'"
        )
    threads = config.threads or default_threads()
    if device.type == "cpu":
        torch.set_num_threads(threads)
    size_pool(model_config, config, dtype, device)  # what cannot fit now will not fit beside the weights either
    eos_token_ids, tokenizer = _eos_token_ids(folder), _tokenizer(folder)
    decoder = _shared(model_config, folder, torch_dtype, device, kernels, config.quantize)
    num_pages = size_pool(model_config, config, dtype, device)
    max_seq_len = config.max_seq_len or min(model_config.max_seq_len, num_pages * config.page_size)
    pool = KVPool(
        num_layers=model_config.num_layers,
        num_kv_heads=model_config.num_kv_heads,
        head_dim=model_config.head_dim,
        num_pages=num_pages,
        page_size=config.page_size,
        dtype=torch_dtype,
        device=device,
    )
    if config.poison:
        pool.poison(range(num_pages))  # nobody owns anything yet
    runner: Runner
    if isinstance(decoder, NativeDecoder):
        runner = NativeRunner(decoder, pool, pages_for(max_seq_len, config.page_size) * config.page_size, threads)
    else:
        runner = TorchRunner(decoder, TorchAttention(pool))
    return LoadedEngine(
        name=str(model),
        folder=folder,
        executor=EngineExecutor(
            runner, pool, config.max_running_requests, max_seq_len, overlap=config.overlap, poison=config.poison
        ),
        tokenizer=tokenizer,
        model_config=model_config,
        config=dataclasses.replace(
            config,
            num_pages=num_pages,
            kv_gib=None,
            max_seq_len=max_seq_len,
            dtype=dtype,
            device=str(device),
            kernels=kernels,
            threads=threads,
        ),
        kernels=why,
        eos_token_ids=eos_token_ids,
        memory=MemoryReport(
            weight_bytes=decoder.weight_bytes,
            kv_bytes_per_token=model_config.kv_bytes_per_token(dtype),
            page_size=config.page_size,
            num_pages=num_pages,
        ),
    )


def _dtype(model: ModelConfig, device: torch.device) -> str:
    """bfloat16 halves what a CPU reads for every token, and costs speed where it has no instructions for it."""
    if device.type != "cpu":
        return model.dtype
    return "bfloat16" if has_bfloat16() else "float32"


def _kernels(wanted: str, dtype: torch.dtype, device: torch.device) -> tuple[str, str]:
    """What computes, "cpp" or "torch", and a line that says so and why."""
    if wanted == "torch":
        return "torch", "torch, as asked for"
    try:
        if device.type != "cpu" or dtype not in DTYPES:
            raise KernelsMissingError(f"the C++ kernels compute float32 and bfloat16 on a CPU, not {dtype} on {device}")
        return "cpp", f"C++, {library().vector_width()} floats at once"
    except KernelsMissingError as error:
        if wanted == "cpp":
            raise ConfigError(f"kernels='cpp': {error}") from None
        return "torch", f"torch: {error}"


def _shared(
    config: ModelConfig, folder: Path, dtype: torch.dtype, device: torch.device, kernels: str, quantize: str | None
) -> Decoder | NativeDecoder:
    """Load a model, or take the one another engine of this process still holds: weights are read and never written.

    A changed file is another model, so the files' times are part of what must be equal.
    """
    times = tuple(
        sorted((f.name, f.stat().st_mtime_ns) for f in folder.iterdir() if f.suffix in (".safetensors", ".json"))
    )
    key = (folder.resolve(), times, dtype, device, kernels, quantize)
    decoder = _loaded.get(key)
    if decoder is None:
        if kernels == "cpp":
            decoder = NativeDecoder(config, dtype, quantize == "int8")
            decoder.finish(load_model(config, folder, dtype, device, decoder.take))
        elif can_pack(device, dtype):
            decoder = load_model(config, folder, dtype, device, _packed)
        else:
            decoder = load_model(config, folder, dtype, device)
        _loaded[key] = decoder
    return decoder


def _packed(module: nn.Module) -> None:
    if isinstance(module, Linear):
        module.pack()


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
    names = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")
    files = [folder / name for name in names if (folder / name).exists()]
    if not files:
        return None
    import transformers  # here, and no more of it than this model needs: all of it takes seconds to import

    try:
        config = folder / "tokenizer_config.json"
        plain = config.exists() and read_json(config).get("tokenizer_class") == "PreTrainedTokenizerFast"
        kind = transformers.PreTrainedTokenizerFast if plain else transformers.AutoTokenizer
        return kind.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # what a damaged file raises is the libraries' choice, down to a bare Exception
        for file in files:
            if file.suffix == ".json":
                read_json(file)  # names the file, if it is damaged that badly
        found = ", ".join(file.name for file in files)
        raise ModelFormatError(f"the tokenizer in {folder} ({found}) cannot be loaded: {error}") from error


def _eos_token_ids(folder: Path) -> tuple[int, ...]:
    """Both files may name end tokens, one or several; order kept, doubles dropped."""
    found: list[int] = []
    for name in ("generation_config.json", "config.json"):
        if (folder / name).exists():
            ids = read_json(folder / name).get("eos_token_id")
            ids = ids if isinstance(ids, list) else [] if ids is None else [ids]
            if not all(type(i) is int for i in ids):
                raise ModelFormatError(f"{folder / name}: eos_token_id={ids!r}: must be token ids (integers)")
            found += ids
    return tuple(dict.fromkeys(found))
