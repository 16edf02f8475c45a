"""Hugging Face checkpoint folders: read tensor by tensor, written in shards.

A folder is written under another name and renamed when complete, so a reader never
finds half of one.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from relax.errors import ArgumentError, InternalError

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
SHARD_BYTES = 4 * 1024**3


class HfTensors(Mapping[str, Tensor]):
    """The tensors of an HF folder by name, each read from disk when asked for.

    Args:
        folder: Folder with ``model.safetensors``, or with an index and its shards.

    Raises:
        ArgumentError: The folder has neither, or a file is damaged.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._file_of = _files_by_tensor(self.folder)

    def __getitem__(self, name: str) -> Tensor:
        with _opened(self.folder / self._file_of[name]) as shard:
            return shard.get_tensor(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._file_of)

    def __len__(self) -> int:
        return len(self._file_of)


def write_hf(
    folder: str | Path, buckets: Iterable[Mapping[str, Tensor]], *, like: str | Path
) -> None:
    """Writes an HF checkpoint folder.

    Args:
        folder: Where; must not exist.
        buckets: HF name → CPU tensor, in parts; each part becomes a shard.
        like: HF folder whose other files (config, tokenizer, chat template) are copied.

    Raises:
        ArgumentError: The folder exists.
        InternalError: There is no tensor at all, or one comes twice.
    """
    folder = Path(folder)
    if folder.exists():
        raise ArgumentError(f"{folder} exists", hint="give a path that does not")
    scratch = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    scratch.mkdir(parents=True)
    try:
        _write_shards(scratch, buckets)
        _copy_companions(Path(like), scratch)
        sync_folder(scratch)
        scratch.rename(folder)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def sync_folder(folder: Path) -> None:
    """Waits until every file of a folder, and the folder, are on disk."""
    for path in [*folder.iterdir(), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _opened(path: Path) -> safe_open:
    try:
        return safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise ArgumentError(
            f"{path} cannot be read as safetensors: {error}",
            hint="the checkpoint is incomplete or damaged; fetch it again",
        ) from error


def _files_by_tensor(folder: Path) -> dict[str, str]:
    index = folder / INDEX
    if index.exists():
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        return {str(name): str(file) for name, file in weight_map.items()}
    if (folder / SINGLE).exists():
        with _opened(folder / SINGLE) as shard:
            return dict.fromkeys(shard.keys(), SINGLE)
    raise ArgumentError(
        f"{str(folder)!r} has neither {SINGLE} nor {INDEX}",
        hint="give a Hugging Face folder with safetensors weights",
    )


def _write_shards(scratch: Path, buckets: Iterable[Mapping[str, Tensor]]) -> None:
    file_of: dict[str, str] = {}
    total_bytes = 0
    number = 0
    for number, bucket in enumerate(buckets, start=1):
        file = f"model-{number:05d}.safetensors"
        for name, tensor in bucket.items():
            if name in file_of:
                raise InternalError(f"{name} was exported twice")
            file_of[name] = file
            total_bytes += tensor.nbytes
        save_file(dict(bucket), scratch / file, metadata={"format": "pt"})
    if number == 0:
        raise InternalError("no tensor was exported")
    if number == 1:
        (scratch / "model-00001.safetensors").rename(scratch / SINGLE)
        return
    # The field's readers expect "-of-" and the number of shards in the name.
    final = {
        f"model-{n:05d}.safetensors": f"model-{n:05d}-of-{number:05d}.safetensors"
        for n in range(1, number + 1)
    }
    for before, after in final.items():
        (scratch / before).rename(scratch / after)
    index = {
        "metadata": {"total_size": total_bytes},
        "weight_map": {name: final[file] for name, file in sorted(file_of.items())},
    }
    (scratch / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")


def _copy_companions(source: Path, target: Path) -> None:
    weights = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
    for path in source.iterdir():
        if path.is_file() and not path.name.endswith(weights) and path.name != INDEX:
            shutil.copyfile(path, target / path.name)
