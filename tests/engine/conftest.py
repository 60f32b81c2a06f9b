"""Tests of the executor run on every kind of kernels that this machine has."""

from __future__ import annotations

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


needs_cpp = pytest.mark.skipif(_missing() is not None, reason=f"no C++ kernels: {_missing()}")
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
