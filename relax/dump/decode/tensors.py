"""Tensors and numpy arrays of a pickle, without torch: first what, then which values.

Unpickling makes descriptions. Values are read when they are asked for, after the
description has been checked against the bytes that are really there.
"""

from __future__ import annotations

import math
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from relax.dump.decode.archive import Archive
from relax.errors import DumpRefused, DumpTruncated

MOST_ELEMENTS: Final = 1 << 28
"""Of one tensor whose shape says more than its storage holds (stride 0)."""

Array = npt.NDArray[Any]

BFLOAT16: Final = "bfloat16"
DTYPES: Final = {
    "float64": "f8",
    "float32": "f4",
    "float16": "f2",
    BFLOAT16: "u2",
    "int64": "i8",
    "int32": "i4",
    "int16": "i2",
    "int8": "i1",
    "uint8": "u1",
    "uint16": "u2",
    "uint32": "u4",
    "uint64": "u8",
    "bool": "?",
    "complex64": "c8",
    "complex128": "c16",
}
"""By torch's name: numpy's. bfloat16 is read as bits and widened to float32."""

STORAGE_CLASSES: Final = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": BFLOAT16,
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "UntypedStorage": "uint8",
}
"""By torch's storage class: the elements it holds."""


class Described:
    """Made by the pickle once, and not to be changed by it afterwards."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        """Refuses what the pickle's BUILD would set.

        Raises:
            DumpRefused: Always.
        """
        raise DumpRefused("the pickle changes a tensor after it was made")


class Storage(Described):
    """A run of elements in the file.

    Attributes:
        archive: The file.
        key: Names the entry.
        dtype: Torch's name of the elements' type.
    """

    __slots__ = ("archive", "dtype", "key")

    def __init__(self, archive: Archive, *, key: str, dtype: str) -> None:
        self.archive = archive
        self.key = key
        self.dtype = dtype


class Tensor(Described):
    """A view on a storage, as declared; `numpy` checks it and reads its values.

    Attributes:
        dtype: Torch's name.
        shape: Sizes; the declared ones.
    """

    __slots__ = ("_offset", "_storage", "_strides", "dtype", "shape")

    def __init__(
        self,
        storage: Storage,
        *,
        dtype: str,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
    ) -> None:
        self._storage = storage
        self._offset = offset
        self._strides = strides
        self.dtype = dtype
        self.shape = shape

    def numpy(self) -> Array:
        """The values, read now; bfloat16 as float32.

        Raises:
            DumpRefused: The declared view does not lie within its storage.
            DumpTruncated: The storage is not there as declared.
        """
        dtype = np.dtype(DTYPES[self.dtype])
        if self._storage.archive.big_endian:
            dtype = dtype.newbyteorder(">")
        extent = self._extent()
        if not extent:
            return _widened(np.empty(self.shape, dtype), self.dtype)
        data = self._read(self._offset * dtype.itemsize, extent * dtype.itemsize)
        flat = np.frombuffer(data, dtype)
        if math.prod(self.shape) > max(extent, MOST_ELEMENTS):
            raise self._refused("is far larger than its storage")
        strides = tuple(stride * dtype.itemsize for stride in self._strides)
        view: Array = np.ndarray(self.shape, dtype, buffer=flat, strides=strides)
        return _widened(view, self.dtype)

    def _read(self, first: int, size: int) -> bytes:
        entry = self._storage.archive.storage(self._storage.key)
        data = entry.read(first, size) if first + size <= entry.size else b""
        if len(data) != size:
            raise DumpTruncated(
                f"a {self.dtype} tensor of shape {str(self.shape)[:80]} reaches beyond "
                f"the {entry.size} bytes of its storage",
                where=str(self._storage.archive.path),
            )
        return data

    def _extent(self) -> int:
        """Elements from the first to behind the last one that the view touches."""
        numbers = (*self.shape, *self._strides, self._offset)
        plain = all(type(number) is int and number >= 0 for number in numbers)
        if not plain or len(self.shape) != len(self._strides) or len(self.shape) > 16:
            raise self._refused("has no valid shape")
        if not math.prod(self.shape):
            return 0
        steps = zip(self.shape, self._strides, strict=True)
        return sum((size - 1) * stride for size, stride in steps) + 1

    def _refused(self, problem: str) -> DumpRefused:
        return DumpRefused(
            f"a tensor of shape {str(self.shape)[:80]} {problem}",
            where=str(self._storage.archive.path),
        )


def _widened(values: Array, dtype: str) -> Array:
    """Values in the machine's byte order; the bits of bfloat16 as float32."""
    native = values.astype(values.dtype.newbyteorder("="), copy=False)
    if dtype != BFLOAT16:
        return native
    # A bfloat16 is the upper half of the float32 of the same value.
    widened: Array = (native.astype(np.uint32) << 16).view(np.float32)
    return widened


