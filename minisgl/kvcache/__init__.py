"""Prefix caches and page allocators (plain Python); the pool itself, on the device, is ``minisgl.kvcache.pool``."""

from minisgl.kvcache.allocator import PageAllocator
from minisgl.kvcache.base import Handle, NaivePrefixCache, PrefixCache
from minisgl.kvcache.radix import RadixPrefixCache

PREFIX_CACHES: dict[str, type[PrefixCache]] = {"radix": RadixPrefixCache, "naive": NaivePrefixCache}

__all__ = ["PREFIX_CACHES", "Handle", "NaivePrefixCache", "PageAllocator", "PrefixCache", "RadixPrefixCache"]
