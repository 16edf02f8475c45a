"""What a run does when its rollout engine is gone: it tells, and waits for a person.

EngineDied in a stage ─▶ engine_lost, verdict ─▶ pause before that stage
                                                   │ restart-engine, continue: again
                                                   └ stop
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Final

from relax.backends.ray_border import answer
from relax.controller.chronicle import Chronicle
from relax.controller.state import RunStage
from relax.controller.workers import Workers
from relax.dump.logs.read import read_log
from relax.errors import DumpError, EngineError
from relax.events.types import EngineLost, VerdictGiven
from relax.triage.engine_loss import EngineLoss, judge_engine_loss
from relax.triage.log_evidence import LogEvidence, LogLine
from relax.triage.log_signatures import MARKS

_START: Final = b"$ "
"""With which the line begins that a server's start leaves in its log."""


async def tell_loss(
    error: EngineError,
    order: RunStage,
    *,
    workers: Workers,
    chronicle: Chronicle,
    generates: bool,
) -> None:
    """Writes down that an engine is gone, and of what.

    Args:
        error: What the engine's worker says.
        order: The stage that it was lost in.
        workers: Of the run.
        chronicle: Takes the event and the verdict.
        generates: Whether the stage asked the rollout function for samples.
    """
    finished, total = await _finished(workers) if generates else (0, 0)
    log = Path(error.where)
    evidence = await asyncio.to_thread(_last_life, log)
    chronicle.log.error(f"the rollout engine is lost in {order.stage}: {error}")
    chronicle.events.append(
        EngineLost(
            rollout_id=order.rollout_id,
            stage=order.stage,
            what=error.what,
            log=str(log) if evidence.files else "",
            finished=finished,
            total=total,
        )
    )
    loss = EngineLoss(
        rollout_id=order.rollout_id,
        stage=order.stage,
        what=error.what,
        finished=finished,
        total=total,
        log=evidence,
        run=chronicle.verdicts.run,
    )
    chronicle.events.append(
        VerdictGiven(
            rollout_id=order.rollout_id,
            stage=order.stage,
            verdict=judge_engine_loss(loss).to_json(),
        ),
        sync=True,
    )


async def _finished(workers: Workers) -> tuple[int, int]:
    """Samples that are finished, and that the rollout was to have."""
    told = workers.runner.take_progress.remote()
    report = await answer(told, worker="rollout-runner")
    return report.progress.done, report.progress.total


def _last_life(path: Path) -> LogEvidence:
    """The marked lines of a log since the newest start that it tells of."""
    if path.suffix != ".log" or not path.is_file():
        return LogEvidence()
    try:
        began = _newest_start(path)
        story = read_log(path, marks=MARKS)
    except (OSError, DumpError):
        return LogEvidence()
    lines = [
        LogLine.of(marked, file=str(path))
        for marked in story.marked
        if marked.offset >= began
    ]
    return LogEvidence(
        lines=tuple(lines),
        counts=Counter(line.mark for line in lines),
        num_lines=story.lines,
        files=(str(path),),
        last_lines={str(path): story.lines},
    )


def _newest_start(path: Path) -> int:
    """Where the last start's line begins, in bytes; 0 without one."""
    found = at = 0
    with path.open("rb") as stream:
        for line in stream:
            if line.startswith(_START):
                found = at
            at += len(line)
    return found
