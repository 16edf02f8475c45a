"""A reward that leaves a line for each sample in its worker's log."""

from __future__ import annotations

import sys


async def reward(args, sample, **kwargs):
    """1.0 for even samples."""
    sys.stdout.write(f"scored {sample.index} of {sample.group_index}\n")
    sys.stdout.flush()
    return float(sample.index % 2 == 0)