class NumpyDtype:
    """``numpy.dtype`` as pickled: a type string, then a state with the byte order."""

    __slots__ = ("code", "order")

    _KINDS: Final = "biufcSU"

    def __init__(self, code: object, *_: object) -> None:
        if type(code) is bytes:
            code = code.decode("latin-1")
        if type(code) is not str or not 1 <= len(code) <= 12:
            raise DumpRefused("a numpy array has a type that is no plain number")
        self.code = code
        self.order: Literal["<", ">", "="] = "="

    def __setstate__(self, state: object) -> None:
        if type(state) is tuple and len(state) > 1 and state[1] in ("<", ">", "|", "="):
            self.order = "<" if state[1] == "<" else ">" if state[1] == ">" else "="

    def dtype(self) -> np.dtype[Any]:
        """Numpy's own type.

        Raises:
            DumpRefused: It is not a plain number or text.
        """
        try:
            dtype = np.dtype(self.code)
        except (TypeError, ValueError) as error:
            raise DumpRefused(f"a numpy array has the type {self.code!r}") from error
        if dtype.kind not in self._KINDS or dtype.names or not dtype.itemsize:
            raise DumpRefused(
                f"a numpy array has the type {dtype.name!r}, which is no plain number"
            )
        return dtype if self.order == "=" else dtype.newbyteorder(self.order)


class NumpyArray:
    """``numpy.ndarray`` as pickled: made empty, then given its state."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: Array | None = None

    def __setstate__(self, state: object) -> None:
        if type(state) is not tuple or len(state) != 5:
            raise DumpRefused("a numpy array has a state that numpy does not write")
        _, shape, dtype, fortran, data = state
        order = "F" if fortran else "C"
        self.fill(data, dtype=dtype, shape=shape, order=order)

    def fill(
        self, data: object, *, dtype: object, shape: object, order: object
    ) -> None:
        """Takes the values, which must be exactly as many bytes as the shape says.

        Raises:
            DumpRefused: They are not, or are Python objects.
        """
        if type(dtype) is not NumpyDtype or not isinstance(data, bytes | bytearray):
            raise DumpRefused("a numpy array holds Python objects, not numbers")
        sizes = shape if type(shape) is tuple else (shape,)
        if not all(type(n) is int and n >= 0 for n in sizes) or len(sizes) > 16:
            raise DumpRefused("a numpy array has no valid shape")
        kind = dtype.dtype()
        if math.prod(sizes) * kind.itemsize != len(data):
            raise DumpRefused(
                f"a numpy array of shape {str(sizes)[:80]} comes with {len(data)} bytes"
            )
        flat = np.frombuffer(bytes(data), kind)
        native = flat.astype(kind.newbyteorder("="), copy=False)
        self._values = native.reshape(sizes, order="F" if order == "F" else "C")

    def numpy(self) -> Array:
        """The values.

        Raises:
            DumpRefused: The pickle never gave them.
        """
        if self._values is None:
            raise DumpRefused("a numpy array without values")
        return self._values


def numpy_scalar(dtype: object, data: object = None) -> Any:
    """A numpy scalar as a Python value.

    Raises:
        DumpRefused: It is not a plain number or text.
    """
    array = NumpyArray()
    array.fill(data, dtype=dtype, shape=(1,), order="C")
    return array.numpy()[0].item()
