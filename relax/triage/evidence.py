"""What a rule may look at: everything known about one rollout, gaps included."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np

from relax.measure.difference import TokenDifference
from relax.measure.logprob_metrics import Column, compare_columns, logprob_metrics
from relax.measure.nonfinite import Floats, Mask, TokenPlace, count_nonfinite
from relax.measure.reduction import Metrics
from relax.measure.rollout_metrics import group_rewards, has_zero_std
from relax.triage.verdict import Place

Precision: TypeAlias = Literal["float32", "bfloat16", "float16"]

_RANKS_MEASURED = "logprob_rollout/tokens"
"""Its presence says that the ranks compared all tokens while they were there."""

TOKEN_COLUMNS = (
    "log_probs",
    "ref_log_probs",
    "rollout_log_probs",
    "entropy",
    "advantages",
    "returns",
)


@dataclass(frozen=True, kw_only=True)
class RolloutEvidence:
    """One rollout as far as it is known.

    Metrics are over all tokens and come from the ranks; columns may hold only some
    samples (in a live run a bounded choice), so a rule takes counts from the metrics
    when it can and places from the columns.

    Attributes:
        rollout_id: The rollout.
        steps_per_rollout: Optimizer steps taken on one rollout, None if unknown.
        metrics: Metric name to reduction, as logged.
        columns: Column of the samples table (upstream's names) to one entry a sample;
            None for an entry that the sample does not have. A column that the run does
            not have is missing.
        vocab_size: Entries of the vocabulary, None if unknown.
        arguments: The arguments that rules know about, by flag name with underscores.
        weights_match_reference: Whether policy and reference hold the same weights
            while log_probs and ref_log_probs were taken; None if unknown.
        log_probs_recomputed: Whether log_probs come from a forward pass of their own
            rather than from the training forward; None if unknown.
        precision: What the models compute in, None if unknown.
        run: Run folder or dump as a command line would name it.
    """

    rollout_id: int
    steps_per_rollout: int | None = None
    metrics: Metrics = field(default_factory=dict)
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    vocab_size: int | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    weights_match_reference: bool | None = None
    log_probs_recomputed: bool | None = None
    precision: Precision | None = None
    run: str = "RUN"

    @cached_property
    def measured(self) -> Metrics:
        """The metrics, those that only the columns can give computed from them."""
        if _RANKS_MEASURED in self.metrics or self.masks is None:
            return self.metrics
        known = {name: self.token_column(name) for name in TOKEN_COLUMNS}
        columns = {name: column for name, column in known.items() if column is not None}
        return {**logprob_metrics(columns, self.masks), **self.metrics}

    def number(self, key: str) -> float | None:
        """A metric's value, None when it is absent or nothing was counted."""
        reduction = self.measured.get(key)
        return None if reduction is None else reduction.value

    @cached_property
    def masks(self) -> list[Mask] | None:
        """Loss mask of each sample; all ones where a sample has none.

        None when the columns do not even say how long the responses are.
        """
        lengths = self._response_lengths
        if lengths is None:
            return None
        given = self.columns.get("loss_mask", [None] * len(lengths))
        return [
            np.ones(length, dtype=np.int8) if mask is None else np.asarray(mask)
            for mask, length in zip(given, lengths, strict=True)
        ]

    @property
    def _response_lengths(self) -> list[int] | None:
        if "response_length" in self.columns:
            return [int(length) for length in self.columns["response_length"]]
        for name in ("loss_mask", *TOKEN_COLUMNS):
            column = self.columns.get(name)
            if column and all(entry is not None for entry in column):
                return [len(entry) for entry in column]
        return None

    def token_column(self, name: str) -> Column | None:
        """A per-token column as arrays, None when the run does not have it."""
        column = self.columns.get(name)
        if column is None or all(entry is None for entry in column):
            return None
        return [None if entry is None else _as_floats(entry) for entry in column]

    def response_tokens(self) -> list[list[int]] | None:
        """Response token ids of each sample; empty for a sample without tokens."""
        tokens, masks = self.columns.get("tokens"), self.masks
        if tokens is None or masks is None:
            return None
        return [
            [] if ids is None or not mask.size else list(map(int, ids[-mask.size :]))
            for ids, mask in zip(tokens, masks, strict=True)
        ]

    def sample_indices(self, num_samples: int) -> list[int]:
        """Index of each sample in its rollout, or its row when there is no column."""
        return list(self.columns.get("sample_index", range(num_samples)))

    def nonfinite(self, *columns: str) -> int:
        """Unmasked NaN and infinities in the named per-token columns."""
        counts = (self.number(f"nonfinite/{name}") for name in columns)
        return int(sum(count for count in counts if count is not None))

    def first_nonfinite(self, *columns: str) -> Place:
        """Place of the first of them, or the rollout when only a count is known."""
        for name in columns:
            column, masks = self.token_column(name), self.masks
            if column is None or masks is None:
                continue
            indices = self.sample_indices(len(masks))
            for values, mask, index in zip(column, masks, indices, strict=True):
                if values is None:
                    continue
                found = count_nonfinite(values, mask=mask, sample_index=index)
                if found.first is not None:
                    return self.at(found.first)
        return self.at(None)

    def compare(self, left: str, right: str) -> TokenDifference | None:
        """Compares two per-token columns of the samples at hand."""
        a, b, masks = self.token_column(left), self.token_column(right), self.masks
        if a is None or b is None or masks is None:
            return None
        indices = self.sample_indices(len(masks))
        return compare_columns(a, b, masks, sample_indices=indices)

    def at(self, place: TokenPlace | None) -> Place:
        """A token's place as a verdict names it; None means the whole rollout."""
        if place is None:
            return Place(rollout_id=self.rollout_id)
        return Place(
            rollout_id=self.rollout_id,
            sample_index=place.sample_index,
            position=place.position,
        )

    @property
    def expects_reference_equality(self) -> bool:
        """Whether policy and reference should give the same numbers.

        Known directly, or inferred: in the first rollout nothing has been trained yet,
        unless the policy was loaded from somewhere else than the reference.
        """
        if self.weights_match_reference is not None:
            return self.weights_match_reference
        load, reference = self.arguments.get("load"), self.arguments.get("ref_load")
        return self.rollout_id == 0 and (load is None or load == reference)

    @property
    def repeated_unequal(self) -> int | None:
        """Tokens to which a second pass of the same model gave other bits.

        None if unknown. The engine makes both passes again when policy and reference
        differ though they should not: that tells a kernel that is not deterministic
        from other weights.
        """
        unequal = self.number("logprob_repeat/unequal")
        return None if unequal is None else int(unequal)

    @property
    def zero_std_fraction(self) -> float | None:
        """Share of groups whose rewards are all equal; None when unknown."""
        known = self.number("rollout/zero_std/frac")
        if known is not None:
            return known
        rewards, groups = self.columns.get("reward"), self.columns.get("group_index")
        if rewards is None or groups is None:
            return None
        by_group = group_rewards(rewards, groups)
        if not by_group:
            return None
        return sum(map(has_zero_std, by_group.values())) / len(by_group)

    def show_command(self, where: Place) -> str:
        """The command line that shows a place."""
        command = f"relax-tui show {self.run} --rollout {where.rollout_id}"
        if where.sample_index is not None:
            command += f" --sample {where.sample_index}"
        return command


def _as_floats(entry: Any) -> Floats:
    """A column entry as an array; a missing element of a list becomes NaN."""
    if isinstance(entry, np.ndarray):
        return entry
    return np.array(
        [math.nan if value is None else value for value in entry], dtype=np.float64
    )
