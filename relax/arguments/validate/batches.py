"""Batch sizes that divide each other."""

from __future__ import annotations

from typing import Final

from relax.arguments.arguments import Arguments
from relax.arguments.validate.rule import Machine, Rule, broken


def step_splits_over_ranks(arguments: Arguments, machine: Machine) -> None:
    """Each data-parallel rank gets as many samples, in whole micro-batches."""
    if arguments.debug.debug_rollout_only:
        return
    batch = arguments.batch
    ranks = arguments.data_parallel_size
    micro = 1 if batch.use_dynamic_batch_size else batch.micro_batch_size
    if batch.global_batch_size % (ranks * micro):
        each = "" if micro == 1 else f" x {micro} samples a micro-batch"
        raise broken(
            arguments,
            "global_batch_size",
            f"cannot be divided over {ranks} data-parallel ranks{each}",
            fix=f"choose a multiple of {ranks * micro}",
        )


def dynamic_batches_have_a_size(arguments: Arguments, machine: Machine) -> None:
    """Micro-batches that are filled need to know with how much."""
    batch = arguments.batch
    if batch.use_dynamic_batch_size and batch.max_tokens_per_gpu is None:
        raise broken(
            arguments,
            "use_dynamic_batch_size",
            "it is not said how many tokens a micro-batch holds",
            fix="give --max-tokens-per-gpu",
        )


def longest_sample_fits(arguments: Arguments, machine: Machine) -> None:
    """A micro-batch holds at least one sample of the greatest length."""
    batch = arguments.batch
    if not batch.use_dynamic_batch_size or batch.max_tokens_per_gpu is None:
        return
    ranks = arguments.layout.context_parallel_size
    held = batch.max_tokens_per_gpu * ranks
    rollout = arguments.rollout
    for name, length in (
        ("rollout_max_context_len", rollout.rollout_max_context_len),
        ("rollout_max_response_len", rollout.rollout_max_response_len),
    ):
        if length is not None and length > held:
            raise broken(
                arguments,
                "max_tokens_per_gpu",
                f"times {ranks} context-parallel ranks it is less than"
                f" --{name.replace('_', '-')} {length}",
                fix=f"give at least {-(-length // ranks)}",
            )


def over_sampling_is_over(arguments: Arguments, machine: Machine) -> None:
    """At least the groups of a rollout are started."""
    started = arguments.rollout.over_sampling_batch_size
    needed = arguments.batch.rollout_batch_size
    if started is not None and started < needed:
        raise broken(
            arguments,
            "over_sampling_batch_size",
            f"is less than --rollout-batch-size {needed}",
            fix=f"give at least {needed}",
        )


RULES: Final[tuple[Rule, ...]] = (
    step_splits_over_ranks,
    dynamic_batches_have_a_size,
    longest_sample_fits,
    over_sampling_is_over,
)
