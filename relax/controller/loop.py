"""The step loop: carries out what the machine decides.

    generate → reward → ref_log_probs → log_probs → advantages → train → update_weights
        ▲                                                                     │
        └──────────────── next rollout, unless a safe point holds ◀───────────┘

Between two stages lies a safe point: nothing runs on any rank, so a pause, a step or a
stop leaves no collective hanging. Everything here lives in one asyncio loop, so there
is no lock.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from relax.control.protocol import (
    ActionState,
    CommandAnswer,
    CommandRequest,
    RunStatus,
    Stacks,
)
from relax.controller.hands import Hands, StageHeldError, StageResult
from relax.controller.machine import after_stage, react, refusal
from relax.controller.state import (
    AbortGeneration,
    Answer,
    Command,
    ControllerState,
    Done,
    Finish,
    HurryUp,
    Input,
    Instruction,
    Pause,
    Phase,
    Resume,
    RunStage,
    SetStops,
    StageEnded,
    StageHeld,
    Started,
    Withdrawn,
)
from relax.controller.stops import StopConditions
from relax.controller.stopwatch import StageClock
from relax.controller.watch import StageWatch
from relax.errors import ArgumentError, InternalError
from relax.events.append import EventWriter
from relax.events.types import (
    Commanded,
    CommandKind,
    CommandPhase,
    Continued,
    Heartbeat,
    Paused,
    StageFinished,
    StageStarted,
    StopConditionsSet,
)

HEARTBEAT_SECONDS = 5.0
STOP_GRACE_SECONDS = 10.0


class StageKilledError(Exception):
    """The running stage was ended by force: a stop's grace ran out, or a kill."""


