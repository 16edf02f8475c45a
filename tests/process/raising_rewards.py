"""Rewards that raise, for runs in the tests beside this file."""

from __future__ import annotations


async def every_second(args, sample, **kwargs):
    """1.0 for even samples; the others have no answer to look up."""
    if sample.index % 2:
        return {"found": 1.0}["answer"]
    return 1.0


async def every_one(args, sample, **kwargs):
    """Raises for every sample."""
    raise ZeroDivisionError("division by zero")
