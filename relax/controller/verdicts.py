"""Which rules are due after a stage, and what they are given."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relax.arguments import Arguments
from relax.controller.judge import Judge
from relax.controller.rollout import RolloutInHand
from relax.controller.runlog import RunLog
from relax.controller.state import RunStage
from relax.errors import WorkerError
from relax.events.append import EventSink
from relax.events.types import Stage, VerdictGiven
from relax.measure.reduction import merge_metrics
from relax.triage.evidence import RolloutEvidence
from relax.triage.rule import Stage as DueStage

SETTLE_SECONDS = 10.0

# After which stage the rules of a triage stage have all they need.
_DUE: Mapping[Stage, DueStage] = {
    Stage.GENERATE: "generate",
    Stage.ADVANTAGES: "log_probs",
    Stage.TRAIN: "train",
    Stage.UPDATE_WEIGHTS: "update_weights",
}

Given = tuple[tuple[str, str], ...]


class Verdicts:
    """Asks the judge after each stage and makes events of what it says.

    Args:
        judge: Runs the rules.
        events: The event log.
        log: The run's log.
        arguments: Of the run.
        vocab_size: Entries of the vocabulary.
        run: The run folder as a command line would name it.
    """

    def __init__(
        self,
        judge: Judge,
        *,
        events: EventSink,
        log: RunLog,
        arguments: Arguments,
        vocab_size: int,
        run: str,
    ) -> None:
        self._judge = judge
        self._events = events
        self._log = log
        self._arguments = arguments
        self._vocab_size = vocab_size
        self._run = run
        self._asked: set[asyncio.Task[Given]] = set()

    @property
    def run(self) -> str:
        """The run folder as a command line would name it."""
        return self._run

    def told_to(self, events: EventSink) -> Verdicts:
        """The same judge, whose verdicts are told elsewhere."""
        return Verdicts(
            self._judge,
            events=events,
            log=self._log,
            arguments=self._arguments,
            vocab_size=self._vocab_size,
            run=self._run,
        )

    async def after(
        self, order: RunStage, rollout: RolloutInHand, *, wait: bool
    ) -> Given:
        """Asks for the verdicts due after a stage.

        Args:
            order: The stage that ended.
            rollout: The rollout in hand.
            wait: Return only when they are there; else they come as events later.

        Returns:
            ``(rule id, status)`` of each, when waited for.
        """
        due = _DUE.get(order.stage)
        if due is None or not rollout.observed:
            return ()
        evidence = self._evidence(order.rollout_id, rollout)
        task = asyncio.create_task(self._give(evidence, due, order))
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)
        return await task if wait else ()

    async def settle(self) -> None:
        """Waits for verdicts that are still being given."""
        if self._asked:
            await asyncio.wait(self._asked, timeout=SETTLE_SECONDS)

    async def _give(
        self, evidence: RolloutEvidence, due: DueStage, order: RunStage
    ) -> Given:
        try:
            verdicts = await self._judge.verdicts(evidence, stage=due)
        except WorkerError as error:
            # Triage looks on; a run never fails because nobody could judge it.
            self._log.warning(str(error))
            return ()
        for verdict in verdicts:
            self._events.append(
                VerdictGiven(
                    rollout_id=order.rollout_id,
                    stage=order.stage,
                    verdict=verdict.to_json(),
                )
            )
        return tuple((verdict.rule, str(verdict.status)) for verdict in verdicts)

    def _evidence(self, rollout_id: int, rollout: RolloutInHand) -> RolloutEvidence:
        carried = sorted(rollout.kept)
        return RolloutEvidence(
            rollout_id=rollout_id,
            steps_per_rollout=self._arguments.batch.num_steps_per_rollout,
            metrics=merge_metrics(rollout.metrics),
            columns={
                name: [column[row] for row in carried]
                for name, column in rollout.columns.items()
            },
            vocab_size=self._vocab_size,
            arguments=evidence_arguments(self._arguments),
            log_probs_recomputed=True,
            precision=self._arguments.megatron.precision,
            run=self._run,
        )


def evidence_arguments(arguments: Arguments) -> dict[str, Any]:
    """The arguments that rules know about, by flag name with underscores."""
    groups = (
        arguments.algorithm,
        arguments.batch,
        arguments.checkpoint,
        arguments.rollout,
        arguments.data,
    )
    return {
        spec.name: _plain(getattr(group, spec.name))
        for group in groups
        for spec in dataclasses.fields(group)
    }


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
