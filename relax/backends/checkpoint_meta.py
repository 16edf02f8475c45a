"""What a checkpoint folder says about itself; read without torch.

The page that describes the folder is `relax.backends.megatron.checkpoint`. Its
``relax_checkpoint.json`` is written last, in a folder that then gets its name: a folder
that has both is complete.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from relax.errors import ArgumentError

META = "relax_checkpoint.json"
VERSION = 1
PREFIX = "rollout_"


@dataclass(frozen=True, kw_only=True)
class RunProgress:
    """How far the run was: what the trainer itself does not know.

    Attributes:
        run_id: The run that wrote the checkpoint.
        attempt: Its attempt.
        rollout_id: The last rollout that was trained on.
        cursor: Where the data source stood after it; None when nothing generates.
    """

    run_id: str
    attempt: int
    rollout_id: int
    cursor: Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class CheckpointMeta:
    """What a checkpoint says about itself.

    Attributes:
        weights_version: Optimizer steps since the start.
        layout: Axis name → size.
        distributed_optimizer: Each replica holds a part of the optimizer's state.
        passes: Forward passes since the start, by which passes are named.
        progress: Of the run; None when a trainer was saved without one.
    """

    weights_version: int
    layout: dict[str, int]
    distributed_optimizer: bool
    passes: int = 0
    progress: RunProgress | None = None


def is_checkpoint(folder: str | Path) -> bool:
    """Whether the folder is a checkpoint of ours, not an HF folder."""
    return (Path(folder) / META).is_file()


def is_complete(folder: str | Path) -> bool:
    """Whether all of a checkpoint is there: every file, with its size."""
    try:
        values = json.loads((Path(folder) / META).read_text(encoding="utf-8"))
        sizes: dict[str, int] = values.get("files", {})
        return all(
            (Path(folder) / name).stat().st_size == size for name, size in sizes.items()
        )
    except (OSError, ValueError, AttributeError):
        return False


def checkpoint_path(folder: str | Path, *, rollout_id: int) -> Path:
    """Where the checkpoint after a rollout lies in a ``--save`` folder."""
    return Path(folder) / f"{PREFIX}{rollout_id:06d}"


def checkpoints_in(folder: str | Path) -> dict[int, Path]:
    """Complete checkpoints of a ``--save`` folder by rollout, the oldest first.

    One that is being written, or was when its run was killed, is not among them.
    """
    found = {
        int(path.name.removeprefix(PREFIX)): path
        for path in Path(folder).glob(f"{PREFIX}*")
        if path.name.removeprefix(PREFIX).isdecimal() and is_complete(path)
    }
    return dict(sorted(found.items()))


def write_meta(folder: Path, meta: CheckpointMeta) -> None:
    """Writes the file that makes a folder a checkpoint, after all others."""
    files = {
        str(path.relative_to(folder)): path.stat().st_size
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    values = {"version": VERSION, "files": files, **asdict(meta)}
    text = json.dumps(values, indent=1, sort_keys=True)
    (folder / META).write_text(text, encoding="utf-8")


def read_meta(folder: str | Path) -> CheckpointMeta:
    """Reads what a checkpoint says about itself.

    Raises:
        ArgumentError: It is no checkpoint of ours, or a newer version wrote it.
    """
    try:
        values = json.loads((Path(folder) / META).read_text(encoding="utf-8"))
        version = int(values["version"])
        if version > VERSION:
            raise ArgumentError(
                f"{folder} has checkpoint version {version}, this relax reads up to "
                f"{VERSION}"
            )
        progress = values.get("progress")
        return CheckpointMeta(
            weights_version=int(values["weights_version"]),
            layout={str(k): int(v) for k, v in values["layout"].items()},
            distributed_optimizer=bool(values["distributed_optimizer"]),
            passes=int(values.get("passes", 0)),
            progress=None if progress is None else RunProgress(**progress),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArgumentError(f"{folder} is no relax checkpoint: {error!r}") from error
