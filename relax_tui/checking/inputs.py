"""Which of the paths that a person names are runs, dumps, records, logs or JSONL."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from relax.dump.catalogue import find_dumps
from relax.dump.entry import DumpEntry
from relax.dump.jsonl.read import look_at_jsonl, step_of_name
from relax.dump.logs.scan import LogScanner
from relax.errors import DumpError, DumpMissing

DEEPEST: Final = 4
MOST_FILES: Final = 20_000
LOG_SUFFIXES: Final = (".log", ".out", ".err", ".txt")
STEP_FILE: Final = "samples.arrow"
_LOOK_BYTES: Final = 4096


@dataclass(kw_only=True)
class Inputs:
    """What was found.

    Attributes:
        runs: Run folders of this engine.
        records: Step records outside a run, such as decoded dumps.
        dumps: Dumps by rollout and kind.
        jsonl: Files of one step each, by step.
        logs: Text logs.
        skipped: What was left out, one sentence each.
    """

    runs: list[Path] = field(default_factory=list)
    records: list[Path] = field(default_factory=list)
    dumps: list[DumpEntry] = field(default_factory=list)
    jsonl: dict[int, list[Path]] = field(default_factory=dict)
    logs: list[Path] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to check."""
        return not (self.runs or self.records or self.dumps or self.jsonl or self.logs)


def classify(paths: Sequence[Path]) -> Inputs:
    """Looks at what each path is.

    Args:
        paths: Files and folders.

    Raises:
        DumpMissing: One does not exist.
        DumpError: One cannot be read, or a file that was named is of no known kind.
    """
    inputs = Inputs()
    for path in paths:
        if not path.exists():
            raise DumpMissing("there is no such file or folder", where=str(path))
        if path.is_dir():
            _take_folder(path, inputs)
        else:
            _take_named(path, inputs)
    inputs.logs = list(dict.fromkeys(inputs.logs))
    return inputs


def _take_folder(path: Path, inputs: Inputs) -> None:
    if (path / "run.json").is_file():
        inputs.runs.append(path)
        inputs.logs += sorted((path / "logs").glob("*.log"))
        return
    if (path / STEP_FILE).is_file():
        inputs.records.append(path)
        return
    inputs.dumps += find_dumps(path)
    for file in _files(path):
        if file.suffix == ".jsonl":
            _take_jsonl(file, inputs)
        elif file.suffix in LOG_SUFFIXES and not _is_binary(file):
            inputs.logs.append(file)


def _take_named(path: Path, inputs: Inputs) -> None:
    if path.suffix == ".jsonl":
        if not _take_jsonl(path, inputs):
            raise DumpError(
                "its objects are of no format that is known",
                where=str(path),
                hint="Relax, verl, prime-rl and NeMo-RL files of samples are read",
            )
        return
    if path.suffix == ".pt" or path.name.endswith(".manifest.json"):
        found = find_dumps(path)
        if not found:
            raise DumpError("is no dump that is known", where=str(path))
        inputs.dumps += found
        return
    # Opening it tells whether it can be read at all.
    with LogScanner(path, "x"):
        binary = _is_binary(path)
    if binary:
        found = find_dumps(path)
        if not found:
            raise DumpError("is neither a dump nor a text log", where=str(path))
        inputs.dumps += found
    else:
        inputs.logs.append(path)


def _take_jsonl(path: Path, inputs: Inputs) -> bool:
    if look_at_jsonl(path) is None:
        inputs.skipped.append(f"{path.name} is JSONL of no known format")
        return False
    step = step_of_name(path)
    inputs.jsonl.setdefault(-1 if step is None else step, []).append(path)
    return True


def _files(folder: Path) -> Iterator[Path]:
    """Files a few levels down; events of runs and hidden folders are left out."""
    count = 0
    top = len(folder.parts)
    for place, folders, names in os.walk(folder):
        here = Path(place)
        if len(here.parts) - top >= DEEPEST:
            folders.clear()
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name != "events"
        )
        for name in sorted(names):
            count += 1
            if count > MOST_FILES:
                raise DumpError(
                    f"more than {MOST_FILES} files: name a folder further down",
                    where=str(folder),
                )
            yield here / name


def _is_binary(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return b"\0" in stream.read(_LOOK_BYTES)
    except OSError as error:
        raise DumpError(f"cannot be read: {error.strerror}", where=str(path)) from error


def described(inputs: Inputs) -> Iterable[str]:
    """What was found, as phrases."""
    if inputs.runs:
        yield f"{len(inputs.runs)} run(s)"
    for kind in ("rollout", "train"):
        count = sum(entry.kind == kind for entry in inputs.dumps)
        if count:
            yield f"{count} {kind} dump(s)"
    if inputs.records:
        yield f"{len(inputs.records)} step record(s)"
    if inputs.jsonl:
        yield f"JSONL of {len(inputs.jsonl)} step(s)"
    if inputs.logs:
        yield f"{len(inputs.logs)} log(s)"
