"""`MegatronTrainer`: one training process, without Ray around it.

    open → (log_probs 'ref' → log_probs 'actor' → advantages → train → export) … → close

Every rank of the layout calls the same methods in the same order; a rank is given the
samples of its own replica, and ranks of one replica the same ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist
from torch import Tensor

from relax.backends.checkpoint_meta import RunProgress
from relax.backends.fingerprint import Fingerprint, combined
from relax.backends.megatron import mark as marks
from relax.backends.megatron.convert.hf_io import SHARD_BYTES, write_hf
from relax.backends.megatron.convert.weights import megatron_to_hf
from relax.backends.megatron.cpu import cpu_device
from relax.backends.megatron.model.build import forget_models
from relax.backends.megatron.opened import (
    OpenedTrainer,
    open_trainer,
    restore,
    save,
)
from relax.backends.megatron.parallel import ParallelLayout, close_layout
from relax.backends.megatron.settings import TrainerSettings
from relax.backends.megatron.step.advantage import advantages_and_returns
from relax.backends.megatron.step.batch import (
    MicroBatch,
    Placement,
    TrainSample,
    check_samples,
    check_vocabulary,
)
from relax.backends.megatron.step.forward import (
    FloatColumn,
    ScoringModel,
    by_sample,
    score_batches,
)
from relax.backends.megatron.step.plan import Padding, plan_steps
from relax.backends.megatron.step.train import Loss, StepResult, train_step
from relax.backends.megatron.sync.export import buckets
from relax.errors import ArgumentError, InternalError

__all__ = ["MegatronTrainer", "PassOutput", "StepResult", "TrainerSettings"]


@dataclass(frozen=True, kw_only=True)
class PassOutput:
    """What one forward pass over samples gave.

    Attributes:
        log_probs: Of each sample's response tokens, float32 [R], in the order given.
        entropy: Likewise; None when not asked for.
        micro_batches: Where each sample was computed.
        pass_id: Whose weights, and a counter of real forward passes: ``ref#1``.
        seconds: How long it took.
    """

    log_probs: list[FloatColumn]
    entropy: list[FloatColumn] | None
    micro_batches: list[Placement]
    pass_id: str
    seconds: float


class MegatronTrainer:
    """One rank of the trainer.

    The constructor only stores; `open` starts everything and `close` ends it.

    Args:
        settings: What it is told.
    """

    def __init__(self, settings: TrainerSettings) -> None:
        self.settings = settings
        self._held: OpenedTrainer | None = None
        self._weights_in_place: str | int = "actor"

    def open(self) -> None:
        """Joins the process group, builds model and optimizer and loads the weights.

        Raises:
            ArgumentError: The settings, the checkpoint and the machine do not fit.
            InternalError: It is open already.
        """
        if self._held is not None:
            raise InternalError("the trainer is open already")
        try:
            self._held = open_trainer(self.settings)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leaves the process group and drops everything; harmless when not open."""
        self._held = None
        if close_layout():
            forget_models()

    def log_probs(
        self,
        samples: Sequence[TrainSample],
        *,
        weights: str = "actor",
        entropy: bool = False,
        step_sizes: Sequence[int] | None = None,
    ) -> PassOutput:
        """Scores the response tokens of samples in one real forward pass.

        The samples are cut as `train` cuts them, so that equal weights give equal bits.

        Args:
            samples: This replica's samples.
            weights: ``actor`` or ``ref``.
            entropy: Also compute entropies.
            step_sizes: As for `train`.

        Returns:
            The scores, in the order given.

        Raises:
            ArgumentError: A sample's columns do not fit, or there is no reference.
        """
        started = time.perf_counter()
        held = self._opened()
        limit = self.settings.batch.log_probs_max_tokens_per_gpu
        steps = self._plan(samples, step_sizes=step_sizes, max_tokens=limit)
        batches = [batch for step in steps for batch in step]
        with cpu_device(), self.weights(weights) as scoring:
            scores = score_batches(scoring, batches, entropy=entropy)
        held.passes += 1
        log_probs = by_sample([score.log_probs for score in scores], batches)
        entropies = None
        if entropy:
            entropies = by_sample([score.entropy for score in scores], batches)
        return PassOutput(
            log_probs=log_probs,
            entropy=entropies,
            micro_batches=[
                place for b in batches for place in b.placements(held.layout.rank)
            ],
            pass_id=f"{weights}#{held.passes}",
            seconds=time.perf_counter() - started,
        )

    @contextmanager
    def weights(self, version: str | int) -> Iterator[ScoringModel]:
        """The model with the named weights in it; the actor's are back on every exit.

        Args:
            version: ``actor``, ``ref``, or the number of a version that is kept; within
                that one ``actor`` means those weights.

        Yields:
            The model to run.

        Raises:
            ArgumentError: There is no such version.
        """
        held = self._opened()
        if version == "actor":
            yield held.scoring
            return
        other = (
            held.reference if version == "ref" else held.kept.by_version.get(version)
        )
        if other is None:
            raise ArgumentError(
                f"there are no weights called {version!r}",
                hint="give --ref-load for the reference weights, --keep-weights for "
                "those of earlier versions",
            )
        before = self._weights_in_place
        with other.in_place(held.scoring, held.part) as scoring:
            self._weights_in_place = version
            try:
                yield scoring
            finally:
                self._weights_in_place = before

    def advantages(
        self, samples: Sequence[TrainSample]
    ) -> list[tuple[FloatColumn, FloatColumn]]:
        """Advantages and returns of each sample, float32 [R] each.

        Raises:
            ArgumentError: The estimator is not known, a column that it needs is
                missing, or whitening has too few tokens.
        """
        check_samples(samples)
        return advantages_and_returns(
            samples, settings=self.settings.algorithm, layout=self._opened().layout
        )

    def train(
        self,
        samples: Sequence[TrainSample],
        *,
        rollout_id: int,
        step_sizes: Sequence[int] | None = None,
    ) -> list[StepResult]:
        """Makes the optimizer steps of one rollout.

        Args:
            samples: This replica's samples, with advantages.
            rollout_id: Numbers the steps: ``rollout_id · num_steps_per_rollout + i``.
            step_sizes: How many of the samples each step takes, in order; all replicas
                have as many steps. None: steps of ``global_batch_size``.

        Returns:
            One result a step.

        Raises:
            ArgumentError: A column that the loss needs is missing.
            InternalError: Other weights than the actor's are in place.
        """
        held = self._opened()
        if self._weights_in_place != "actor":
            raise InternalError(f"train ran on the {self._weights_in_place} weights")
        held.kept.keep(held.weights_version, held.part)
        results = []
        for result in self._steps(samples, rollout_id, step_sizes, update=True):
            held.weights_version += not result.skipped
            results.append(result)
        return results

    def gradients(
        self,
        samples: Sequence[TrainSample],
        *,
        rollout_id: int,
        step_sizes: Sequence[int] | None = None,
    ) -> list[StepResult]:
        """As `train`, on the weights that are in place, without changing them.

        Gradients stay in the buffers: call it between `mark` and `return_to`.
        """
        return list(self._steps(samples, rollout_id, step_sizes, update=False))

    def mark(self) -> marks.TrainerMark:
        """Everything that training can change, to come back to."""
        return marks.take_mark(self._opened())

    def return_to(self, mark: marks.TrainerMark) -> None:
        """Brings weights, optimizer, random states and counters back, bit for bit."""
        marks.return_to(self._opened(), mark)

    def digests(self) -> dict[str, str]:
        """``{path: sha256}`` of every tensor that this rank holds."""
        return marks.state_digests(self._opened())

    @property
    def kept_versions(self) -> tuple[int, ...]:
        """Earlier versions of the weights that are kept, the oldest first."""
        return tuple(self._opened().kept.by_version)

    @property
    def layout(self) -> ParallelLayout:
        """This rank's place."""
        return self._opened().layout

    @property
    def weights_version(self) -> int:
        """Optimizer steps that changed the weights since the start."""
        return self._opened().weights_version

    def export_weights(self, *, bucket_bytes: int) -> Iterator[dict[str, Tensor]]:
        """The actor's weights as HF-named CPU tensors.

        Every rank must take every bucket. Converted anew each time: nothing is cached
        between two calls.

        Args:
            bucket_bytes: A bucket holds at most this much, or one larger tensor.

        Yields:
            HF name → tensor, in the parameters' dtype.
        """
        tensors = megatron_to_hf(self._opened().part)
        yield from buckets(tensors, bucket_bytes=bucket_bytes)

    def join_export(self) -> None:
        """Takes part in gathering weights that another rank exports."""
        held = self._opened()
        if held.layout.data_rank and held.layout.expert_size == 1:
            return  # the first replica has all it needs
        for _ in megatron_to_hf(held.part):
            pass

    def fingerprint(self) -> str:
        """Digest of the actor's weights under their HF names; all ranks call it."""
        return combined(self.weights_digests())

    def weights_digests(self) -> dict[str, str]:
        """sha256 of each of the actor's tensors by HF name; all ranks call it."""
        digests = Fingerprint()
        for name, tensor in megatron_to_hf(self._opened().part):
            digests.add(name, tensor)
        return digests.digests()

    def save(self, path: str | Path, progress: RunProgress | None = None) -> None:
        """Writes a checkpoint to resume from; all ranks call it.

        Args:
            path: Where; must not exist.
            progress: How far the run is, for who resumes it.

        Raises:
            ArgumentError: The path exists.
        """
        save(self._opened(), self.settings, path, progress=progress)

    def load(self, path: str | Path) -> None:
        """Restores weights, optimizer, random states and version; all ranks call it.

        Raises:
            ArgumentError: It is no checkpoint of ours, or of another layout.
        """
        restore(self._opened(), self.settings, path)

    def save_hf(self, path: str | Path) -> None:
        """Writes the actor's weights as an HF folder; all ranks call it.

        Raises:
            ArgumentError: The path exists.
        """
        if self._opened().layout.rank == 0:
            exported = self.export_weights(bucket_bytes=SHARD_BYTES)
            write_hf(path, exported, like=self.settings.checkpoint.hf_checkpoint)
        else:
            self.join_export()
        dist.barrier()

    def _steps(
        self,
        samples: Sequence[TrainSample],
        rollout_id: int,
        step_sizes: Sequence[int] | None,
        *,
        update: bool,
    ) -> Iterator[StepResult]:
        held, batch = self._opened(), self.settings.batch
        loss = Loss(
            settings=self.settings.algorithm, per_token=batch.calculate_per_token_loss
        )
        steps = self._plan(
            samples, step_sizes=step_sizes, max_tokens=batch.max_tokens_per_gpu
        )
        for number, batches in enumerate(steps):
            with cpu_device():
                result = train_step(
                    held.scoring,
                    held.optimizer,
                    batches,
                    loss=loss,
                    step_id=rollout_id * batch.num_steps_per_rollout + number,
                    update=update,
                )
            yield result

    def _plan(
        self,
        samples: Sequence[TrainSample],
        *,
        step_sizes: Sequence[int] | None,
        max_tokens: int | None,
    ) -> list[list[MicroBatch]]:
        held = self._opened()
        layout = held.layout
        check_vocabulary(samples, held.part.shape.vocab_size)
        splits_sequence = self.settings.layout.sequence_parallel
        return plan_steps(
            samples,
            step_sizes=step_sizes,
            settings=self.settings.batch,
            layout=layout,
            max_tokens=max_tokens,
            padding=Padding(
                multiple=layout.tensor_size if splits_sequence else 1,
                alike=layout.pipeline_size > 1 and not held.scoring.lengths_vary,
            ),
        )

    def _opened(self) -> OpenedTrainer:
        if self._held is None:
            raise InternalError("the trainer is not open", hint="call open() first")
        return self._held
