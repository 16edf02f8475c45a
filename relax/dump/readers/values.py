"""Values of a dump as numpy columns, numbers and texts; nothing is coerced silently."""

from __future__ import annotations

import json
import math
import struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from relax.dump.decode.separate import SPENT, NotSeparable
from relax.dump.decode.standins import StandIn, StorageKind
from relax.dump.decode.tensors import NumpyArray, NumpyDtype, Tensor

Ints = npt.NDArray[np.int32]
Mask = npt.NDArray[np.int8]
Floats = npt.NDArray[np.float32]

MOST_JSON_NODES: Final = 2_000
MOST_JSON_DEPTH: Final = 12
LONGEST_JSON_TEXT: Final = 20_000

_ARRAYS: Final = (Tensor, NumpyArray)
_INT32: Final = np.iinfo(np.int32)


class Malformed(Exception):
    """A value is not what its column holds; the text says what it is instead."""


def fields_of(sample: object) -> dict[str, Any]:
    """A sample's fields by name: of a dict, or of a pickled ``Sample`` object.

    Raises:
        Malformed: It is neither.
    """
    if type(sample) is dict:
        return {key: value for key, value in sample.items() if type(key) is str}
    if isinstance(sample, StandIn):
        return sample.fields()
    raise Malformed(f"is a {type(sample).__name__}, not a sample")


def array_of(value: object) -> npt.NDArray[Any]:
    """A tensor's or numpy array's values, one axis.

    Raises:
        Malformed: It has another number of axes.
    """
    array: npt.NDArray[Any] = value.numpy()  # type: ignore[attr-defined]
    if array.ndim != 1:
        raise Malformed(f"has the shape {array.shape}, not one entry a token")
    return array


def ids(value: object) -> Ints | None:
    """Token ids, int32; None when there are none.

    Raises:
        Malformed: Some are no integers, or do not fit.
    """
    if value is None:
        return None
    if type(value) in (list, tuple):
        try:
            packed = struct.pack(f"{len(value)}i", *value)  # type: ignore[arg-type,misc]
        except struct.error as error:
            raise Malformed("has entries that are no token ids") from error
        return np.frombuffer(packed, np.int32)
    if type(value) in _ARRAYS:
        array = array_of(value)
        if array.dtype.kind not in "iu":
            raise Malformed(f"has entries of type {array.dtype}")
        if array.size and not _INT32.min <= array.min() <= array.max() <= _INT32.max:
            raise Malformed("has entries that are no token ids")
        return array.astype(np.int32)
    raise Malformed(f"is a {type(value).__name__}, not a list")


def mask(value: object) -> Mask | None:
    """A loss mask, int8; None when there is none.

    Raises:
        Malformed: Some entries are neither 0 nor 1.
    """
    if value is None:
        return None
    if type(value) is list:
        try:
            found: npt.NDArray[Any] = np.frombuffer(bytes(value), np.uint8)
        except (TypeError, ValueError):
            # Some write it as floats.
            found = _packed_floats(value)
    elif type(value) in _ARRAYS:
        found = array_of(value)
    else:
        raise Malformed(f"is a {type(value).__name__}, not a list")
    if not ((found == 0) | (found == 1)).all():
        raise Malformed("has entries other than 0 and 1")
    return found.astype(np.int8)


def floats(value: object) -> Floats | None:
    """One number a token, float32; None when there are none.

    Raises:
        Malformed: Some entries are no numbers.
    """
    if value is None:
        return None
    if type(value) in (list, tuple):
        array: npt.NDArray[Any] = _packed_floats(value)  # type: ignore[arg-type]
    elif type(value) in _ARRAYS:
        array = array_of(value)
        if array.dtype.kind not in "fiu":
            raise Malformed(f"has entries of type {array.dtype}")
    else:
        raise Malformed(f"is a {type(value).__name__}, not a list")
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(np.float32, copy=False)


