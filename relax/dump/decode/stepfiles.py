"""Which files of a folder are the dumps of one step."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from relax.errors import DumpError, DumpMissing

SUFFIXES: Final = (".pt", ".pth", ".pkl")
STEPS_NAMED: Final = 6

_STEP: Final = re.compile(r"(?:eval_)?\d+")


def step_files(path: Path | Sequence[Path]) -> tuple[Path, ...]:
    """The files to decode together.

    Args:
        path: A file, files, or a folder, in which files may lie one folder deeper
            (``rollout_data/``, ``train_data/``).

    Raises:
        DumpMissing: A file does not exist, or a folder has no dumps.
        DumpError: A folder has the dumps of several steps.
    """
    if not isinstance(path, Path):
        if not path:
            raise DumpMissing("no file was given")
        return tuple(file for each in path for file in step_files(each))
    if not path.exists():
        raise DumpMissing("there is no such file", where=str(path))
    if not path.is_dir():
        return (path,)
    found = sorted(
        file
        for pattern in ("*", "*/*")
        for file in path.glob(pattern)
        if file.suffix in SUFFIXES and not file.name.startswith(".")
    )
    if not found:
        raise DumpMissing("holds no dumps", where=str(path))
    steps = sorted({_step(file) for file in found}, key=lambda s: (len(s), s))
    if len(steps) > 1:
        named = ", ".join(steps[:STEPS_NAMED])
        named += f" and {len(steps) - STEPS_NAMED} more" * (len(steps) > STEPS_NAMED)
        raise DumpError(
            f"holds the dumps of several steps: {named}",
            where=str(path),
            hint="choose the files of one step",
        )
    return tuple(found)


def _step(file: Path) -> str:
    match = _STEP.match(file.stem)
    return match[0] if match else file.stem
