"""The interpreter that runs SGLang, which pins another torch than the trainer's.

    python -m relax.backends.sglang.environment            says which one is used
    python -m relax.backends.sglang.environment --make     makes one in the user's cache

The environment lies outside any checkout, is made once (about 11 GB), and counts as
made only when a marker was written last.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from relax.arguments.environment import cache_home, child_environment, interpreter
from relax.arguments.passthrough import installed_version
from relax.errors import EngineError, RelaxError
from relax.records.atomic import write_atomically

VERSION: Final = "0.5.23"
"""The version that `make` installs and the tests run against."""

NEEDED_BYTES: Final = 16 * 2**30
_MARKER: Final = "relax-environment.json"


def folder() -> Path:
    """Where `make` puts the environment."""
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return cache_home() / "relax" / f"sglang-{VERSION}-{tag}"


def made() -> Path | None:
    """The interpreter of the environment that `make` made; None before."""
    python = folder() / "bin" / "python"
    return python if (folder() / _MARKER).is_file() and python.exists() else None


def sglang_python(explicit: Path | None) -> Path:
    """The interpreter that is to run SGLang.

    Args:
        explicit: ``--sglang-python``; used when given.

    Returns:
        That one, else this interpreter when SGLang is installed in it, else the one
        that `make` made.

    Raises:
        EngineError: SGLang is in none of them.
    """
    here = interpreter()
    candidates = [explicit] if explicit is not None else [here, made()]
    for python in candidates:
        if python is not None and installed_version("sglang", python=python):
            return python
    if explicit is not None:
        raise EngineError(
            "SGLang is not installed there",
            where=f"--sglang-python {explicit}",
            hint=f"run {explicit} -m pip install sglang=={VERSION}",
        )
    raise EngineError(
        f"SGLang is installed neither for {here} nor in {folder()}",
        hint=f"run {here} -m relax.backends.sglang.environment --make, or name an "
        "interpreter that has it with --sglang-python",
    )


def make() -> Path:
    """Makes the environment, unless it is there; waits for another process making it.

    Returns:
        Its interpreter.

    Raises:
        EngineError: No room, or the installer failed.
    """
    target = folder()
    target.parent.mkdir(parents=True, exist_ok=True)
    with _alone(target.with_suffix(".lock")):
        python = made()
        if python is not None:
            return python
        free = shutil.disk_usage(target.parent).free
        if free < NEEDED_BYTES:
            raise EngineError(
                f"an environment for SGLang needs {NEEDED_BYTES >> 30} GiB and there "
                f"are {free >> 30} GiB",
                where=str(target.parent),
                hint="make room, or set XDG_CACHE_HOME to another disk",
            )
        if target.exists():
            # Somebody was killed in the middle of making it.
            shutil.rmtree(target)
        _install(target)
        note = json.dumps({"sglang": VERSION, "made": time.time()})
        write_atomically(target / _MARKER, note.encode())
        return target / "bin" / "python"


def _install(target: Path) -> None:
    pip = [str(target / "bin" / "python"), "-m", "pip", "install"]
    steps = (
        [sys.executable, "-m", "venv", str(target)],
        [*pip, "--quiet", f"sglang=={VERSION}"],
    )
    for step in steps:
        _say(f"$ {' '.join(step)}")
        try:
            subprocess.run(step, check=True, env=child_environment())
        except (OSError, subprocess.CalledProcessError) as error:
            raise EngineError(
                f"{' '.join(step)} failed: {error}",
                where=str(target),
                hint="read what it printed above; its next start begins anew",
            ) from error


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _main() -> int:
    parser = argparse.ArgumentParser(description="The interpreter that runs SGLang.")
    parser.add_argument("--make", action="store_true", help="make one when missing")
    try:
        if parser.parse_args().make:
            make()
        _say(str(sglang_python(None)))
    except RelaxError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(_main())
