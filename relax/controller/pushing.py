"""Bringing the trainer's weights to the engines, and what came of it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from relax.backends.training import ExportReport
from relax.controller.chronicle import Chronicle
from relax.controller.engines import each_engine
from relax.controller.trainers import call_trainers
from relax.controller.workers import Workers
from relax.errors import EngineMismatch
from relax.events.types import Stage, VerdictGiven, WeightsUpdated
from relax.measure.reduction import Gauge, Metrics, Sum
from relax.triage.verdict import Verdict
from relax.triage.weights_seen import WeightsSeen, judge_weights

BUCKET_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Pushed:
    """A weight update that all engines have taken.

    Attributes:
        version: Optimizer steps since the start.
        fingerprint: Of what the trainer sent.
        metrics: What was measured on the way.
    """

    version: int
    fingerprint: str
    metrics: Metrics


async def push_weights(
    workers: Workers, *, rollout_id: int, chronicle: Chronicle
) -> Pushed:
    """One weight update of all engines.

    Args:
        workers: Of the run.
        rollout_id: The rollout after which it happens.
        chronicle: Told of it.

    Raises:
        EngineDied: An engine is gone.
    """
    began = time.monotonic()
    exports = await call_trainers(workers, "export", bucket_bytes=BUCKET_BYTES)
    export: ExportReport = exports[0]
    answers = await each_engine(
        workers.engines,
        "receive_weights",
        buckets=export.buckets,
        version=str(export.version),
    )
    held = list(answers.values())
    chronicle.events.append(
        WeightsUpdated(
            rollout_id=rollout_id,
            version=export.version,
            fingerprint=export.fingerprint,
            engine_fingerprint=held[0],
            tensors=export.tensors,
            num_bytes=export.num_bytes,
            seconds=time.monotonic() - began,
        ),
        sync=True,
    )
    wrong = [found for found in held if found != export.fingerprint]
    if wrong:
        await _name_tensors(workers, export, rollout_id=rollout_id, chronicle=chronicle)
    metrics: Metrics = {
        "perf/update_weights_bytes": Sum(export.num_bytes),
        "weights/tensors": Gauge(export.tensors),
        "weights/engines_unequal": Gauge(len(wrong)),
    }
    return Pushed(
        version=export.version, fingerprint=export.fingerprint, metrics=metrics
    )


async def _name_tensors(
    workers: Workers, export: ExportReport, *, rollout_id: int, chronicle: Chronicle
) -> None:
    """Tells which tensors differ: the engines are looked at once more, one by one."""
    seen = WeightsSeen(
        rollout_id=rollout_id,
        version=export.version,
        engines=await each_engine(workers.engines, "weights_digests"),
        trainer=export.digests,
        run=chronicle.verdicts.run,
    )
    tell_weights(seen, chronicle)


async def verify_weights(
    workers: Workers, *, rollout_id: int, version: int, chronicle: Chronicle
) -> str:
    """Compares the weights on disk, in the trainer and in the engines, bit for bit.

    Args:
        workers: Of the run.
        rollout_id: The rollout after which it happens.
        version: Of the trainer's weights.
        chronicle: Told of what was found.

    Returns:
        What was found, in one line.
    """
    trainer = None
    if workers.trainers:
        trainer = (await call_trainers(workers, "weights_digests"))[0]
    first, *_ = workers.engines
    on_disk = await each_engine({first: workers.engines[first]}, "checkpoint_digests")
    seen = WeightsSeen(
        rollout_id=rollout_id,
        version=version,
        engines=await each_engine(workers.engines, "weights_digests"),
        trainer=trainer,
        disk=on_disk[first],
        run=chronicle.verdicts.run,
    )
    verdict = tell_weights(seen, chronicle)
    return f"{verdict.status}: {verdict.summary}"


def tell_weights(seen: WeightsSeen, chronicle: Chronicle) -> Verdict:
    """Judges what was seen, and writes the verdict down."""
    verdict = judge_weights(seen)
    chronicle.log.info(f"{verdict.rule}: {verdict.status}: {verdict.summary}")
    chronicle.events.append(
        VerdictGiven(
            rollout_id=seen.rollout_id,
            stage=Stage.UPDATE_WEIGHTS,
            verdict=verdict.to_json(),
        ),
        sync=True,
    )
    return verdict


def refuse_other_weights(metrics: Metrics, *, drill: bool) -> None:
    """Ends a run whose engine would go on with weights that nobody sent.

    A drill goes on, so that a person can see what the fault looks like.

    Raises:
        EngineMismatch: An engine holds other weights.
    """
    unequal = metrics.get("weights/engines_unequal")
    if unequal is not None and unequal.value and not drill:
        raise EngineMismatch(
            "the engine holds other weights than the trainer sent: the verdict "
            "weights_verified names the tensors",
            hint="a tensor was lost, changed or converted wrongly on its way",
        )
