"""The train dump of one rank: ``{rollout_id, rank, rollout_data: {column: values}}``.

The guide's layout: one file a rank, a column dict with one entry a sample, per-token
columns as tensors aligned to the response (position j is ``tokens[T-R+j]``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from relax.dump.write.disk import NewFile
from relax.dump.write.opcodes import PROTOCOL, STOP, OpcodeWriter
from relax.dump.write.storages import Storages
from relax.dump.write.torch_zip import TorchZip
from relax.dump.write.transaction import DumpTransaction
from relax.dump.write.written import WrittenFile


def write_train_dump(
    path: Path,
    rollout_data: Mapping[str, Any],
    *,
    rollout_id: int,
    rank: int,
    overwrite: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> WrittenFile:
    """Writes what one rank trained on; the file appears whole, by rename.

    Args:
        path: Final name; its folder is made when missing.
        rollout_data: By column: a list with one value a sample, or a scalar or text.
            Arrays become tensors; those of one column and dtype share a storage.
        rollout_id: Number of the rollout.
        rank: Global rank.
        overwrite: Replace a file that exists with another content.
        on_progress: Called with the bytes written so far.

    Raises:
        DumpError: A value is not plain, the path is taken by another content, or the
            disk refused; nothing has changed then.
    """
    with DumpTransaction(overwrite=overwrite, on_progress=on_progress) as transaction:
        file = transaction.file(path)
        fill_train_dump(file, rollout_data, rollout_id=rollout_id, rank=rank)
        (written,) = transaction.commit()
    return written


def fill_train_dump(
    file: NewFile, rollout_data: Mapping[str, Any], *, rollout_id: int, rank: int
) -> None:
    """Writes the content of a train dump into a new file.

    Raises:
        DumpError: A value is not plain, or the disk refused.
    """
    archive, storages = TorchZip(file.write), Storages()
    content = {"rollout_id": rollout_id, "rank": rank, "rollout_data": rollout_data}
    with archive.entry("data.pkl") as write:
        writer = OpcodeWriter(write, storages)
        write(PROTOCOL + b"}")
        for name, value in content.items():
            writer.key(name)
            writer.value(value, ((), name))
            write(b"s")
        write(STOP)
    storages.write_into(archive)
    archive.close()
