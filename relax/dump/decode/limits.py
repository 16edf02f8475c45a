"""What the decoder process may use, set by itself before it opens a dump."""

from __future__ import annotations

import gc
import math
import resource
from pathlib import Path
from typing import Final

import pyarrow as pa

DEFAULT_MAX_MEMORY: Final = 4 << 30
LONGEST_SECONDS: Final = 6 * 3600


def apply_limits(*, max_memory: int, time_limit: float | None) -> None:
    """Bounds memory and processor time of this process, for good.

    Args:
        max_memory: Bytes of address space beyond what the process has already.
        time_limit: Seconds of processor time; None: six hours, so that a decoder
            whose starter was killed ends as well.
    """
    # The pools that arrow prefers reserve far more address space than they use.
    pa.set_memory_pool(pa.system_memory_pool())
    pa.set_cpu_count(1)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + max_memory
    _lower(resource.RLIMIT_AS, limit)
    _lower(resource.RLIMIT_CORE, 0)
    seconds = LONGEST_SECONDS if time_limit is None else math.ceil(time_limit) + 1
    _lower(resource.RLIMIT_CPU, seconds)
    # A dump is millions of values and no cycles: looking for some costs a third.
    gc.disable()


def _lower(kind: int, limit: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(kind, (limit, limit))
