"""Checkpoints of a run: written when they are due."""

from __future__ import annotations

from pathlib import Path

from relax.arguments import Arguments
from relax.arguments.dump_template import DumpTemplate
from relax.backends.checkpoint_meta import RunProgress, checkpoint_path
from relax.backends.ray_border import answer
from relax.controller.runlog import RunLog
from relax.controller.trainers import call_trainers
from relax.controller.workers import Workers


class Checkpoints:
    """Writes what a run goes on from, and Hugging Face folders.

    Args:
        arguments: Of the run.
        workers: The run's actors.
        log: The run's log.
        run_id: Of the run.
        attempt: Of the run.
    """

    def __init__(
        self,
        arguments: Arguments,
        *,
        workers: Workers,
        log: RunLog,
        run_id: str,
        attempt: int,
    ) -> None:
        self._settings = arguments.checkpoint
        self._last = (arguments.data.num_rollout or 0) - 1
        self._workers = workers
        self._log = log
        self._run_id = run_id
        self._attempt = attempt

    async def save_if_due(self, rollout_id: int) -> None:
        """Saves after a rollout was trained on, at every interval and at the end."""
        settings = self._settings
        every = settings.save_interval
        is_last = rollout_id == self._last
        if not is_last and (every is None or (rollout_id + 1) % every):
            return
        if settings.save is not None and every:
            await self._save(checkpoint_path(settings.save, rollout_id=rollout_id))
        if settings.save_hf is not None:
            path = DumpTemplate(settings.save_hf).path(rollout_id=rollout_id)
            await call_trainers(self._workers, "save_hf", path)
            self._log.info(f"Saved Hugging Face checkpoint to {path}")

    async def _save(self, path: Path) -> None:
        cursor = None
        if self._workers.runner is not None:
            asked = self._workers.runner.cursor.remote()
            cursor = await answer(asked, worker="rollout-runner")
        progress = RunProgress(
            run_id=self._run_id,
            attempt=self._attempt,
            rollout_id=int(path.name.rpartition("_")[2]),
            cursor=cursor,
        )
        await call_trainers(self._workers, "save", path, progress)
        self._log.info(f"Saved checkpoint to {path}")
