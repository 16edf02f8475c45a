"""What a training worker is asked to probe, and what it found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relax.backends.training import RolloutInput, StepReport
from relax.measure.reduction import Metrics


@dataclass(frozen=True, kw_only=True)
class ProbeRequest:
    """One replica's samples to be scored again, and on which weights.

    Attributes:
        rollout: The samples, as for a train step.
        weights: Version of the weights; None for those of now.
        repeat: How often; 2 or more tell whether equal passes give equal bits.
    """

    rollout: RolloutInput
    weights: int | None
    repeat: int = 1


@dataclass(frozen=True, kw_only=True)
class ProbeReport:
    """What the passes over the samples gave; the worker is as it was before.

    Attributes:
        weights_version: Of the weights that were used.
        columns: As of a train dump; none on a rank that repeats another's.
        steps: Loss and gradients of each optimizer step, none of which was made.
        metrics: Of the log-prob passes and the advantages.
        unequal_repeats: By column: values that a later pass gave differently.
        changed: Tensors that are not as before. Any is a defect.
        tensors: How many were looked at.
        seconds: How long it took.
    """

    weights_version: int
    columns: Mapping[str, Any]
    steps: Sequence[StepReport]
    metrics: Metrics
    unequal_repeats: Mapping[str, int]
    changed: tuple[str, ...]
    tensors: int
    seconds: float
