"""Dumps a step and kills itself (SIGKILL) at a chosen moment.

    python dying_writer.py FOLDER SHIFT WHAT COUNT

WHAT is ``progress`` (a report while a file is written) or ``disk`` (before a rename,
link, removal or lock); COUNT says which of them. Prints ``whole`` when
it lived to the end.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from dump_steps import facts, step

from relax.dump.paths import DumpPlaces
from relax.dump.write import DumpDirectory

EVENTS = ("os.rename", "os.link", "os.remove", "fcntl.flock")


def main(folder: Path, shift: int, what: str, count: int) -> None:
    left = count

    def one_more() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_event(name: str, arguments: tuple[Any, ...]) -> None:
        if what == "disk" and name in EVENTS:
            one_more()

    def on_progress(num_bytes: int) -> None:
        if what == "progress":
            one_more()

    directory = DumpDirectory(
        places=DumpPlaces.under(folder), facts=facts(), overwrite=True
    )
    todo = step(0, shift=shift, tokens=200_000 if what == "progress" else 30)
    sys.addaudithook(on_event)
    directory.dump(todo, on_progress=on_progress)
    sys.stdout.write("whole\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
