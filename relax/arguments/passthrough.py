"""Settings of megatron-core and SGLang, each under its own name.

Which names there are is asked of the interpreter that will run the library. For
versions that were tested the answer lies in ``tables/``, so nothing has to be started;
for others it is asked once and kept in the user's cache by interpreter and version.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from relax.arguments.environment import cache_home, child_environment, interpreter
from relax.arguments.flags import OFF_NAMES, Flag, FlagTable, own_flags
from relax.arguments.values import ValueType
from relax.errors import ArgumentError, InternalError

Library = Literal["megatron-core", "sglang"]

TABLES: Final = Path(__file__).with_name("tables")
UPSTREAM_DEFAULTS: Final[Mapping[str, tuple[str, Any]]] = {
    "lr": ("optimizer", 1e-6),
    "clip_grad": ("optimizer", 1.0),
    "weight_decay": ("optimizer", 0.01),
    "adam_beta1": ("optimizer", 0.9),
    "adam_beta2": ("optimizer", 0.999),
    "adam_eps": ("optimizer", 1e-8),
    "hidden_dropout": ("transformer", 0.0),
    "attention_dropout": ("transformer", 0.0),
}
"""Fields that are always set: the mapping they go into, and upstream's default.

Dropout is the exception: megatron-core's 0.1 would make log-probs of two passes differ.
"""

DESCRIBER: Final = Path(__file__).with_name("describe.py")
_DESCRIBE_SECONDS: Final = 180.0
_VERSION_SECONDS: Final = 30.0
_VERSION_PROGRAM: Final = (
    "import importlib.metadata as m, sys\n"
    "try: print(m.version(sys.argv[1]))\n"
    "except m.PackageNotFoundError: print()\n"
)


def installed_version(library: Library, *, python: Path | None = None) -> str | None:
    """Version of a library, without importing it.

    Args:
        library: Distribution name.
        python: Interpreter to ask; None is this one.

    Returns:
        The version, or None when it is not installed there.

    Raises:
        ArgumentError: The interpreter does not run.
    """
    if python is None or python == interpreter():
        try:
            return importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            return None
    text = _ask(python, ["-P", "-c", _VERSION_PROGRAM, library], _VERSION_SECONDS)
    return text.strip() or None


@cache
def flag_table(
    *,
    python: Path | None = None,
    sglang_python: Path | None = None,
    with_sglang: bool = True,
) -> FlagTable:
    """All flags: ours, megatron-core's and SGLang's.

    Args:
        python: Interpreter that will train; None is this one.
        sglang_python: Interpreter that will serve; None is ``python``.
        with_sglang: Ask for SGLang's names, which may take half a minute the first
            time; without, any ``--sglang-…`` is in the table.
    """
    flags: dict[str, Flag] = {}
    megatron = library_fields("megatron-core", python=python)
    sglang = None
    if with_sglang:
        sglang = library_fields("sglang", python=sglang_python or python)
    for field in [*(megatron or []), *(sglang or [])]:
        flag = _flag(field)
        flags[flag.name] = flag
    for name in OFF_NAMES:
        flags.pop(name, None)
    return FlagTable({**flags, **own_flags()}, open_sglang=sglang is None)


def library_fields(
    library: Library, *, python: Path | None = None
) -> list[dict[str, Any]] | None:
    """The fields of a library's settings, as its describer prints them.

    Args:
        library: Distribution name.
        python: Interpreter that will run it; None is this one.

    Returns:
        The fields; where the library is not installed those of the newest stored table,
        and None when there is no table either.
    """
    version = installed_version(library, python=python)
    if version is None:
        stored = _newest_table(library)
        return None if stored is None else _read_fields(stored)
    table = TABLES / f"{library}-{version}.json"
    if table.is_file():
        return _read_fields(table)
    return _described(library, version, python or interpreter())


def _described(library: Library, version: str, python: Path) -> list[dict[str, Any]]:
    key = hashlib.sha256(os.fsencode(python)).hexdigest()[:16]
    kept = cache_home() / "relax" / "flags" / f"{library}-{version}-{key}.json"
    if kept.is_file():
        try:
            return _read_fields(kept)
        except (OSError, ValueError, KeyError):
            kept.unlink(missing_ok=True)
    text = _ask(python, ["-P", str(DESCRIBER), library], _DESCRIBE_SECONDS)
    # Libraries print greetings while they load; the object is what comes after them.
    document = text[text.index("{\n") :] if "{\n" in text else text
    try:
        fields = _fields_of(json.loads(document))
    except (ValueError, KeyError, TypeError) as error:
        raise ArgumentError(
            f"{library} {version} could not be asked for its settings",
            where=str(python),
            hint=f"run {python} -P {DESCRIBER} {library} and read what it says",
        ) from error
    _keep(kept, document)
    return fields


def _ask(python: Path, arguments: list[str], seconds: float) -> str:
    changes = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    try:
        return subprocess.run(
            [str(python), *arguments],
            check=True,
            capture_output=True,
            text=True,
            timeout=seconds,
            env=child_environment(changes),
        ).stdout
    except FileNotFoundError as error:
        raise ArgumentError(
            "there is no such Python interpreter",
            where=str(python),
            hint="name one that exists",
        ) from error
    except subprocess.CalledProcessError as error:
        last = str(error.stderr).strip().rpartition("\n")[2]
        raise ArgumentError(
            f"the interpreter failed when asked for settings: {last}",
            where=str(python),
            hint="see that the library it is to run can be imported there",
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ArgumentError(
            f"the interpreter could not be asked for settings: {error}",
            where=str(python),
            hint="see that it is an executable Python that starts in time",
        ) from error


def _keep(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, delete=False, encoding="utf-8"
        ) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).replace(path)
    except OSError:
        # A cache that cannot be written costs the next start a few seconds, no more.
        return


def _read_fields(path: Path) -> list[dict[str, Any]]:
    return _fields_of(json.loads(path.read_text(encoding="utf-8")))


def _fields_of(document: Any) -> list[dict[str, Any]]:
    fields = document["fields"]
    if not isinstance(fields, list) or not all("name" in field for field in fields):
        raise ValueError("not a table of fields")
    return fields


def _newest_table(library: Library) -> Path | None:
    tables = TABLES.glob(f"{library}-*.json")
    return max(tables, key=_version_key, default=None)


def _version_key(path: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", path.stem))


def _flag(field: Mapping[str, Any]) -> Flag:
    base = field["base"]
    if base not in ("bool", "int", "float", "str", "choice", "yaml"):
        raise InternalError(f"a passthrough field cannot be of type {base!r}")
    return Flag(
        name=field["name"],
        owner="sglang" if field["configs"] == ["sglang"] else "megatron-core",
        type=ValueType(
            base=base,
            optional=field["optional"],
            choices=tuple(field["choices"]),
            accepts=tuple(field["accepts"]),
        ),
        default=UPSTREAM_DEFAULTS.get(field["name"], ("", field["default"]))[1],
        refused=field["refused"],
        configs=tuple(field["configs"]),
    )
