"""What the client and the decoder process say to each other: one JSON object a line."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from relax.errors import (
    DumpError,
    DumpMissing,
    DumpRefused,
    DumpTooNew,
    DumpTruncated,
    RelaxError,
)

RESULT_NAME: Final = "decoded.json"
"""The file beside the stage files that keeps a `Decoded`."""

_KINDS: Final = {
    kind.code: kind
    for kind in (DumpError, DumpMissing, DumpRefused, DumpTooNew, DumpTruncated)
}


@dataclass(frozen=True, kw_only=True)
class DecodeRequest:
    """What the decoder is asked for.

    Attributes:
        paths: Files of one step.
        into: An empty folder.
        reward_key: Key of the number where rewards are dicts.
        max_memory: Bytes beyond the process's own.
        time_limit: Seconds of processor time; None: no limit asked for.
    """

    paths: tuple[str, ...]
    into: str
    reward_key: str | None
    max_memory: int
    time_limit: float | None

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> DecodeRequest:
        """From what `dataclasses.asdict` gave."""
        return cls(**{**document, "paths": tuple(document["paths"])})


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far decoding is.

    Attributes:
        done: Bytes of the files read.
        total: Bytes of all files.
        samples: Rows so far.
    """

    done: int
    total: int
    samples: int


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """A step record made from dumps.

    Attributes:
        folder: Holds samples.arrow and, from train dumps, logprobs.arrow and
            train.arrow.
        kind: ``rollout`` when a rollout dump is among the files, else ``train``.
        source_format: The formats' names, e.g. ``Relax rollout, Relax train``.
        rollout_id: The rollout.
        num_samples: Rows of every stage file but train.arrow.
        stages: Names of the stage files, e.g. ``("samples", "logprobs")``.
        coverage: ``samples``; from train dumps also ``ranks`` (read), ``of`` (world
            size, where a manifest says it), ``partitions``, ``trained``,
            ``not_trained``, ``ranks_without_log_probs``, ``context_parallel``.
        notes: What is malformed, missing or different between ranks, one sentence
            each, with positions in the file.
        files: The dumps.
        seconds: That decoding took.
    """

    folder: Path
    kind: Literal["rollout", "train"]
    source_format: str
    rollout_id: int
    num_samples: int
    stages: tuple[str, ...]
    coverage: Mapping[str, object]
    notes: tuple[str, ...]
    files: tuple[Path, ...]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """As plain data; the folder is left out, for it may be moved."""
        document = dataclasses.asdict(self)
        del document["folder"]
        return {**document, "files": [str(path) for path in self.files]}

    @classmethod
    def from_json(cls, document: Mapping[str, Any], *, folder: Path) -> Decoded:
        """From what `to_json` gave."""
        return cls(
            **{
                **document,
                "folder": folder,
                "stages": tuple(document["stages"]),
                "notes": tuple(document["notes"]),
                "files": tuple(map(Path, document["files"])),
            }
        )


def error_to_json(error: RelaxError) -> dict[str, str]:
    """An error as plain data."""
    return {
        "code": error.code,
        "what": error.what,
        "where": error.where,
        "hint": error.hint,
    }


def error_from_json(document: Mapping[str, str], *, files: Sequence[Path]) -> DumpError:
    """The error that the decoder met, at the file it met it in."""
    kind = _KINDS.get(document["code"], DumpError)
    where = document["where"] or str(files[0])
    return kind(document["what"], where=where, hint=document["hint"])
