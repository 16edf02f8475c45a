"""Plain values as pickle opcodes that every unpickler of torch accepts.

The C pickler writes texts, numbers and long lists of them; what holds them together is
written here, opcode by opcode. So a file of any size is made a few thousand elements at
a time, nothing is memoised between values but a few constants (no cycles, no memory
that grows), and nothing enters a file that is not one of

    None  bool  int  float  str  bytes  list  tuple  dict  numpy arrays and scalars

An enum is written as its value. An array becomes a torch tensor. Everything else is
refused by its place, for example ``samples[3].metadata['when']``.

Protocol 2, as ``torch.save`` uses it: torch's restricted unpickler knows no newer one.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, TypeAlias

import numpy as np

from relax.dump.write.storages import STORAGE_CLASSES, Array, Storage, Storages
from relax.dump.write.torch_zip import Sink
from relax.errors import DumpError

PROTOCOL: Final = b"\x80\x02"
STOP: Final = b"."
SLICE_ELEMENTS: Final = 16384
"""Elements of a list that go through the C pickler at once."""

MOST_CONSTANTS: Final = 4096
DEEPEST: Final = 100
LARGEST_INT_BITS: Final = 255 * 8 - 1
"""Larger integers need an opcode that torch's restricted unpickler refuses.

They are refused where values are looked at one by one; inside a long list of numbers,
where no such integer can mean anything, they are not looked for.
"""

_ATOMS: Final = (type(None), bool, int, float, str)
_GLOBAL_BUILTIN: Final = b"c__builtin__\n"

Place: TypeAlias = "tuple[Place, object] | tuple[()]"
"""Where a value stands: the place around it, and its key in there."""


class _NotPlain(Exception):
    """The C pickler met something that it must not write by itself."""


class _PlainPickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        raise _NotPlain


def _fragment(value: Any) -> bytes | None:
    """Opcodes of a value of built-in types only; None when it holds anything else."""
    buffer = io.BytesIO()
    pickler = _PlainPickler(buffer, protocol=2)
    pickler.fast = True
    try:
        pickler.dump(value)
    except (_NotPlain, ValueError, RecursionError, OverflowError):
        return None
    opcodes = buffer.getvalue()[len(PROTOCOL) : -len(STOP)]
    # Sets and byte arrays pass the pickler by; each needs a global to be built.
    return None if _GLOBAL_BUILTIN in opcodes else opcodes


class OpcodeWriter:
    """Writes values as opcodes; the caller frames them (`PROTOCOL` … `STOP`).

    Args:
        write: Takes the opcodes.
        storages: Takes the arrays, which are written behind the pickle.
    """

    def __init__(self, write: Sink, storages: Storages) -> None:
        self.write = write
        self._storages = storages
        self._constants: dict[bytes, bytes] = {}

    def key(self, text: str) -> None:
        """Writes a text that comes again and again, such as a column's name."""
        self.write(self._constant(_text(text)))

    def value(self, value: Any, place: Place) -> None:
        """Writes a value.

        Args:
            value: Plain, see the top of this module.
            place: Where it stands, for the message when it is refused.

        Raises:
            DumpError: It, or something within, is not plain.
        """
        self._value(value, place, depth=0)

    def _value(self, value: Any, place: Place, *, depth: int) -> None:
        if depth > DEEPEST:
            raise _refused(place, "nests too deeply, or contains itself")
        if type(value) in _ATOMS:
            self._atom(value, place)
        elif isinstance(value, Enum):
            self._value(value.value, place, depth=depth + 1)
        elif isinstance(value, np.ndarray):
            self._arrays([value], place)
        elif isinstance(value, np.generic):
            self._value(value.item(), place, depth=depth + 1)
        elif isinstance(value, list):
            self._list(value, place, depth=depth)
        elif isinstance(value, tuple):
            self.write(b"(")
            for position, item in enumerate(value):
                self._value(item, (place, position), depth=depth + 1)
            self.write(b"t")
        elif isinstance(value, Mapping):
            self._mapping(value, place, depth=depth)
        elif isinstance(value, bytes):
            # What protocol 2 has for bytes: a text of the first 256 characters.
            text, latin = _text(value.decode("latin1")), _text("latin1")
            encode = self._constant(b"c_codecs\nencode\n")
            self.write(encode + text + self._constant(latin) + b"\x86R")
        else:
            self._atom(_builtin(value, place), place)

    def _atom(self, value: Any, place: Place) -> None:
        if isinstance(value, int) and value.bit_length() > LARGEST_INT_BITS:
            raise _refused(place, "is an integer of more than 255 bytes")
        opcodes = _fragment(value)
        if opcodes is None:
            raise _refused(place, "is a text of more than 4 GiB")
        self.write(opcodes)

    def _list(self, values: list[Any], place: Place, *, depth: int) -> None:
        if values and all(isinstance(value, np.ndarray) for value in values):
            self.write(b"](")
            self._arrays(values, place)
            self.write(b"e")
            return
        self.write(b"]")
        if values and type(values[0]) in _ATOMS:
            for start in range(0, len(values), SLICE_ELEMENTS):
                some = values[start : start + SLICE_ELEMENTS]
                opcodes = _fragment(some)
                if opcodes is None:
                    self._elements(some, start, place, depth=depth)
                else:
                    # Without the opcode that begins a list: they extend this one.
                    self.write(memoryview(opcodes)[1:])
        else:
            self._elements(values, 0, place, depth=depth)

    def _elements(
        self, values: Sequence[Any], first: int, place: Place, *, depth: int
    ) -> None:
        for position, value in enumerate(values, first):
            self._value(value, (place, position), depth=depth + 1)
            self.write(b"a")

    def _mapping(self, values: Mapping[Any, Any], place: Place, *, depth: int) -> None:
        self.write(b"}")
        for key, value in values.items():
            if type(key) is str:
                self.key(key)
            elif type(key) in _ATOMS:
                self._atom(key, (place, key))
            else:
                raise _refused((place, key), "has a key that is no text or number")
            self._value(value, (place, key), depth=depth + 1)
            self.write(b"s")

    def _arrays(self, arrays: Sequence[Array], place: Place) -> None:
        """Writes arrays as tensors; those of one dtype are views of one storage."""
        by_dtype: dict[str, list[Array]] = {}
        for array in arrays:
            by_dtype.setdefault(array.dtype.name, []).append(array)
        for dtype in by_dtype:
            if dtype not in STORAGE_CLASSES:
                raise _refused(place, f"is an array of {dtype}, which torch has not")
        storages = {name: self._storages.add(some) for name, some in by_dtype.items()}
        offsets = dict.fromkeys(by_dtype, 0)
        for array in arrays:
            name = array.dtype.name
            self._tensor(array, storages[name], offset=offsets[name])
            offsets[name] += array.size

    def _tensor(self, array: Array, storage: Storage, *, offset: int) -> None:
        strides = [stride // array.itemsize for stride in _strides(array)]
        parts = (
            self._constant(b"ctorch._utils\n_rebuild_tensor_v2\n"),
            b"((",
            self._constant(_text("storage")),
            self._constant(f"ctorch\n{storage.torch_class}\n".encode()),
            _text(storage.key),
            self._constant(_text("cpu")),
            _number(storage.numel),
            b"tQ",
            _number(offset),
            _numbers(array.shape),
            _numbers(strides),
            b"\x89",
            self._constant(b"ccollections\nOrderedDict\n"),
            b")RtR",
        )
        self.write(b"".join(parts))

    def _constant(self, opcodes: bytes) -> bytes:
        """The opcodes, which remember their value, or a shorter way to get it again."""
        known = self._constants.get(opcodes)
        if known is not None:
            return known
        index = len(self._constants)
        if index >= MOST_CONSTANTS:
            return opcodes
        short = index < 256
        number = index.to_bytes(1 if short else 4, "little")
        self._constants[opcodes] = (b"h" if short else b"j") + number
        return opcodes + (b"q" if short else b"r") + number


def _text(text: str) -> bytes:
    content = text.encode("utf-8", "surrogatepass")
    return b"X" + len(content).to_bytes(4, "little") + content


def _number(value: int) -> bytes:
    if 0 <= value < 1 << 31:
        return b"J" + value.to_bytes(4, "little")
    return b"\x8a\x08" + value.to_bytes(8, "little", signed=True)


def _numbers(values: Sequence[int]) -> bytes:
    return b"(" + b"".join(map(_number, values)) + b"t"


def _strides(array: Array) -> Sequence[int]:
    """Strides, in bytes, of the array once it lies in order."""
    strides = [array.itemsize]
    for length in reversed(array.shape[1:]):
        strides.insert(0, strides[0] * length)
    return strides if array.ndim else []


def _builtin(value: Any, place: Place) -> Any:
    """The built-in value of an instance of a subclass, e.g. of a text."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    raise _refused(place, f"is a {name.removeprefix('builtins.')}")


def _refused(place: Place, problem: str) -> DumpError:
    return DumpError(
        f"{_written_out(place)} {problem}; a dump holds plain values and arrays only",
        hint="turn it into numbers, texts, lists and dicts, or leave it out",
    )


def _written_out(place: Place) -> str:
    """A place as one writes it: ``samples[3].metadata['when']``."""
    keys: list[object] = []
    while place:
        place, key = place
        keys.append(key)
    text = ""
    for depth, key in enumerate(reversed(keys)):
        if isinstance(key, str) and depth in (0, 2):
            text += f".{key}" if text else key
        else:
            text += f"[{key!r}]"
    return text
