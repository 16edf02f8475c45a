"""The modes of a run: which sides are started, and which stages a rollout has.

full          generate → reward → [ref] → log-probs → advantages → train → update
forge         the same, with a dump in the place of what would be generated
rollout-only  generate → reward                          no trainer, no weight update
train-only    generate → reward → … → train              no engine: dumps are loaded
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from relax.arguments import Arguments
from relax.events.types import Mode, Stage

_GENERATING: Final = (Stage.GENERATE, Stage.REWARD)
_TRAINING: Final = (
    Stage.REF_LOG_PROBS,
    Stage.LOG_PROBS,
    Stage.ADVANTAGES,
    Stage.TRAIN,
)


@dataclass(frozen=True, kw_only=True)
class Sides:
    """Which sides of a run are started.

    Attributes:
        rollout: Engines, reward workers, data and the rollout function.
        training: The trainer.
    """

    rollout: bool
    training: bool


@dataclass(frozen=True, kw_only=True)
class StagePlan:
    """What the stages of a run are to know of it.

    Attributes:
        stages: Of one rollout, in order.
        can_wait: Whether somebody can reach the run while it waits at a safe point.
    """

    mode: Mode
    stages: tuple[Stage, ...]
    can_wait: bool


def mode_of(arguments: Arguments) -> Mode:
    """The mode that the flags ask for."""
    debug = arguments.debug
    if debug.debug_rollout_only:
        return Mode.ROLLOUT_ONLY
    if debug.debug_train_only:
        return Mode.TRAIN_ONLY
    if debug.load_forge_rollout_data is not None:
        return Mode.FORGE
    return Mode.FULL


def sides_of(mode: Mode) -> Sides:
    """What a mode starts; the other side is really not there."""
    return Sides(
        rollout=mode is not Mode.TRAIN_ONLY, training=mode is not Mode.ROLLOUT_ONLY
    )


def stages_of(mode: Mode, *, has_reference: bool) -> tuple[Stage, ...]:
    """The stages of a rollout, in order.

    Args:
        mode: Of the run.
        has_reference: Whether there is a reference model to score with.
    """
    sides = sides_of(mode)
    stages: tuple[Stage, ...] = _GENERATING
    if sides.training:
        stages += tuple(
            stage
            for stage in _TRAINING
            if stage is not Stage.REF_LOG_PROBS or has_reference
        )
    if sides.training and sides.rollout:
        stages += (Stage.UPDATE_WEIGHTS,)
    return stages


def first_place(mode: Mode, *, first_rollout: int) -> tuple[int, Stage]:
    """Where a run begins.

    With both sides there, one weight update comes before the first rollout, so that its
    responses already prove the conversion; it counts to the rollout before.
    """
    sides = sides_of(mode)
    if sides.training and sides.rollout:
        return first_rollout - 1, Stage.UPDATE_WEIGHTS
    return first_rollout, Stage.GENERATE
