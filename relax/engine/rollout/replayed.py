"""Samples out of a rollout dump: decoded in its own process, checked, grouped."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from relax.arguments import Arguments
from relax.arguments.dump_template import DumpTemplate
from relax.dump.decode.client import decode
from relax.engine.rollout.sample import Sample, SampleStatus
from relax.errors import ArgumentError, DumpError, DumpMissing
from relax.records.open import StepRecord
from relax.records.schema import StageFile


def read_dump(path: Path, *, reward_key: str | None) -> list[Sample]:
    """Reads the samples of a rollout dump; nothing in it is executed.

    Args:
        path: A dump of this or another engine, in one of the known formats.
        reward_key: Key of the number where rewards are dicts.

    Returns:
        The samples, in the order of the file.

    Raises:
        DumpError: The file is missing, damaged, or no rollout dump.
    """
    with tempfile.TemporaryDirectory(prefix="relax-dump-") as place:
        decoded = decode(path, Path(place) / "record", reward_key=reward_key)
        if decoded.kind != "rollout":
            raise DumpError(
                f"it is a {decoded.kind} dump, and samples are in rollout dumps",
                where=str(path),
                hint="give the file that --save-debug-rollout-data wrote",
            )
        record = StepRecord.at(decoded.folder, rollout_id=decoded.rollout_id)
        return samples_of(record, where=path)


def samples_of(record: StepRecord, *, where: Path) -> list[Sample]:
    """The samples of a decoded dump, in the order of the file.

    Args:
        record: Of `relax.dump.decode`.
        where: The dump, for messages.

    Raises:
        DumpError: A sample is of no known status.
    """
    table = record.table(StageFile.SAMPLES)
    rows = [] if table is None else table.to_pylist()
    return [_sample(row, where) for row in rows]


def dump_path(template: str, rollout_id: int) -> Path:
    """The dump of one rollout; a template without placeholder is one file for all."""
    return DumpTemplate(template).path(rollout_id=rollout_id)


def subsampled(samples: Sequence[Sample], ratio: float | None) -> list[Sample]:
    """Keeps whole groups, half of them from the front and half from the back.

    Upstream's rule: ``clamp(int(groups · ratio), 1, groups)`` groups.

    Args:
        samples: Of one rollout.
        ratio: Share of the groups; None keeps all.
    """
    if ratio is None:
        return list(samples)
    groups = grouped(samples)
    count = min(max(int(len(groups) * ratio), 1), len(groups))
    front = count - count // 2
    back = groups[len(groups) - count // 2 :]
    return [sample for group in (*groups[:front], *back) for sample in group]


def grouped(samples: Sequence[Sample]) -> list[list[Sample]]:
    """Groups in order of first appearance; a sample without a group is its own."""
    groups: dict[Any, list[Sample]] = {}
    for place, sample in enumerate(samples):
        own = ("alone", place)
        key = own if sample.group_index is None else sample.group_index
        groups.setdefault(key, []).append(sample)
    return list(groups.values())


def check_fit(
    samples: Sequence[Sample], arguments: Arguments, *, path: Path, flag: str
) -> None:
    """Checks that a dump holds exactly what one rollout of this run trains on.

    Args:
        samples: Of the dump, after subsampling.
        arguments: Of the run.
        path: The dump.
        flag: The flag that named it.

    Raises:
        ArgumentError: Sample count, group size or lengths differ; names both numbers
            and the flag to change.
    """
    batch = arguments.batch
    where = f"{flag} {path}"
    expected = batch.rollout_batch_size * batch.n_samples_per_prompt
    groups = grouped(samples)
    # Samples that failed or were aborted are not in a dump: a group may lack some.
    largest = max((len(group) for group in groups), default=0)
    if largest != batch.n_samples_per_prompt:
        raise ArgumentError(
            f"its groups hold {largest} samples, and this run takes "
            f"{batch.n_samples_per_prompt} samples a prompt",
            where=where,
            hint=f"set --n-samples-per-prompt {largest}",
        )
    if len(groups) != batch.rollout_batch_size:
        raise ArgumentError(
            f"it holds {len(samples)} samples ({len(groups)} groups), and a rollout of "
            f"this run has {expected}",
            where=where,
            hint=f"set --rollout-batch-size {len(groups)} and --global-batch-size to "
            f"a divisor of {len(groups) * largest}",
        )
    _check_lengths(samples, _limits(arguments), where=where)


def _check_lengths(
    samples: Sequence[Sample], limits: Mapping[str, int], *, where: str
) -> None:
    longest = max((len(sample.tokens) for sample in samples), default=0)
    for name, limit in limits.items():
        if longest > limit:
            raise ArgumentError(
                f"its longest sample has {longest} tokens, more than the {name} of "
                f"{limit}",
                where=where,
                hint=f"set {name} {longest}",
            )
    for sample in samples:
        if not sample.tokens:
            raise ArgumentError(
                f"sample {sample.index} has no tokens, so it cannot be trained on",
                where=where,
            )


def _limits(arguments: Arguments) -> dict[str, int]:
    """By flag: how many tokens a sample may have."""
    batch, longest = arguments.batch, arguments.rollout.rollout_max_context_len
    limits = {} if longest is None else {"--rollout-max-context-len": longest}
    if batch.use_dynamic_batch_size and batch.max_tokens_per_gpu is not None:
        limits["--max-tokens-per-gpu"] = batch.max_tokens_per_gpu
    return limits


def load_for_training(arguments: Arguments, rollout_id: int) -> list[Sample]:
    """The samples that a train-only run trains on in one rollout.

    Raises:
        DumpMissing: There is no dump for this rollout; says what to do.
        DumpError: It cannot be read.
        ArgumentError: It does not fit the run.
    """
    debug = arguments.debug
    path = dump_path(str(debug.load_debug_rollout_data), rollout_id)
    if not path.is_file():
        raise DumpMissing(
            f"there is no dump for rollout {rollout_id}",
            where=f"--load-debug-rollout-data {path}",
            hint="put the file there and continue, or stop the run",
        )
    samples = read_dump(path, reward_key=arguments.reward.reward_key)
    samples = subsampled(samples, debug.load_debug_rollout_data_subsample)
    check_fit(samples, arguments, path=path, flag="--load-debug-rollout-data")
    return samples


def _sample(row: Mapping[str, Any], path: Path) -> Sample:
    try:
        status = SampleStatus(row["status"])
    except ValueError as error:
        raise DumpError(
            f"sample {row['sample_index']} has the status {row['status']!r}",
            where=str(path),
        ) from error
    log_probs = row["rollout_log_probs"]
    metadata = json.loads(row["metadata"]) if row["metadata"] else {}
    # What the record has no column for.
    more = metadata.pop("sample", {})
    return Sample(
        group_index=row["group_index"],
        index=row["sample_index"],
        prompt=row["prompt"] or "",
        tokens=list(row["tokens"] or ()),
        response=row["response"] or "",
        response_length=row["response_length"],
        label=row["label"],
        reward=row["reward"],
        loss_mask=row["loss_mask"],
        weight_versions=row["weight_versions"] or [],
        rollout_log_probs=None
        if log_probs is None
        else np.asarray(log_probs, np.float32),
        status=status,
        stop_reason=row["stop_reason"] or more.get("stop_reason", ""),
        failure=row["failure"] or more.get("failure", ""),
        metadata=metadata,
        remove_sample=bool(more.get("remove_sample", False)),
        abort_count=int(more.get("abort_count", 0)),
    )
