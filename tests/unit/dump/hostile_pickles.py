"""Pickles that try something, each with the word that its refusal must name.

Every attempt would create the canary file if it were carried out.
"""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

PROTO = b"\x80\x02"


def text(value: str) -> bytes:
    content = value.encode()
    return b"X" + struct.pack("<I", len(content)) + content


def call(module: str, name: str, *arguments: bytes) -> bytes:
    """GLOBAL, arguments, REDUCE."""
    return f"c{module}\n{name}\n".encode() + b"(" + b"".join(arguments) + b"tR"


def in_dump(value: bytes) -> bytes:
    """A rollout dump of one sample that has the value as its metadata."""
    sample = b"}(" + text("index") + b"K\x00" + text("metadata") + value + b"u"
    top = text("rollout_id") + b"K\x03" + text("samples") + b"](" + sample + b"e"
    return PROTO + b"}(" + top + b"u."


def zipped(pickled: bytes, *, storages: dict[str, bytes] | None = None) -> bytes:
    """The archive that torch would make of it."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", "little")
        for key, content in (storages or {}).items():
            archive.writestr(f"archive/data/{key}", content)
        archive.writestr("archive/version", "3\n")
    return packed.getvalue()


class Reduced:
    """Pickles as a call of a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def attempts(canary: Path) -> dict[str, tuple[bytes, str]]:
    """By name: the pickle, and what its refusal must contain."""
    run, python = text(f"touch {canary}"), f"open({str(canary)!r}, 'w').close()"
    values = {
        **_calls(run, text(python)),
        **_detours(run),
        **_changes(),
        "open": (call("io", "open", text(str(canary)), text("w")), "io.open"),
        "an object array": (_object_array(canary), "posix.system"),
        "a chain of reduces": (
            pickle.dumps({"metadata": Reduced(eval, python)}, 4)[2:-1],
            "builtins.eval",
        ),
    }
    return {name: (in_dump(v), word) for name, (v, word) in values.items()}


def _calls(run: bytes, python: bytes) -> dict[str, tuple[bytes, str]]:
    """Functions that act, called as they are; the refusal must name them."""
    argued: dict[str, tuple[bytes, ...]] = {
        "posix system": (run,),
        "os popen": (run,),
        "nt system": (run,),
        "subprocess check_output": (run,),
        "__builtin__ eval": (python,),
        "builtins exec": (python,),
        "builtins __import__": (text("os"),),
        "operator attrgetter": (text("system"),),
        "operator methodcaller": (text("system"), run),
        "functools partial": (b"cposix\ngetpid\n", run),
        "codecs decode": (run, text("rot13")),
        "_codecs encode": (run, text("zlib")),
        "torch.hub load": (text("x"), text("y")),
        "torch.serialization load": (run,),
        "numpy load": (text("x"),),
        "numpy.testing._private.utils runstring": (python, b"}"),
        "runpy run_path": (text("x"),),
        "pickle loads": (text("x"),),
        "ctypes CDLL": (text("libc.so.6"),),
        "relax_tui.cli main": (),
        "__main__ Sample": (),
    }
    found = {}
    for name, arguments in argued.items():
        module, function = name.split(" ")
        # The first name that is met is refused, and partial's is its own.
        found[name] = (call(module, function, *arguments), function)
    return found


def _detours(run: bytes) -> dict[str, tuple[bytes, str]]:
    """Other ways to a name, and attributes of what is allowed."""
    sample = b"crelax.x\nSample\n"
    return {
        "getattr of a module": (
            call("builtins", "getattr", b"cos\n__dict__\n", text("system")),
            "os.__dict__",
        ),
        "getattr of a value": (
            call("builtins", "getattr", b"K\x01", text("__class__")),
            "builtins.getattr",
        ),
        "getattr of no name": (
            call("builtins", "getattr", sample, text("a b")),
            "builtins.getattr",
        ),
        "stack global": (
            b"\x8c\x05posix\x8c\x06system\x93(" + run + b"tR",
            "posix.system",
        ),
        "inst": (b"(" + run + b"iposix\nsystem\n", "posix.system"),
        "obj": (b"(cposix\nsystem\n" + run + b"o", "posix.system"),
        "an unknown storage": (b"(" + text("module") + run + b"tQ", "no storage"),
    }


def _changes() -> dict[str, tuple[bytes, str]]:
    """What was made, or is known, is to be given other attributes."""
    return {
        "a class is changed": (
            b"crelax.x\nSample\n(N}" + text("__new__") + b"K\x01stb",
            "not one of plain data",
        ),
        "a function is changed": (
            b"cnumpy\ndtype\n(N}" + text("__call__") + b"K\x01stb",
            "of a function",
        ),
    }


def _object_array(canary: Path) -> bytes:
    """A numpy array of Python objects, one of which is a call."""
    made = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t"
        + text("b")
        + b"tR"
    )
    dtype = call("numpy", "dtype", text("O8"), b"K\x00", b"K\x01")
    item = call("posix", "system", text(f"touch {canary}"))
    return made + b"(K\x01(K\x01t" + dtype + b"\x89](" + item + b"etb"


def bombs() -> dict[str, bytes]:
    """Pickles that are small and want much."""
    laughs = b"](K\x01e" + b"".join(
        b"q" + bytes([level]) + b"0](" + (b"h" + bytes([level])) * 9 + b"e"
        for level in range(40)
    )
    tuples = b"K\x01" + b"2\x86" * 60
    return {
        "declared bytes": in_dump(b"\x8e" + struct.pack("<Q", 1 << 40)),
        "declared text": in_dump(b"\x8d" + struct.pack("<Q", 1 << 62)),
        "declared bytearray": in_dump(b"\x96" + struct.pack("<Q", 1 << 45)),
        "declared frame": PROTO + b"\x95" + struct.pack("<Q", 1 << 50) + b"}.",
        "declared long": in_dump(b"\x8b" + struct.pack("<i", 1 << 30)),
        "memo index": in_dump(b"Nr\xff\xff\xff\xff"),
        "deep lists": in_dump(b"]" * 200_000 + b"a" * 199_999),
        "laughing lists": in_dump(laughs),
        "laughing key": in_dump(b"}(" + tuples + b"K\x01u"),
        "digits": in_dump(b"I" + b"9" * 100_000 + b"\n"),
    }
