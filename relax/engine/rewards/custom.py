"""Reward functions of the user's own, named by ``--custom-rm-path``."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from relax.arguments.hooks import HookSignature, load_hook

CustomReward = Callable[..., Any]

# Plain functions are welcome: many rewards are three lines that wait for nothing.
ONE_SAMPLE = HookSignature(
    flag="custom_rm_path",
    shown="async def name(args, sample, **kwargs)",
    positional=("args", "sample"),
)
ONE_GROUP = HookSignature(
    flag="custom_rm_path",
    shown="async def name(args, samples, **kwargs)",
    positional=("args", "samples"),
)


def load_custom_reward(path: str, *, group: bool) -> CustomReward:
    """Import the function and check that it can be called as it will be.

    Args:
        path: ``package.module.function``.
        group: Whether it will be given a list of samples (``--group-rm``).

    Raises:
        ArgumentError: It cannot be imported, or its signature does not fit.
    """
    return load_hook(path, ONE_GROUP if group else ONE_SAMPLE)


async def call_custom_reward(
    function: CustomReward, arguments: Any, samples: Any
) -> Any:
    """Call it; a plain function runs in a thread, so that it may block."""
    if inspect.iscoroutinefunction(function):
        return await function(arguments, samples)
    returned = await asyncio.to_thread(function, arguments, samples)
    return await returned if inspect.isawaitable(returned) else returned
