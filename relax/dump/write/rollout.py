"""The rollout dump: ``{rollout_id, samples: [...]}``, upstream's layout.

Upstream Relax and slime load it as their own; ``torch.load`` opens it with
``weights_only`` either way, and with ``mmap``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from relax.dump.write.disk import NewFile
from relax.dump.write.opcodes import PROTOCOL, STOP, OpcodeWriter, Place
from relax.dump.write.storages import Storages
from relax.dump.write.torch_zip import TorchZip
from relax.dump.write.transaction import DumpTransaction
from relax.dump.write.written import WrittenFile
from relax.errors import DumpError

ESTIMATED_FROM: Final = 8
"""Samples that an estimate of the size is made from."""


def write_rollout_dump(
    path: Path,
    samples: Iterable[Mapping[str, Any]],
    *,
    rollout_id: int,
    overwrite: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> WrittenFile:
    """Writes one rollout's samples; the file appears whole, by rename.

    Beyond the samples themselves a few MiB of memory are used, whatever their number;
    arrays within them are referred to until the file is whole.

    Args:
        path: Final name; its folder is made when missing.
        samples: Each as upstream's ``Sample.to_dict`` gives it.
        rollout_id: Number of the rollout.
        overwrite: Replace a file that exists with another content.
        on_progress: Called with the bytes written so far.

    Raises:
        DumpError: A value is not plain, the path is taken by another content, or the
            disk refused; nothing has changed then.
    """
    with DumpTransaction(overwrite=overwrite, on_progress=on_progress) as transaction:
        fill_rollout_dump(transaction.file(path), samples, rollout_id=rollout_id)
        (written,) = transaction.commit()
    return written


def fill_rollout_dump(
    file: NewFile, samples: Iterable[Mapping[str, Any]], *, rollout_id: int
) -> None:
    """Writes the content of a rollout dump into a new file.

    Raises:
        DumpError: A value is not plain, or the disk refused.
    """
    archive, storages = TorchZip(file.write), Storages()
    with archive.entry("data.pkl") as write:
        writer = OpcodeWriter(write, storages)
        write(PROTOCOL + b"}")
        writer.key("rollout_id")
        writer.value(rollout_id, ((), "rollout_id"))
        write(b"s")
        writer.key("samples")
        write(b"]")
        for position, sample in enumerate(samples):
            _sample(writer, sample, (((), "samples"), position))
            write(b"a")
        write(b"s" + STOP)
    storages.write_into(archive)
    archive.close()


def estimate_rollout_bytes(samples: Sequence[Mapping[str, Any]]) -> int:
    """About how large the dump of these samples will be, from a few of them.

    Scaled by the number of tokens where samples have them, else by their number.

    Raises:
        DumpError: A value is not plain.
    """
    if not samples:
        return 0
    step = -(-len(samples) // ESTIMATED_FROM)
    chosen = samples[::step]
    num_bytes = 0

    def count(data: bytes | bytearray | memoryview) -> None:
        nonlocal num_bytes
        num_bytes += len(data)

    for position, sample in enumerate(chosen):
        writer = OpcodeWriter(count, Storages())
        _sample(writer, sample, (((), "samples"), position * step))
    weight_of_chosen = sum(map(_weight, chosen))
    return num_bytes * sum(map(_weight, samples)) // weight_of_chosen


def _weight(sample: Mapping[str, Any]) -> int:
    # One for the scalars: a sample without tokens still takes room.
    return 1 + len(sample.get("tokens") or ())


def _sample(writer: OpcodeWriter, sample: Mapping[str, Any], place: Place) -> None:
    if not isinstance(sample, Mapping):
        raise DumpError(f"sample {place[-1]} is a {type(sample).__name__}, not a dict")
    writer.value(sample, place)
