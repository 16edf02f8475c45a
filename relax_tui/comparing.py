"""What is compared with what, and the comparison, made by a process of its own."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relax.arguments.environment import child_environment, child_python_path
from relax.errors import ArgumentError, DumpError
from relax_tui.printing import quoted

if TYPE_CHECKING:
    from relax_tui.checking.difference_types import Difference

SAMPLES = 32
"""Differing samples that are looked at token beside token."""
_DIFFERS = (0, 1)


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of a comparison.

    Attributes:
        path: A run, a dump, a record or a log.
        rollout: None for the first one that both sides have.
    """

    path: Path
    rollout: int | None = None


def side_of(words: str, run_dir: str) -> Side:
    """The side that a person means.

    Args:
        words: ``36`` (a rollout of this run), ``RUN``, ``RUN:36`` or ``FILE``.
        run_dir: The run that is shown.

    Raises:
        ArgumentError: There is no such run or file.
    """
    from relax_tui.runs import find_run  # noqa: PLC0415 - reads protocols

    words = words.strip()
    if words.isdecimal() and run_dir:
        return Side(path=Path(run_dir), rollout=int(words))
    name, colon, number = words.rpartition(":")
    rollout = int(number) if colon and number.isdecimal() else None
    name = words if rollout is None else name
    if not name:
        raise ArgumentError("nothing was named", hint="a rollout, RUN, RUN:36 or FILE")
    path = Path(name)
    return Side(path=path if path.exists() else find_run(name), rollout=rollout)


def diff_command(a: Side, b: Side) -> list[str]:
    """The arguments of ``relax-tui`` that make the same comparison in a shell."""
    numbers = [n for n in (a.rollout, b.rollout) if n is not None]
    rollouts = [word for n in numbers for word in ("--rollout", str(n))]
    return ["diff", *rollouts, "--", str(a.path), str(b.path)]


def shell_words(a: Side, b: Side) -> str:
    """That command as a person pastes it."""
    return " ".join(["relax-tui", *map(quoted, diff_command(a, b))])


async def compared(a: Side, b: Side) -> Difference:
    """Compares in another process, which ends when this is cancelled.

    Reading and aligning two rollouts takes seconds of computing, and keys do not wait.

    Raises:
        DumpError: One of them cannot be read, or has no such rollout.
    """
    command, *rest = diff_command(a, b)
    options = ["--json", "--tokens", str(SAMPLES)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "relax_tui.cli", command, *options, *rest,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=child_environment(
            {"OMP_NUM_THREADS": "1", "PYTHONPATH": child_python_path()}
        ),
        # A key that interrupts the console is not meant for the comparison.
        start_new_session=True,
    )  # fmt: skip
    try:
        out, said = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode not in _DIFFERS:
        why = said.decode("utf-8", "replace").strip().removeprefix("relax-tui: ")
        raise DumpError(why or f"it ended with exit code {process.returncode}")
    return await asyncio.to_thread(_decoded, out)


def _decoded(out: bytes) -> Difference:
    # numpy is not needed before somebody compares.
    from relax_tui.checking.difference_types import Difference  # noqa: PLC0415

    plain: Mapping[str, Any] = json.loads(out)
    return Difference.from_json(plain)
