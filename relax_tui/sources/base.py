"""Frozen snapshots of a run: everything that panes draw, and nothing else.

One collector owns the state and hands these over; panes never share mutable state. Two
snapshots that are equal draw the same screen, so an idle run sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from relax.triage.verdict import Verdict
from relax_tui.sources.again import Again


class Liveness(StrEnum):
    """What a run is doing, as far as its folder tells."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    KILLING = "killing"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    LOST = "lost"
    QUIET = "quiet"
    """A log of another engine that has not grown for some time; it may be over."""

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self in _ENDED

    @property
    def ending(self) -> bool:
        """Whether it was told to end, and has not yet."""
        return self in (Liveness.STOPPING, Liveness.KILLING)


_ENDED = frozenset(
    {Liveness.FINISHED, Liveness.STOPPED, Liveness.FAILED, Liveness.LOST}
)


@dataclass(frozen=True, kw_only=True)
class Header:
    """Which run this is.

    Attributes:
        read_only: Why commands are not possible; '' when they are.
        log: The log to show when it is not one of the run folder's; ''.
    """

    name: str = ""
    run_id: str = ""
    run_dir: str = ""
    host: str = ""
    mode: str = "full"
    attempt: int = 1
    num_rollout: int = 0
    start_rollout_id: int = 0
    steps_per_rollout: int = 1
    samples_per_rollout: int = 0
    read_only: str = ""
    log: str = ""


@dataclass(frozen=True, kw_only=True)
class Now:
    """What happens now.

    Attributes:
        since: Unix time at which this state began; None when unknown.
        detail: Why, as one phrase (who paused it, the error, the last sign of life).
        rollout_id: Rollout that runs, or whose stage comes next; -1 before the first.
        stage: Stage that runs, or comes next when paused; '' before the first.
        stage_age: How long the stage has been running, coarsely; '' if none runs.
        data_age: How old the newest event is, in coarse steps; '' when nothing ages.
    """

    liveness: Liveness = Liveness.STARTING
    since: float | None = None
    detail: str = ""
    rollout_id: int = -1
    stage: str = ""
    stage_age: str = ""
    data_age: str = ""
    weights_version: int | None = None


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A number of the first rollout that stays on the screen for good.

    Attributes:
        text: The number as shown; '' when it is not there yet.
        status: Verdict status of the check it belongs to; '' when none was given.
    """

    label: str
    text: str = ""
    status: str = ""


@dataclass(frozen=True, kw_only=True)
class Series:
    """A metric over rollouts.

    Attributes:
        points: Value a rollout, oldest first; None where the rollout has none.
    """

    key: str
    points: tuple[float | None, ...] = ()

    @property
    def last(self) -> float | None:
        """The newest value that is there."""
        return next((p for p in reversed(self.points) if p is not None), None)


@dataclass(frozen=True, kw_only=True)
class VerdictLine:
    """What a rule said over the whole run, in one line.

    Attributes:
        verdict: The first one that is not healthy, else the newest.
        times: How often the rule was not healthy.
        newest: The rule's newest verdict.
    """

    verdict: Verdict
    times: int
    newest: Verdict


class StageState(StrEnum):
    """Where a stage of the shown rollout is."""

    TO_COME = "to come"
    RUNNING = "running"
    DONE = "done"


@dataclass(frozen=True, kw_only=True)
class StageLine:
    """A stage of the rollout that runs.

    Attributes:
        seconds: Wall time; None until it is done.
        median_seconds: Median of this stage over the run; None without one.
        memory_bytes: Resident memory of the run's processes when it ended.
        slow: Set when it takes longer than three times its median.
    """

    stage: str
    state: StageState
    seconds: float | None = None
    median_seconds: float | None = None
    memory_bytes: int | None = None
    slow: str = ""


@dataclass(frozen=True, kw_only=True)
class StartupLine:
    """A part of the run that comes up."""

    what: str
    done: bool
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far generation is."""

    rollout_id: int
    done: int
    running: int
    aborted: int
    tokens: int
    longest: int
    total: int


