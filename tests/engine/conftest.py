"""Tests of the executor run on every kind of kernels that this machine has."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from minisgl.engine import cpu
from minisgl.kernel import KernelsMissingError, library


def _missing() -> str | None:
    try:
        library()
    except KernelsMissingError as error:
        return str(error)
    return None


MISSING = _missing()
# without a compiler the engine computes with PyTorch, as its users do there; where nothing may be skipped, they fail
MAY_SKIP = MISSING is not None and not os.environ.get("MINISGL_REQUIRE_BROWSER")
needs_cpp = pytest.mark.skipif(MAY_SKIP, reason=f"no C++ kernels: {MISSING}")
KERNELS = [pytest.param("cpp", marks=needs_cpp), "torch"]


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Models this small only lose time to a thread pool."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "CORES", 1)
        yield
    torch.set_num_threads(before)
