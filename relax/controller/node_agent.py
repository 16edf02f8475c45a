"""The run's agent on a node that is not the driver's, as a Ray actor.

A plain asyncio class; `relax.controller.nodes` makes it an actor. It does there what
the driver does on its own node: knows the processes, asks for their stacks, ends them,
and cleans up when it dies itself.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from relax.control.run_folder import process_start
from relax.controller.cluster import signal_process
from relax.controller.reaper import Reaper, descendants
from relax.controller.survey import NodeReport, Question, report
from relax.errors import InternalError
from relax.observe.spool import Taken, take
from relax.observe.stacks import write_stacks
from relax.observe.worker_process import cpu_seconds, resident_bytes


@dataclass(frozen=True, kw_only=True)
class AgentOpened:
    """What an agent says once it is up.

    Attributes:
        report: Of its node.
        spool: Where the node's processes write if the node does not see the run
            folder; None where it does.
    """

    report: NodeReport
    spool: Path | None


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a process holds, and the processor time that it has used."""

    memory_bytes: int
    cpu_seconds: float


@dataclass(frozen=True, kw_only=True)
class Beat:
    """What an agent tells again and again.

    Attributes:
        taken: New content of its spool; None without one.
        usage: By pid, of the processes that live.
    """

    taken: Taken | None
    usage: Mapping[int, Usage]


class NodeAgent:
    """Stands for the driver on another node.

    Args:
        run_id: Of the run.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._reaper = Reaper()
        self._spool: Path | None = None
        self._folder = Path()
        self._starts: dict[int, int] = {}

    async def open(self, question: Question, *, run_dir: Path) -> AgentOpened:
        """Answers the driver's question, and makes a spool if one is needed."""
        found = await asyncio.to_thread(report, question)
        self._reaper.start()
        if not found.sees[run_dir]:
            self._spool = Path(tempfile.mkdtemp(prefix=f"relax-{self._run_id}-"))
            self._reaper.watch_path(self._spool)
        self._folder = self._spool or run_dir
        return AgentOpened(report=found, spool=self._spool)

    async def watch_process(self, pid: int) -> None:
        """Ends this process if the run dies."""
        self._starts[pid] = process_start(pid)
        self._reaper.watch_process(pid)

    async def watch_server(self, pid: int) -> None:
        """Likewise for what an engine started: it ends with the engine."""
        self._reaper.watch_process(pid)

    async def watch_path(self, path: Path) -> None:
        """Removes this file or folder if the run dies."""
        self._reaper.watch_path(path)

    async def beat(self, arrived: Mapping[str, int]) -> Beat:
        """Shows that the node lives, and hands out what is new.

        Args:
            arrived: By path in the spool: bytes that have arrived.
        """
        taken = None
        if self._spool is not None:
            taken = await asyncio.to_thread(take, self._spool, arrived)
        used = {pid: _usage(pid) for pid in self._starts if self._lives(pid)}
        return Beat(
            taken=taken,
            usage={pid: one for pid, one in used.items() if one is not None},
        )

    async def write_stacks(self, pids: Mapping[str, int]) -> dict[str, str]:
        """Has processes of the run write their stacks; says why one did not.

        Raises:
            InternalError: One of them is not the run's.
        """
        unknown = set(pids.values()) - self._starts.keys()
        if unknown:
            raise InternalError(f"pids {sorted(unknown)} are not of this run")
        gone = {
            n: f"pid {pid} is gone" for n, pid in pids.items() if not self._lives(pid)
        }
        living = {name: pid for name, pid in pids.items() if name not in gone}
        return gone | await write_stacks(self._folder, living)

    async def end(self, *, seconds: float) -> tuple[int, ...]:
        """Waits for the run's processes to end, then kills them.

        Returns:
            Those that had to be killed.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and any(map(self._lives, self._starts)):
            await asyncio.sleep(0.05)
        left = tuple(pid for pid in self._starts if self._lives(pid))
        # What they started dies with them: a server of an engine, above all.
        for pid in descendants(set(left)) - {os.getpid()}:
            signal_process(pid, signal.SIGKILL)
        return left

    async def leave(self) -> None:
        """Removes the spool: all of it has arrived."""
        if self._spool is not None:
            await asyncio.to_thread(shutil.rmtree, self._spool, ignore_errors=True)
        self._reaper.dismiss()

    def _lives(self, pid: int) -> bool:
        start = self._starts[pid]
        return start != 0 and process_start(pid) == start


def _usage(pid: int) -> Usage | None:
    memory, cpu = resident_bytes(pid), cpu_seconds(pid)
    if memory is None or cpu is None:
        return None
    return Usage(memory_bytes=memory, cpu_seconds=cpu)
