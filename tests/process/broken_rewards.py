"""Reward functions that do what reward functions do at night."""

from __future__ import annotations


async def raises_for_even(args, sample, **kwargs):
    if sample.index % 2 == 0:
        raise ValueError("no verdict on even samples")
    return 1.0
