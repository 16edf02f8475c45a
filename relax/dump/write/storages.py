"""Numpy arrays as the storages that torch's tensors are views of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relax.dump.write.torch_zip import CHUNK_BYTES, Sink, TorchZip

Array = NDArray[Any]

STORAGE_CLASSES: Final = {
    "float64": "DoubleStorage",
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
    "complex64": "ComplexFloatStorage",
    "complex128": "ComplexDoubleStorage",
}
"""By numpy dtype: the torch class of a storage of such elements."""


@dataclass(frozen=True, slots=True)
class Storage:
    """A run of elements that one or several tensors are views of.

    Attributes:
        key: Names the storage's entry: ``data/<key>``.
        numel: Number of elements.
        torch_class: Its class in ``torch``.
    """

    key: str
    numel: int
    torch_class: str


class Storages:
    """Collects arrays while the pickle is written, and writes them behind it.

    Only references are kept: no array is copied before its turn to be written, and then
    one at a time.
    """

    def __init__(self) -> None:
        self._arrays: list[tuple[Array, ...]] = []

    def add(self, arrays: Sequence[Array]) -> Storage:
        """Puts arrays of one dtype, one behind the other, into one storage."""
        storage = Storage(
            key=str(len(self._arrays)),
            numel=sum(array.size for array in arrays),
            torch_class=STORAGE_CLASSES[arrays[0].dtype.name],
        )
        self._arrays.append(tuple(arrays))
        return storage

    def write_into(self, archive: TorchZip) -> None:
        """Writes every storage as an entry of the archive."""
        for key, arrays in enumerate(self._arrays):
            with archive.entry(f"data/{key}") as write:
                for array in arrays:
                    _write_elements(array, write)


def _write_elements(array: Array, write: Sink) -> None:
    if not array.size:
        return
    little = array.dtype.newbyteorder("<")
    flat = np.ascontiguousarray(array, dtype=little).reshape(-1).view(np.uint8)
    for start in range(0, flat.size, CHUNK_BYTES):
        write(flat[start : start + CHUNK_BYTES].data)
