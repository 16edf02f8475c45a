"""The run's Ray actors: starting them, knowing their pids, ending them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from relax.arguments import Arguments
from relax.arguments.dump_template import DumpTemplate
from relax.arguments.environment import cluster_environment, has_gpu
from relax.backends.ray_border import answer
from relax.backends.training import TrainerOpened
from relax.control.protocol import Stacks
from relax.control.run_folder import process_start
from relax.controller.cluster import signal_process
from relax.controller.engines import each_engine
from relax.controller.modes import Sides
from relax.controller.nodes import Nodes
from relax.controller.placement import plan, reserve
from relax.controller.reaper import Reaper, descendants
from relax.controller.seats import HERE, Seat, Seats, choose_seats
from relax.engine.rollout.runner import RunnerOpened
from relax.engine.rollout.worker import EngineOpened
from relax.observe.stacks import stack_path, stack_sizes, write_stacks
from relax.observe.worker_process import cpu_seconds, resident_bytes

CLOSE_SECONDS = 8.0


class Progress(Protocol):
    """Told what comes up while a person waits."""

    def __call__(self, what: str, *, done: bool) -> None:
        """``what`` is being started, or is up."""
        ...


class Workers:
    """All actors of a run.

    Args:
        arguments: Of the run.
        run_dir: The run folder.
        reaper: Is told of every process.
        sides: Which of them are started.

    Attributes:
        trainers, engines, rewards: Actor handles by name.
        runner: The rollout runner's handle; None when nothing generates.
        trainer_opened: What the trainer says of itself; None when nothing trains.
        nodes: Where they live.
    """

    def __init__(
        self,
        arguments: Arguments,
        *,
        run_dir: Path,
        run_id: str,
        reaper: Reaper,
        sides: Sides,
    ) -> None:
        self._arguments = arguments
        self._sides = sides
        self._run_dir = run_dir
        self._run_id = run_id
        self._reaper = reaper
        self.nodes = Nodes(run_dir=run_dir, run_id=run_id, reaper=reaper)
        self._node_of: dict[str, str] = {}
        self._seats = Seats([], group=None, environment={})
        self._pids: dict[str, int] = {"driver": os.getpid()}
        self._servers: dict[str, int] = {}
        self.trainers: dict[str, Any] = {}
        self.engines: dict[str, Any] = {}
        self.rewards: dict[str, Any] = {}
        self.runner: Any = None
        self.trainers_opened: dict[str, TrainerOpened] = {}
        self.trainer_opened: TrainerOpened | None = None
        self.runner_opened: RunnerOpened | None = None

    async def start(self, progress: Progress) -> None:
        """Starts all actors at once and waits until each is up.

        Args:
            progress: Told what comes up, for the person who waits.

        Raises:
            ClusterError: The cluster has not what the run needs, or a node does not
                fit the others.
        """
        await self._create(progress)
        opening = [self._open_trainers(progress)] if self._sides.training else []
        if self._sides.rollout:
            opening += [
                self._open_engines(progress),
                self._open_rewards(progress),
                self._open_runner(progress),
            ]
        await asyncio.gather(*opening)

    def processes(self) -> Mapping[str, int]:
        """``{name: pid}`` of every process, the driver included."""
        return {**self._pids, **self._servers}

    def trainers_apart(self) -> list[str]:
        """Ranks whose node does not see the run folder."""
        return [
            name
            for name in self.trainers
            if self.nodes.folder(self._node_of[name]) != self._run_dir
        ]

    def memory_bytes(self) -> Mapping[str, int]:
        """Resident memory by process; those that are gone are left out."""
        sizes = {name: resident_bytes(pid) for name, pid in self._here().items()}
        known = {name: size for name, size in sizes.items() if size is not None}
        return {**known, **self.nodes.memory_bytes()}

    def cpu_seconds(self) -> Mapping[str, float]:
        """Processor time by process; of other nodes as of the last `stacks`."""
        used = {name: cpu_seconds(pid) for name, pid in self._here().items()}
        known = {name: spent for name, spent in used.items() if spent is not None}
        return {**known, **self.nodes.cpu_seconds()}

    def _here(self) -> Mapping[str, int]:
        """``{name: pid}`` of the processes of the driver's node."""
        away = self.nodes.elsewhere()
        return {n: pid for n, pid in self.processes().items() if n not in away}

    async def stacks(self) -> Stacks:
        """Asks every process of the run for its Python stacks.

        A rank that sleeps or hangs in a collective answers too: a thread of its own
        writes them. One whose interpreter is held by native code gets a signal.
        """
        sizes = stack_sizes(self._run_dir, self._pids)
        away = self.nodes.elsewhere()
        here = {name: pid for name, pid in self._pids.items() if name not in away}
        ours, theirs = await asyncio.gather(
            write_stacks(self._run_dir, here), self.nodes.write_stacks()
        )
        await self.nodes.fetch()
        missing = {**ours, **theirs}
        stacks = {}
        for name in self._pids.keys() - missing.keys():
            text = stack_path(self._run_dir, name).read_bytes()[sizes[name] :]
            stacks[name] = text.decode("utf-8", "backslashreplace")
        return Stacks(stacks=stacks, missing=missing)

    @contextlib.asynccontextmanager
    async def scorer(self, arguments: Arguments) -> AsyncIterator[Any]:
        """A reward worker beside those of the run, for as long as it is needed.

        Args:
            arguments: Of the run, with the reward to score with.
        """
        import ray  # noqa: PLC0415

        from relax.engine.rewards.actor import RewardActor  # noqa: PLC0415

        name = "reward-replay"
        actor = ray.remote(RewardActor).options(**self._seats.spread(0).options)
        worker = actor.remote(arguments, run_dir=self._run_dir, name=name)
        try:
            pid = await answer(worker.open.remote(), worker=name)
            self._reaper.watch_process(pid)
            yield worker
        finally:
            ray.kill(worker)

    async def close(self) -> tuple[str, ...]:
        """Ends all actors: each is asked to let go of what it holds, then ended.

        Returns:
            Those that had to be killed, e.g. ``train-0 (pid 12)``.
        """
        away = self.nodes.elsewhere()
        workers = {
            name: pid
            for name, pid in self._pids.items()
            if name != "driver" and name not in away
        }
        starts = {pid: process_start(pid) for pid in workers.values()}
        deadline = time.monotonic() + CLOSE_SECONDS
        silent = await self._ask_to_close(seconds=CLOSE_SECONDS / 2)
        await asyncio.to_thread(self._end_actors)
        ending = asyncio.ensure_future(self.nodes.end(seconds=CLOSE_SECONDS / 2))
        while time.monotonic() < deadline and any(map(_lives, starts.items())):
            await asyncio.sleep(0.05)
        left = {name for name, pid in workers.items() if _lives((pid, starts[pid]))}
        for name in left:
            # What it started dies with it: a server of an engine, above all.
            for pid in descendants({workers[name]}):
                signal_process(pid, signal.SIGKILL)
        left |= (await ending).keys()
        everyone = {**workers, **away}
        killed = (name for name in everyone if name in silent | left)
        return tuple(f"{name} (pid {everyone[name]})" for name in killed)

    async def _ask_to_close(self, *, seconds: float) -> set[str]:
        """Lets them leave what they hold.

        Returns:
            Those that did not answer in time.
        """
        named = {**self.trainers, **self.engines}
        closing = {
            asyncio.ensure_future(answer(handle.close.remote(), worker=name)): name
            for name, handle in named.items()
        }
        if not closing:
            return set()
        answered, waiting = await asyncio.wait(closing, timeout=seconds)
        for call in waiting:
            call.cancel()
        for call in answered:
            # A worker that failed while it closed is gone or useless: ended either way.
            call.exception()
        return {closing[call] for call in waiting}

    def _end_actors(self) -> None:
        """Ends what has nothing left to lose; leaving politely takes seconds each."""
        import ray  # noqa: PLC0415

        for handle in self._handles():
            ray.kill(handle)

    def _handles(self) -> list[Any]:
        runner = [] if self.runner is None else [self.runner]
        named = (*self.trainers.values(), *self.engines.values())
        return [*named, *self.rewards.values(), *runner]

    async def _create(self, progress: Progress) -> None:
        cluster = self._arguments.cluster
        world = cluster.world_size if self._sides.training else 0
        engines = max(1, cluster.num_engines) if self._sides.rollout else 0
        places = plan(cluster, has_gpu=has_gpu(), trainers=world, engines=engines)
        group = await reserve(places.bundles)
        seats = choose_seats(cluster, group, environment=self._environment())
        if cluster.ray_address is not None:
            progress("nodes", done=False)
            await self._open_nodes(seats)
            progress("nodes", done=True)
        self._seats = seats
        for rank, slot in enumerate(places.trainers):
            self._create_trainer(rank, world=world, seat=seats.of(slot))
        if self._sides.rollout:
            self._create_rollout_side([seats.of(slot) for slot in places.engines])

    async def _open_nodes(self, seats: Seats) -> None:
        checkpoint = self._arguments.checkpoint
        inputs = (checkpoint.hf_checkpoint, checkpoint.ref_load, checkpoint.load)
        outputs = [] if checkpoint.save is None else [Path(checkpoint.save)]
        if checkpoint.save_hf is not None:
            outputs.append(DumpTemplate(checkpoint.save_hf).path(rollout_id=0).parent)
        await self.nodes.open(
            seats.others,
            outputs=outputs,
            inputs=[Path(folder) for folder in inputs if folder is not None],
            environment=self._environment(),
        )

    def _create_rollout_side(self, engine_seats: Sequence[Seat]) -> None:
        import ray  # noqa: PLC0415

        from relax.engine.rewards.actor import RewardActor  # noqa: PLC0415
        from relax.engine.rollout.runner import RolloutRunner  # noqa: PLC0415
        from relax.engine.rollout.worker import RolloutWorker  # noqa: PLC0415

        for number, seat in enumerate(engine_seats):
            name = f"engine-{number}"
            self.engines[name] = self._seated(
                RolloutWorker, seat, name=name, max_concurrency=1_000
            )
        for number in range(self._arguments.reward.reward_num_workers):
            name = f"reward-{number}"
            self.rewards[name] = self._seated(
                RewardActor, self._seats.spread(number), name=name
            )
        runner = ray.remote(RolloutRunner).options(
            **self._seats.spread(0).options, name="rollout-runner", max_concurrency=100
        )
        self.runner = runner.remote(
            self._arguments,
            run_dir=self._run_dir,
            engines=self.engines,
            rewards=self.rewards,
        )

    def _seated(self, kind: type, seat: Seat, *, name: str, **options: Any) -> Any:
        """Starts an engine's or a reward's actor."""
        import ray  # noqa: PLC0415

        self._node_of[name] = seat.node
        chosen = ray.remote(kind).options(**seat.options, name=name, **options)
        return chosen.remote(
            self._arguments, run_dir=self.nodes.folder(seat.node), name=name
        )

    def _create_trainer(self, rank: int, *, world: int, seat: Seat) -> None:
        from relax.backends.megatron.actor_class import train_worker  # noqa: PLC0415

        name = f"train-{rank}"
        self._node_of[name] = seat.node
        self.trainers[name] = train_worker(seat.options, name=name).remote(
            self._arguments,
            run_dir=self.nodes.folder(seat.node),
            rank=rank,
            world_size=world,
        )

    async def _meeting_place(self) -> str:
        """Where the ranks find each other: a file, or a port of rank 0's node."""
        if len({self._node_of[name] for name in self.trainers}) > 1:
            first, trainer = next(iter(self.trainers.items()))
            place: str = await answer(trainer.host_meeting.remote(), worker=first)
            return place
        path = self._run_dir / f".ranks-{os.getpid()}"
        path.unlink(missing_ok=True)
        return f"file://{path}"

    def _environment(self) -> Mapping[str, str]:
        """For actors of a cluster that was there before; local ones inherit ours."""
        threads = self._arguments.cluster.threads_per_actor
        return cluster_environment(threads=threads, has_gpu=has_gpu())

    async def _open_trainers(self, progress: Progress) -> None:
        progress("trainer", done=False)
        meeting = await self._meeting_place()
        opened = await asyncio.gather(
            *(
                answer(trainer.open.remote(meeting), worker=name)
                for name, trainer in self.trainers.items()
            )
        )
        for name, worker in zip(self.trainers, opened, strict=True):
            self._note(name, worker.pid)
        self.trainers_opened = dict(zip(self.trainers, opened, strict=True))
        self.trainer_opened = opened[0]
        progress("trainer", done=True)

    async def _open_engines(self, progress: Progress) -> None:
        progress("rollout engine", done=False)
        self.note_engines(await each_engine(self.engines, "open"))
        progress("rollout engine", done=True)

    def note_engines(self, opened: Mapping[str, EngineOpened]) -> None:
        """Takes down the processes of engines that are up."""
        for name, worker in opened.items():
            self._note(name, worker.pid)
            node = self._node_of[name]
            for server, pid in worker.servers.items():
                # Not one of ours: it would die of the signal that asks for stacks.
                self._servers[server] = pid
                self.nodes.watch_server(node, pid)
            for path in worker.files:
                self.nodes.watch_path(node, path)

    async def _open_rewards(self, progress: Progress) -> None:
        progress("reward workers", done=False)
        for name, worker in self.rewards.items():
            self._note(name, await answer(worker.open.remote(), worker=name))
        progress("reward workers", done=True)

    async def _open_runner(self, progress: Progress) -> None:
        progress("data and tokenizer", done=False)
        opened = await answer(self.runner.open.remote(), worker="rollout-runner")
        self.runner_opened = opened
        self._note("rollout-runner", opened.pid)
        progress("data and tokenizer", done=True)

    def _note(self, name: str, pid: int) -> None:
        self._pids[name] = pid
        self.nodes.watch_process(self._node_of.get(name, HERE), name, pid)


def _lives(process: tuple[int, int]) -> bool:
    pid, start = process
    return start != 0 and process_start(pid) == start
