"""megatron's data parallel wrapper and optimizer, built from the user's fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from torch import nn

from relax.arguments.groups.layout import LayoutSettings
from relax.arguments.groups.megatron import MegatronSettings
from relax.backends.megatron.convert.weights import ModelPart
from relax.backends.megatron.cpu import has_gpu
from relax.backends.megatron.mcore import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    MegatronOptimizer,
    OptimizerConfig,
    OptimizerParamScheduler,
    TransformerConfig,
    finalize_model_grads,
    get_megatron_optimizer,
)
from relax.backends.megatron.model.build import decoded_fields
from relax.backends.megatron.step.grad_parts import Gradients, measure_gradients
from relax.errors import ArgumentError

DEFAULT_LR = 1e-6
"""Upstream's ``--lr``; megatron-core itself has none."""


@dataclass(frozen=True, kw_only=True)
class UpdateOutcome:
    """What one optimizer step did.

    Attributes:
        applied: Weights were changed.
        grad_norm: Norm of the gradients before clipping; NaN or infinite as it came.
        gradients: The same by part and by layer, and what was not finite.
    """

    applied: bool
    grad_norm: float
    gradients: Gradients


class Optimizer:
    """DDP, optimizer and constant schedule around one model.

    Args:
        model: GPTModel, or Float16Module around it.
        config: Its configuration; receives megatron's gradient hooks.
        settings: ``optimizer`` and ``ddp`` fields that the user set.
        sizes: Whether the optimizer is distributed.
        part: The model's parameters by name.

    Attributes:
        reports_layers: The gradient norm of each layer is wanted too.

    Raises:
        ArgumentError: A field is unknown or contradicts the layout.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        config: TransformerConfig,
        settings: MegatronSettings,
        sizes: LayoutSettings,
        part: ModelPart,
    ) -> None:
        self._part = part
        self.reports_layers = settings.grad_norm_by_layer
        self.model = DistributedDataParallel(
            config, _ddp_config(settings.ddp, sizes), model
        )
        values = _optimizer_values(settings.optimizer, config, sizes)
        self.config = OptimizerConfig(**values)
        self.optimizer: MegatronOptimizer = get_megatron_optimizer(
            self.config, [self.model], use_gloo_process_groups=has_gpu()
        )
        self.schedule = _constant_schedule(self.optimizer, self.config)
        config.finalize_model_grads_func = finalize_model_grads
        config.no_sync_func = self.model.no_sync
        config.grad_scale_func = self.optimizer.scale_loss

    def zero_grad(self) -> None:
        """Forgets all gradients."""
        self.model.zero_grad_buffer()
        self.optimizer.zero_grad()

    def step(self) -> UpdateOutcome:
        """Clips and applies the gradients, unless one is not finite.

        Non-finite gradients are left as they are and the step is skipped on every rank,
        so that replicas stay equal.
        """
        gradients = measure_gradients(self._part, self.model)
        if gradients.nonfinite:
            self.optimizer.prepare_grads()
            applied, norm = False, self.optimizer.get_grad_norm()
        else:
            applied, norm, _ = self.optimizer.step()
        if applied:
            self.schedule.step(increment=1)
        return UpdateOutcome(
            applied=bool(applied),
            grad_norm=float(norm),
            gradients=gradients,
        )

    def measure(self) -> UpdateOutcome:
        """Measures the gradients as `step` does, and changes no weight."""
        gradients = measure_gradients(self._part, self.model)
        self.optimizer.prepare_grads()
        return UpdateOutcome(
            applied=False,
            grad_norm=float(self.optimizer.get_grad_norm()),
            gradients=gradients,
        )

    @property
    def learning_rates(self) -> list[float]:
        """Learning rate of each parameter group."""
        return [float(group["lr"]) for group in self.optimizer.param_groups]


def _ddp_config(
    chosen: Mapping[str, Any], sizes: LayoutSettings
) -> DistributedDataParallelConfig:
    values = {
        "grad_reduce_in_fp32": True,
        "overlap_grad_reduce": False,
        "use_distributed_optimizer": sizes.use_distributed_optimizer,
        # Counted and reported by `Optimizer.step`, not a crash.
        "check_for_nan_in_grad": False,
    } | decoded_fields(chosen, DistributedDataParallelConfig)
    return DistributedDataParallelConfig(**values)


def _optimizer_values(
    chosen: Mapping[str, Any], config: TransformerConfig, sizes: LayoutSettings
) -> dict[str, Any]:
    values = {
        "optimizer": "adam",
        "lr": DEFAULT_LR,
        "bf16": config.bf16,
        "fp16": config.fp16,
        "params_dtype": config.params_dtype,
        "use_distributed_optimizer": sizes.use_distributed_optimizer,
    } | decoded_fields(chosen, OptimizerConfig)
    unknown = set(values) - {field.name for field in fields(OptimizerConfig)}
    if unknown:
        raise ArgumentError(f"OptimizerConfig has no {', '.join(sorted(unknown))}")
    if values["lr"] is None:
        values["lr"] = DEFAULT_LR
    # The schedule is constant; megatron's scheduler wants both ends.
    values["min_lr"] = values["lr"]
    if values.get("clip_grad") == 0:
        # megatron computes no norm at all when it need not clip; an infinite limit
        # keeps the norm a measured number.
        values["clip_grad"] = float("inf")
    return values


def _constant_schedule(
    optimizer: MegatronOptimizer, config: OptimizerConfig
) -> OptimizerParamScheduler:
    return OptimizerParamScheduler(
        optimizer,
        init_lr=config.lr,
        max_lr=config.lr,
        min_lr=config.lr,
        lr_warmup_steps=0,
        lr_decay_steps=1,
        lr_decay_style="constant",
        start_wd=config.weight_decay,
        end_wd=config.weight_decay,
        wd_incr_steps=0,
        wd_incr_style="constant",
    )
