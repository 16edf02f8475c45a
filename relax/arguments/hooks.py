"""Functions named by path, found and looked at before anything starts.

A wrong signature otherwise shows at its first call, in the middle of a run. Looking at
a hook imports its module, so this is done by the interpreter that will call it.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from relax.arguments.arguments import Arguments
from relax.arguments.refusal import refuse


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSignature:
    """How a hook is called.

    Attributes:
        flag: Field that names the hook.
        shown: The signature as a person writes it.
        positional: Names of the values handed over by place.
        keywords: Names of those handed over by name.
        is_async: It must be a coroutine function; else either will do.
    """

    flag: str
    shown: str
    positional: tuple[str, ...]
    keywords: tuple[str, ...] = ()
    is_async: bool = False


_ROLLOUT_SHOWN: Final = (
    "fn(args, rollout_id, data_source, data_system_client, evaluation=False)"
)
_ROLLOUT_POSITIONAL: Final = ("args", "rollout_id", "data_source", "data_system_client")

SIGNATURES: Final[tuple[HookSignature, ...]] = (
    HookSignature(
        flag="rollout_function_path",
        shown=_ROLLOUT_SHOWN,
        positional=_ROLLOUT_POSITIONAL,
        keywords=("evaluation",),
    ),
    HookSignature(
        flag="eval_function_path",
        shown=_ROLLOUT_SHOWN,
        positional=_ROLLOUT_POSITIONAL,
        keywords=("evaluation",),
    ),
    HookSignature(
        flag="custom_generate_function_path",
        shown="async def fn(args, sample, sampling_params)",
        positional=("args", "sample", "sampling_params"),
        is_async=True,
    ),
    HookSignature(
        flag="custom_rm_path",
        shown="async def fn(args, sample, **kwargs)",
        positional=("args", "sample"),
    ),
)
"""Every hook and how it is called. A reward may be a plain function: it is then called
in a thread."""

GROUP_REWARD: Final = HookSignature(
    flag="custom_rm_path",
    shown="async def fn(args, samples, **kwargs)",
    positional=("args", "samples"),
)
"""How ``--custom-rm-path`` is called under ``--group-rm``."""


def check_hooks(arguments: Arguments) -> None:
    """Imports every hook that is named and holds it against its signature.

    Raises:
        ArgumentError: It is not there, does not import, or cannot be called so.
    """
    values = arguments.values()
    for expected in SIGNATURES:
        path = values[expected.flag]
        if path is None:
            continue
        if expected.flag == "custom_rm_path" and arguments.reward.group_rm:
            expected = GROUP_REWARD
        load_hook(path, expected)


def load_hook(path: str, expected: HookSignature) -> Callable[..., Any]:
    """The function at ``package.module.name``, which can be called as expected.

    Args:
        path: Dotted path.
        expected: How it will be called.

    Raises:
        ArgumentError: It is not there, does not import, or cannot be called so.
    """
    fix = f"name a function {expected.shown}"
    module_name, _, name = path.rpartition(".")
    if not module_name or not name:
        raise refuse(expected.flag, path, "is not package.module.function", fix=fix)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise refuse(
            expected.flag,
            path,
            f"its module does not import: {type(error).__name__}: {error}",
            fix="see that it can be imported from here",
        ) from error
    if name not in vars(module):
        raise refuse(expected.flag, path, f"{module_name} has no {name}", fix=fix)
    function: Callable[..., Any] = vars(module)[name]
    if not callable(function):
        raise refuse(expected.flag, path, "is not a function", fix=fix)
    _check_call(path, function, expected)
    return function


def _check_call(
    path: str, function: Callable[..., Any], expected: HookSignature
) -> None:
    fix = f"write it as {expected.shown}"
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # Some compiled functions have none; they show themselves when called.
        return
    names = dict.fromkeys(expected.keywords, None)
    try:
        signature.bind(*expected.positional, **names)
    except TypeError as error:
        raise refuse(
            expected.flag,
            path,
            f"cannot be called as it will be: it is {name_of(function)}{signature}"
            f" ({error})",
            fix=fix,
        ) from error
    if expected.is_async and not _is_async(function):
        raise refuse(expected.flag, path, "is not an async function", fix=fix)


def name_of(function: Callable[..., Any]) -> str:
    """A function's own name, or its type's."""
    return function.__name__ if inspect.isroutine(function) else type(function).__name__


def _is_async(function: Callable[..., Any]) -> bool:
    if inspect.iscoroutinefunction(function):
        return True
    # An object with an async __call__ is awaited in the same way.
    return inspect.iscoroutinefunction(type(function).__call__)
