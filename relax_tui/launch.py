"""Starting a driver that outlives the console, and finding what it needs."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from relax.arguments.environment import cache_home, child_environment, child_python_path
from relax.control.run_folder import read_run_info
from relax.errors import ArgumentError, ControlError, RecordError, RelaxError

DRIVER_LOG = Path("logs") / "driver.log"
PACKAGE_PARENT = Path(__file__).resolve().parents[1]
HEADLESS_WAIT_SECONDS = 120.0
LOG_BYTES = 16_384
MODELS = {
    "tiny": ("examples/tiny_arith/demo.yaml", "examples/tiny_arith/make.py"),
    "smollm2": ("examples/smollm2/demo.yaml", "examples/smollm2/make.py"),
}


class DriverDied(RelaxError):
    """The driver ended before its run began; carries its own exit code and words."""

    code = "driver-died"

    def __init__(self, returncode: int, words: str) -> None:
        super().__init__(words)
        # A shell says 128 + signal; and 0 would claim that the run began.
        self.returncode = 128 - returncode if returncode < 0 else returncode or 1


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A driver that we started.

    Attributes:
        process: Its process; reaped by whoever follows the run.
        log_begin: Size of the driver's log when it started: what lies before was
            written by an earlier one.
    """

    run_dir: Path
    process: subprocess.Popen[bytes]
    log_begin: int = 0


def new_run_dir(name: str) -> Path:
    """``./runs/<name>-<short id>``."""
    return Path("runs") / f"{name}-{uuid.uuid4().hex[:6]}"


def start_driver(flags: Sequence[str], *, run_dir: Path, python: str = "") -> Launch:
    """Starts the driver in a session of its own, so that it survives the console.

    Args:
        flags: Training flags, without ``--run-dir``.
        run_dir: The run folder; made when missing.
        python: Interpreter that trains; '' for the one that runs the console.

    Returns:
        The started driver.

    Raises:
        ArgumentError: The interpreter cannot be started or the folder not made.
    """
    run_dir = run_dir.absolute()
    try:
        run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        (run_dir / DRIVER_LOG).parent.mkdir(mode=0o700, exist_ok=True)
        log = (run_dir / DRIVER_LOG).open("ab")
    except OSError as error:
        raise ArgumentError(
            f"--run-dir {str(run_dir)!r} cannot be made: {error.strerror}"
        ) from error
    command = [
        python or sys.executable,
        "-m",
        "relax.entrypoints.train",
        *flags,
        "--run-dir",
        str(run_dir),
    ]
    environment = child_environment({"PYTHONPATH": child_python_path()})
    with log:
        begin = log.tell()
        try:
            process = subprocess.Popen(
                command,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )
        except OSError as error:
            raise ArgumentError(
                f"--python {python!r} cannot be started: {error.strerror}"
            ) from error
    return Launch(run_dir=run_dir, process=process, log_begin=begin)


def demo_flags(model: str) -> list[str]:
    """Flags of the demo run.

    Args:
        model: ``tiny``, ``smollm2``, or the path of a checkpoint or a YAML file.

    Raises:
        ArgumentError: There is no such model here; says how to make it.
    """
    if model in MODELS:
        config, script = MODELS[model]
        path = _example(config)
        if path is None:
            make = f"python {script}"
            raise ArgumentError(
                f"--model {model}: {config} is not here",
                hint=f"run `{make}` in a checkout of relax, and the demo from there",
            )
        return ["--config", str(path), *_made_checkpoint(model)]
    path = Path(model)
    if path.suffix in (".yaml", ".yml") and path.is_file():
        return ["--config", str(path)]
    if not path.is_dir():
        known = ", ".join(MODELS)
        raise ArgumentError(
            f"--model {model!r} is neither one of {known} nor a checkpoint folder"
        )
    base = demo_flags("tiny")
    checkpoint = str(path.absolute())
    return [*base, "--hf-checkpoint", checkpoint, "--ref-load", checkpoint]


def _made_checkpoint(model: str) -> list[str]:
    """Flags for an example whose checkpoint is too large to come with relax."""
    if model != "smollm2":
        return []
    folder = cache_home() / "relax" / model
    if not (folder / "config.json").is_file():
        raise ArgumentError(
            f"--model {model}: its checkpoint {folder} is not there",
            hint=f"make it with `python {MODELS[model][1]}`",
        )
    return ["--hf-checkpoint", str(folder), "--ref-load", str(folder)]


def _example(relative: str) -> Path | None:
    for folder in (Path.cwd(), PACKAGE_PARENT):
        if (folder / relative).is_file():
            return folder / relative
    return None


def wait_until_begun(
    launch: Launch, *, seconds: float = HEADLESS_WAIT_SECONDS
) -> DriverDied | None:
    """Waits until a driver opened its run, for those who do not watch it start.

    Args:
        launch: The driver.
        seconds: How long at most.

    Returns:
        How the driver ended; None when the run began.

    Raises:
        ControlError: It neither began nor ended in that time.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if has_begun(launch):
            return None
        died = death(launch)
        if died is not None:
            return died
        time.sleep(0.1)
    raise ControlError(
        f"the driver did not begin its run within {seconds:.0f} s",
        where=str(launch.run_dir),
        hint=driver_words(launch, lines=3),
    )


def has_begun(launch: Launch) -> bool:
    """Whether this driver, not one of an earlier attempt, opened the run folder."""
    try:
        return read_run_info(launch.run_dir).pid == launch.process.pid
    except RecordError:
        return False


def death(launch: Launch) -> DriverDied | None:
    """How a driver ended without ever opening its run; None while it may."""
    code = launch.process.poll()
    if code is None or has_begun(launch):
        return None
    words = driver_words(launch)
    return DriverDied(code, words) if words else DriverDied(code, _silent(launch, code))


def _silent(launch: Launch, code: int) -> str:
    """What is to be said of a driver that said nothing."""
    program = launch.process.args
    name = str(program[0]) if isinstance(program, list) else "the driver"
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"{name} ended with {how} and wrote nothing; is it the right interpreter?"


def driver_words(launch: Launch, *, lines: int = 12) -> str:
    """The last lines that a driver wrote to its log, for a run that never began."""
    try:
        content = (launch.run_dir / DRIVER_LOG).read_bytes()[launch.log_begin :]
    except OSError:
        return ""
    text = content[-LOG_BYTES:].decode("utf-8", "replace").strip()
    kept = text.splitlines()[-lines:]
    return "\n".join(kept)
