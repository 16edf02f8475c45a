"""Verdicts on a foreign run, from the headless check in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from relax.arguments.environment import child_environment, child_python_path
from relax.errors import RecordError
from relax.triage.log_registry import LOG_RULES
from relax.triage.verdict import Status, Verdict

REST_SECONDS = 5.0
"""At least this long, and five times what a check took, lies between two checks."""


class ForeignVerdicts:
    """Runs `relax-tui check` again and again while its input changes.

    Args:
        paths: What is checked.

    Attributes:
        by_rule: Verdicts by rule, in order of rollouts.
        notes: Why there are none, when the check failed.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.by_rule: dict[str, list[Verdict]] = {}
        self.notes: tuple[str, ...] = ()
        self._paths = [str(path) for path in paths]
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self._changed = True
        self._began = 0.0
        self._due = 0.0

    def changed(self) -> None:
        """Says that there is something new to check."""
        self._changed = True

    def poll(self) -> bool:
        """Starts a check when one is due, takes its result when it is there.

        Returns:
            Whether there are new verdicts.
        """
        if self._process is not None:
            if self._process.poll() is None:
                return False
            self._take()
            return True
        if self._changed and time.monotonic() >= self._due:
            self._start()
        return False

    def run_now(self) -> None:
        """Checks, and waits for the result."""
        self._start()
        if self._process is not None:
            self._process.wait()
            self._take()

    def stop(self) -> None:
        """Ends a check that runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._output is not None:
            self._output.close()
            self._output = None

    def _start(self) -> None:
        self._changed = False
        self._began = time.monotonic()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - read when it ends
        command = [sys.executable, "-m", "relax_tui.cli", "check", *self._paths]
        self._process = subprocess.Popen(
            [*command, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.DEVNULL,
            env=child_environment(
                {"OMP_NUM_THREADS": "1", "PYTHONPATH": child_python_path()}
            ),
            # A key that interrupts the console is not meant for the check.
            start_new_session=True,
        )

    def _take(self) -> None:
        self._process = None
        took = time.monotonic() - self._began
        self._due = time.monotonic() + max(REST_SECONDS, 5 * took)
        if self._output is None:
            return
        self._output.seek(0)
        content = self._output.read()
        self._output.close()
        self._output = None
        try:
            document: dict[str, Any] = json.loads(content)
            verdicts = [Verdict.from_json(plain) for plain in document["verdicts"]]
        except (ValueError, KeyError, RecordError):
            said = " ".join(self._paths)
            self.notes = (f"the check failed: `relax-tui check {said}` says why",)
            return
        self.notes = tuple(document["unread"])
        by_rule: dict[str, list[Verdict]] = {}
        for verdict in sorted(verdicts, key=lambda v: v.where.rollout_id):
            by_rule.setdefault(verdict.rule, []).append(verdict)
        self.by_rule = _with_silence_as_one(by_rule)


def _with_silence_as_one(
    by_rule: dict[str, list[Verdict]],
) -> dict[str, list[Verdict]]:
    """Thirty signatures that are not in a log are one line, not thirty."""
    silent = {
        name: given
        for name, given in by_rule.items()
        if name in _LOG_RULES and given[-1].status is Status.PASS
    }
    if not silent:
        return by_rule
    last = next(iter(silent.values()))[-1]
    kept = {name: given for name, given in by_rule.items() if name not in silent}
    summary = f"{len(silent)} kinds of failure: {last.summary}"
    return {**kept, "logs": [replace(last, rule="logs", summary=summary)]}


_LOG_RULES = frozenset(rule.id for rule in LOG_RULES)
