"""The events of a run: what is appended, one JSON object a line, to ``RUN/events/``.

    {"v": 1, "seq": 12, "attempt": 1, "wall": 1764.25, "mono": 81.5,
     "type": "stage_finished", "rollout_id": 0, "stage": "generate", …}

``seq`` counts over all attempts of a run. ``wall`` is Unix time in seconds, ``mono``
the monotonic clock of the host's current boot in seconds (``attempt_opened`` names the
boot). Numbers that JSON cannot hold are written as 'nan', 'inf' and '-inf'; metrics as
`relax.measure.reduction.encode_metrics` writes them, so Σ and count stand beside every
mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from relax.measure.reduction import Metrics

SCHEMA_VERSION = 1


class Stage(StrEnum):
    """The stages of a rollout, in the order in which they run.

    This is the only spelling: code, events, console and help use these names.
    """

    GENERATE = "generate"
    REWARD = "reward"
    REF_LOG_PROBS = "ref_log_probs"
    LOG_PROBS = "log_probs"
    ADVANTAGES = "advantages"
    TRAIN = "train"
    UPDATE_WEIGHTS = "update_weights"


class Mode(StrEnum):
    """What a run runs (DESIGN of the debug modes)."""

    FULL = "full"
    ROLLOUT_ONLY = "rollout-only"
    TRAIN_ONLY = "train-only"
    FORGE = "forge"


@dataclass(frozen=True, kw_only=True)
class Payload:
    """Base of every event's own fields."""

    type: ClassVar[str]


_AS_METRICS: Mapping[str, str] = {"codec": "metrics"}


@dataclass(frozen=True, kw_only=True)
class AttemptOpened(Payload):
    """First event of every event file: who writes, and the state so far.

    Attributes:
        boot_id: The host's boot, to which ``mono`` belongs.
        state: The controller's state as plain data; None in a run's very first file.
    """

    type: ClassVar[str] = "attempt_opened"
    run_id: str
    host: str
    pid: int
    boot_id: str
    state: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class RunStarted(Payload):
    """The run began: everything needed to know what ran.

    Attributes:
        arguments: ``{name: {"value": …, "origin": …}}``, redacted.
        versions: Package and interpreter versions.
        git: Commit and whether the tree was dirty; empty outside a checkout.
        environment: Allow-listed variables only, never secrets.
        vocab: Name of the vocabulary file in the run folder, when there is one.
        resumed_from: The checkpoint that the attempt goes on from; '' for none.
        nodes: Machines that it runs on, once they are known: ``{name: {"devices":
            [GPU UUID, …], "shares_run_folder": bool, "processes": [name, …]}}``.
    """

    type: ClassVar[str] = "run_started"
    run_id: str
    name: str
    mode: Mode
    num_rollout: int
    start_rollout_id: int = 0
    steps_per_rollout: int = 1
    samples_per_rollout: int = 0
    arguments: Mapping[str, Any] = field(default_factory=dict)
    arguments_digest: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    git: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    layout: Mapping[str, int] = field(default_factory=dict)
    vocab: str = ""
    resumed_from: str = ""
    nodes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StartupProgress(Payload):
    """One part of the run came up, e.g. Ray, the trainer, the engine.

    Attributes:
        what: What is up or being waited for, one phrase.
        done: Whether it is up.
        seconds: Since the driver started.
    """

    type: ClassVar[str] = "startup_progress"
    what: str
    done: bool
    seconds: float


@dataclass(frozen=True, kw_only=True)
class StageStarted(Payload):
    """A stage of a rollout began."""

    type: ClassVar[str] = "stage_started"
    rollout_id: int
    stage: Stage


@dataclass(frozen=True, kw_only=True)
class StageFinished(Payload):
    """A stage of a rollout ended.

    Attributes:
        seconds: Its wall time.
        memory_bytes: Resident memory by process, e.g. ``{"train-0": …}``.
        metrics: What the stage measured.
        passes: Which pass each column came from, ``{"log_probs": "actor#2"}``.
        record: Stage file written, relative to the run folder; '' if none.
    """

    type: ClassVar[str] = "stage_finished"
    rollout_id: int
    stage: Stage
    seconds: float
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    metrics: Metrics = field(default_factory=dict, metadata=_AS_METRICS)
    passes: Mapping[str, str] = field(default_factory=dict)
    record: str = ""


@dataclass(frozen=True, kw_only=True)
class StageSlow(Payload):
    """A stage takes longer than three times its median; nothing was done about it.

    Attributes:
        seconds: How long the stage has been running.
        median_seconds: Its median so far.
        places: ``{rank: innermost line of Python}``, when the ranks could be asked.
    """

    type: ClassVar[str] = "stage_slow"
    rollout_id: int
    stage: Stage
    seconds: float
    median_seconds: float
    places: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RolloutProgress(Payload):
    """How far generation is.

    Attributes:
        done: Samples finished, their reward included.
        running: Samples being generated or scored.
        aborted: Samples aborted so far.
        tokens: Response tokens of finished samples.
        longest: Response tokens of the longest sample so far.
        total: Samples the rollout will have.
    """

    type: ClassVar[str] = "rollout_progress"
    rollout_id: int
    done: int
    running: int
    aborted: int
    tokens: int
    longest: int
    total: int


