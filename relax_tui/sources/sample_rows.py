"""Rows of samples out of Arrow tables: scalars, and what is odd about each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from relax.measure.text import is_repetitive, repeated_ngram_share, replacement_share
from relax_tui.sources.base import MicroBatchRow, SampleRow

SAMPLE_COLUMNS = ("rollout_log_probs",)
LOGPROB_COLUMNS = ("log_probs", "ref_log_probs", "entropy", "advantages", "returns")
LOOP_SHARE = 0.5
LOOP_TOKENS = 16
GARBLED_SHARE = 0.02
FLAG_CHARACTERS = 20_000
_HEAVY = frozenset({"tokens", "loss_mask", *SAMPLE_COLUMNS, *LOGPROB_COLUMNS})


def sample_rows(samples: pa.Table) -> list[tuple[SampleRow, Sequence[int]]]:
    """A row a sample, and its response tokens where they are carried."""
    light = samples.select([n for n in samples.column_names if n not in _HEAVY])
    tokens = samples.column("tokens") if "tokens" in samples.column_names else None
    rows = []
    for number, sample in enumerate(light.to_pylist()):
        row = _row(number, sample)
        ids = tokens[number].as_py() if tokens is not None else None
        rows.append((row, () if ids is None else ids[len(ids) - row.length :]))
    return rows


def score_rows(logprobs: pa.Table) -> list[dict[str, Any]]:
    """The scalars of the log-prob passes, a row a sample."""
    names = [n for n in logprobs.column_names if n not in _HEAVY]
    scores: list[dict[str, Any]] = logprobs.select(names).to_pylist()
    return scores


def joined(
    samples: Sequence[tuple[SampleRow, Sequence[int]]],
    scores: Sequence[Mapping[str, Any]] | None,
) -> tuple[SampleRow, ...]:
    """Samples with their scores and flags.

    Args:
        samples: As `sample_rows` gives them.
        scores: As `score_rows` gives them; None before the log-prob passes.
    """
    if scores is None or len(scores) != len(samples):
        scores = [{} for _ in samples]
    rows = []
    for (sample, ids), score in zip(samples, scores, strict=True):
        row = _scored(sample, score)
        rows.append(replace(row, flags=flags(row, ids)))
    return tuple(rows)


def _row(number: int, sample: Mapping[str, Any]) -> SampleRow:
    return SampleRow(
        row=number,
        index=sample["sample_index"],
        group=sample.get("group_index"),
        status=sample["status"],
        reward=sample.get("reward"),
        length=sample["response_length"],
        total_length=sample["total_length"],
        prompt=sample.get("prompt") or "",
        response=sample.get("response") or "",
        label=sample.get("label") or "",
        masked=sample.get("num_masked"),
        failure=sample.get("failure") or "",
        stop_reason=sample.get("stop_reason") or "",
        weight_versions=tuple(sample.get("weight_versions") or ()),
        tokens_kept=sample["tokens_kept"],
    )


def _scored(row: SampleRow, scores: Mapping[str, Any]) -> SampleRow:
    """The row with what the log-prob passes said of it."""
    return replace(
        row,
        log_prob_mean=scores.get("log_prob_mean"),
        entropy_mean=scores.get("entropy_mean"),
        normalized_reward=scores.get("normalized_reward"),
        ref_unequal=scores.get("ref_unequal"),
        ref_max_abs=scores.get("ref_max_abs"),
        ref_max_position=scores.get("ref_max_position"),
        rollout_mean_abs=scores.get("rollout_mean_abs"),
        rollout_max_abs=scores.get("rollout_max_abs"),
        rollout_max_position=scores.get("rollout_max_position"),
        nonfinite=scores.get("num_nonfinite"),
    )


def flags(row: SampleRow, ids: Sequence[int]) -> tuple[str, ...]:
    """Short words for what is odd about a sample, the worst first.

    Args:
        row: Its scalars.
        ids: Its response tokens, when they are carried.

    Returns:
        Some of FAIL, NONF, GARB, LOOP, EMPTY, TRUNC.
    """
    text = row.response[:FLAG_CHARACTERS]
    share = repeated_ngram_share(ids) if len(ids) >= LOOP_TOKENS else None
    loops = is_repetitive(text) or (share is not None and share > LOOP_SHARE)
    found = {
        "FAIL": bool(row.failure) or row.status == "failed",
        "NONF": bool(row.nonfinite),
        "GARB": (replacement_share(text) or 0) > GARBLED_SHARE,
        "LOOP": loops,
        "EMPTY": row.length == 0,
        "TRUNC": row.status == "truncated",
        "ABORT": row.status == "aborted",
    }
    return tuple(word for word, is_so in found.items() if is_so)


def micro_batches(train: pa.Table) -> tuple[MicroBatchRow, ...]:
    """Where each sample was in training."""
    return tuple(
        MicroBatchRow(
            index=row["sample_index"],
            step_id=row["step_id"],
            rank=row["rank"],
            micro_batch=row["micro_batch"],
            place=row["place"],
            padded_length=row["padded_length"],
        )
        for row in train.to_pylist()
    )
