"""From settings to everything that a running trainer holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from relax.backends.checkpoint_meta import CheckpointMeta, RunProgress, is_checkpoint
from relax.backends.megatron.checkpoint import load_checkpoint, save_checkpoint
from relax.backends.megatron.convert.hf_io import HfTensors
from relax.backends.megatron.convert.weights import (
    ModelPart,
    hf_to_megatron,
    model_part,
)
from relax.backends.megatron.cpu import cpu_device
from relax.backends.megatron.model.build import (
    build_model,
    padded_vocab_size,
    transformer_config,
)
from relax.backends.megatron.model.hf_config import (
    ModelShape,
    model_shape,
    read_hf_config,
)
from relax.backends.megatron.parallel import ParallelLayout, open_layout
from relax.backends.megatron.reference import (
    KeptWeights,
    Reference,
    ResidentReference,
    SwappedReference,
    host_copies,
)
from relax.backends.megatron.settings import TrainerSettings
from relax.backends.megatron.step.forward import ScoringModel
from relax.backends.megatron.step.optimize import Optimizer


@dataclass(kw_only=True)
class OpenedTrainer:
    """Everything that lives between `MegatronTrainer.open` and ``close``.

    Attributes:
        layout: This rank's place.
        part: The actor's parameters by global name.
        scoring: The actor, ready to run.
        optimizer: Its gradients and their update.
        reference: The reference weights; None without ``--ref-load``.
        weights_version: Optimizer steps that changed the weights since the start.
        kept: Earlier versions of the weights.
        passes: Forward passes so far.
    """

    layout: ParallelLayout
    part: ModelPart
    scoring: ScoringModel
    optimizer: Optimizer
    reference: Reference | None
    weights_version: int
    kept: KeptWeights
    passes: int = 0


def open_trainer(told: TrainerSettings) -> OpenedTrainer:
    """Joins the process group, builds model and optimizer and loads the weights.

    The actor starts from ``--load`` (a checkpoint of ours, resumed whole, or an HF
    folder), else from ``--hf-checkpoint``; the reference from ``--ref-load``.

    After an error the process group may be left joined: the caller closes the layout.

    Raises:
        ArgumentError: Settings, checkpoint and machine do not fit.
    """
    shape = model_shape(read_hf_config(told.checkpoint.hf_checkpoint))
    layout = open_layout(
        told.layout,
        rank=told.rank,
        world_size=told.world_size,
        init_method=told.init_method,
        seed=told.megatron.seed,
        expert_tensor_size=told.megatron.transformer.get("expert_tensor_parallel_size"),
    )
    with cpu_device():
        reference = _open_reference(told, shape, layout)
        config = transformer_config(shape, told.megatron, told.layout)
        model = build_model(shape, config, settings=told.megatron, layout=layout)
        part = _named(model, shape, layout)
        if not _resumes(told):
            folder = told.checkpoint.load or told.checkpoint.hf_checkpoint
            hf_to_megatron(HfTensors(folder), part)
        optimizer = Optimizer(
            model,
            config=config,
            settings=told.megatron,
            sizes=told.layout,
            part=part,
        )
        opened = OpenedTrainer(
            layout=layout,
            part=part,
            scoring=_scoring(optimizer.model, told, shape, layout),
            optimizer=optimizer,
            reference=reference,
            weights_version=0,
            kept=KeptWeights(
                most=told.keep_weights, most_bytes=told.keep_weights_bytes
            ),
        )
        if _resumes(told):
            restore(opened, told, told.checkpoint.load)
    return opened


def save(
    opened: OpenedTrainer,
    told: TrainerSettings,
    folder: str | Path,
    *,
    progress: RunProgress | None,
) -> None:
    """Writes a running trainer's state as a checkpoint; all ranks call it.

    Raises:
        ArgumentError: The folder exists.
    """
    save_checkpoint(
        folder,
        parameters=opened.part.parameters,
        optimizer=opened.optimizer.optimizer,
        layout=opened.layout,
        meta=checkpoint_meta(
            told,
            opened.layout,
            weights_version=opened.weights_version,
            passes=opened.passes,
            progress=progress,
        ),
    )


def restore(opened: OpenedTrainer, told: TrainerSettings, folder: str | Path) -> None:
    """Brings a running trainer to a checkpoint's state: weights, optimizer, version.

    Raises:
        ArgumentError: It is no checkpoint of ours, or of another layout.
    """
    meta = load_checkpoint(
        folder,
        parameters=opened.part.parameters,
        optimizer=opened.optimizer.optimizer,
        layout=opened.layout,
        expected=checkpoint_meta(told, opened.layout),
    )
    opened.weights_version, opened.passes = meta.weights_version, meta.passes


def checkpoint_meta(
    told: TrainerSettings,
    layout: ParallelLayout,
    *,
    weights_version: int = 0,
    passes: int = 0,
    progress: RunProgress | None = None,
) -> CheckpointMeta:
    """What a checkpoint of this run says about itself."""
    distributed = told.layout.use_distributed_optimizer
    sizes = {"tensor": layout.tensor_size, "pipeline": layout.pipeline_size}
    if layout.expert_size > 1:
        sizes["expert"] = layout.expert_size
    if distributed or layout.expert_size > 1:
        sizes["data"] = layout.data_size
    return CheckpointMeta(
        weights_version=weights_version,
        layout=sizes,
        distributed_optimizer=distributed,
        passes=passes,
        progress=progress,
    )


def _resumes(told: TrainerSettings) -> bool:
    return told.checkpoint.load is not None and is_checkpoint(told.checkpoint.load)


def _open_reference(
    told: TrainerSettings, shape: ModelShape, layout: ParallelLayout
) -> Reference | None:
    if told.checkpoint.ref_load is None:
        return None
    # Its own configuration: the actor's carries hooks into the actor's optimizer.
    config = transformer_config(shape, told.megatron, told.layout)
    model = build_model(shape, config, settings=told.megatron, layout=layout)
    # Its weights keep asking for gradients, which no pass of it ever computes: megatron
    # and torch multiply frozen weights by other functions, whose bits differ.
    part = _named(model, shape, layout)
    _load_weights(part, Path(told.checkpoint.ref_load), told)
    if told.megatron.ref_mode == "resident":
        return ResidentReference(scoring=_scoring(model, told, shape, layout))
    return SwappedReference(host=host_copies(part))


def _load_weights(part: ModelPart, folder: Path, told: TrainerSettings) -> None:
    if not is_checkpoint(folder):
        hf_to_megatron(HfTensors(folder), part)
        return
    load_checkpoint(
        folder,
        parameters=part.parameters,
        optimizer=None,
        layout=part.layout,
        expected=checkpoint_meta(told, part.layout),
    )


def _named(model: nn.Module, shape: ModelShape, layout: ParallelLayout) -> ModelPart:
    return model_part(
        model,
        shape=shape,
        layout=layout,
        padded_vocab_size=padded_vocab_size(shape, layout),
    )


def _scoring(
    model: nn.Module, told: TrainerSettings, shape: ModelShape, layout: ParallelLayout
) -> ScoringModel:
    return ScoringModel(
        model,
        layout=layout,
        vocab_size=shape.vocab_size,
        padded_vocab_size=padded_vocab_size(shape, layout),
        temperature=told.rollout_temperature,
    )
