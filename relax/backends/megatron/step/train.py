"""One optimizer step: micro-batches through megatron's schedule, then the update."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from relax.arguments.groups.algorithm import AlgorithmSettings
from relax.backends.megatron.parallel import ParallelLayout
from relax.backends.megatron.step.batch import MicroBatch, Placement
from relax.backends.megatron.step.forward import ScoringModel, run_schedule
from relax.backends.megatron.step.loss import LossSums, micro_batch_loss
from relax.backends.megatron.step.optimize import Optimizer, UpdateOutcome
from relax.errors import InternalError
from relax.measure.reduction import Gauge, Mean, Reduction


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What one optimizer step did.

    Attributes:
        step_id: Number of the step over all rollouts.
        metrics: ``train/…`` → value with its reduction, already over all ranks.
        placements: Where this rank's samples were computed.
        skipped: The weights did not change.
        nonfinite: Gradient elements that are NaN or infinite, of one model.
        vacuous: Metrics (without prefix) that are zero by construction in this step.
    """

    step_id: int
    metrics: dict[str, Reduction]
    placements: list[Placement]
    skipped: bool
    nonfinite: int
    vacuous: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What a step minimises.

    Attributes:
        settings: Terms and their weights.
        per_token: Weigh each token the same, not each sample.
    """

    settings: AlgorithmSettings
    per_token: bool


def train_step(
    scoring: ScoringModel,
    optimizer: Optimizer,
    batches: Sequence[MicroBatch],
    *,
    loss: Loss,
    step_id: int,
    update: bool = True,
) -> StepResult:
    """Computes gradients over the micro-batches and updates the weights.

    Args:
        scoring: The model, wrapped in the optimizer's DDP.
        optimizer: Owns gradients and update.
        batches: This rank's micro-batches of the step.
        loss: What is minimised.
        step_id: For the report.
        update: False measures the gradients and leaves the weights as they are.

    Returns:
        What happened.
    """
    optimizer.zero_grad()

    step = _forward_step(scoring, loss)
    sums = run_schedule(scoring.model, batches, step, forward_only=False)
    layout = scoring.layout
    metrics = _reduced(sums, layout)
    metrics["train/step"] = Gauge(float(step_id))
    metrics["train/global_batch_size"] = Gauge(float(_num_samples(batches, layout)))
    outcome = optimizer.step() if update else optimizer.measure()
    return StepResult(
        step_id=step_id,
        metrics=metrics | _update_metrics(outcome, optimizer),
        placements=[p for batch in batches for p in batch.placements(layout.rank)],
        skipped=not outcome.applied,
        nonfinite=outcome.gradients.nonfinite,
        vacuous=tuple(dict.fromkeys(n for part in sums for n in part.vacuous)),
    )


ForwardStep = Callable[[Iterator[MicroBatch], nn.Module], tuple[Tensor, Any]]


def _forward_step(scoring: ScoringModel, told: Loss) -> ForwardStep:
    """The function that megatron's schedule calls for each micro-batch."""

    def step(iterator: Iterator[MicroBatch], _: nn.Module) -> tuple[Tensor, Any]:
        batch = next(iterator)

        def loss(logits: Tensor) -> tuple[Tensor, Tensor, LossSums]:
            scores = scoring.scores(logits, batch, entropy=True)
            sums = micro_batch_loss(
                scores, batch, settings=told.settings, per_token=told.per_token
            )
            total, count = sums.loss
            counted = torch.tensor(count, dtype=torch.int, device=logits.device)
            return total, counted, sums

        return scoring.run(batch), loss

    return step


def _reduced(sums: Sequence[LossSums], layout: ParallelLayout) -> dict[str, Reduction]:
    """Adds sums and counts over micro-batches, replicas and stages.

    Names are the same on every rank, as settings alone decide them; a metric that
    nothing was measured for has count 0 and is left out.
    """
    box = [sorted(sums[0].terms) if sums else []]
    if layout.pipeline_size > 1:
        dist.broadcast_object_list(
            box, src=layout.last_stage_rank, group=layout.pipeline_group
        )
    (names,) = box
    totals = torch.zeros(len(names), 2, dtype=torch.float64, device=layout.device)
    for part in sums:
        if sorted(part.terms) != names:
            raise InternalError("micro-batches of one step have different metrics")
        values = torch.stack([part.terms[name].total for name in names])
        totals[:, 0] += values.to(torch.float64)
        counts = torch.tensor([part.terms[name].count for name in names])
        totals[:, 1] += counts.to(layout.device)
    dist.all_reduce(totals, group=layout.data_group)
    if layout.pipeline_size > 1:
        dist.broadcast(totals, src=layout.last_stage_rank, group=layout.pipeline_group)
    return {
        f"train/{name}": Mean(total, count)
        for name, (total, count) in zip(names, totals.tolist(), strict=True)
        if count
    }


def _update_metrics(
    outcome: UpdateOutcome, optimizer: Optimizer
) -> dict[str, Reduction]:
    metrics: dict[str, Reduction] = {"train/grad_norm": Gauge(outcome.grad_norm)}
    for name, norm in outcome.gradients.norm_by_part.items():
        metrics[f"train/grad_norm/{name}"] = Gauge(norm)
    if optimizer.reports_layers:
        for layer, norm in enumerate(outcome.gradients.norm_by_layer):
            metrics[f"train/grad_norm_layer/{layer}"] = Gauge(norm)
    for number, rate in enumerate(optimizer.learning_rates):
        metrics[f"train/lr-pg_{number}"] = Gauge(rate)
    return metrics


def _num_samples(batches: Sequence[MicroBatch], layout: ParallelLayout) -> int:
    own = sum(len(batch.rows) for batch in batches)
    total = torch.tensor(own, dtype=torch.int64, device=layout.device)
    dist.all_reduce(total, group=layout.data_group)
    return int(total)
