"""Dumps onto a disk that fills up, then onto one that is read-only; says what happened.

Run inside a mount namespace of its own, as ``unshare --user --map-root-user --mount
python full_disk.py FOLDER``: a small tmpfs is mounted at FOLDER, and is gone with the
process. Prints one JSON document.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from dump_steps import facts, names, samples, step

from relax.dump.paths import DumpPlaces
from relax.dump.write import DumpDirectory, write_rollout_dump
from relax.errors import DumpError

SIZE = "2m"


def tried(action: Any) -> str:
    try:
        action()
    except DumpError as error:
        return str(error)
    return "written"


def main(folder: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    subprocess.run(mount, check=True)
    directory = DumpDirectory(places=DumpPlaces.under(folder), facts=facts())
    told: dict[str, Any] = {"first": tried(lambda: directory.dump(step(0)))}
    told["names"] = names(folder)
    # The samples fit, the ranks do not: the disk is full in the second of four files.
    told["full"] = tried(lambda: directory.dump(step(1, tokens=160_000)))
    told["names after full"] = names(folder)
    told["single"] = tried(
        lambda: write_rollout_dump(
            folder / "x.pt", samples(60, tokens=100_000), rollout_id=0
        )
    )
    told["names after single"] = names(folder)
    told["again"] = tried(lambda: directory.dump(step(2)))
    told["names after again"] = names(folder)
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    told["read-only"] = tried(lambda: directory.dump(step(3)))
    told["elsewhere"] = tried(
        lambda: write_rollout_dump(folder / "new" / "x.pt", [], rollout_id=0)
    )
    told["names at the end"] = names(folder)
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
