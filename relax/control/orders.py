"""What a person can order beyond going and stopping: other modes, and replays.

Plain data without a message around it: the protocol carries it, the controller keeps it
while it waits for a safe point, the event log repeats it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from relax.events.types import Mode


class ReplayKind(StrEnum):
    """What is done with recorded samples."""

    PROBE = "probe"
    REWARD = "reward"
    TRAIN = "train"
    FORGE = "forge"


class ReplayWeights(StrEnum):
    """Which weights a probe runs on."""

    AUTO = "auto"
    RECORD = "record"
    NOW = "now"


@dataclass(frozen=True, kw_only=True)
class DumpOrder:
    """Dump a rollout whose columns are kept.

    Attributes:
        rollout_id: Which; None for the newest.
        folder: Where to; '' for the run's own.
        with_weights: Also the weights that its samples were made on.
    """

    rollout_id: int | None = None
    folder: str = ""
    with_weights: bool = False


@dataclass(frozen=True, kw_only=True)
class ReplayOrder:
    """One replay.

    Attributes:
        kind: ``probe``: all passes of a train stage, no step. ``reward``: scored again.
            ``train``, ``forge``: an excursion that takes its samples from the source.
        source: A dump; '' for a rollout of this run that is kept.
        rollout_id: Which kept rollout; None for the newest.
        weights: ``record``: those that the samples were recorded on, or it is refused;
            ``now``: the trainer's; ``auto``: the first if they are there, else these.
        repeat: Rounds of a probe.
        samples: Only these, by sample index; none for all. Each is computed within its
            recorded micro-batch.
        alone: Compute each chosen sample by itself: other padding, other last digits.
        reward: ``--rm-type`` or ``--custom-rm-path`` to score with; '' for the run's.
    """

    kind: ReplayKind = ReplayKind.PROBE
    source: str = ""
    rollout_id: int | None = None
    weights: ReplayWeights = ReplayWeights.AUTO
    repeat: int = 1
    samples: tuple[int, ...] = ()
    alone: bool = False
    reward: str = ""


@dataclass(frozen=True, kw_only=True)
class ModeOrder:
    """Another mode, or the way back.

    Attributes:
        mode: Which; the mode that the run was started in ends an excursion.
        keep: On the way back from train-only: the trained weights become the run's.
        source: Dumps to train on or to forge with, as ``--load-debug-rollout-data``;
            '' for the newest kept rollout.
    """

    mode: Mode
    keep: bool = False
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class RestartOrder:
    """Start the rollout engines again that are gone, or all of them when none is.

    The trainer's weights are brought to them; without a trainer they have those of the
    checkpoint.
    """


@dataclass(frozen=True, kw_only=True)
class VerifyOrder:
    """Compare the weights on disk, in the trainer and in the engines, bit for bit."""


Order: TypeAlias = DumpOrder | ReplayOrder | ModeOrder | RestartOrder | VerifyOrder
