"""Writes the step records of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relax.controller.rollout import RolloutInHand
from relax.records.schema import RecordMetadata, StageFile
from relax.records.write import LiveWriter, rollout_folder, write_stage


@dataclass(frozen=True, kw_only=True)
class Recorder:
    """What every record of a run says of itself, and where it goes.

    Attributes:
        first_rollout: The first rollout of this attempt.
        vocab: Name of the vocabulary file, relative to the run folder.
        absent: ``{column: reason}`` for columns that the run does not have.
    """

    run_dir: Path
    run_id: str
    attempt: int
    first_rollout: int
    arguments_digest: str
    layout: Mapping[str, int]
    num_ranks: int
    vocab: str
    absent: Mapping[str, str]

    async def write(
        self,
        stage_file: StageFile,
        rows: Mapping[str, Sequence[Any]],
        rollout: RolloutInHand,
    ) -> str:
        """Writes a stage file, off the event loop.

        Returns:
            Its path relative to the run folder.

        Raises:
            RecordError: The rows do not fit, or the stage is recorded already.
        """
        path = await asyncio.to_thread(
            write_stage,
            self._folder(rollout),
            stage_file,
            rows,
            self._metadata(rollout),
        )
        return str(path.relative_to(self.run_dir))

    def live(self, rollout: RolloutInHand) -> LiveWriter:
        """The live stream of a rollout that is generating."""
        return LiveWriter(self._folder(rollout), self._metadata(rollout))

    def _folder(self, rollout: RolloutInHand) -> Path:
        return rollout_folder(
            self.run_dir, attempt=self.attempt, rollout_id=rollout.rollout_id
        )

    def _metadata(self, rollout: RolloutInHand) -> RecordMetadata:
        return RecordMetadata(
            run_id=self.run_id,
            attempt=self.attempt,
            rollout_id=rollout.rollout_id,
            weights_version=rollout.weights_version,
            weights_fingerprint=rollout.fingerprint,
            arguments_digest=self.arguments_digest,
            layout=self.layout,
            coverage={"ranks": self.num_ranks},
            vocab=self.vocab,
            passes=rollout.passes,
            absent=self.absent,
        )
