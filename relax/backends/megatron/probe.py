"""A probe: all passes of a train stage over given samples, and no optimizer step.

    digests → mark → weights in place → (receive → ref → log-probs → advantages
            → loss and gradients) × repeat → back to the mark → digests

It runs the worker's own stages, so that it computes what a train step would compute.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relax.backends.megatron.reachable import differences
from relax.backends.probing import ProbeReport, ProbeRequest
from relax.backends.training import PackedColumn, StepReport
from relax.measure.reduction import Metrics, merge_metrics


@dataclass(frozen=True, kw_only=True)
class Passes:
    """What one round of passes gave.

    Attributes:
        columns: As of a train dump.
        steps: Loss and gradients of each step.
        metrics: Of the passes before them.
    """

    columns: Mapping[str, Any]
    steps: Sequence[StepReport]
    metrics: Metrics


def run_probe(worker: Any, request: ProbeRequest) -> ProbeReport:
    """Probes on one rank; all ranks do it together.

    Args:
        worker: The `relax.backends.megatron.worker.TrainWorker` of this rank.
        request: What to probe.

    Raises:
        ArgumentError: The weights are not kept.
    """
    began = time.monotonic()
    trainer = worker.trainer
    now = trainer.weights_version
    version = now if request.weights is None else request.weights
    before = trainer.digests()
    marked = worker.marked()
    try:
        with trainer.weights("actor" if version == now else version):
            rounds = [_round(worker, request) for _ in range(request.repeat)]
    finally:
        worker.back_to(marked)
    first = rounds[0]
    return ProbeReport(
        weights_version=version,
        columns=first.columns,
        steps=first.steps,
        metrics=first.metrics,
        unequal_repeats=_unequal(rounds),
        changed=differences(before, trainer.digests()),
        tensors=len(before),
        seconds=time.monotonic() - began,
    )


def _round(worker: Any, request: ProbeRequest) -> Passes:
    worker.receive(request.rollout)
    reports = [worker.ref_log_probs()] if worker.has_reference else []
    reports += [worker.log_probs(entropy=True), worker.advantages()]
    steps = worker.gradients()
    return Passes(
        columns=worker.train_columns(),
        steps=steps,
        metrics=merge_metrics(report.metrics for report in reports),
    )


def _unequal(rounds: Sequence[Passes]) -> dict[str, int]:
    """By per-token column: in how many values some later round differs."""
    first, *later = rounds
    counts: dict[str, int] = {}
    for name, column in first.columns.items():
        if not isinstance(column, PackedColumn):
            continue
        bits = column.values.view(f"u{column.values.itemsize}")
        others = [
            passes.columns[name].values.view(bits.dtype) != bits for passes in later
        ]
        if others:
            counts[name] = int(np.logical_or.reduce(others).sum())
    return counts
