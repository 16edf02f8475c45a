"""Calling all training workers together, and putting together what they give."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from relax.arguments.groups import BatchSettings
from relax.backends.ray_border import answer
from relax.backends.training import RolloutInput
from relax.controller.partition import share_out
from relax.controller.rollout import RolloutInHand, trainer_input
from relax.controller.workers import Workers
from relax.engine.rollout.sample import Sample


async def call_trainers(
    workers: Workers, method: str, *args: Any, **settings: Any
) -> list[Any]:
    """Calls a method on every rank; the first error in time wins.

    Returns:
        What each gave, in the order of ranks.
    """
    return await _answers(
        {
            name: getattr(trainer, method).remote(*args, **settings)
            for name, trainer in workers.trainers.items()
        }
    )


async def hand_out(
    workers: Workers,
    trainable: Sequence[Sample],
    *,
    batch: BatchSettings,
    rollout: RolloutInHand,
    reward_key: str | None,
) -> None:
    """Gives each training worker the samples of its replica.

    Args:
        workers: The run's actors.
        trainable: All samples that are trained on.
        batch: Samples of a step, and whether tokens are balanced.
        rollout: The rollout in hand.
        reward_key: Key of the number when rewards are dicts.
    """
    inputs = inputs_of(
        workers, trainable, batch=batch, rollout=rollout, reward_key=reward_key
    )
    await each_trainer(workers, "receive", inputs)


def inputs_of(
    workers: Workers,
    trainable: Sequence[Sample],
    *,
    batch: BatchSettings,
    rollout: RolloutInHand,
    reward_key: str | None,
    rows: Sequence[int] | None = None,
) -> dict[str, RolloutInput]:
    """What each training worker is to train on, by name.

    Args:
        workers: The run's actors.
        trainable: All samples of the rollout that are trained on.
        batch: Samples of a step, and whether tokens are balanced.
        rollout: The rollout in hand.
        reward_key: Key of the number when rewards are dicts.
        rows: Only these, in this order, as one step; None for all.
    """
    replica_of = {name: w.data_rank for name, w in workers.trainers_opened.items()}
    chosen = range(len(trainable)) if rows is None else rows
    shares = share_out(
        [len(trainable[row].tokens) for row in chosen],
        samples_per_step=batch.global_batch_size if rows is None else len(chosen),
        replicas=1 + max(replica_of.values()),
        balance=batch.balance_data,
    )
    inputs = [
        trainer_input(
            trainable,
            share=dataclasses.replace(
                share, rows=tuple(chosen[row] for row in share.rows)
            ),
            rollout=rollout,
            reward_key=reward_key,
        )
        for share in shares
    ]
    return {name: inputs[replica] for name, replica in replica_of.items()}


def joined_rows(parts: Sequence[Mapping[str, list[Any]]]) -> dict[str, list[Any]]:
    """Rows of all ranks as one table; ranks that repeat another's have none."""
    given = [part for part in parts if part]
    return {
        name: [value for part in given for value in part[name]] for name in given[0]
    }


async def each_trainer(
    workers: Workers, method: str, given: Mapping[str, Any]
) -> list[Any]:
    """Calls a method on every rank, each with its own argument; see `call_trainers`."""
    return await _answers(
        {
            name: getattr(trainer, method).remote(given[name])
            for name, trainer in workers.trainers.items()
        }
    )


async def _answers(references: Mapping[str, Any]) -> list[Any]:
    calls = [
        asyncio.ensure_future(answer(reference, worker=name))
        for name, reference in references.items()
    ]
    done, waiting = await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
    for call in waiting:
        call.cancel()
    for call in done:
        call.result()
    return [call.result() for call in calls]