def _packed_floats(value: list[Any]) -> npt.NDArray[np.float64]:
    try:
        packed = struct.pack(f"{len(value)}d", *value)
    except (struct.error, OverflowError) as error:
        raise Malformed("has entries that are no numbers") from error
    return np.frombuffer(packed, np.float64)


def number(value: object) -> float | None:
    """A number; None for None, and for what is no number.

    A tensor or array of one element counts as its element.
    """
    if type(value) in _ARRAYS:
        array = value.numpy()  # type: ignore[attr-defined]
        value = array.reshape(-1)[0].item() if array.size == 1 else None
    if isinstance(value, bool | int | float):
        try:
            return float(value)
        except OverflowError:
            return math.copysign(math.inf, value)
    return None


def integer(value: object) -> int | None:
    """A 64-bit integer; None for what is none."""
    found = number(value)
    if found is None or not math.isfinite(found) or found != int(found):
        return None
    exact = value if type(value) is int else int(found)
    return exact if -(1 << 63) <= exact < 1 << 63 else None


def text(value: object) -> str | None:
    """A text as UTF-8 can hold it; messages and other structures as JSON."""
    if value is None:
        return None
    return _utf8(value) if type(value) is str else to_json(value)


def _utf8(text: str) -> str:
    if text.isascii():
        return text
    # A lone surrogate cannot be stored as UTF-8.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def word(value: object) -> str | None:
    """A status or other member of an enum as one word in lower case."""
    if isinstance(value, StandIn):
        first = value.arguments[0] if value.arguments else None
        value = first if type(first) is str else type(value).LABEL.rpartition(".")[2]
    elif isinstance(value, type) and issubclass(value, StandIn):
        value = value.LABEL.rpartition(".")[2]
    return value.lower()[:40] if type(value) is str else None


def to_json(value: object) -> str:
    """A structure as JSON, cut where it becomes long or deep."""
    return _utf8(json.dumps(_Plain().of(value, 0), ensure_ascii=False))


class _Plain:
    """Turns values into what JSON has; shared parts cannot multiply beyond a bound."""

    def __init__(self) -> None:
        self._left = MOST_JSON_NODES

    def of(self, value: object, depth: int) -> object:
        self._left -= 1
        if self._left < 0 or depth > MOST_JSON_DEPTH:
            return "…"
        if value is SPENT:
            raise NotSeparable
        if value is None or type(value) in (bool, int):
            return value if not isinstance(value, int) or abs(value) < 1 << 63 else "…"
        if type(value) is float:
            return value if math.isfinite(value) else str(value)
        if type(value) is str:
            return value[:LONGEST_JSON_TEXT]
        if type(value) is dict:
            return self._mapping(value, depth)
        if type(value) in (list, tuple, set, frozenset):
            return self._items(value, depth)
        return self._described(value, depth)

    def _mapping(self, value: dict[Any, Any], depth: int) -> object:
        found: dict[str, object] = {}
        for key, item in value.items():
            if self._left < 0:
                found["…"] = len(value) - len(found)
                break
            name = key if type(key) is str else str(self.of(key, depth + 1))
            found[name[:200]] = self.of(item, depth + 1)
        return found

    def _items(self, value: Any, depth: int) -> object:
        found: list[object] = []
        for item in value:
            if self._left < 0:
                found.append(f"… {len(value) - len(found)} more")
                break
            found.append(self.of(item, depth + 1))
        return found

    def _described(self, value: object, depth: int) -> object:
        if type(value) is Tensor:
            return f"<tensor {value.dtype} {list(value.shape)[:16]}>"
        if type(value) is NumpyArray:
            array = value.numpy()
            return f"<array {array.dtype} {list(array.shape)}>"
        if isinstance(value, bytes | bytearray):
            return f"<{len(value)} bytes>"
        if isinstance(value, StandIn):
            shown = value.fields() or list(value.arguments)
            return {type(value).LABEL: self.of(shown, depth + 1)}
        if isinstance(value, type) and issubclass(value, StandIn):
            return value.LABEL
        if isinstance(value, StorageKind | NumpyDtype):
            return f"<{type(value).__name__}>"
        return f"<{type(value).__name__}>"
