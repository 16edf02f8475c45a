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
from collections.abc import Coroutine
from typing import Any, TypeVar

from relax.control.protocol import (
    ActionState,
    CommandAnswer,
    CommandRequest,
    RunStatus,
    Stacks,
)
from relax.controller.hands import Hands, StageHeldError, StageResult
from relax.controller.ledger import CommandLedger
from relax.controller.machine import after_stage, react, refusal
from relax.controller.state import (
    ENDING,
    AbortGeneration,
    Answer,
    CarryOut,
    Command,
    ControllerState,
    Done,
    ErrandEnded,
    Failed,
    Finish,
    HurryUp,
    Input,
    Instruction,
    Pause,
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
from relax.errors import ArgumentError, InternalError, RelaxError
from relax.events.append import EventWriter
from relax.events.encoding import as_aside
from relax.events.types import (
    CommandKind,
    CommandPhase,
    Continued,
    Heartbeat,
    Paused,
    Payload,
    StageFinished,
    StageStarted,
    StopConditionsSet,
)

HEARTBEAT_SECONDS = 5.0
STOP_GRACE_SECONDS = 10.0

_Result = TypeVar("_Result")


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

    Attributes:
        state: Where the run is.
        ending: Set when something that runs is to end with the run.
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
        self._orders: asyncio.Queue[RunStage | CarryOut | Finish] = asyncio.Queue()
        self._clock = StageClock()
        self._watch = StageWatch(self._clock, hands=hands, events=events, run=run_id)
        self._ledger = CommandLedger(events)
        self._stage_task: asyncio.Task[Any] | None = None
        self._stage_began = 0.0
        self._paused_at = 0.0
        self._background: set[asyncio.Task[None]] = set()
        self.ending = asyncio.Event()

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
            while not isinstance(order := await self._orders.get(), Finish):
                if isinstance(order, RunStage):
                    self._react(await self._stage(order))
                else:
                    self._react(await self._errand(order))
            return order.why
        finally:
            heart.cancel()

    async def _stage(self, order: RunStage) -> StageEnded | StageHeld:
        try:
            result = await self._run_stage(order)
        except StageHeldError as held:
            return StageHeld(why=str(held))
        hit = self._stops.hit(
            following=after_stage(self.state),
            metrics=(result.metrics, *result.also),
            verdicts=result.verdicts,
        )
        return StageEnded(hit=hit)

    async def _errand(self, order: CarryOut) -> ErrandEnded:
        what = f"{order.errand.kind} of {order.errand.by}"
        try:
            did = await self._until_done(self._hands.carry_out(order), what)
        except (RelaxError, StageHeldError) as error:
            return ErrandEnded(failed=str(error))
        return ErrandEnded(did=did)

    async def _run_stage(self, order: RunStage) -> StageResult:
        started = StageStarted(rollout_id=order.rollout_id, stage=order.stage)
        self._events.append(_told(started, order.aside))
        began = self._stage_began = time.monotonic()
        judge = self.state.walk or self._stops.on_verdicts
        watch = asyncio.create_task(self._watch.follow(order, began=began))
        try:
            result = await self._until_done(
                self._hands.run(order, judge=judge),
                f"{order.stage} of rollout {order.rollout_id}",
            )
        finally:
            watch.cancel()
        seconds = time.monotonic() - began
        if not order.aside:
            evaluates = self._hands.evaluates(order)
            self._clock.add(order.stage, seconds, evaluates=evaluates)
        finished = StageFinished(
            rollout_id=order.rollout_id,
            stage=order.stage,
            seconds=seconds,
            memory_bytes=self._hands.memory_bytes(),
            metrics=result.metrics,
            passes=result.passes,
        )
        # No reader hears of a record, or of a pause after it, before the file is there.
        self._events.append_made(
            lambda: _told(result.with_record(finished), order.aside), sync=True
        )
        return result

    async def _until_done(
        self, work: Coroutine[Any, Any, _Result], what: str
    ) -> _Result:
        """Awaits what runs between two safe points; a stop may end it by force."""
        task = asyncio.create_task(work)
        self._stage_task = task
        try:
            return await task
        except asyncio.CancelledError as error:
            if not task.cancelled() or self.state.phase not in ENDING:
                raise
            raise StageKilledError(what) from error
        finally:
            self._stage_task = None

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
            order=request.order,
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

    def over(self, *, failed: str = "") -> None:
        """All processes are gone: now the stop that was asked for is done.

        Args:
            failed: Why the run ended otherwise.
        """
        phase = CommandPhase.FAILED if failed else CommandPhase.DONE
        for wish in self.state.ending:
            self._ledger.ended(wish, phase, failed)

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
            pending=_pending(state),
            busy=f"{state.errand.kind} of {state.errand.by}" if state.errand else "",
            excursion=state.excursion.name if state.excursion else "",
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
            case RunStage() | CarryOut() | Finish():
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
                self._ledger.ended(instruction, CommandPhase.DONE, instruction.did)
            case Failed():
                self._ledger.ended(instruction, CommandPhase.FAILED, instruction.why)
            case Withdrawn():
                self._ledger.ended(instruction, CommandPhase.WITHDRAWN, "")
            case SetStops():
                self._stops.set(instruction.conditions)
                self._events.append(
                    StopConditionsSet(conditions=instruction.conditions)
                )
            case AbortGeneration():
                self._spawn(self._hands.abort_generation())
            case HurryUp():
                self.ending.set()
                self._spawn(self._hurry(at_once=instruction.at_once))
        return None

    def _answer(self, answer: Answer) -> CommandAnswer:
        self._ledger.answered(answer)
        state = self.state
        waits_for = f"after {state.stage} of rollout {state.rollout_id}"
        return CommandAnswer(
            id=answer.command.id,
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
            excursion=state.excursion.name if state.excursion else "",
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


def _told(payload: Payload, aside: str) -> Payload:
    return as_aside(aside, payload) if aside else payload


def _pending(state: ControllerState) -> tuple[str, ...]:
    """Ids of commands that wait for a safe point, or are being carried out there."""
    waiting = (state.wish, state.errand, *state.errands)
    return tuple(one.command_id for one in waiting if one is not None)
