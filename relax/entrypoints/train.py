"""Starts a run: ``python3 relax/entrypoints/train.py FLAGS`` or ``python -m …``.

Everything that can be refused is refused before anything starts: one sentence that
names the flag, its value and the fix, and exit code 2.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

if __package__ in (None, ""):
    # Run as a file: Python put this folder on the path, not the checkout's.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from relax.arguments import asked_text, check_hooks, parse_arguments
from relax.arguments.environment import has_gpu, prepare_driver
from relax.controller.driver import drive
from relax.controller.preflight import check_dumps
from relax.controller.resume import resumed
from relax.controller.unbuilt import refuse_unbuilt
from relax.errors import RelaxError


def main(argv: list[str] | None = None) -> int:
    """Runs the command line.

    Args:
        argv: Without the program's name; None for the process's own.

    Returns:
        The exit code: 0, or that of the error (`relax.errors`).
    """
    words = sys.argv[1:] if argv is None else argv
    try:
        text = asked_text(words, has_gpu=has_gpu())
        if text is not None:
            sys.stdout.write(text)
            return 0
        arguments = parse_arguments(words, has_gpu=has_gpu())
        refuse_unbuilt(arguments)
        arguments, point = resumed(arguments)
        check_dumps(arguments)
        prepare_driver(threads=arguments.cluster.threads_per_actor, has_gpu=has_gpu())
        check_hooks(arguments)
        return asyncio.run(drive(arguments, point=point, echo=True))
    except RelaxError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
