"""The default rollout function: prompts from the data source, answers from the engine.

The path is upstream's, so that its scripts keep working; any `RolloutBackend` serves.
"""

from __future__ import annotations

from typing import Any, Protocol

from relax.arguments.groups import (
    BatchSettings,
    DataSettings,
    RewardSettings,
    RolloutSettings,
)
from relax.backends.rollout import SamplingParams
from relax.engine.rollout.context import (
    RolloutClient,
    RolloutFnEvalOutput,
    RolloutFnTrainOutput,
)
from relax.engine.rollout.generation import Generation, GenerationSettings
from relax.engine.rollout.sample import Sample, SampleStatus, sorted_groups
from relax.errors import ArgumentError
from relax.measure.reduction import Metrics, Sum


class RolloutArguments(Protocol):
    """What this module needs of `relax.arguments.Arguments`."""

    @property
    def batch(self) -> BatchSettings:
        """Batch sizes."""

    @property
    def data(self) -> DataSettings:
        """For ``rollout_seed``."""

    @property
    def reward(self) -> RewardSettings:
        """For ``group_rm`` and ``reward_key``."""

    @property
    def rollout(self) -> RolloutSettings:
        """How to sample."""


class DataSource(Protocol):
    """`relax.engine.rollout.data_source.RolloutDataSource`, or the user's own."""

    @property
    def name(self) -> str:
        """Name of the data set."""

    def get_samples(self, num_prompts: int) -> list[list[Sample]]:
        """The next groups; fewer than asked when the data end."""
        ...


async def generate_rollout(
    args: RolloutArguments,
    rollout_id: int,
    data_source: DataSource,
    data_system_client: RolloutClient,
    evaluation: bool = False,  # noqa: FBT001, FBT002 - upstream's contract
) -> RolloutFnTrainOutput | RolloutFnEvalOutput:
    """Generate and score one rollout, or an evaluation over all of ``data_source``.

    Args:
        args: The run's arguments.
        rollout_id: Number of the rollout.
        data_source: Where prompts come from; its cursor moves on.
        data_system_client: Engine, tokenizer, rewards, callbacks.
        evaluation: Go through ``data_source`` to its end instead of taking
            ``--rollout-batch-size`` prompts.

    Returns:
        All samples, aborted and failed ones too, sorted by index.

    Raises:
        ArgumentError: No prompts are left, or no longest response is set.
        EngineDied: The engine is gone.
    """
    settings = _settings(args, evaluation=evaluation)
    groups = _draw(args, data_source=data_source, evaluation=evaluation)
    generation = Generation(settings, client=data_system_client, rollout_id=rollout_id)
    await generation.run(groups)
    ordered = sorted_groups(groups)
    if evaluation:
        return _evaluated(
            ordered, name=data_source.name, reward_key=args.reward.reward_key
        )
    _log_completion(
        data_system_client, rollout_id=rollout_id, num_aborted=generation.num_aborted
    )
    return RolloutFnTrainOutput(
        samples=ordered, metrics=_counts(ordered, prefix="rollout")
    )


def _settings(args: RolloutArguments, *, evaluation: bool) -> GenerationSettings:
    rollout = args.rollout
    longest = rollout.rollout_max_response_len or rollout.rollout_max_context_len
    if longest is None:
        raise ArgumentError(
            "no longest response is set",
            where="--rollout-max-response-len",
            hint="give it, or --rollout-max-context-len",
        )
    return GenerationSettings(
        sampling=SamplingParams(
            temperature=rollout.rollout_temperature,
            top_p=rollout.rollout_top_p,
            top_k=rollout.rollout_top_k,
            max_new_tokens=longest,
            stop=rollout.rollout_stop,
            stop_token_ids=rollout.rollout_stop_token_ids,
            seed=None,
            skip_special_tokens=rollout.rollout_skip_special_tokens,
        ),
        seed_name=f"{args.data.rollout_seed}{':eval' if evaluation else ''}",
        max_context_len=rollout.rollout_max_context_len,
        concurrency=rollout.sglang_server_concurrency,
        group_rm=args.reward.group_rm,
    )


def _draw(
    args: RolloutArguments, *, data_source: DataSource, evaluation: bool
) -> list[list[Sample]]:
    size = args.batch.rollout_batch_size
    if size is None:
        raise ArgumentError("no batch size is set", where="--rollout-batch-size")
    groups = data_source.get_samples(size)
    if not groups:
        raise ArgumentError(
            f"no prompts are left in {data_source.name!r}",
            where="--prompt-data",
            hint="give more prompts, or more epochs",
        )
    while evaluation and (more := data_source.get_samples(size)):
        groups += more
    return groups


def _evaluated(
    groups: list[list[Sample]], *, name: str, reward_key: str | None
) -> RolloutFnEvalOutput:
    samples = [sample for group in groups for sample in group]
    truncated = [sample.status is SampleStatus.TRUNCATED for sample in samples]
    data: dict[str, list[Any]] = {
        "rewards": [sample.scalar_reward(reward_key) for sample in samples],
        "truncated": truncated,
        "samples": samples,
    }
    return RolloutFnEvalOutput(
        data={name: data}, metrics=_counts(groups, prefix=f"eval/{name}")
    )


def _counts(groups: list[list[Sample]], *, prefix: str) -> Metrics:
    """How many samples there are, and how many of them cannot be trained on."""
    states = [sample.status for group in groups for sample in group]
    return {
        f"{prefix}/num_samples": Sum(len(states)),
        f"{prefix}/num_failed": Sum(states.count(SampleStatus.FAILED)),
        f"{prefix}/num_aborted": Sum(states.count(SampleStatus.ABORTED)),
    }


def _log_completion(
    client: RolloutClient, *, rollout_id: int, num_aborted: int
) -> None:
    if num_aborted:
        client.log.info(
            "Rollout not completed for rollout_id: %d, have %d samples aborted.",
            rollout_id,
            num_aborted,
        )
    else:
        client.log.info("Rollout fully completed for rollout_id: %d.", rollout_id)
