"""The one forward pass that log-prob passes and training share.

`ScoringModel` runs a micro-batch and returns scores of its response tokens. The output
layer sees only the positions that predict a response token: logits of prompts and of
padding are never computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from relax.backends.megatron.convert.weights import unwrap
from relax.backends.megatron.mcore import (
    MoELayer,
    PackedSeqParams,
    get_forward_backward_func,
)
from relax.backends.megatron.parallel import ParallelLayout
from relax.backends.megatron.step.batch import MicroBatch
from relax.backends.megatron.step.logprob import TokenScores, VocabPart, token_scores
from relax.errors import InternalError

FloatColumn = NDArray[np.float32]


class ScoringModel:
    """A model that scores response tokens.

    Args:
        model: GPTModel, wrapped or not.
        layout: This rank's place.
        vocab_size: Real tokens.
        padded_vocab_size: Columns of the output layer over all tensor ranks.
        temperature: Logits are divided by it.

    Attributes:
        lengths_vary: Stages tell each other the length of each micro-batch.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        layout: ParallelLayout,
        vocab_size: int,
        padded_vocab_size: int,
        temperature: float,
    ) -> None:
        self.model = model
        self.layout = layout
        self.temperature = temperature
        self.vocab_part = _vocab_part(layout, vocab_size, padded_vocab_size)
        self._batch: MicroBatch | None = None
        core = unwrap(model)
        # Under sequence parallelism the output layer's input is a part of the sequence,
        # so the positions can only be chosen after it.
        self._choose_before = not core.config.sequence_parallel
        self.lengths_vary = bool(core.config.variable_seq_lengths)
        self._mixed = core.config.bf16 or core.config.fp16
        if layout.is_last_stage and self._choose_before:
            core.output_layer.register_forward_pre_hook(self._choose_positions)

    def run(self, batch: MicroBatch) -> Tensor:
        """Runs a micro-batch through this rank's stage.

        Returns:
            On the last stage the logits of the response tokens, [N, V]; before it the
            hidden states for the next stage.
        """
        self._batch = batch
        extra: dict[str, Any] = {"fp32_output": False} if self._mixed else {}
        try:
            output = self.model(
                input_ids=batch.tokens_BS,
                position_ids=batch.positions_BS,
                attention_mask=None,
                packed_seq_params=_packing(batch),
                **extra,
            )
        finally:
            self._batch = None
        if not self.layout.is_last_stage:
            return output
        if self._choose_before:
            return output.flatten(0, 1)
        return output[batch.response_rows_N, batch.response_sources_N]

    def scores(
        self,
        logits_NV: Tensor,  # noqa: N803
        batch: MicroBatch,
        *,
        entropy: bool,
    ) -> TokenScores:
        """Scores the response tokens of a micro-batch from its logits."""
        return token_scores(
            logits_NV,
            batch.targets_N,
            temperature=self.temperature,
            part=self.vocab_part,
            entropy=entropy,
        )

    def _choose_positions(
        self, _: nn.Module, inputs: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """Keeps those hidden states [S, B, H] before a response token, [N, 1, H]."""
        batch = self._batch
        if batch is None:
            return inputs
        hidden, *rest = inputs
        chosen = hidden[batch.response_sources_N, batch.response_rows_N]
        return chosen.unsqueeze(1), *rest


def _packing(batch: MicroBatch) -> PackedSeqParams | None:
    """What megatron is told of packed segments; None for padded rows."""
    if batch.segments is None:
        return None
    longest = int((batch.segments[1:] - batch.segments[:-1]).max())
    return PackedSeqParams(
        qkv_format="thd",
        cu_seqlens_q=batch.segments,
        cu_seqlens_kv=batch.segments,
        max_seqlen_q=longest,
        max_seqlen_kv=longest,
    )


def run_schedule(
    model: nn.Module,
    batches: Sequence[MicroBatch],
    step: Callable[[Iterator[MicroBatch], nn.Module], Any],
    *,
    forward_only: bool,
) -> list[Any]:
    """Runs micro-batches through megatron's schedule for this layout.

    Args:
        model: The wrapped or bare model.
        batches: Micro-batches; all ranks of one model pass the same.
        step: megatron's forward step function.
        forward_only: No gradients.

    Returns:
        What the last stage's function gave for each micro-batch; empty on others.
    """
    try:
        return get_forward_backward_func()(
            forward_step_func=step,
            data_iterator=iter(batches),
            model=[model],
            num_microbatches=len(batches),
            seq_length=max(batch.padded_length for batch in batches),
            micro_batch_size=max(len(batch.tokens_BS) for batch in batches),
            forward_only=forward_only,
            collect_non_loss_data=forward_only,
        )
    finally:
        _release_graph(model)


def _release_graph(model: nn.Module) -> None:
    """Frees the graph of the last micro-batch: a dispatcher of tokens keeps its ends.

    Its scratch is written anew by the next pass. Until then the probabilities in it
    would hold all activations that the backward pass needed.
    """
    for module in model.modules():
        if isinstance(module, MoELayer):
            scratch = vars(module.token_dispatcher)
            for name, value in scratch.items():
                if isinstance(value, Tensor) and value.grad_fn is not None:
                    scratch[name] = value.detach()


@torch.no_grad()
def score_batches(
    scoring: ScoringModel, batches: Sequence[MicroBatch], *, entropy: bool
) -> list[TokenScores]:
    """Scores micro-batches without gradients.

    Args:
        scoring: The model.
        batches: Micro-batches.
        entropy: Also compute entropies.

    Returns:
        CPU tensors, one entry a micro-batch, on every stage.
    """

    def step(
        iterator: Iterator[MicroBatch], _: nn.Module
    ) -> tuple[Tensor, Callable[..., TokenScores]]:
        batch = next(iterator)

        def collect(logits: Tensor, **_: Any) -> TokenScores:
            scores = scoring.scores(logits, batch, entropy=entropy)
            return TokenScores(*(s if s is None else s.cpu() for s in scores))

        return scoring.run(batch), collect

    scores = run_schedule(scoring.model, batches, step, forward_only=True)
    return _on_every_stage(scores, scoring.layout)


def by_sample(
    scores: Sequence[Tensor | None], batches: Sequence[MicroBatch]
) -> list[FloatColumn]:
    """Scores of micro-batches as one column a sample, in the order of the samples."""
    columns: dict[int, FloatColumn] = {}
    for score, batch in zip(scores, batches, strict=True):
        if score is None:
            raise InternalError("a pass gave no score that it was asked for")
        pieces = score.to(torch.float32).split(batch.response_lengths)
        for row, piece in zip(batch.rows, pieces, strict=True):
            columns[row] = piece.numpy().copy()
    return [columns[row] for row in range(len(columns))]


def _on_every_stage(
    scores: list[TokenScores], layout: ParallelLayout
) -> list[TokenScores]:
    if layout.pipeline_size == 1:
        return scores
    box: list[Any] = [scores if layout.is_last_stage else None]
    dist.broadcast_object_list(
        box, src=layout.last_stage_rank, group=layout.pipeline_group
    )
    return box[0]


def _vocab_part(
    layout: ParallelLayout, vocab_size: int, padded_vocab_size: int
) -> VocabPart:
    columns = padded_vocab_size // layout.tensor_size
    start = columns * layout.tensor_rank
    width = min(max(vocab_size - start, 0), columns)
    group = layout.tensor_group if layout.tensor_size > 1 else None
    return VocabPart(start=start, width=width, group=group)
