"""What the loop needs done, without saying how: the seam between loop and stages."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Protocol

from relax.control.protocol import Stacks
from relax.controller.state import RunStage
from relax.errors import RelaxError
from relax.measure.reduction import Metrics


class StageHeldError(Exception):
    """A stage could not begin for want of something that a person can bring.

    The run waits before that stage, and ``continue`` tries again.

    Args:
        cause: What is missing.
    """

    def __init__(self, cause: RelaxError) -> None:
        super().__init__(str(cause))
        self.cause = cause


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageResult:
    """What a stage gives back to the loop.

    Attributes:
        metrics: What it measured; stop conditions look at these.
        passes: Which forward pass each column came from.
        record: The stage file written, relative to the run folder.
        verdicts: ``(rule id, status)`` given at this safe point.
    """

    metrics: Metrics = dataclasses.field(default_factory=dict)
    passes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    record: str = ""
    verdicts: tuple[tuple[str, str], ...] = ()


class Hands(Protocol):
    """What carries out stages: `relax.controller.stages.Stages`, or a scripted one."""

    async def run(self, order: RunStage, *, judge: bool) -> StageResult:
        """Runs one stage; ``judge`` asks to wait for the verdicts due after it."""
        ...

    async def abort_generation(self) -> None:
        """Aborts what is being generated; partial samples are kept."""
        ...

    async def stacks(self) -> Stacks:
        """Python stacks of all processes."""
        ...

    def processes(self) -> Mapping[str, int]:
        """``{name: pid}`` of the run's processes."""
        ...

    def memory_bytes(self) -> Mapping[str, int]:
        """Resident memory by process."""
        ...
