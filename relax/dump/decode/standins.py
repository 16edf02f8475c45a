"""Inert stand-ins for what a dump names: nothing is imported, nothing is called.

A class of a known framework becomes an empty class of our own that remembers what it
was given. A short list of functions that pickles of plain data need has an
implementation here. Everything else is refused by name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar, Final, cast

from relax.dump.decode.tensors import (
    DTYPES,
    STORAGE_CLASSES,
    NumpyArray,
    NumpyDtype,
    numpy_scalar,
)
from relax.errors import DumpRefused

FRAMEWORKS: Final = frozenset(
    {"relax", "slime", "slime_plugins", "miles", "miles_plugins", "transfer_queue"}
)
"""Packages whose classes get a stand-in, at whatever depth they lie."""

PLAIN_CLASSES: Final = frozenset(
    {
        "builtins.object",
        "builtins.list",
        "builtins.dict",
        "builtins.int",
        "builtins.float",
        "builtins.str",
        "builtins.bool",
        "datetime.date",
        "datetime.datetime",
        "datetime.time",
        "datetime.timedelta",
        "datetime.timezone",
        "decimal.Decimal",
        "fractions.Fraction",
        "numpy.ndarray",
        "pathlib.Path",
        "pathlib.PosixPath",
        "pathlib.PurePosixPath",
        "torch.device",
        "uuid.SafeUUID",
        "uuid.UUID",
    }
)
"""Classes of the standard library that values are made of; stand-ins as well."""

_RENAMED: Final = {"__builtin__": "builtins", "copy_reg": "copyreg"}
"""Modules that protocol 2 names as Python 2 did."""

_LONGEST_NAME: Final = 200


class _Sealed(type):
    """A class that the pickle cannot change."""

    LABEL: str

    def __setattr__(cls, name: str, value: object) -> None:
        raise DumpRefused(f"the pickle changes the class {cls.__name__!r}")

    def __delattr__(cls, name: str) -> None:
        raise DumpRefused(f"the pickle changes the class {cls.__name__!r}")


class StandIn(metaclass=_Sealed):
    """An object of a class that is not here; it only remembers.

    Attributes:
        arguments: What it was made with.
        state: What it was given afterwards.
    """

    __slots__ = ("arguments", "state")

    LABEL: ClassVar[str] = ""

    arguments: tuple[Any, ...]
    state: object

    def __new__(cls, *arguments: Any, **named: Any) -> StandIn:
        """Remembers the arguments and does nothing else."""
        made = object.__new__(cls)
        made.arguments = (*arguments, *named.values())
        made.state = None
        return made

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        self.state = state

    def fields(self) -> dict[str, Any]:
        """Its attributes by name, when it was pickled like a dataclass."""
        parts = self.state if type(self.state) is tuple else (self.state,)
        found: dict[str, Any] = {}
        for part in parts:
            if type(part) is dict:
                found.update({k: v for k, v in part.items() if type(k) is str})
        return found


@functools.cache
def stand_in(label: str) -> type[StandIn]:
    """The stand-in for a class, e.g. ``slime.utils.types.Sample.Status``."""
    name = label.rpartition(".")[2]
    return cast(
        "type[StandIn]",
        _Sealed(name, (StandIn,), {"__slots__": (), "LABEL": label}),
    )


class Function:
    """A function that pickles may call; they cannot set attributes on it."""

    __slots__ = ("_function",)

    _function: Callable[..., Any]

    def __init__(self, function: Callable[..., Any]) -> None:
        object.__setattr__(self, "_function", function)

    def __setattr__(self, name: str, value: object) -> None:
        raise DumpRefused(f"the pickle sets {name!r} of a function")

    def __call__(self, *arguments: Any) -> Any:
        """Calls it."""
        return self._function(*arguments)


class StorageKind:
    """A storage class of torch, as a word."""

    __slots__ = ("dtype",)

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def __setstate__(self, state: object) -> None:
        raise DumpRefused("the pickle changes a storage class")


class TorchDtype(StorageKind):
    """A dtype of torch, as a word."""

    __slots__ = ()


def find_name(module: str, name: str) -> object:
    """What a name of the pickle stands for here.

    Args:
        module: As the pickle names it.
        name: With dots for a nested class.

    Raises:
        DumpRefused: It is on no list.
    """
    label = f"{_RENAMED.get(module, module)}.{name}"
    known = KNOWN.get(label)
    if known is not None:
        return known
    package = module.partition(".")[0]
    if label in PLAIN_CLASSES or (
        package in FRAMEWORKS and len(label) <= _LONGEST_NAME and label.isprintable()
    ):
        return stand_in(label)
    raise wants(label)


def wants(label: str) -> DumpRefused:
    """The refusal of a name."""
    shown = label[:_LONGEST_NAME].encode("unicode_escape").decode("ascii")
    return DumpRefused(
        f"wants {shown}, which is no data",
        hint="nothing of it was run; ask who made the file, and for plain values",
    )


def _attribute(owner: object, name: object) -> type[StandIn]:
    # How older pickles name nested classes, and Python 3.11 the members of enums.
    if type(owner) is _Sealed and type(name) is str and name.isidentifier():
        return stand_in(f"{owner.LABEL}.{name}"[:_LONGEST_NAME])
    raise wants("builtins.getattr")


def _encode(text: object, codec: object) -> bytes:
    # How protocol 2 writes bytes.
    if type(text) is str and codec in ("latin1", "latin-1"):
        return text.encode("latin-1")
    raise wants("_codecs.encode")


def _no_bytes(*content: object) -> bytes:
    # How protocol 2 writes the empty ones.
    if content:
        raise wants("builtins.bytes")
    return b""


def _bytearray(content: object = b"", codec: object = "latin-1") -> bytearray:
    if type(content) is str:
        return bytearray(_encode(content, codec))
    if type(content) is bytes:
        return bytearray(content)
    raise wants("builtins.bytearray")


def _collection(kind: type) -> Callable[..., Any]:
    def make(items: object = ()) -> Any:
        if type(items) not in (list, tuple, dict):
            raise wants(f"builtins.{kind.__name__}")
        return kind(items)

    return make


def _reconstructed(kind: object, *_: object) -> StandIn:
    if type(kind) is not _Sealed:
        raise wants("copyreg._reconstructor")
    return cast(StandIn, kind())


def _array_from_buffer(
    data: object, dtype: object, shape: object, order: object
) -> Any:
    array = NumpyArray()
    array.fill(data, dtype=dtype, shape=shape, order=order)
    return array


def _known() -> dict[str, object]:
    functions: dict[str, Callable[..., Any]] = {
        "builtins.getattr": _attribute,
        "builtins.set": _collection(set),
        "builtins.frozenset": _collection(frozenset),
        "builtins.bytearray": _bytearray,
        "builtins.bytes": _no_bytes,
        "builtins.complex": complex,
        "collections.OrderedDict": _collection(dict),
        "collections.defaultdict": lambda *_: {},
        "copyreg._reconstructor": _reconstructed,
        "_codecs.encode": _encode,
        "numpy.dtype": NumpyDtype,
        "torch.Size": _collection(tuple),
    }
    for core in ("numpy.core", "numpy._core"):
        functions[f"{core}.multiarray._reconstruct"] = lambda *_: NumpyArray()
        functions[f"{core}.multiarray.scalar"] = numpy_scalar
        functions[f"{core}.numeric._frombuffer"] = _array_from_buffer
    return {
        **{label: Function(function) for label, function in functions.items()},
        **{
            f"torch.{name}": StorageKind(kind) for name, kind in STORAGE_CLASSES.items()
        },
        "torch.storage.UntypedStorage": StorageKind("uint8"),
        **{f"torch.{name}": TorchDtype(name) for name in DTYPES},
    }


KNOWN: Final = _known()
"""By full name: the functions and words of torch and numpy that data need."""
