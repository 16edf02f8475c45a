"""Files and folders → verdicts on what is set in them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from relax.errors import ArgumentError
from relax.triage.lint.combinations import judge_combinations
from relax.triage.lint.given import SETTINGS_SUFFIXES, Given, read_given
from relax.triage.lint.stops import (
    StopUse,
    judge_stops,
    stops_in_settings,
    stops_in_source,
)
from relax.triage.lint.tokenizer import TokenTable, read_tokenizer
from relax.triage.verdict import Verdict, worst_first

MOST_FILES: Final = 2_000
_SKIPPED: Final = frozenset(
    {"node_modules", "site-packages", "__pycache__", "build", "dist", "venv", "wandb"}
)


@dataclass(frozen=True, kw_only=True)
class Linted:
    """What was found.

    Attributes:
        verdicts: Worst first; empty when nothing is wrong.
        files: How many were read.
        unread: Files that could not be read, and why.
        tokenizer: Whose ids were used; ''.
    """

    verdicts: tuple[Verdict, ...]
    files: int
    unread: tuple[str, ...] = ()
    tokenizer: str = ""


def lint(paths: Sequence[Path], *, tokenizer: Path | None = None) -> Linted:
    """Looks for known faults.

    Args:
        paths: Files of settings, scripts, Python source, or folders of such.
        tokenizer: ``tokenizer.json`` or a checkpoint's folder; None: the one that the
            settings name as hf_checkpoint, if it is here.

    Raises:
        ArgumentError: A path that was named does not exist or cannot be read, or the
            tokenizer that was named.
    """
    given: list[Given] = []
    uses: list[StopUse] = []
    unread: list[str] = []
    count = 0
    named = set(paths)
    for path in _files(paths):
        try:
            if path.suffix == ".py":
                uses += stops_in_source(path)
            else:
                settings = read_given(path)
                given += settings
                uses += stops_in_settings(settings)
        except ArgumentError as error:
            if path in named:
                raise
            unread.append(str(error))
            continue
        count += 1
    table = _tokenizer(tokenizer, given)
    verdicts = [*judge_stops(uses, table), *judge_combinations(given)]
    return Linted(
        verdicts=tuple(worst_first(verdicts)),
        files=count,
        unread=tuple(unread),
        tokenizer="" if table is None else table.path,
    )


def _tokenizer(named: Path | None, given: Iterable[Given]) -> TokenTable | None:
    if named is not None:
        return read_tokenizer(named)
    for setting in given:
        if setting.name == "hf_checkpoint" and isinstance(setting.value, str):
            folder = Path(setting.value)
            if (folder / "tokenizer.json").is_file():
                return read_tokenizer(folder)
    return None


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    count = 0
    for path in paths:
        if path.is_file():
            yield path
            continue
        if not path.is_dir():
            raise ArgumentError("there is no such file or folder", where=str(path))
        for found in _below(path):
            count += 1
            if count > MOST_FILES:
                raise ArgumentError(
                    f"more than {MOST_FILES} files",
                    where=str(path),
                    hint="name a folder further down",
                )
            yield found


def _below(folder: Path) -> Iterator[Path]:
    suffixes = (".py", *SETTINGS_SUFFIXES[:5])
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if name not in _SKIPPED and not name.startswith(".")
        )
        for name in sorted(names):
            if name.endswith(suffixes) and name not in _NO_SETTINGS:
                yield Path(place) / name


_NO_SETTINGS: Final = frozenset(
    {"tokenizer.json", "vocab.json", "model.safetensors.index.json", "package.json"}
)