@dataclass(frozen=True, kw_only=True)
class RolloutFinished(Payload):
    """All stages of a rollout are done.

    Attributes:
        metrics: The rollout's metrics (``rollout/…``, ``logprob_ref/…``, ``perf/…``).
        weights_version: Optimizer steps since the start, that its responses ran on.
    """

    type: ClassVar[str] = "rollout_finished"
    rollout_id: int
    weights_version: int
    metrics: Metrics = field(default_factory=dict, metadata=_AS_METRICS)


@dataclass(frozen=True, kw_only=True)
class TrainStep(Payload):
    """One optimizer step (or a skipped one).

    Attributes:
        step: ``rollout_id * steps_per_rollout + step_id``, as upstream counts.
        metrics: ``train/…``.
        vacuous: Keys that are zero by construction in this step.
        skipped: The optimizer refused the step (non-finite gradients).
    """

    type: ClassVar[str] = "train_step"
    rollout_id: int
    step_id: int
    step: int
    metrics: Metrics = field(default_factory=dict, metadata=_AS_METRICS)
    vacuous: tuple[str, ...] = ()
    skipped: bool = False


@dataclass(frozen=True, kw_only=True)
class WeightsUpdated(Payload):
    """The engine has the trainer's weights.

    Attributes:
        rollout_id: The rollout after which it happened; -1 before rollout 0.
        version: Optimizer steps since the start.
        fingerprint: Over names, dtypes, shapes and bytes as the trainer sent them.
        engine_fingerprint: The same as the engine holds them; '' when not asked.
    """

    type: ClassVar[str] = "weights_updated"
    rollout_id: int
    version: int
    fingerprint: str
    engine_fingerprint: str = ""
    tensors: int = 0
    num_bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class EngineLost(Payload):
    """The rollout engine ended or stalled; the run waits before the stage it was in.

    Attributes:
        what: Which part, by what, and what its log says.
        log: Its log; '' when it has none.
        finished: Samples that were complete then; they are generated again too.
        total: Samples that the rollout was to have; 0 when nothing was generated.
    """

    type: ClassVar[str] = "engine_lost"
    rollout_id: int
    stage: Stage
    what: str
    log: str = ""
    finished: int = 0
    total: int = 0


@dataclass(frozen=True, kw_only=True)
class DumpWritten(Payload):
    """A dump file is complete."""

    type: ClassVar[str] = "dump_written"
    rollout_id: int
    kind: str
    path: str
    num_bytes: int


@dataclass(frozen=True, kw_only=True)
class DumpFailed(Payload):
    """A dump could not be written; nothing half written is left, and the run goes on.

    Attributes:
        what: The error in one sentence.
        path: Where it was to go.
    """

    type: ClassVar[str] = "dump_failed"
    rollout_id: int
    what: str
    path: str


@dataclass(frozen=True, kw_only=True)
class VerdictGiven(Payload):
    """A check of the guide answered (`relax.triage.verdict.Verdict.to_json`)."""

    type: ClassVar[str] = "verdict"
    rollout_id: int
    stage: Stage
    verdict: Mapping[str, Any]


class CommandKind(StrEnum):
    """Commands of a run. The first block acts at safe points, the second at once."""

    PAUSE = "pause"
    CONTINUE = "continue"
    STEP_STAGE = "step-stage"
    STEP_ROLLOUT = "step-rollout"
    SET_STOPS = "set-stops"
    WITHDRAW = "withdraw"
    DUMP = "dump"
    REPLAY = "replay"
    MODE = "mode"
    RESTART_ENGINE = "restart-engine"
    VERIFY = "verify"

    ABORT_GENERATION = "abort-generation"
    STOP = "stop"
    KILL = "kill"


