"""Which folders hold a run's dumps: its own, and those that its flags named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from relax.errors import RecordError
from relax.events.encoding import decode_event
from relax.events.tail import event_files
from relax.events.types import DumpWritten

DUMPS = "dumps"
_WRITTEN = b'"type":"dump_written"'
_DETAILS = ("rollout_data", "train_data")


def dump_folders(run_dir: Path) -> list[Path]:
    """The run's own ``dumps/`` and every folder that its event log names, that exist.

    Reads the whole event log, at the speed of the disk: not for the event loop.

    Args:
        run_dir: The run folder.
    """
    folders = dict.fromkeys([run_dir / DUMPS])
    for written in _written(run_dir):
        path = Path(written.path)
        parent = (run_dir / path).parent
        # What --dump-details and `d` write lies in two folders of one step's files.
        top = parent.parent if parent.name in _DETAILS else parent
        if run_dir / DUMPS not in (top, *top.parents):
            folders.setdefault(top)
    return [folder for folder in folders if folder.is_dir()]


def _written(run_dir: Path) -> Iterator[DumpWritten]:
    for file in event_files(run_dir):
        with file.open("rb") as lines:
            for row in lines:
                if _WRITTEN not in row:
                    continue
                try:
                    payload = decode_event(row).payload
                except RecordError:
                    # A torn line; the console's source tells of it.
                    continue
                if isinstance(payload, DumpWritten):
                    yield payload
