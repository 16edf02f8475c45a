"""One run from its arguments to its end: folder, lock, log, socket, workers, loop."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import shutil
import signal
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relax.arguments import Arguments
from relax.arguments.metric_names import declared_metrics
from relax.control.run_folder import (
    RunLock,
    link_run,
    read_run_info,
    socket_path,
    write_run_info,
)
from relax.control.server import ControlServer
from relax.controller.announce import (
    RunPlace,
    first_rollout,
    num_rollout,
    run_info,
    run_started,
)
from relax.controller.assembly import RunParts, build_hands, lacks_data
from relax.controller.cluster import start_ray, stop_ray
from relax.controller.judge import Judge
from relax.controller.loop import Controller, StageKilledError
from relax.controller.modes import (
    first_place,
    mode_of,
    sides_of,
    stages_of,
)
from relax.controller.notable import LogWatch
from relax.controller.reaper import Reaper
from relax.controller.resume import ResumePoint, announce, make_room
from relax.controller.run_hands import RunHands
from relax.controller.runlog import RunLog, open_run_log
from relax.controller.starting import HandsWhenUp, Reception, unless_stopped
from relax.controller.state import ControllerState, Phase
from relax.controller.stops import StopConditions
from relax.controller.workers import Workers
from relax.engine.rollout.vocabulary import TokenTable, checkpoint_vocabulary
from relax.errors import RecordError, RelaxError
from relax.events.append import EventWriter, attempts
from relax.events.types import (
    RunFailed,
    RunFinished,
    Stage,
    StartupProgress,
)
from relax.observe.stacks import answer_with_stacks
from relax.observe.worker_process import last_lines, log_path
from relax.records.write import write_vocabulary

LINES_KEPT = 20


async def drive(
    arguments: Arguments, *, point: ResumePoint | None = None, echo: bool
) -> int:
    """Runs a whole run.

    Args:
        arguments: Validated.
        point: What it goes on from (`relax.controller.resume`); None: the beginning.
        echo: Print log lines to standard output too.

    Returns:
        The process's exit code.

    Raises:
        RunLocked: Another driver lives in the run folder.
        RelaxError: The run could not begin.
    """
    run_dir = choose_run_dir(arguments)
    run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    run_dir = run_dir.absolute()
    lock = RunLock(run_dir)
    lock.acquire()
    try:
        place = _place(arguments, run_dir)
        return await _Driver(arguments, place, point=point, echo=echo).run()
    finally:
        lock.release()


def choose_run_dir(arguments: Arguments) -> Path:
    """``--run-dir``, else ``./runs/<name>-<short id>``."""
    if arguments.run.run_dir is not None:
        return Path(arguments.run.run_dir)
    return Path("runs") / f"{arguments.run.run_name}-{uuid.uuid4().hex[:6]}"


def _place(arguments: Arguments, run_dir: Path) -> RunPlace:
    try:
        run_id = read_run_info(run_dir).run_id
    except RecordError:
        run_id = f"{run_dir.name[:24]}-{uuid.uuid4().hex[:8]}"
    return RunPlace(
        run_id=run_id,
        run_dir=run_dir,
        attempt=attempts(run_dir) + 1,
        socket=None if arguments.run.no_control else socket_path(run_id),
    )


class _Driver:
    def __init__(
        self,
        arguments: Arguments,
        place: RunPlace,
        *,
        point: ResumePoint | None,
        echo: bool,
    ) -> None:
        self._arguments = arguments
        self._place = place
        self._point = point
        self._began = time.monotonic()
        self._log: RunLog = open_run_log(place.run_dir, echo=echo)
        self._events = EventWriter(
            place.run_dir,
            run_id=place.run_id,
            attempt=place.attempt,
            state=self._state,
        )
        self._reaper = Reaper()
        self._workers = Workers(
            arguments,
            run_dir=place.run_dir,
            run_id=place.run_id,
            reaper=self._reaper,
            sides=sides_of(mode_of(arguments)),
        )
        self._mode = mode_of(arguments)
        self._session_dir: Path | None = None
        self._signals = 0
        self._num_rollout = num_rollout(arguments)
        self._first_rollout = first_rollout(arguments)
        self._logs = LogWatch(place.run_dir, events=self._events)
        self._startup: dict[str, float | None] = {}
        self._hands = HandsWhenUp(self._workers)
        self._controller = self._make_controller()

    async def run(self) -> int:
        """From run.json to the last event."""
        place = self._place
        self._reaper.start()
        if place.socket is not None:
            self._reaper.watch_path(place.socket)
        answer_with_stacks(place.run_dir, "driver")
        write_run_info(place.run_dir, run_info(self._arguments, place))
        link_run(place.run_dir, place.run_id)
        with self._events:
            self._install_signals()
            self._events.append(
                run_started(self._arguments, place, vocab=""), sync=True
            )
            self._log.info(f"Run {place.run_id} in {place.run_dir}")
            announce(
                self._point,
                attempt=place.attempt,
                first=self._first_rollout,
                log=self._log,
            )
            make_room(self._arguments, self._log)
            following = asyncio.create_task(self._logs.follow())
            try:
                async with self._serving():
                    return await self._run()
            finally:
                following.cancel()

    async def _run(self) -> int:
        try:
            why = await self._workers.nodes.unless_lost(self._until_end())
        except StageKilledError as error:
            self._log.warning(f"{error} was ended by force")
            why = "stopped"
        except RelaxError as error:
            cause = await self._workers.nodes.explained(error)
            await self._fail(cause)
            return cause.exit_code
        except Exception as error:
            await self._fail(error)
            raise
        killed = await self._end()
        self._controller.over()
        self._events.append(
            RunFinished(why=why, rollouts=self._rollouts(), killed=killed), sync=True
        )
        if killed:
            self._log.warning(f"had to kill {', '.join(killed)}")
        self._log.info("All rollouts finished" if why == "done" else "Run stopped")
        return 0

    async def _until_end(self) -> str:
        judge = Judge()
        try:
            hands = await unless_stopped(self._start(judge), self._controller)
            self._hands.up(hands)
            try:
                return await self._controller.run()
            finally:
                # Also what a failed stage leaves: its verdicts may say why it failed.
                await hands.settle()
        finally:
            judge.close()

    async def _start(self, judge: Judge) -> RunHands:
        """Brings up Ray and the workers."""
        await self._start_ray()
        await self._workers.start(self._progress)
        if self._point is not None:
            await self._point.restore(self._workers)
        self._vocabulary = await asyncio.to_thread(self._read_vocabulary)
        vocab = write_vocabulary(
            self._place.run_dir,
            self._vocabulary.rows,
            digest=self._vocabulary.digest,
        )
        self._events.append(
            run_started(
                self._arguments,
                self._place,
                vocab=vocab,
                nodes=self._workers.nodes.described(self._workers.processes()),
            ),
            sync=True,
        )
        parts = RunParts(
            arguments=self._arguments,
            place=self._place,
            workers=self._workers,
            events=self._events,
            log=self._log,
            vocabulary=self._vocabulary,
            vocab=vocab,
        )
        return build_hands(parts, judge)

    async def _start_ray(self) -> None:
        self._progress("Ray", done=False)
        starting = asyncio.ensure_future(
            asyncio.to_thread(
                start_ray,
                self._arguments.cluster,
                run_id=self._place.run_id,
                reaper=self._reaper,
            )
        )
        try:
            node = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # A thread cannot be ended; what it has begun must be there to be ended.
            await starting
            raise
        self._session_dir = node.session_dir
        # Ray's core put its own handlers in place of ours; theirs end in an abort.
        self._install_signals()
        self._progress("Ray", done=True)

    def _read_vocabulary(self) -> TokenTable:
        """The tokens: told by the rollout side, read here when there is none."""
        told = self._workers.runner_opened
        if told is not None:
            return TokenTable(rows=told.vocabulary, digest=told.vocabulary_digest)
        return checkpoint_vocabulary(str(self._arguments.checkpoint.hf_checkpoint))

    def _make_controller(self) -> Controller:
        has_reference = self._arguments.checkpoint.ref_load is not None
        stages = stages_of(self._mode, has_reference=has_reference)
        first = self._first_rollout
        rollout_id, stage = first_place(self._mode, first_rollout=first)
        texts = self._arguments.run.pause_at
        stops = StopConditions(
            texts, first_rollout=first, known=declared_metrics(self._arguments)
        )
        state = ControllerState(
            attempt=self._place.attempt,
            mode=self._mode,
            num_rollout=self._num_rollout,
            first_rollout=first,
            rollout_id=rollout_id,
            stage=stage,
            stages=stages,
            stops=stops.texts,
            walk=self._arguments.run.walk,
            needs_data=lacks_data(self._arguments),
            has_reference=Stage.REF_LOG_PROBS in stages,
        )
        return Controller(
            state,
            hands=self._hands,
            events=self._events,
            run_id=self._place.run_id,
            stops=stops,
            pause_limit=self._arguments.run.pause_limit,
        )

    @contextlib.asynccontextmanager
    async def _serving(self) -> Any:
        if self._place.socket is None:
            yield
            return
        reception = Reception(self._controller, startup=self._startup)
        server = ControlServer(reception, self._place.socket)
        await server.start()
        try:
            yield
        finally:
            await server.stop()

    async def _fail(self, error: Exception) -> None:
        where = error.where if isinstance(error, RelaxError) else ""
        workers = [n for n in self._workers.processes() if n != "driver"]
        rank = where if where in workers else ""
        lines = last_lines(log_path(self._place.run_dir, rank or "driver"))
        state = self._known_state()
        what = error.what if isinstance(error, RelaxError) else repr(error)
        self._events.append(
            RunFailed(
                what=what,
                code=error.code if isinstance(error, RelaxError) else "internal",
                rank=rank,
                rollout_id=state.rollout_id if state else -1,
                stage=state.stage if state else None,
                lines=tuple(lines[-LINES_KEPT:]),
            ),
            sync=True,
        )
        self._log.error(str(error))
        await self._end()
        self._controller.over(failed="the run failed before it was stopped")

    async def _end(self) -> tuple[str, ...]:
        killed = await self._workers.close()
        await asyncio.to_thread(self._logs.look, ended=True)
        await asyncio.to_thread(stop_ray)
        if (
            self._session_dir is not None
            and self._arguments.cluster.ray_address is None
        ):
            # Its logs are ours already, under RUN/logs.
            await asyncio.to_thread(_remove, self._session_dir)
        self._reaper.dismiss()
        return killed

    def _install_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal, number.name)
        # A dropped SSH session never stops a run.
        loop.add_signal_handler(signal.SIGHUP, lambda: None)

    def _on_signal(self, name: str) -> None:
        self._signals += 1
        if self._signals > 2:
            raise SystemExit(130)
        self._controller.stop(name, at_once=self._signals == 2)

    def _progress(self, what: str, *, done: bool) -> None:
        seconds = time.monotonic() - self._began
        self._startup[what] = seconds if done else None
        self._events.append(StartupProgress(what=what, done=done, seconds=seconds))

    def _known_state(self) -> ControllerState | None:
        """None before the first stage: then the run is nowhere yet."""
        state = self._controller.state
        return None if state.phase is Phase.STARTING else state

    def _state(self) -> Mapping[str, Any] | None:
        state = self._known_state()
        return None if state is None else dataclasses.asdict(state)

    def _rollouts(self) -> int:
        state = self._controller.state
        return max(0, state.rollout_id - state.first_rollout)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