class CommandPhase(StrEnum):
    """How far a command is."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    DONE = "done"
    WITHDRAWN = "withdrawn"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Commanded(Payload):
    """A command was accepted, refused, carried out, withdrawn, or went wrong.

    Attributes:
        command_id: The request's own id.
        by: Who asked, e.g. ``alice@login1:4242``.
        reason: Why it was refused or failed, or what was done.
    """

    type: ClassVar[str] = "command"
    command_id: str
    kind: CommandKind
    phase: CommandPhase
    by: str
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Paused(Payload):
    """The run waits at a safe point.

    Attributes:
        rollout_id: The rollout whose stage comes next.
        before: The stage that comes next.
        after: The stage that ended last; None at the very start.
        why: ``command``, ``step``, ``walk``, ``start`` or the stop condition's text.
        by: Who asked; '' when nobody did.
        excursion: Its name, e.g. ``x2``; '' in the run itself.
    """

    type: ClassVar[str] = "paused"
    rollout_id: int
    before: Stage
    after: Stage | None = None
    why: str = ""
    by: str = ""
    excursion: str = ""


@dataclass(frozen=True, kw_only=True)
class Continued(Payload):
    """The run goes on from a safe point."""

    type: ClassVar[str] = "continued"
    rollout_id: int
    by: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class StopConditionsSet(Payload):
    """The stop conditions now in force, as their texts."""

    type: ClassVar[str] = "stop_conditions"
    conditions: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ExcursionStarted(Payload):
    """The run's state was marked, and another mode is on.

    Attributes:
        name: ``x1`` for the first of the attempt; its steps are ``x1.0``, ``x1.1`` …
        mark_bytes: What the mark takes on the hosts.
        memory_bytes: Resident memory by process.
    """

    type: ClassVar[str] = "excursion_started"
    name: str
    mode: Mode
    rollout_id: int
    by: str
    mark_bytes: int
    seconds: float
    memory_bytes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ExcursionEnded(Payload):
    """The run is back where it was, or goes on from what the excursion made.

    Attributes:
        kept: The excursion's weights are the run's now.
        changed: Tensors that are not as they were marked; any is a defect. Empty when
            the excursion was kept.
        tensors: How many were looked at.
        memory_bytes: Resident memory by process.
    """

    type: ClassVar[str] = "excursion_ended"
    name: str
    mode: Mode
    kept: bool
    by: str
    seconds: float
    changed: tuple[str, ...] = ()
    tensors: int = 0
    memory_bytes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AsideEvent(Payload):
    """What happened in an excursion or a replay; it is no part of the run's curves.

    Attributes:
        name: The step, e.g. ``x1.0``.
        event: An event's own fields, and its ``type``
            (`relax.events.encoding.of_aside`).
    """

    type: ClassVar[str] = "aside"
    name: str
    event: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ReplayFinished(Payload):
    """Recorded samples were replayed.

    Attributes:
        name: Its record is under this name, e.g. ``x3.0``.
        kind: ``probe``, ``reward``, ``train`` or ``forge``.
        source: The dump, or the kept rollout.
        weights_version: Of the weights that were used; -1 when none were.
        weights: ``record`` when they are those of the source, else ``now``.
        comparisons: `relax.controller.comparison.Comparison`, as plain data.
        notes: What else a person should know, one sentence each.
        metrics: What was measured.
        changed: Tensors that are not as before; any is a defect.
        tensors: How many were looked at.
    """

    type: ClassVar[str] = "replay_finished"
    name: str
    kind: str
    source: str
    rollout_id: int
    by: str
    samples: int
    weights_version: int
    weights: str
    seconds: float
    comparisons: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    metrics: Metrics = field(default_factory=dict, metadata=_AS_METRICS)
    changed: tuple[str, ...] = ()
    tensors: int = 0
    record: str = ""

    @property
    def equal(self) -> bool:
        """Whether all was as it had to be."""
        return not self.changed and all(c["equal"] for c in self.comparisons)


@dataclass(frozen=True, kw_only=True)
class NotableLine(Payload):
    """A log line worth a look: file relative to the run folder, byte offset, text."""

    type: ClassVar[str] = "notable_line"
    file: str
    offset: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Heartbeat(Payload):
    """The driver lives; at most one in five seconds while nothing else is written."""

    type: ClassVar[str] = "heartbeat"
    dropped: int = 0


@dataclass(frozen=True, kw_only=True)
class RunFinished(Payload):
    """The run ended as wanted.

    Attributes:
        why: ``done`` (all rollouts) or ``stopped`` (a command or a signal).
        killed: Processes that had to be killed, e.g. ``train-0 (pid 4711)``.
    """

    type: ClassVar[str] = "run_finished"
    why: str
    rollouts: int
    killed: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunFailed(Payload):
    """The run ended by an error.

    Attributes:
        what: The error in one sentence.
        code: `relax.errors.RelaxError.code`.
        rank: The first failing worker in time, e.g. ``train-1``; '' for the driver.
        stage: Where it happened; None outside the stages.
        lines: That worker's own last lines.
    """

    type: ClassVar[str] = "run_failed"
    what: str
    code: str
    rank: str = ""
    rollout_id: int = -1
    stage: Stage | None = None
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Unknown(Payload):
    """An event of a type that this version does not know; kept, never guessed."""

    type: ClassVar[str] = "unknown"
    name: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the event log.

    Attributes:
        seq: Number over all attempts, from 0, without gaps.
        attempt: From 1.
        wall: Unix time, seconds.
        mono: Monotonic clock of the host's boot, seconds.
        payload: What happened.
    """

    seq: int
    attempt: int
    wall: float
    mono: float
    payload: Payload


PAYLOADS: Mapping[str, type[Payload]] = {
    kind.type: kind
    for kind in (
        AttemptOpened, RunStarted, StartupProgress, StageStarted, StageFinished,
        StageSlow, RolloutProgress, RolloutFinished, TrainStep, WeightsUpdated,
        DumpWritten, VerdictGiven, Commanded, Paused, Continued, StopConditionsSet,
        NotableLine, Heartbeat, RunFinished, RunFailed, ExcursionStarted,
        ExcursionEnded, AsideEvent, ReplayFinished, DumpFailed, EngineLost,
    )
}  # fmt: skip
