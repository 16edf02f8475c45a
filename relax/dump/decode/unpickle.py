"""The unpickler: Python's C machinery, told that it knows next to nothing.

`pickle.Unpickler` builds plain values in C. It asks `find_class` for every name and
`persistent_load` for every storage; both answer with descriptions only.
"""

from __future__ import annotations

import contextlib
import pickle
import struct
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final

import numpy as np

from relax.dump.decode.archive import Archive
from relax.dump.decode.guard import reading
from relax.dump.decode.standins import (
    Function,
    StorageKind,
    TorchDtype,
    find_name,
    wants,
)
from relax.dump.decode.tensors import Storage, Tensor
from relax.errors import DumpError, DumpRefused, DumpTruncated

_ENDS_EARLY: Final = ("truncated", "Ran out of input", "exhausted", "unexpected end")


class PickleFeed:
    """Hands pickles to an unpickler, one after the other."""

    def __init__(self) -> None:
        self._data = b""
        self._next = 0

    def give(self, data: bytes) -> None:
        """What is read next."""
        self._data, self._next = data, 0

    def peek(self, _: int, /) -> bytes:
        """All that is left."""
        return self._data[self._next :] if self._next else self._data

    def read(self, size: int, /) -> bytes:
        """The next bytes."""
        found = self._data[self._next : self._next + size]
        self._next += len(found)
        return found

    def readline(self) -> bytes:
        """The next line."""
        end = self._data.find(b"\n", self._next) + 1
        return self.read((end or len(self._data)) - self._next)


class DataUnpickler(pickle.Unpickler):
    """Reads pickles of plain data, tensors and arrays; refuses all others.

    Args:
        source: The pickle.
        archive: Holds the storages that tensors are views of.
    """

    memo: Any

    def __init__(self, source: PickleFeed | BinaryIO, archive: Archive) -> None:
        super().__init__(source, encoding="utf-8", errors="surrogatepass")
        self._archive = archive
        self._remembered: Mapping[int, object] | None = None
        self._rebuild = Function(_tensor)
        self._rebuild_typed = Function(_typed_tensor)
        self._parameter = Function(_parameter)

    def load(self) -> Any:
        """Reads one pickle; the process does nothing else meanwhile.

        Raises:
            DumpRefused: The pickle wants something that is no data.
        """
        with reading():
            return super().load()

    def remember(self, memo: Mapping[int, object], source: PickleFeed) -> None:
        """Puts values into the memo, as if pickles read before had put them there.

        ``memo`` can not be assigned a dict: CPython 3.11 then forgets all of it.

        Args:
            memo: By number.
            source: What this unpickler reads from.
        """
        # BININT number, BINPERSID, LONG_BINPUT number, POP
        parts = [("J", "S1"), ("n", "<u4"), ("Qr", "S2"), ("m", "<u4"), ("0", "S1")]
        puts = np.empty(len(memo), parts)
        puts["J"], puts["Qr"], puts["0"] = b"J", b"Qr", b"0"
        puts["n"] = puts["m"] = list(memo)
        source.give(puts.tobytes() + b"N.")
        self._remembered = memo
        try:
            self.load()
        finally:
            self._remembered = None

    def find_class(self, module: str, name: str, /) -> Any:
        """What a name stands for: never the thing itself.

        Raises:
            DumpRefused: It is on no list.
        """
        if module == "torch._utils":
            if name == "_rebuild_tensor_v2":
                return self._rebuild
            if name == "_rebuild_tensor_v3":
                return self._rebuild_typed
            if name == "_rebuild_parameter":
                return self._parameter
        return find_name(module, name)

    def persistent_load(self, pid: object, /) -> object:
        """A storage: ``("storage", class, key, device, number of elements)``.

        Raises:
            DumpRefused: It is none.
        """
        if self._remembered is not None:
            return self._remembered[pid]  # type: ignore[index]
        if (
            type(pid) is tuple
            and len(pid) == 5
            and pid[0] == "storage"
            and type(pid[1]) is StorageKind
            and type(pid[2]) is str
        ):
            return Storage(self._archive, key=pid[2], dtype=pid[1].dtype)
        raise DumpRefused("refers to something outside the file that is no storage")


def _tensor(
    storage: object, offset: object, shape: object, strides: object, *_: object
) -> Tensor:
    if type(storage) is not Storage:
        raise wants("torch._utils._rebuild_tensor_v2")
    dtype = TorchDtype(storage.dtype)
    return _typed_tensor(storage, offset, shape, strides, None, None, dtype)


def _typed_tensor(*parts: Any) -> Tensor:
    if (
        len(parts) < 7
        or type(parts[0]) is not Storage
        or type(parts[1]) is not int
        or type(parts[2]) is not tuple
        or type(parts[3]) is not tuple
        or type(parts[6]) is not TorchDtype
    ):
        raise wants("torch._utils._rebuild_tensor_v3")
    storage, offset, shape, strides = parts[:4]
    return Tensor(
        storage, dtype=parts[6].dtype, offset=offset, shape=shape, strides=strides
    )


def _parameter(tensor: object, *_: object) -> Tensor:
    if type(tensor) is not Tensor:
        raise wants("torch._utils._rebuild_parameter")
    return tensor


@contextlib.contextmanager
def pickle_errors(where: str) -> Iterator[None]:
    """Turns what unpickling damaged or hostile bytes raises into one sentence.

    Args:
        where: The file.

    Raises:
        DumpTruncated: The pickle ends early.
        DumpRefused: It wants something that is no data.
        DumpError: It is damaged.
    """
    try:
        yield
    except DumpError as error:
        if error.where:
            raise
        raise type(error)(error.what, where=where, hint=error.hint) from error
    except EOFError as error:
        raise _ends_early(where) from error
    except RecursionError as error:
        raise DumpRefused("nests too deeply", where=where) from error
    except (
        pickle.UnpicklingError,
        struct.error,
        ArithmeticError,
        AttributeError,
        ImportError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        text = str(error)
        if any(words in text for words in _ENDS_EARLY):
            raise _ends_early(where) from error
        shown = text[:160].encode("unicode_escape").decode("ascii")
        raise DumpError(
            f"its pickle is damaged, or not one of plain data ({shown})", where=where
        ) from error


def _ends_early(where: str) -> DumpTruncated:
    return DumpTruncated(
        "its pickle ends before it is complete",
        where=where,
        hint="the file is cut short or damaged: copy or dump it again",
    )
