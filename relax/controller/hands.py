"""What the loop needs done, without saying how: the seam between loop and stages."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Protocol

from relax.control.protocol import Stacks
from relax.controller.state import CarryOut, RunStage
from relax.errors import RelaxError
from relax.events.types import StageFinished
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
        metrics: What it measured.
        passes: Which forward pass each column came from.
        record: The stage file, relative to the run folder, once it is written; None
            when there is none.
        verdicts: ``(rule id, status)`` given at this safe point.
        also: What else stop conditions look at: how long it took, and optimizer steps
            after the first.
    """

    metrics: Metrics = dataclasses.field(default_factory=dict)
    passes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    record: Future[str] | None = None
    verdicts: tuple[tuple[str, str], ...] = ()
    also: tuple[Metrics, ...] = ()

    def with_record(self, finished: StageFinished) -> StageFinished:
        """Waits for the stage's record and names it; one the disk refused is not."""
        if self.record is None or self.record.exception() is not None:
            return finished
        return dataclasses.replace(finished, record=self.record.result())


class Hands(Protocol):
    """What carries out stages: `relax.controller.stages.Stages`, or a scripted one."""

    async def run(self, order: RunStage, *, judge: bool) -> StageResult:
        """Runs one stage; ``judge`` asks to wait for the verdicts due after it."""
        ...

    def evaluates(self, order: RunStage) -> bool:
        """Whether an evaluation falls into a stage; then it takes longer."""
        ...

    async def carry_out(self, order: CarryOut) -> str:
        """Carries an order out at a safe point.

        Returns:
            What was done, in a few words.

        Raises:
            RelaxError: It could not be done; nothing has changed.
        """
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

    def cpu_seconds(self) -> Mapping[str, float]:
        """Processor time used by each process; as of `stacks` on other nodes."""
        ...
