"""The triage process beside the driver: rules never run in the step loop."""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from relax.errors import WorkerError
from relax.triage.evidence import RolloutEvidence
from relax.triage.registry import run_rules
from relax.triage.rule import Stage as DueStage
from relax.triage.verdict import Verdict

_PR_SET_PDEATHSIG = 1


class Judge:
    """Runs the rules in a process of its own."""

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(
            max_workers=1,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_die_with_driver,
        )

    async def verdicts(
        self, evidence: RolloutEvidence, *, stage: DueStage
    ) -> list[Verdict]:
        """The verdicts due after a stage.

        Raises:
            WorkerError: The triage process died.
        """
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._pool, run_rules, evidence, stage)
        except BrokenProcessPool as error:
            raise WorkerError("the triage process died", where="triage") from error

    def close(self) -> None:
        """Ends the process; verdicts not given yet are dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _die_with_driver() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # Ctrl-C in a terminal reaches the whole group; the driver decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
