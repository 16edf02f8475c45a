"""A rollout function that returns a dump instead of generating (workflow 4).

Everything else of the run stays alive: engines, weight updates, the turns for memory.
What is left out is only the decoding itself.

    --rollout-function-path relax.engine.rollout.forge_load.generate_rollout
    --load-forge-rollout-data /dumps/0.pt               the same file every rollout
    --load-forge-rollout-data /dumps/{rollout_id}.pt    its own; when missing, 0's
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from relax.arguments import Arguments
from relax.engine.rollout.context import (
    GenerationProgress,
    RolloutClient,
    RolloutFnEvalOutput,
    RolloutFnTrainOutput,
)
from relax.engine.rollout.data_source import RolloutDataSource
from relax.engine.rollout.replayed import check_fit, dump_path, grouped, read_dump
from relax.errors import DumpMissing

FLAG = "--load-forge-rollout-data"


async def generate_rollout(
    args: Arguments,
    rollout_id: int,
    data_source: RolloutDataSource,
    data_system_client: RolloutClient,
    *,
    evaluation: bool = False,
) -> RolloutFnTrainOutput | RolloutFnEvalOutput:
    """Returns the samples of a dump.

    Args:
        args: Of the run.
        rollout_id: The rollout.
        data_source: Not drawn from.
        data_system_client: Told of every sample.
        evaluation: An evaluation has nothing to replay: it gives no data.

    Raises:
        DumpError: No dump was found, or it cannot be read.
        ArgumentError: It does not hold one rollout's samples.
    """
    if evaluation:
        return RolloutFnEvalOutput(data={})
    client = data_system_client
    path = forge_path(str(args.debug.load_forge_rollout_data), rollout_id, client)
    samples = await asyncio.to_thread(
        read_dump, path, reward_key=args.reward.reward_key
    )
    check_fit(samples, args, path=path, flag=FLAG)
    groups = grouped(samples)
    client.log.info(
        "forge_load: replaying %d samples (%d groups) for rollout_id=%d from %s",
        len(samples),
        len(groups),
        rollout_id,
        path.name,
    )
    for sample in samples:
        client.on_sample(sample)
    tokens = [sample.response_length for sample in samples]
    client.on_progress(
        GenerationProgress(
            done=len(samples),
            total=len(samples),
            tokens=sum(tokens),
            longest=max(tokens, default=0),
        )
    )
    return RolloutFnTrainOutput(samples=groups)


def forge_path(template: str, rollout_id: int, client: RolloutClient) -> Path:
    """The dump to replay in one rollout.

    Raises:
        DumpMissing: Neither its own nor rollout 0's is there.
    """
    own = dump_path(template, rollout_id)
    if own.is_file():
        return own
    fallback = dump_path(template, 0)
    if not fallback.is_file():
        raise DumpMissing(
            f"forge_load: no dump found for rollout_id={rollout_id}",
            where=f"{FLAG} {own}",
            hint="give a dump that --save-debug-rollout-data or --dump-details wrote",
        )
    client.log.info("forge_load: %s missing, falling back to %s", own, fallback)
    return fallback
