"""Statistics of a rollout's per-token columns: log-probs, KL, entropy, advantages.

Keys under ``rollout/`` have upstream's formula: the masked token mean of each sample,
averaged over samples. The differences are ours: counted over tokens, with extremes,
quantiles and units in the last place beside each mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import numpy as np
import numpy.typing as npt

from relax.errors import RecordError
from relax.measure.difference import (
    TokenDifference,
    absolute_quantiles,
    compare_tokens,
)
from relax.measure.nonfinite import Floats, Mask
from relax.measure.reduction import Gauge, Max, Mean, Reduction, Sum

AVERAGED_COLUMNS = (
    "log_probs",
    "ref_log_probs",
    "rollout_log_probs",
    "advantages",
    "returns",
    "entropy",
)

_PAIRS = {"logprob_ref": "ref_log_probs", "logprob_rollout": "rollout_log_probs"}
"""Prefix of a comparison with log_probs → the other column."""

Column = Sequence[Floats | None]
Float64s = npt.NDArray[np.float64]
Everywhere = Callable[[Float64s], Float64s]
"""Joins what several ranks hold of one rollout: [2, own tokens] → [2, all tokens]."""


def alone(pair: Float64s) -> Float64s:
    """For a rank that holds every token itself."""
    return pair


def logprob_metrics(
    columns: Mapping[str, Column],
    masks: Sequence[Mask],
    *,
    everywhere: Everywhere = alone,
) -> dict[str, Reduction]:
    """Reduces the per-token columns of one rollout.

    Args:
        columns: Column name to one array [R] a sample, None where that sample has none.
            A column that is missing, or None throughout, gives no keys.
        masks: Loss mask of each sample, shape [R].
        everywhere: Joins the tokens of all ranks for what cannot be merged afterwards:
            quantiles, slope and correlation. Called once for each pair of columns that
            is given, whether or not this rank has values, so it may be a collective.

    Returns:
        Name to reduction:

        ``rollout/<column>``  masked token mean a sample, averaged over samples; a
            sample with an empty mask adds 0 and counts, as upstream has it.
        ``rollout/kl``, ``rollout/kl_k3``  the same, of log_probs against ref_log_probs.
        ``rollout/tokens_unmasked``, ``rollout/tokens_masked``  counts.
        ``logprob_ref/…``  log_probs against ref_log_probs, by token.
        ``logprob_rollout/…``  log_probs against rollout_log_probs, by token.
        ``logprob_entropy/gap``, ``…/gap_square``  -log_prob - entropy and its square,
            by token: their mean is 0 within sampling error for a model that scores
            what it sampled.
        ``nonfinite/<column>``, ``nonfinite_masked/<column>``  counts.

    Raises:
        RecordError: A column's length, or an array's shape, does not fit the masks.
    """
    _require_alignment(columns, masks)
    present = {
        name: column
        for name, column in columns.items()
        if any(values is not None for values in column)
    }
    metrics = _token_counts(masks)
    for name, column in present.items():
        metrics |= _nonfinite(name, column, masks)
        if name in AVERAGED_COLUMNS:
            metrics[f"rollout/{name}"] = sample_mean(column, masks)
    if "log_probs" in present:
        metrics |= _pair_metrics(present, masks)
    if "log_probs" in columns:
        metrics |= _joint_metrics(columns, masks, everywhere)
    return metrics


def _token_counts(masks: Sequence[Mask]) -> dict[str, Reduction]:
    unmasked = sum(int(np.count_nonzero(mask)) for mask in masks)
    return {
        "rollout/tokens_unmasked": Sum(unmasked),
        "rollout/tokens_masked": Sum(sum(mask.size for mask in masks) - unmasked),
    }


def _pair_metrics(
    present: Mapping[str, Column], masks: Sequence[Mask]
) -> dict[str, Reduction]:
    """log_probs against each other column that is there."""
    metrics: dict[str, Reduction] = {}
    log_probs = present["log_probs"]
    if (reference := present.get("ref_log_probs")) is not None:
        metrics |= _reference_metrics(log_probs, reference, masks)
    if (rollout := present.get("rollout_log_probs")) is not None:
        metrics |= _difference_metrics("logprob_rollout", log_probs, rollout, masks)
    if (entropy := present.get("entropy")) is not None:
        metrics |= _entropy_gap(log_probs, entropy, masks)
    return metrics


def _require_alignment(columns: Mapping[str, Column], masks: Sequence[Mask]) -> None:
    """Refuses a column that is not aligned to the masks, naming sample and sizes."""
    for name, column in columns.items():
        if len(column) != len(masks):
            raise RecordError(
                f"column {name} has {len(column)} samples, the masks have {len(masks)}"
            )
        for sample, (values, mask) in enumerate(zip(column, masks, strict=True)):
            if values is not None and values.shape != mask.shape:
                raise RecordError(
                    f"{values.shape[0]} values for {mask.shape[0]} response tokens",
                    where=f"samples[{sample}].{name}",
                )


def sample_mean(column: Column, masks: Sequence[Mask]) -> Mean:
    """Upstream's report of a per-token column.

    Args:
        column: One array [R] a sample; samples with None are not counted.
        masks: Loss mask of each sample, shape [R].

    Returns:
        Sum over samples of the masked token mean, and the number of samples. A sample
        whose mask is empty adds nothing and is counted.
    """
    total, count = 0.0, 0
    for values, mask in zip(column, masks, strict=True):
        if values is None:
            continue
        count += 1
        kept = values[mask.astype(bool)]
        if kept.size:
            total += float(kept.sum(dtype=np.float64)) / kept.size
    return Mean(total, count)


def _nonfinite(
    name: str, column: Column, masks: Sequence[Mask]
) -> dict[str, Reduction]:
    """Non-finite values of a column, those under a mask apart."""
    pairs = [
        (values, mask)
        for values, mask in zip(column, masks, strict=True)
        if values is not None
    ]
    # All tokens at once: a call a sample would cost more than the counting.
    bad = ~np.isfinite(np.concatenate([values for values, _ in pairs]))
    kept = np.concatenate([mask for _, mask in pairs]).astype(bool)
    everywhere = int(np.count_nonzero(bad))
    unmasked = int(np.count_nonzero(bad & kept))
    return {
        f"nonfinite/{name}": Sum(unmasked),
        f"nonfinite_masked/{name}": Sum(everywhere - unmasked),
    }


def _pairs(
    left: Column, right: Column, masks: Sequence[Mask]
) -> list[tuple[Floats, Floats, Mask]]:
    """Samples that have both columns."""
    return [
        (a, b, mask)
        for a, b, mask in zip(left, right, masks, strict=True)
        if a is not None and b is not None
    ]


def compare_columns(
    left: Column,
    right: Column,
    masks: Sequence[Mask],
    *,
    sample_indices: Sequence[int] | None = None,
) -> TokenDifference | None:
    """Compares two columns over all samples that have both.

    Args:
        left: One array [R] a sample, or None.
        right: The other column.
        masks: Loss mask of each sample.
        sample_indices: Names of the samples in the places; None: 0, 1, 2 …

    Returns:
        The merged difference, or None when no sample has both.

    Raises:
        RecordError: Shapes do not match.
    """
    indices = range(len(masks)) if sample_indices is None else sample_indices
    parts = [
        compare_tokens(a, b, mask, sample_index=index)
        for a, b, mask, index in zip(left, right, masks, indices, strict=True)
        if a is not None and b is not None
    ]
    return reduce(TokenDifference.merge, parts) if parts else None


def _difference_metrics(
    prefix: str, left: Column, right: Column, masks: Sequence[Mask]
) -> dict[str, Reduction]:
    """Counts, extremes and quantiles of left - right over unmasked tokens."""
    pairs = _pairs(left, right, masks)
    if not pairs:
        return {}
    # Places are not asked for here, so that all tokens can be compared at once.
    difference = compare_tokens(
        np.concatenate([a for a, _, _ in pairs]),
        np.concatenate([b for _, b, _ in pairs]),
        np.concatenate([mask for _, _, mask in pairs]),
    )
    metrics: dict[str, Reduction] = {
        f"{prefix}/tokens": Sum(difference.tokens),
        f"{prefix}/unequal": Sum(difference.unequal),
        f"{prefix}/abs_diff": difference.mean_abs,
    }
    if difference.max_abs is not None:
        metrics[f"{prefix}/max_abs"] = Max(difference.max_abs)
    if difference.max_ulp is not None:
        metrics[f"{prefix}/ulp_max"] = Max(difference.max_ulp)
    return metrics


def _joint_metrics(
    columns: Mapping[str, Column], masks: Sequence[Mask], everywhere: Everywhere
) -> dict[str, Reduction]:
    """What only all tokens together give; the same on every rank, so gauges."""
    metrics: dict[str, Reduction] = {}
    for prefix, other in _PAIRS.items():
        if other not in columns:
            continue
        own = concatenate_unmasked(columns["log_probs"], columns[other], masks)
        a, b = everywhere(np.stack(own))
        for name, quantile in absolute_quantiles([a - b]).items():
            metrics[f"{prefix}/{name}"] = Gauge(quantile)
        fit = fit_line(b, a) if other == "rollout_log_probs" else None
        if fit is not None:
            slope, correlation = fit
            metrics[f"{prefix}/slope"] = Gauge(slope)
            metrics[f"{prefix}/correlation"] = Gauge(correlation)
    return metrics


def concatenate_unmasked(
    left: Column, right: Column, masks: Sequence[Mask]
) -> tuple[Float64s, Float64s]:
    """Both columns over the unmasked tokens at which both are finite.

    Args:
        left: One array [R] a sample, or None.
        right: The other column.
        masks: Loss mask of each sample.

    Returns:
        Two float64 arrays of one length, samples in order.
    """
    pairs = _pairs(left, right, masks)
    if not pairs:
        return np.empty(0), np.empty(0)
    keep = np.concatenate([mask.astype(bool) for _, _, mask in pairs])
    a = np.concatenate([a.astype(np.float64) for a, _, _ in pairs])[keep]
    b = np.concatenate([b.astype(np.float64) for _, b, _ in pairs])[keep]
    finite = np.isfinite(a) & np.isfinite(b)
    return a[finite], b[finite]


def _reference_metrics(
    log_probs: Column, reference: Column, masks: Sequence[Mask]
) -> dict[str, Reduction]:
    """KL(policy || reference): k1 = d and k3 = exp(-d) - 1 + d, d = lp - ref."""
    k1: list[Float64s | None] = []
    k3: list[Float64s | None] = []
    for ours, theirs in zip(log_probs, reference, strict=True):
        if ours is None or theirs is None:
            k1.append(None)
            k3.append(None)
            continue
        # An infinity minus itself is NaN: it stays, and nonfinite/… has counted it.
        with np.errstate(invalid="ignore", over="ignore"):
            difference = ours.astype(np.float64) - theirs.astype(np.float64)
            k1.append(difference)
            k3.append(np.expm1(-difference) + difference)
    return {
        "rollout/kl": sample_mean(k1, masks),
        "rollout/kl_k3": sample_mean(k3, masks),
        **_difference_metrics("logprob_ref", log_probs, reference, masks),
    }


def fit_line(x: Float64s, y: Float64s) -> tuple[float, float] | None:
    """Least-squares slope of y over x, and Pearson's correlation.

    Args:
        x: Finite numbers.
        y: Finite numbers, as many.

    Returns:
        Slope and correlation; None for fewer than 3 points or a constant column.
    """
    if x.size < 3:
        return None
    dx, dy = x - x.mean(), y - y.mean()
    xx, yy, xy = float(dx @ dx), float(dy @ dy), float(dx @ dy)
    if xx == 0 or yy == 0:
        return None
    return xy / xx, xy / float(np.sqrt(xx) * np.sqrt(yy))


def _entropy_gap(
    log_probs: Column, entropy: Column, masks: Sequence[Mask]
) -> dict[str, Reduction]:
    """-log_prob - entropy by token.

    Given its prefix, a sampled token's -log_prob has the entropy as its expectation, so
    the gaps are uncorrelated with mean 0 and their squares add up to the variance of
    their sum: the sampling error needs no model of the text.
    """
    surprise, expected = concatenate_unmasked(log_probs, entropy, masks)
    gap = -surprise - expected
    return {
        "logprob_entropy/gap": Mean(float(gap.sum()), gap.size),
        "logprob_entropy/gap_square": Mean(float(gap @ gap), gap.size),
    }
