"""Attention over the paged KV pool: one set of metadata, interchangeable backends."""

from minisgl.attention.backend import AttentionBackend
from minisgl.attention.metadata import AttentionMetadata, build_metadata
from minisgl.attention.torch_backend import TorchAttention

__all__ = ["AttentionBackend", "AttentionMetadata", "TorchAttention", "build_metadata"]
