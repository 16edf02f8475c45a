"""What a run says of itself: ``run.json`` and the ``run_started`` event."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relax.arguments import Arguments
from relax.arguments.environment import interpreter, recorded_environment
from relax.control.run_folder import RunInfo, boot_id, process_start
from relax.controller.modes import mode_of
from relax.controller.provenance import git_state, versions
from relax.errors import ArgumentError
from relax.events.types import RunStarted

RESUMED = "derived from the checkpoint"
"""Origin of arguments that a checkpoint gave."""


@dataclass(frozen=True, kw_only=True)
class RunPlace:
    """Where a run lives.

    Attributes:
        socket: None with ``--no-control``.
    """

    run_id: str
    run_dir: Path
    attempt: int
    socket: Path | None


def run_info(arguments: Arguments, place: RunPlace) -> RunInfo:
    """What goes into ``run.json``."""
    pid = os.getpid()
    return RunInfo(
        run_id=place.run_id,
        name=arguments.run.run_name,
        attempt=place.attempt,
        host=socket.gethostname(),
        boot_id=boot_id(),
        pid=pid,
        process_start=process_start(pid),
        socket=str(place.socket) if place.socket else "",
        interpreter=str(interpreter()),
        started=time.time(),
    )


def run_started(
    arguments: Arguments,
    place: RunPlace,
    *,
    vocab: str,
    nodes: Mapping[str, Any] | None = None,
) -> RunStarted:
    """The event that says what ran; secrets are left out of it.

    Args:
        arguments: Of the run.
        place: Where it lives.
        vocab: Name of the vocabulary file; '' before there is one.
        nodes: Where it runs; None before that is known.
    """
    batch = arguments.batch
    resumes = arguments.origins.get("load") == RESUMED
    return RunStarted(
        run_id=place.run_id,
        name=arguments.run.run_name,
        mode=mode_of(arguments),
        num_rollout=num_rollout(arguments),
        start_rollout_id=first_rollout(arguments),
        steps_per_rollout=batch.num_steps_per_rollout,
        samples_per_rollout=batch.rollout_batch_size * batch.n_samples_per_prompt,
        arguments=arguments.to_json(),
        arguments_digest=arguments.digest(),
        versions=versions(),
        git=git_state(),
        environment=recorded_environment(),
        layout=arguments.layout.sizes,
        vocab=vocab,
        resumed_from=str(arguments.checkpoint.load) if resumes else "",
        nodes=nodes or {},
    )


def first_rollout(arguments: Arguments) -> int:
    """The first rollout of this attempt."""
    return arguments.data.start_rollout_id or 0


def num_rollout(arguments: Arguments) -> int:
    """How many rollouts the run has in all.

    Raises:
        ArgumentError: Only ``--num-epoch`` says how long the run is.
    """
    if arguments.data.num_rollout is None:
        raise ArgumentError(
            "--num-epoch alone does not say how many rollouts there are",
            hint="give --num-rollout",
        )
    return arguments.data.num_rollout
