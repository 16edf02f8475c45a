"""Writes the step records of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relax.controller.rollout import RolloutInHand
from relax.controller.runlog import RunLog
from relax.records.schema import RecordMetadata, StageFile
from relax.records.write import (
    LiveWriter,
    prepare_stage,
    rollout_folder,
    write_table,
)


def _one_thread() -> Executor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="records")


@dataclass(frozen=True, kw_only=True)
class Recorder:
    """What every record of a run says of itself, and where it goes.

    Attributes:
        first_rollout: The first rollout of this attempt.
        vocab: Name of the vocabulary file, relative to the run folder.
        absent: ``{column: reason}`` for columns that the run does not have.
        aside: Name of the excursion or replay, e.g. ``x2``; '' for the run itself.
        source: ``live``, ``excursion`` or ``replay``.
        disk: The thread that writes and syncs, one file after the other.
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
    aside: str = ""
    source: str = "live"
    disk: Executor = field(default_factory=_one_thread, repr=False)

    def step_name(self, rollout_id: int) -> int | str:
        """What a rollout is called in ``steps/``: 37, or ``x2.0``."""
        if not self.aside:
            return rollout_id
        return f"{self.aside}.{rollout_id - self.first_rollout}"

    async def write(
        self,
        stage_file: StageFile,
        rows: Mapping[str, Sequence[Any]],
        rollout: RolloutInHand,
    ) -> str:
        """Writes a stage file, off the event loop; see `begin`."""
        return await asyncio.wrap_future(self.begin(stage_file, rows, rollout))

    def begin(
        self,
        stage_file: StageFile,
        rows: Mapping[str, Sequence[Any]],
        rollout: RolloutInHand,
    ) -> Future[str]:
        """Begins to write a stage file: the next stage need not wait for the disk.

        Returns:
            Its path relative to the run folder, once it is there; or an OSError.

        Raises:
            RecordError: The rows do not fit, or the stage is recorded already.
        """
        path, table = prepare_stage(
            self._folder(rollout), stage_file, rows, self._metadata(rollout)
        )
        live = self.live(rollout) if stage_file is StageFile.SAMPLES else None

        def put() -> str:
            write_table(path, table)
            if live is not None:
                live.discard()
            return str(path.relative_to(self.run_dir))

        return self.disk.submit(put)

    def live(self, rollout: RolloutInHand) -> LiveWriter:
        """The live stream of a rollout that is generating."""
        return LiveWriter(self._folder(rollout), self._metadata(rollout))

    def _folder(self, rollout: RolloutInHand) -> Path:
        return rollout_folder(
            self.run_dir,
            attempt=self.attempt,
            rollout_id=self.step_name(rollout.rollout_id),
        )

    def _metadata(self, rollout: RolloutInHand) -> RecordMetadata:
        return RecordMetadata(
            run_id=self.run_id,
            attempt=self.attempt,
            rollout_id=rollout.rollout_id,
            weights_version=rollout.weights_version,
            weights_fingerprint=rollout.fingerprint,
            source=self.source,
            arguments_digest=self.arguments_digest,
            layout=self.layout,
            coverage={"ranks": self.num_ranks},
            vocab=self.vocab,
            passes=rollout.passes,
            absent=self.absent,
        )


class RecordsInTurn:
    """One record after the other, while the stages go on.

    Args:
        recorder: Writes them.
        log: The run's log.
    """

    def __init__(self, recorder: Recorder, *, log: RunLog) -> None:
        self._recorder = recorder
        self._log = log
        self._last: Future[str] | None = None

    async def begin(
        self,
        stage_file: StageFile,
        rows: Mapping[str, Sequence[Any]],
        rollout: RolloutInHand,
    ) -> Future[str] | None:
        """As `Recorder.begin`, after the one before; None if nobody observes."""
        if not rollout.observed:
            return None
        await self.settle()
        self._last = self._recorder.begin(stage_file, rows, rollout)
        return self._last

    async def settle(self) -> None:
        """Waits for the last one: a slow disk slows the run, nothing piles up."""
        if self._last is None:
            return
        try:
            # Shielded: a stage that is ended by force must not take its record along.
            await asyncio.shield(asyncio.wrap_future(self._last))
        except OSError as error:
            # Who trains must not lose the run because nobody can look at it.
            self._log.warning(f"a stage was not recorded: {error}")
        self._last = None