class Controller:
    """Runs the loop and answers the control server.

    Args:
        state: Where the run begins.
        hands: What carries out stages.
        events: The event log.
        run_id: The run's id.
        stops: The stop conditions in force.
        pause_limit: Seconds after which a pause ends by itself; None: never.
    """

    def __init__(
        self,
        state: ControllerState,
        *,
        hands: Hands,
        events: EventWriter,
        run_id: str,
        stops: StopConditions,
        pause_limit: float | None = None,
    ) -> None:
        self.state = state
        self._hands = hands
        self._events = events
        self._run_id = run_id
        self._stops = stops
        self._pause_limit = pause_limit
        self._pause_timer: asyncio.TimerHandle | None = None
        self._orders: asyncio.Queue[RunStage | Finish] = asyncio.Queue()
        self._clock = StageClock()
        self._watch = StageWatch(self._clock, hands=hands, events=events)
        self._accepted: dict[str, float] = {}
        self._stage_task: asyncio.Task[StageResult] | None = None
        self._stage_began = 0.0
        self._paused_at = 0.0
        self._background: set[asyncio.Task[None]] = set()

    async def run(self) -> str:
        """Runs stages until the run is over.

        Returns:
            ``done`` or ``stopped``.

        Raises:
            StageKilledError: A stop had to end the running stage by force.
            RelaxError: A stage failed.
        """
        heart = asyncio.create_task(self._beat())
        try:
            self._react(Started())
            while isinstance(order := await self._orders.get(), RunStage):
                try:
                    result = await self._run_stage(order)
                except StageHeldError as held:
                    self._react(StageHeld(why=str(held)))
                    continue
                hit = self._stops.hit(
                    following=after_stage(self.state),
                    metrics=result.metrics,
                    verdicts=result.verdicts,
                )
                self._react(StageEnded(hit=hit))
            return order.why
        finally:
            heart.cancel()

    async def _run_stage(self, order: RunStage) -> StageResult:
        self._events.append(
            StageStarted(rollout_id=order.rollout_id, stage=order.stage)
        )
        began = self._stage_began = time.monotonic()
        judge = self.state.walk or self._stops.on_verdicts
        task = asyncio.create_task(self._hands.run(order, judge=judge))
        self._stage_task = task
        watch = asyncio.create_task(self._watch.follow(order, began=began))
        try:
            result = await task
        except asyncio.CancelledError as error:
            if not task.cancelled() or self.state.phase is not Phase.STOPPING:
                raise
            raise StageKilledError(
                f"{order.stage} of rollout {order.rollout_id}"
            ) from error
        finally:
            watch.cancel()
            self._stage_task = None
        seconds = time.monotonic() - began
        self._clock.add(order.stage, seconds)
        self._events.append(
            StageFinished(
                rollout_id=order.rollout_id,
                stage=order.stage,
                seconds=seconds,
                memory_bytes=self._hands.memory_bytes(),
                metrics=result.metrics,
                passes=result.passes,
                record=result.record,
            ),
            sync=True,
        )
        return result

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            self._events.append(Heartbeat(dropped=self._events.dropped))

    async def command(self, request: CommandRequest) -> CommandAnswer:
        """Accepts or refuses a command (`relax.control.server.Commanded`)."""
        if request.kind is CommandKind.SET_STOPS:
            try:
                self._stops.check(request.conditions)
            except ArgumentError as error:
                return CommandAnswer(id=request.id, accepted=False, reason=str(error))
        command = Command(
            id=request.id,
            kind=request.kind,
            by=request.by,
            attempt=request.seen.attempt,
            mode=request.seen.mode,
            rollout_id=request.seen.rollout_id,
            stage=request.seen.stage,
            conditions=request.conditions,
            target=request.target,
        )
        answer = self._react(command)
        if answer is None:
            raise InternalError(f"command {request.kind} got no answer")
        return answer

    def stop(self, by: str, *, at_once: bool = False) -> None:
        """Stops at the next safe point, or by force; a signal's way in."""
        kind = CommandKind.KILL if at_once else CommandKind.STOP
        if not refusal(self.state, kind):
            self._react(Command(id=f"signal-{time.time_ns()}", kind=kind, by=by))

    def status(self) -> RunStatus:
        """The run as it is now (`relax.control.server.Commanded`)."""
        state = self.state
        running = self._stage_task is not None
        return RunStatus(
            run_id=self._run_id,
            attempt=state.attempt,
            phase=state.phase.value,
            mode=state.mode,
            rollout_id=state.rollout_id,
            num_rollout=state.num_rollout,
            stage=state.stage,
            stage_seconds=time.monotonic() - self._stage_began if running else 0.0,
            pending=(state.wish.command_id,) if state.wish else (),
            stop_conditions=state.stops,
            actions={kind.value: self._action(kind) for kind in CommandKind},
            processes=dict(self._hands.processes()),
        )

    async def stacks(self) -> Stacks:
        """Stacks of all processes (`relax.control.server.Commanded`)."""
        return await self._hands.stacks()

    def _action(self, kind: CommandKind) -> ActionState:
        reason = refusal(self.state, kind)
        return ActionState(possible=not reason, reason=reason)

    def _react(self, happened: Input) -> CommandAnswer | None:
        self.state, instructions = react(self.state, happened)
        answers = [self._carry_out(instruction) for instruction in instructions]
        return next((answer for answer in answers if answer is not None), None)

    def _carry_out(self, instruction: Instruction) -> CommandAnswer | None:
        match instruction:
            case RunStage() | Finish():
                self._orders.put_nowait(instruction)
            case Answer():
                return self._answer(instruction)
            case Pause():
                self._paused_at = time.monotonic()
                self._limit_pause()
                self._events.append(self._paused(instruction), sync=True)
            case Resume():
                if self._pause_timer is not None:
                    self._pause_timer.cancel()
                seconds = time.monotonic() - self._paused_at
                self._events.append(
                    Continued(
                        rollout_id=self.state.rollout_id,
                        by=instruction.by,
                        seconds=seconds,
                    )
                )
            case Done():
                self._ended(instruction, CommandPhase.DONE)
            case Withdrawn():
                self._ended(instruction, CommandPhase.WITHDRAWN)
            case SetStops():
                self._stops.set(instruction.conditions)
                self._events.append(
                    StopConditionsSet(conditions=instruction.conditions)
                )
            case AbortGeneration():
                self._spawn(self._hands.abort_generation())
            case HurryUp():
                self._spawn(self._hurry(at_once=instruction.at_once))
        return None

    def _answer(self, answer: Answer) -> CommandAnswer:
        command = answer.command
        phase = CommandPhase.ACCEPTED if answer.accepted else CommandPhase.REFUSED
        self._events.append(
            Commanded(
                command_id=command.id,
                kind=command.kind,
                phase=phase,
                by=command.by,
                reason=answer.reason,
            )
        )
        if answer.accepted:
            self._accepted[command.id] = time.monotonic()
        state = self.state
        waits_for = f"after {state.stage} of rollout {state.rollout_id}"
        return CommandAnswer(
            id=command.id,
            accepted=answer.accepted,
            reason=answer.reason,
            waits_for=waits_for if answer.waits else "",
            seconds=self._seconds_left() if answer.waits else None,
        )

    def _seconds_left(self) -> float | None:
        median = self._clock.median(self.state.stage)
        if median is None:
            return None
        return max(0.0, median - (time.monotonic() - self._stage_began))

    def _ended(self, command: Done | Withdrawn, phase: CommandPhase) -> None:
        accepted = self._accepted.pop(command.command_id, time.monotonic())
        self._events.append(
            Commanded(
                command_id=command.command_id,
                kind=command.kind,
                phase=phase,
                by=command.by,
                seconds=time.monotonic() - accepted,
            )
        )

    def _limit_pause(self) -> None:
        if self._pause_limit is None:
            return
        command = Command(
            id=f"limit-{time.time_ns()}", kind=CommandKind.CONTINUE, by="--pause-limit"
        )
        loop = asyncio.get_running_loop()
        self._pause_timer = loop.call_later(self._pause_limit, self._react, command)

    def _paused(self, pause: Pause) -> Paused:
        state = self.state
        return Paused(
            rollout_id=state.rollout_id,
            before=state.stage,
            after=state.last,
            why=pause.why,
            by=pause.by,
        )

    async def _hurry(self, *, at_once: bool) -> None:
        if not at_once:
            await self._hands.abort_generation()
            await asyncio.sleep(STOP_GRACE_SECONDS)
        if self._stage_task is not None:
            self._stage_task.cancel()

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
