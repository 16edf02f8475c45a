"""Bringing the trainer's weights to the engines, and what came of it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from relax.backends.training import ExportReport
from relax.controller.engines import each_engine
from relax.controller.trainers import call_trainers
from relax.controller.workers import Workers
from relax.errors import EngineMismatch
from relax.events.append import EventSink
from relax.events.types import WeightsUpdated
from relax.measure.reduction import Gauge, Metrics, Sum

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
    workers: Workers, *, rollout_id: int, events: EventSink
) -> Pushed:
    """One weight update of all engines.

    Args:
        workers: Of the run.
        rollout_id: The rollout after which it happens.
        events: Told of it.

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
    events.append(
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
    metrics: Metrics = {
        "perf/update_weights_bytes": Sum(export.num_bytes),
        "weights/tensors": Gauge(export.tensors),
        "weights/engines_unequal": Gauge(len(wrong)),
    }
    return Pushed(
        version=export.version, fingerprint=export.fingerprint, metrics=metrics
    )


def refuse_other_weights(metrics: Metrics, *, drill: bool) -> None:
    """Ends a run whose engine would go on with weights that nobody sent.

    A drill goes on, so that a person can see what the fault looks like.

    Raises:
        EngineMismatch: An engine holds other weights.
    """
    unequal = metrics.get("weights/engines_unequal")
    if unequal is not None and unequal.value and not drill:
        raise EngineMismatch(
            "the engine holds other weights than the trainer sent: their fingerprints "
            "differ",
            hint="a tensor was lost, changed or converted wrongly on its way",
        )
