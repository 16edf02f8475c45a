"""From events to snapshots: a fold that holds the state of a run.

Pure apart from the clock it is given; no file, no thread, no screen. Replaying all
events of a run gives the same state as following it from the start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from functools import singledispatchmethod

from relax.errors import RecordError
from relax.events.types import (
    AttemptOpened,
    Commanded,
    CommandKind,
    CommandPhase,
    Continued,
    DumpWritten,
    EngineLost,
    Event,
    Heartbeat,
    NotableLine,
    Paused,
    Payload,
    RolloutFinished,
    RolloutProgress,
    RunFailed,
    RunFinished,
    RunStarted,
    StageFinished,
    StageSlow,
    StageStarted,
    StartupProgress,
    StopConditionsSet,
    TrainStep,
    Unknown,
    VerdictGiven,
    WeightsUpdated,
)
from relax.triage.verdict import Verdict
from relax_tui.sources.ages import coarse_age, coarse_seconds
from relax_tui.sources.base import (
    CommandLine,
    Failure,
    Header,
    Liveness,
    Notice,
    Now,
    PausedAt,
    Progress,
    RunSnapshot,
    StartupLine,
)
from relax_tui.sources.history import History, Place
from relax_tui.sources.metric_book import MetricBook
from relax_tui.sources.shape import figures, verdict_lines
from relax_tui.sources.stage_book import StageBook

NOTICES = 50
COMMANDS = 12
_ENDS = {CommandKind.STOP: Liveness.STOPPING, CommandKind.KILL: Liveness.KILLING}


class RunFold:
    """The state of a run, event by event."""

    def __init__(self) -> None:
        self.header = Header()
        self._liveness = Liveness.STARTING
        self._since: float | None = None
        self._detail = ""
        self._ending: Liveness | None = None
        self._rollout = -1
        self._stage = ""
        self._stage_wall = 0.0
        self._weights: int | None = None
        self._newest = 0.0
        self._first: int | None = None
        self._numbers = MetricBook()
        self._vacuous: frozenset[str] = frozenset()
        self._verdicts: dict[str, list[Verdict]] = {}
        self._stages = StageBook()
        self._history = History()
        self._startup: dict[str, StartupLine] = {}
        self._progress: Progress | None = None
        self._commands: dict[str, CommandLine] = {}
        self._notices: deque[Notice] = deque(maxlen=NOTICES)
        self._conditions: tuple[str, ...] = ()
        self._failure: Failure | None = None
        self._paused: PausedAt | None = None
        self._unknown: set[str] = set()
        self._not_written = 0
        self.vocab = ""
        self.started: RunStarted | None = None
        self.started_wall = 0.0

    def apply(self, events: Iterable[Event]) -> None:
        """Takes events in, in order."""
        for event in events:
            self._newest = max(self._newest, event.wall)
            self._on(event.payload, event)

    @property
    def liveness(self) -> Liveness:
        """What the events alone say; whether the driver lives is not among them."""
        return self._liveness

    @property
    def rollout_id(self) -> int:
        """The rollout that runs, or ran last; -1 before the first."""
        return self._rollout

    @property
    def unread(self) -> tuple[str, ...]:
        """What of the event log is not on the screen, one phrase each."""
        told = []
        if self._unknown:
            kinds = ", ".join(sorted(self._unknown))
            told.append(f"events of kinds that this version does not know: {kinds}")
        if self._not_written:
            told.append(f"{self._not_written} events that the run could not write")
        return tuple(told)

    @singledispatchmethod
    def _on(self, payload: Payload, event: Event) -> None:
        """Events that change nothing on the screen."""

    @_on.register
    def _(self, payload: Unknown, event: Event) -> None:
        self._unknown.add(payload.name)

    @_on.register
    def _(self, payload: Heartbeat, event: Event) -> None:
        self._not_written = payload.dropped

    @_on.register
    def _(self, payload: AttemptOpened, event: Event) -> None:
        another = event.attempt != self.header.attempt and self._newest > 0
        self.header = replace(
            self.header,
            run_id=payload.run_id,
            host=payload.host,
            attempt=event.attempt,
        )
        # A later file of the same attempt begins with this event too.
        if another:
            self._forget_numbers()
        if another or self._liveness.ended:
            self._set(Liveness.STARTING, event.wall, "")
            self._failure = self._paused = self._ending = None
            self._startup.clear()

    def _forget_numbers(self) -> None:
        """A new attempt's numbers are its own: the old ones are on disk, not "now"."""
        self._numbers = MetricBook()
        self._first = self._weights = self._progress = None
        self._rollout, self._stage = -1, ""
        self._stages.forget()
        self._verdicts.clear()

    @_on.register
    def _(self, payload: RunStarted, event: Event) -> None:
        self.header = replace(
            self.header,
            name=payload.name,
            run_id=payload.run_id,
            mode=str(payload.mode),
            num_rollout=payload.num_rollout,
            start_rollout_id=payload.start_rollout_id,
            steps_per_rollout=payload.steps_per_rollout,
            samples_per_rollout=payload.samples_per_rollout,
        )
        self.vocab = payload.vocab
        self.started, self.started_wall = payload, event.wall
        if self._first is None:
            self._first = payload.start_rollout_id
            self._numbers.first_rollout = payload.start_rollout_id

    @_on.register
    def _(self, payload: StartupProgress, event: Event) -> None:
        self._startup[payload.what] = StartupLine(
            what=payload.what, done=payload.done, seconds=payload.seconds
        )

    @_on.register
    def _(self, payload: StageStarted, event: Event) -> None:
        if self._stages.begin(payload.rollout_id, payload.stage):
            self._progress = None
        self._rollout, self._stage = payload.rollout_id, str(payload.stage)
        self._stage_wall = event.wall
        self._set(Liveness.RUNNING, event.wall, "")

    @_on.register
    def _(self, payload: StageFinished, event: Event) -> None:
        self._stages.end(payload)
        self._history.end((event.attempt, payload.rollout_id), payload)
        self._numbers.take(payload.rollout_id, payload.metrics, source=payload.stage)

    @_on.register
    def _(self, payload: StageSlow, event: Event) -> None:
        self._notice(event, "SLOW", self._stages.slow(payload))

    @_on.register
    def _(self, payload: RolloutProgress, event: Event) -> None:
        self._progress = Progress(
            rollout_id=payload.rollout_id,
            done=payload.done,
            running=payload.running,
            aborted=payload.aborted,
            tokens=payload.tokens,
            longest=payload.longest,
            total=payload.total,
        )

    @_on.register
    def _(self, payload: RolloutFinished, event: Event) -> None:
        self._numbers.finish(payload.rollout_id, payload.metrics)
        self._history.take((event.attempt, payload.rollout_id), payload.metrics)

    @_on.register
    def _(self, payload: TrainStep, event: Event) -> None:
        self._numbers.take(payload.rollout_id, payload.metrics, source="step")
        self._vacuous = frozenset(payload.vacuous)
        place = event.attempt, payload.rollout_id
        self._history.take(place, payload.metrics, vacuous=payload.vacuous)
        if payload.skipped:
            what = f"step {payload.step} skipped: gradients are not finite"
            self._notice(event, "SKIP", what)

    @_on.register
    def _(self, payload: WeightsUpdated, event: Event) -> None:
        self._weights = payload.version
        ours, theirs = payload.fingerprint, payload.engine_fingerprint
        if theirs and theirs != ours:
            what = f"engine holds weights {theirs[:12]}, trainer sent {ours[:12]}"
            self._notice(event, "WEIGHTS", what)

    @_on.register
    def _(self, payload: EngineLost, event: Event) -> None:
        self._notice(event, "ENGINE", payload.what)

    @_on.register
    def _(self, payload: DumpWritten, event: Event) -> None:
        self._notice(event, "DUMP", f"{payload.kind} written: {payload.path}")

    @_on.register
    def _(self, payload: VerdictGiven, event: Event) -> None:
        try:
            verdict = Verdict.from_json(payload.verdict)
        except RecordError as error:
            self._notice(event, "VERDICT", f"a verdict could not be read: {error}")
            return
        self._verdicts.setdefault(verdict.rule, []).append(verdict)
        self._history.judge((event.attempt, payload.rollout_id), verdict)

    @_on.register
    def _(self, payload: Commanded, event: Event) -> None:
        self._commands[payload.command_id] = CommandLine(
            id=payload.command_id,
            kind=payload.kind,
            phase=str(payload.phase),
            by=payload.by,
            reason=payload.reason,
            seconds=payload.seconds,
        )
        if payload.kind in _ENDS and payload.phase is not CommandPhase.REFUSED:
            # A kill follows on a stop, never a stop on a kill.
            if self._ending is not Liveness.KILLING:
                self._ending = _ENDS[payload.kind]
            self._since = event.wall
        while len(self._commands) > COMMANDS:
            del self._commands[next(iter(self._commands))]

    @_on.register
    def _(self, payload: Paused, event: Event) -> None:
        self._paused = PausedAt(
            rollout_id=payload.rollout_id,
            before=str(payload.before),
            after="" if payload.after is None else str(payload.after),
            why=payload.why,
            by=payload.by,
            since=event.wall,
        )
        self._rollout, self._stage = payload.rollout_id, str(payload.before)
        by = f" by {payload.by}" if payload.by else ""
        self._set(Liveness.PAUSED, event.wall, f"{payload.why or 'command'}{by}")

    @_on.register
    def _(self, payload: Continued, event: Event) -> None:
        self._paused = None
        self._stage_wall = event.wall
        if self._ending is not None:
            # A pause that a stop has ended: no stage will run.
            self._stage = ""
        self._set(Liveness.RUNNING, event.wall, "")

    @_on.register
    def _(self, payload: StopConditionsSet, event: Event) -> None:
        self._conditions = payload.conditions

    @_on.register
    def _(self, payload: NotableLine, event: Event) -> None:
        self._notice(event, "LOG", f"{payload.text}  ({payload.file})")

    @_on.register
    def _(self, payload: RunFinished, event: Event) -> None:
        stopped = payload.why != "done"
        count = payload.rollouts
        detail = "after 1 rollout" if count == 1 else f"after {count} rollouts"
        if payload.killed:
            detail += "; had to kill " + ", ".join(payload.killed)
        state = Liveness.STOPPED if stopped else Liveness.FINISHED
        self._set(state, event.wall, detail)
        self._paused = None

    @_on.register
    def _(self, payload: RunFailed, event: Event) -> None:
        stage = "" if payload.stage is None else str(payload.stage)
        self._failure = Failure(
            what=payload.what,
            code=payload.code,
            rank=payload.rank,
            rollout_id=payload.rollout_id,
            stage=stage,
            lines=payload.lines,
        )
        self._set(Liveness.FAILED, event.wall, payload.what)
        self._paused = None

    def _set(self, liveness: Liveness, wall: float, detail: str) -> None:
        if liveness is not self._liveness:
            self._since = wall
        self._liveness, self._detail = liveness, detail

    def _notice(self, event: Event, word: str, text: str) -> None:
        self._notices.append(Notice(wall=event.wall, word=word, text=text))

    def snapshot(
        self, clock: float, *, lost: str = "", at: Place | None = None
    ) -> RunSnapshot:
        """The state as a frozen snapshot, without the viewed rollout.

        Args:
            clock: Unix time now, for ages.
            lost: Why the run counts as lost; '' when its driver lives or it ended.
            at: A rollout to look back at; None for now.
        """
        running = self._stage if self._goes(lost) else ""
        snapshot = RunSnapshot(
            header=self.header,
            now=self._now(clock, lost),
            first_rollout=self._first,
            figures=figures(self._numbers.first, self._verdicts, self._first),
            series=self._numbers.series(),
            latest=self._numbers.latest(),
            latest_rollouts=self._numbers.rollouts(),
            vacuous=self._vacuous,
            verdicts=verdict_lines(self._verdicts),
            stages=self._stages.lines(first=self._first or 0, running=running),
            stages_rollout=self._stages.rollout_id,
            startup=tuple(self._startup.values()),
            progress=self._progress,
            commands=tuple(self._commands.values()),
            notices=tuple(self._notices),
            stop_conditions=self._conditions,
            failure=self._failure,
            paused=None if lost else self._paused,
            unread=self.unread,
        )
        return snapshot if at is None else self._history.back(snapshot, at)

    def _goes(self, lost: str) -> bool:
        return self._liveness is Liveness.RUNNING and not lost

    def _now(self, clock: float, lost: str) -> Now:
        liveness, since, detail = self._liveness, self._since, self._detail
        if lost:
            liveness, since, detail = Liveness.LOST, self._newest or None, lost
        ages = liveness in (Liveness.RUNNING, Liveness.STARTING)
        if self._ending is not None and not liveness.ended:
            liveness = self._ending
        return Now(
            liveness=liveness,
            since=since,
            detail=detail,
            rollout_id=self._rollout,
            stage=self._stage,
            stage_age=coarse_seconds(max(clock - self._stage_wall, 0.0))
            if self._goes(lost) and self._stage
            else "",
            data_age=coarse_age(max(clock - self._newest, 0.0))
            if ages and self._newest
            else "",
            weights_version=self._weights,
        )
