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
    Continued,
    DumpWritten,
    Event,
    NotableLine,
    Paused,
    Payload,
    RolloutFinished,
    RolloutProgress,
    RunFailed,
    RunFinished,
    RunStarted,
    Stage,
    StageFinished,
    StageSlow,
    StageStarted,
    StartupProgress,
    StopConditionsSet,
    TrainStep,
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
    StageLine,
    StartupLine,
)
from relax_tui.sources.metric_book import MetricBook
from relax_tui.sources.shape import figures, stage_line, verdict_lines

NOTICES = 50
COMMANDS = 12


class RunFold:
    """The state of a run, event by event."""

    def __init__(self) -> None:
        self.header = Header()
        self._liveness = Liveness.STARTING
        self._since: float | None = None
        self._detail = ""
        self._rollout = -1
        self._stages_rollout: int | None = None
        self._stage = ""
        self._stage_wall = 0.0
        self._weights: int | None = None
        self._newest = 0.0
        self._first: int | None = None
        self._numbers = MetricBook()
        self._vacuous: frozenset[str] = frozenset()
        self._verdicts: dict[str, list[Verdict]] = {}
        self._done: dict[Stage, StageFinished] = {}
        self._durations: dict[Stage, deque[float]] = {}
        self._slow: dict[Stage, str] = {}
        self._startup: dict[str, StartupLine] = {}
        self._progress: Progress | None = None
        self._commands: dict[str, CommandLine] = {}
        self._notices: deque[Notice] = deque(maxlen=NOTICES)
        self._conditions: tuple[str, ...] = ()
        self._failure: Failure | None = None
        self._paused: PausedAt | None = None
        self.vocab = ""

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
    def newest_wall(self) -> float:
        """Unix time of the newest event; 0 without one."""
        return self._newest

    @singledispatchmethod
    def _on(self, payload: Payload, event: Event) -> None:
        """Events that change nothing on the screen (heartbeats, unknown ones)."""

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
            self._failure = self._paused = None
            self._startup.clear()

    def _forget_numbers(self) -> None:
        """A new attempt's numbers are its own: the old ones are on disk, not "now"."""
        self._numbers = MetricBook()
        self._first = self._stages_rollout = self._weights = self._progress = None
        self._rollout, self._stage = -1, ""
        self._done = {}
        self._verdicts.clear()
        self._slow.clear()

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
        if payload.rollout_id != self._stages_rollout:
            self._done = {}
            self._progress = None
        self._stages_rollout = payload.rollout_id
        self._slow.pop(payload.stage, None)
        self._rollout, self._stage = payload.rollout_id, str(payload.stage)
        self._stage_wall = event.wall
        self._set(Liveness.RUNNING, event.wall, "")

    @_on.register
    def _(self, payload: StageFinished, event: Event) -> None:
        self._done[payload.stage] = payload
        durations = self._durations.setdefault(payload.stage, deque(maxlen=100))
        durations.append(payload.seconds)
        self._slow.pop(payload.stage, None)
        self._numbers.take(payload.rollout_id, payload.metrics, source=payload.stage)

    @_on.register
    def _(self, payload: StageSlow, event: Event) -> None:
        places = "; ".join(f"{rank}: {line}" for rank, line in payload.places.items())
        text = (
            f"{payload.stage} has run {payload.seconds:.0f} s, its median is"
            f" {payload.median_seconds:.1f} s"
        )
        self._slow[payload.stage] = places or text
        self._notice(event, "SLOW", f"{text}. {places}" if places else text)

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

    @_on.register
    def _(self, payload: TrainStep, event: Event) -> None:
        self._numbers.take(payload.rollout_id, payload.metrics, source="step")
        self._vacuous = frozenset(payload.vacuous)
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
        detail = f"{payload.rollouts} rollouts"
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

    def snapshot(self, clock: float, *, lost: str = "") -> RunSnapshot:
        """The state as a frozen snapshot.

        Args:
            clock: Unix time now, for ages.
            lost: Why the run counts as lost; '' when its driver lives or it ended.

        Returns:
            The snapshot, without the viewed rollout.
        """
        return RunSnapshot(
            header=self.header,
            now=self._now(clock, lost),
            first_rollout=self._first,
            figures=figures(self._numbers.first, self._verdicts, self._first),
            series=self._numbers.series(),
            latest=self._numbers.latest(),
            latest_rollouts=self._numbers.rollouts(),
            vacuous=self._vacuous,
            verdicts=verdict_lines(self._verdicts),
            stages=self._stages(lost=lost),
            stages_rollout=self._stages_rollout,
            startup=tuple(self._startup.values()),
            progress=self._progress,
            commands=tuple(self._commands.values()),
            notices=tuple(self._notices),
            stop_conditions=self._conditions,
            failure=self._failure,
            paused=None if lost else self._paused,
        )

    def _now(self, clock: float, lost: str) -> Now:
        liveness, since, detail = self._liveness, self._since, self._detail
        if lost:
            liveness, since, detail = Liveness.LOST, self._newest or None, lost
        running = liveness is Liveness.RUNNING
        ages = liveness in (Liveness.RUNNING, Liveness.STARTING)
        return Now(
            liveness=liveness,
            since=since,
            detail=detail,
            rollout_id=self._rollout,
            stage=self._stage,
            stage_age=coarse_seconds(max(clock - self._stage_wall, 0.0))
            if running and self._stage
            else "",
            data_age=coarse_age(max(clock - self._newest, 0.0))
            if ages and self._newest
            else "",
            weights_version=self._weights,
        )

    def _stages(self, *, lost: str) -> tuple[StageLine, ...]:
        running = self._liveness is Liveness.RUNNING and not lost
        if self._stages_rollout is None or (not self._done and self._rollout < 0):
            return ()
        # Before the first rollout there is only the first weight update.
        first_update = self._stages_rollout < (self._first or 0)
        stages = tuple(Stage) if not first_update else (Stage.UPDATE_WEIGHTS,)
        return tuple(
            stage_line(
                stage,
                done=self._done.get(stage),
                durations=self._durations.get(stage, ()),
                running=running and str(stage) == self._stage,
                slow=self._slow.get(stage, ""),
            )
            for stage in stages
        )
