"""The run's log: ``RUN/logs/engine.log`` and standard output, in upstream's form."""

from __future__ import annotations

import logging
import logging.handlers
import sys
from pathlib import Path

FORMAT = "%(asctime)s | %(levelname)s | %(name)s:%(lineno)s %(message)s"
DATE_FORMAT = "%Y-%m-%d %H:%M:%S"
FILE_BYTES = 256 * 1024 * 1024
FILES_KEPT = 8

RunLog = logging.Logger


def open_run_log(run_dir: Path, *, echo: bool) -> RunLog:
    """Opens the log, rotated by size.

    Args:
        run_dir: The run folder.
        echo: Print each line to standard output too.
    """
    folder = run_dir / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    log = logging.getLogger("relax.engine")
    log.setLevel(logging.INFO)
    log.propagate = False
    formatter = logging.Formatter(FORMAT, DATE_FORMAT)
    handlers: list[logging.Handler] = [
        logging.handlers.RotatingFileHandler(
            folder / "engine.log",
            maxBytes=FILE_BYTES,
            backupCount=FILES_KEPT,
            encoding="utf-8",
            errors="backslashreplace",
        )
    ]
    if echo:
        handlers.append(logging.StreamHandler(sys.stdout))
    for handler in handlers:
        handler.setFormatter(formatter)
        log.addHandler(handler)
    return log