@dataclass(frozen=True, kw_only=True)
class CommandLine:
    """A command and what became of it.

    Attributes:
        phase: ``accepted``, ``refused``, ``done`` or ``withdrawn``.
    """

    id: str
    kind: str
    phase: str
    by: str
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Something worth a look: its time, a word, and what."""

    wall: float
    word: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Failure:
    """How the run failed."""

    what: str
    code: str
    rank: str = ""
    rollout_id: int = -1
    stage: str = ""
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PausedAt:
    """The safe point a run waits at."""

    rollout_id: int
    before: str
    after: str = ""
    why: str = ""
    by: str = ""
    since: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SampleRow:
    """The scalars of one sample; None means absent, never zero.

    Attributes:
        flags: Short words: LOOP, GARB, TRUNC, FAIL, NONF, EMPTY.
    """

    row: int
    index: int
    group: int | None
    status: str
    reward: float | None
    length: int
    prompt: str
    response: str
    label: str = ""
    total_length: int = 0
    masked: int | None = None
    failure: str = ""
    stop_reason: str = ""
    weight_versions: tuple[str, ...] = ()
    log_prob_mean: float | None = None
    entropy_mean: float | None = None
    normalized_reward: float | None = None
    ref_unequal: int | None = None
    ref_max_abs: float | None = None
    ref_max_position: int | None = None
    rollout_mean_abs: float | None = None
    rollout_max_abs: float | None = None
    rollout_max_position: int | None = None
    nonfinite: int | None = None
    tokens_kept: bool = False
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MicroBatchRow:
    """Where a sample was in training."""

    index: int
    step_id: int
    rank: int
    micro_batch: int
    place: int
    padded_length: int


@dataclass(frozen=True, kw_only=True)
class SampleTokens:
    """The tokens of one sample; every column is aligned to the response.

    Attributes:
        ids: Token ids.
        texts: Each token's text, made visible when drawn.
        raw: Each token's bytes; None where the vocabulary lacks it.
        mask: loss_mask; None when absent.
        columns: Per-token columns that are there.
        absent: ``{column: reason}`` of those that are not.
    """

    ids: tuple[int, ...]
    texts: tuple[str, ...]
    raw: tuple[bytes | None, ...] = ()
    special: tuple[bool, ...] = ()
    mask: tuple[int, ...] | None = None
    columns: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)


class TokenStore(Protocol):
    """Gives the tokens of a sample when a person looks at it; immutable behind."""

    def sample(self, row: int) -> SampleTokens | None:
        """The tokens of the sample in ``row``; None when they are not carried."""


@dataclass(frozen=True, kw_only=True)
class RolloutView:
    """The samples of one rollout, as far as they are recorded.

    Attributes:
        version: Grows with each read, so that equal versions are equal views.
        stages: Stage files that are there.
        complete: Whether generation is over.
        note: Why something is missing, as one sentence; '' when nothing is.
        damaged: Files that cannot be read, each with what is missing because of it.
    """

    attempt: int
    rollout_id: int
    version: int
    stages: tuple[str, ...] = ()
    complete: bool = False
    note: str = ""
    damaged: tuple[str, ...] = ()
    weights_version: int | None = None
    passes: Mapping[str, str] = field(default_factory=dict)
    rows: tuple[SampleRow, ...] = field(default=(), compare=False)
    micro_batches: tuple[MicroBatchRow, ...] = field(default=(), compare=False)
    tokens: TokenStore | None = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True)
class RunSnapshot:
    """A run at one moment.

    Attributes:
        stages_rollout: The rollout whose stages these are.
        latest: Newest value of every metric, by key.
        latest_rollouts: Oldest and newest rollout those values come from.
        rollouts: ``(attempt, rollout_id)`` of all recorded rollouts, oldest first.
        viewed: The rollout that is looked at; None until one is recorded.
        following: Whether the view follows the newest rollout. When it does not,
            numbers, stages and verdicts are those of the viewed one alone.
        again: How a run that was lost is started again; None for another.
        unread: What of the event log is missing here, one phrase each.
    """

    header: Header = Header()
    now: Now = Now()
    first_rollout: int | None = None
    figures: tuple[Figure, ...] = ()
    series: Mapping[str, Series] = field(default_factory=dict)
    latest: Mapping[str, float] = field(default_factory=dict)
    latest_rollouts: tuple[int, int] | None = None
    vacuous: frozenset[str] = frozenset()
    verdicts: tuple[VerdictLine, ...] = ()
    stages: tuple[StageLine, ...] = ()
    stages_rollout: int | None = None
    startup: tuple[StartupLine, ...] = ()
    progress: Progress | None = None
    commands: tuple[CommandLine, ...] = ()
    notices: tuple[Notice, ...] = ()
    stop_conditions: tuple[str, ...] = ()
    failure: Failure | None = None
    paused: PausedAt | None = None
    rollouts: tuple[tuple[int, int], ...] = ()
    viewed: RolloutView | None = None
    following: bool = True
    again: Again | None = None
    unread: tuple[str, ...] = ()


Post = Callable[[RunSnapshot], None]


class RunSource(Protocol):
    """Where snapshots come from: a run folder, a foreign log, or a script."""

    run_dir: Path

    def start(self, post: Post) -> None:
        """Begins to post snapshots, from a thread of its own; returns at once."""

    def stop(self) -> None:
        """Ends posting; returns when the thread has ended or after two seconds."""

    def view(self, rollout: tuple[int, int] | None) -> None:
        """Asks for another rollout to be looked at; None follows the newest."""
