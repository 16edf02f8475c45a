"""The nodes of a run, seen from the driver.

The driver's own node needs nothing. On each other one lives an agent
(`relax.controller.node_agent`), whose answers show that the node lives and carry over
what its processes wrote where it does not see the run folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from relax.backends.ray_border import answer
from relax.controller.cluster import ClusterNode, on_node
from relax.controller.node_agent import AgentOpened, Beat, NodeAgent, Usage
from relax.controller.reaper import Reaper
from relax.controller.survey import (
    Question,
    asking,
    check_node,
    gpu_uuids,
    report,
)
from relax.errors import ClusterError, InternalError, RelaxError, WorkerError
from relax.observe.spool import Arrivals

BEAT_SECONDS = 0.5
SILENT_SECONDS = 60.0
"""A node that does not answer for so long is lost; one that is killed, at once."""
EXPLAIN_SECONDS = 6.0
DRAIN_SECONDS = 10.0

_Result = TypeVar("_Result")


@dataclass(kw_only=True)
class _Member:
    """Another node that the run uses."""

    node: ClusterNode
    agent: Any
    folder: Path
    arrivals: Arrivals
    devices: Sequence[str]
    processes: dict[str, int] = field(default_factory=dict)
    usage: Mapping[int, Usage] = field(default_factory=dict)
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    following: asyncio.Task[None] | None = None


class Nodes:
    """The nodes that a run uses.

    Args:
        run_dir: The run folder.
        run_id: Of the run.
        reaper: Is told of processes of the driver's node.
    """

    def __init__(self, *, run_dir: Path, run_id: str, reaper: Reaper) -> None:
        self._run_dir = run_dir
        self._run_id = run_id
        self._reaper = reaper
        self._members: dict[str, _Member] = {}
        self._lost: ClusterError | None = None
        self._has_lost = asyncio.Event()

    async def open(
        self,
        others: Iterable[ClusterNode],
        *,
        outputs: Sequence[Path],
        inputs: Sequence[Path],
        environment: Mapping[str, str],
    ) -> None:
        """Asks the other nodes whether they fit, and leaves an agent on each.

        Args:
            others: All but the driver's.
            outputs: Folders beside the run folder that ranks write to.
            inputs: Folders that every node reads.
            environment: Of all processes of the run.

        Raises:
            ClusterError: A node has other software, misses a folder, or does not
                answer; names it.
        """
        with asking([self._run_dir, *outputs], inputs) as question:
            ours = await asyncio.to_thread(report, question)
            opening = [
                self._open_agent(node, question=question, environment=environment)
                for node in others
            ]
            opened = await asyncio.gather(*opening)
        for member, said in opened:
            check_node(str(member.node), said.report, ours)
            _check_outputs(member.node, said, outputs)
        for member, _ in opened:
            member.following = asyncio.create_task(self._follow(member))

    def described(self, processes: Iterable[str]) -> Mapping[str, Any]:
        """Each node for the event log: its GPUs, its processes, its disk.

        Args:
            processes: Names of all processes of the run.
        """
        away = self.elsewhere()
        found: dict[str, Any] = {
            socket.gethostname(): {
                "devices": list(gpu_uuids()),
                "shares_run_folder": True,
                "processes": sorted(name for name in processes if name not in away),
            }
        }
        for member in self._members.values():
            found[str(member.node)] = {
                "devices": list(member.devices),
                "shares_run_folder": member.folder == self._run_dir,
                "processes": sorted(member.processes),
            }
        return found

    def folder(self, node: str) -> Path:
        """Where processes of a node write: the run folder, or a spool of theirs."""
        member = self._members.get(node)
        return self._run_dir if member is None else member.folder

    def watch_process(self, node: str, name: str, pid: int) -> None:
        """Ends this process if the run dies."""
        member = self._members.get(node)
        if member is None:
            self._reaper.watch_process(pid)
            return
        member.processes[name] = pid
        member.agent.watch_process.remote(pid)

    def watch_server(self, node: str, pid: int) -> None:
        """Likewise for a process that an engine started, which knows no signal."""
        member = self._members.get(node)
        if member is None:
            self._reaper.watch_process(pid)
        else:
            member.agent.watch_server.remote(pid)

    def watch_path(self, node: str, path: Path) -> None:
        """Removes this file or folder if the run dies."""
        member = self._members.get(node)
        if member is None:
            self._reaper.watch_path(path)
        else:
            member.agent.watch_path.remote(path)

    def elsewhere(self) -> Mapping[str, int]:
        """``{name: pid}`` of the processes on other nodes."""
        return {
            name: pid
            for m in self._members.values()
            for name, pid in m.processes.items()
        }

    def memory_bytes(self) -> Mapping[str, int]:
        """Resident memory of the processes on other nodes, as they last said."""
        return {name: used.memory_bytes for name, used in self._usage()}

    def cpu_seconds(self) -> Mapping[str, float]:
        """Processor time of the processes on other nodes, as they last said."""
        return {name: used.cpu_seconds for name, used in self._usage()}

    def _usage(self) -> Iterator[tuple[str, Usage]]:
        for member in self._members.values():
            for name, pid in member.processes.items():
                if pid in member.usage:
                    yield name, member.usage[pid]

    async def write_stacks(self) -> Mapping[str, str]:
        """Has all processes on other nodes write their stacks.

        Returns:
            By name, why one did not.
        """
        missing: dict[str, str] = {}
        for member in self._members.values():
            try:
                missing |= await self._ask(member, "write_stacks", member.processes)
            except WorkerError as error:
                missing |= dict.fromkeys(member.processes, str(error))
        return missing

    async def fetch(self) -> None:
        """Brings over what the other nodes have written up to now."""
        for member in self._members.values():
            with contextlib.suppress(WorkerError):
                await self._beat(member)

    async def unless_lost(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Awaits the run, until a node is lost.

        Raises:
            ClusterError: One is; names it.
        """
        task = asyncio.ensure_future(work)
        losing = asyncio.ensure_future(self._losing())
        try:
            await asyncio.wait({task, losing}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            lost = losing.result()
        finally:
            losing.cancel()
            task.cancel()
        # What it was doing is of no interest any more, only that it has let go.
        await asyncio.wait({task}, timeout=EXPLAIN_SECONDS)
        raise lost

    async def _losing(self) -> ClusterError:
        await self._has_lost.wait()
        if self._lost is None:
            raise InternalError("a node was lost, and nobody said which")
        return self._lost

    async def explained(self, error: RelaxError) -> RelaxError:
        """The loss of a node, if that is why a worker failed; else the error itself."""
        if self._members and isinstance(error, WorkerError):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._has_lost.wait(), EXPLAIN_SECONDS)
        return self._lost or error

    async def end(self, *, seconds: float) -> Mapping[str, int]:
        """Ends all processes on other nodes, and brings over their last words.

        Returns:
            ``{name: pid}`` of those that had to be killed.
        """
        ending = [self._end(m, seconds=seconds) for m in self._members.values()]
        killed = await asyncio.gather(*ending)
        self._members.clear()
        return {name: pid for found in killed for name, pid in found.items()}

    async def _open_agent(
        self,
        node: ClusterNode,
        *,
        question: Question,
        environment: Mapping[str, str],
    ) -> tuple[_Member, AgentOpened]:
        import ray  # noqa: PLC0415

        agent = (
            ray.remote(NodeAgent)
            .options(**on_node(node.id), runtime_env={"env_vars": dict(environment)})
            .remote(self._run_id)
        )
        try:
            opened = await answer(
                agent.open.remote(question, run_dir=self._run_dir), worker=str(node)
            )
        except WorkerError as error:
            raise ClusterError(
                f"{node} cannot take part: {error.what}",
                where=str(node),
                hint=error.hint or "is the same relax installed there?",
            ) from error
        member = _Member(
            node=node,
            agent=agent,
            folder=opened.spool or self._run_dir,
            arrivals=Arrivals(self._run_dir),
            devices=opened.report.devices,
        )
        self._members[node.id] = member
        return member, opened

    async def _follow(self, member: _Member) -> None:
        while True:
            try:
                more = await self._beat(member)
            except WorkerError as error:
                self._report(member, error.what)
                return
            if not more:
                await asyncio.sleep(BEAT_SECONDS)

    async def _beat(self, member: _Member) -> bool:
        """Brings over what is new; gives whether there is more."""
        async with member.asking:
            beat: Beat = await self._ask(member, "beat", member.arrivals.arrived)
            member.usage = beat.usage
            if beat.taken is None:
                return False
            await asyncio.to_thread(member.arrivals.put, beat.taken)
            return beat.taken.more

    async def _ask(
        self, member: _Member, method: str, *args: Any, **settings: Any
    ) -> Any:
        called = getattr(member.agent, method).remote(*args, **settings)
        try:
            return await asyncio.wait_for(
                answer(called, worker=str(member.node)), SILENT_SECONDS
            )
        except TimeoutError as error:
            raise WorkerError(
                f"{member.node} has not answered for {SILENT_SECONDS:.0f} s",
                where=str(member.node),
            ) from error

    def _report(self, member: _Member, why: str) -> None:
        if self._lost is not None:
            return
        ran = ", ".join(sorted(member.processes)) or "nothing yet"
        self._lost = ClusterError(
            f"{member.node} was lost; on it ran {ran}",
            where=str(member.node),
            hint=f"{why.split(';')[0]}; a run with --save goes on from its newest "
            "checkpoint",
        )
        self._has_lost.set()

    async def _end(self, member: _Member, *, seconds: float) -> Mapping[str, int]:
        import ray  # noqa: PLC0415

        if member.following is not None:
            member.following.cancel()
        left: Sequence[int] = ()
        # A node that is gone has nothing left to end, and nothing more to say.
        with contextlib.suppress(WorkerError, TimeoutError):
            async with asyncio.timeout(seconds + DRAIN_SECONDS):
                left = await self._ask(member, "end", seconds=seconds)
                while await self._beat(member):
                    pass
                await self._ask(member, "leave")
        ray.kill(member.agent)
        return {name: pid for name, pid in member.processes.items() if pid in left}


def _check_outputs(
    node: ClusterNode, opened: AgentOpened, outputs: Sequence[Path]
) -> None:
    """Checkpoints are written by the ranks themselves, into one folder."""
    for folder in outputs:
        if not opened.report.sees[folder.absolute()]:
            raise ClusterError(
                f"{node} does not see {folder}, which its ranks write to",
                where=str(node),
                hint="give a folder on a disk that all nodes share",
            )
