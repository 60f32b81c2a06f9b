"""Compiles the C++ kernels, once for this machine, and loads them.

They are plain C++ behind a C interface, without Python's or torch's headers, so compiling takes seconds, needs no
package, and the result fits any torch. Made for the very CPU it is compiled on (``-march=native``), it uses what is
there: AVX-512 with or without bfloat16 instructions, AVX2, NEON or none of these.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

from minisgl.models.hub import cache_dir

SOURCES = Path(__file__).parent / "csrc"
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared", "-fopenmp", "-fno-math-errno", "-fvisibility=hidden")
COMPILERS = ("g++", "clang++", "c++")


class KernelsMissingError(Exception):
    """Why the kernels cannot be had here. No error for the user: the engine then runs on torch."""


def library() -> ctypes.CDLL:
    """The kernels, compiled if they are not in the cache yet, with a line on stderr; raises KernelsMissingError.

    Tried once in a process: the next call gives, or raises, the same.
    """
    found = _library()
    if isinstance(found, KernelsMissingError):
        raise found
    return found


@lru_cache
def _library() -> ctypes.CDLL | KernelsMissingError:
    try:
        return load(compiled("-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"))
    except KernelsMissingError as error:
        return error  # a cache keeps what is returned, not what is raised


def load(path: Path) -> ctypes.CDLL:
    """The library of a file, its functions declared."""
    try:
        lib = ctypes.CDLL(str(path))
    except OSError as error:
        raise KernelsMissingError(f"the compiled kernels cannot be loaded: {error}") from None
    pointer, number = ctypes.c_void_p, ctypes.c_int32
    lib.vector_width.restype = ctypes.c_int
    lib.new_decoder.restype = pointer
    lib.new_decoder.argtypes = (pointer, pointer, ctypes.c_int64, number)
    lib.forward.argtypes = (pointer, number, pointer, number)
    lib.delete_decoder.argtypes = (pointer, number)
    return lib


def compiled(target: str) -> Path:
    """The library compiled for ``target``, a compiler's flag; from the cache if nothing it depends on has changed."""
    compiler = os.environ.get("CXX") or next(filter(shutil.which, COMPILERS), None)
    if compiler is None:
        raise KernelsMissingError(f"no C++ compiler is installed ({', '.join(COMPILERS)})")
    sources = sorted(SOURCES.iterdir())
    parts = [*(path.read_bytes() for path in sources), repr((compiler, target, FLAGS, _cpu())).encode()]
    path = cache_dir() / "kernels" / f"cpu-{hashlib.sha256(b'|'.join(parts)).hexdigest()[:16]}.so"
    try:
        if not path.exists():
            _compile(compiler, target, path)
    except OSError as error:
        raise KernelsMissingError(f"the compiled kernels cannot be kept: {error}") from None
    return path


def _compile(compiler: str, target: str, path: Path) -> None:
    print("minisgl: compiling the CPU kernels, once, about 5 seconds ...", file=sys.stderr, flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:  # renamed when whole: two may compile at once
        made = Path(folder) / "kernels.so"
        command = [compiler, *FLAGS, target, str(SOURCES / "decoder.cpp"), "-o", str(made)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise KernelsMissingError(f"the C++ compiler could not be run: {error}") from None
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if "error" in line]
            raise KernelsMissingError(f"{compiler} failed: {said[0] if said else done.stderr.strip()[-200:]}")
        made.rename(path)


def _cpu() -> str:
    """What instructions this CPU has: a cache folder may be shared between unlike machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())
