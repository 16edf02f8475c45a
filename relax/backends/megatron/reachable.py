"""Every tensor that a trainer holds, found by walking its objects.

Nothing here knows how megatron lays things out: parameters, buffers, router counters,
gradient buffers, masters, moments and what a later version adds are found alike. A
storage is taken once, however many tensors look at it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from relax.backends.fingerprint import tensor_digest

_WALKED = ("relax.", "megatron.", "transformer_engine.", "torch.nn.", "torch.optim.")
_PLAIN = (str, bytes, int, float, complex, bool, type(None), type, torch.dtype)


@dataclass(frozen=True, kw_only=True)
class FoundStorage:
    """A storage, and where it was found first.

    Attributes:
        path: E.g. ``.optimizer.model.buffers[0].grad_data``.
        content: Its bytes, uint8, as a tensor that shares them.
    """

    path: str
    content: Tensor


def storages_of(root: Any) -> Iterator[FoundStorage]:
    """All storages reachable from an object through attributes and containers.

    Args:
        root: Where to begin.

    Yields:
        Each storage once, in an order that depends on the objects alone.
    """
    taken: set[int] = set()
    for path, found in _walk(root):
        if not isinstance(found, Tensor):
            continue
        storage = found.untyped_storage()
        if storage.nbytes() and storage.data_ptr() not in taken:
            taken.add(storage.data_ptr())
            yield FoundStorage(path=path, content=_bytes_of(found))


def holders_of(root: Any) -> Iterator[Any]:
    """All objects with attributes that are reachable from an object, each once."""
    return (found for _, found in _walk(root) if hasattr(found, "__dict__"))


def digests_of(root: Any) -> dict[str, str]:
    """``{path: sha256}`` of every storage reachable from an object."""
    return {found.path: tensor_digest(found.content) for found in storages_of(root)}


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Paths whose content changed, came or went, sorted."""
    return tuple(
        sorted(
            path
            for path in before.keys() | after.keys()
            if before.get(path) != after.get(path)
        )
    )


def _walk(root: Any) -> Iterator[tuple[str, Any]]:
    """Every object on the way, with the path by which it was reached first.

    Functions, modules of Python, process groups and sets are not entered: what they
    hold is no state of a model.
    """
    # The objects themselves are kept on the way, so that no id is used twice.
    seen: dict[int, Any] = {}
    waiting: list[tuple[str, Any]] = [("", root)]
    while waiting:
        path, found = waiting.pop()
        if isinstance(found, _PLAIN) or id(found) in seen:
            continue
        seen[id(found)] = found
        if isinstance(found, Tensor | Mapping | list | tuple) or _is_walked(found):
            yield path, found
            waiting.extend(reversed(list(_parts(path, found))))


def _is_walked(found: Any) -> bool:
    return type(found).__module__.startswith(_WALKED)


def _parts(path: str, found: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(found, Mapping):
        for number, (key, value) in enumerate(found.items()):
            name = key if isinstance(key, str | int) else f"#{number}"
            yield f"{path}[{name}]", value
    elif isinstance(found, list | tuple):
        for number, value in enumerate(found):
            yield f"{path}[{number}]", value
    elif isinstance(found, Tensor):
        if found.is_leaf and found.grad is not None:
            yield f"{path}.grad", found.grad
        yield from _attributes(path, found)
    else:
        yield from _attributes(path, found)


def _attributes(path: str, found: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(found, "__dict__"):
        for name, value in vars(found).items():
            yield f"{path}.{name}", value


def _bytes_of(tensor: Tensor) -> Tensor:
    view = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    with torch.no_grad():
        return view.set_(tensor.untyped_storage())
