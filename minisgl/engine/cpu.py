"""What this process may use of the CPU."""

from __future__ import annotations

import math
import os
from pathlib import Path

import torch

CORES = torch.get_num_threads()  # as torch counts them by itself: an engine sets the number for the whole process


def has_bfloat16() -> bool:
    """Whether the CPU multiplies bfloat16 by instructions of its own (AVX512-BF16; whoever has AMX has these too)."""
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return "avx512_bf16" in flags


def default_threads() -> int:
    """One thread a core, as torch counts them (hyperthreads share one), but no more than this process may use.

    A container is often allowed a few CPUs of a host with many, and shown all of them.
    """
    allowed = [CORES]
    if hasattr(os, "sched_getaffinity"):
        allowed.append(len(os.sched_getaffinity(0)))
    if quota := _cgroup_cpus():
        allowed.append(max(1, math.floor(quota)))
    return min(allowed)


def _cgroup_cpus() -> float | None:
    """CPUs that the control group of this process grants, or None if it sets no limit."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:
        folder = Path("/sys/fs/cgroup/cpu")
        quota_us, period_us = (int((folder / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
        return quota_us / period_us if quota_us > 0 else None
    except (OSError, ValueError):
        return None
