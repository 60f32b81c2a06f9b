"""The CPU kernels: a whole forward pass in C++, compiled on the machine that runs it."""

from minisgl.kernel.build import KernelsMissingError, library
from minisgl.kernel.native import NativeDecoder, NativeRunner

__all__ = ["KernelsMissingError", "NativeDecoder", "NativeRunner", "library"]
