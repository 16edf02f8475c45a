"""Guide, check 1: responses are coherent.

A sample is garbled by one decisive sign or by two independent ones. Decisive: its own
mean rollout_log_prob lies near -ln V, as when sampling from noise; over 30 % of its
characters are U+FFFD; one token id fills it, as NaN logits do. Signs: an implausibly
low mean log-prob, some replacement or control characters, words that join scripts.

The signs know nothing of languages, so that code, LaTeX, base64, verse, tables and
answers in any language stay silent; broken text in good characters is found by its
log-probs. Only a majority of garbled samples fails the rollout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from relax.measure.nonfinite import Floats
from relax.measure.text import (
    control_share,
    mixed_script_share,
    most_common_share,
    replacement_share,
)
from relax.triage import thresholds as limits
from relax.triage.evidence import RolloutEvidence
from relax.triage.rule import Finding, Rule, non_finite, not_run, vacuous
from relax.triage.verdict import Cause, Evidence, Place, Status

_NEEDED_SIGNS = 2


@dataclass(frozen=True, slots=True)
class _Signs:
    """What speaks against one sample."""

    decisive: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def garbled(self) -> bool:
        return bool(self.decisive) or len(self.others) >= _NEEDED_SIGNS

    def __str__(self) -> str:
        return "; ".join(self.decisive + self.others)


@dataclass(frozen=True, slots=True)
class _Sample:
    """What can be judged of one sample.

    Attributes:
        index: The sample's index.
        response: Its text, not empty.
        ids: Its response tokens; empty when the run keeps none.
        log_probs: Its unmasked rollout_log_probs; None when it has none.
    """

    index: int
    response: str
    ids: list[int]
    log_probs: Floats | None


def judge(evidence: RolloutEvidence) -> Finding:
    """Judges each sample, then the rollout by its share of garbled ones."""
    if (broken := non_finite(evidence, "rollout_log_probs")) is not None:
        return broken
    samples = _samples(evidence)
    if samples is None:
        return not_run("responses", get_it="keep samples (--dump-details)")
    if not samples:
        return vacuous("every response is empty or masked", {"samples": 0})
    noise = None if evidence.vocab_size is None else -math.log(evidence.vocab_size)
    signs = [(sample, _signs_of(sample, noise)) for sample in samples]
    garbled = [(sample, found) for sample, found in signs if found.garbled]
    share = len(garbled) / len(samples)
    pooled = _pooled_noise(samples, noise)
    if share > limits.GARBLED_SAMPLES_FAIL.value or pooled is not None:
        status = Status.FAIL
    elif share > limits.GARBLED_SAMPLES_WARN.value:
        status = Status.WARN
    else:
        status = Status.PASS
    numbers = {"garbled": len(garbled), "samples": len(samples), "share": share}
    mean_log_prob = evidence.number("rollout/rollout_log_probs")
    if mean_log_prob is not None:
        numbers["mean_rollout_log_prob"] = mean_log_prob
    summary = f"garbled {len(garbled)} of {len(samples)} samples"
    if status is Status.PASS:
        return Finding(status=status, summary=summary, numbers=numbers)
    observed = [Evidence(text=pooled)] if pooled is not None else []
    for sample, found in garbled[:3]:
        where = Place(rollout_id=evidence.rollout_id, sample_index=sample.index)
        observed.append(Evidence(text=str(found), where=where))
    return Finding(
        status=status,
        summary=summary if pooled is None else f"{summary}; {pooled}",
        numbers=numbers,
        where=observed[-len(garbled[:3])].where if garbled else None,
        evidence=tuple(observed),
        causes=_FIRST_CAUSES if evidence.rollout_id == 0 else _LATER_CAUSES,
    )


def _samples(evidence: RolloutEvidence) -> list[_Sample] | None:
    """The samples with any unmasked text; None when the run keeps no responses."""
    responses = evidence.columns.get("response")
    if responses is None:
        return None
    masks = evidence.masks
    tokens = evidence.response_tokens()
    log_probs = evidence.token_column("rollout_log_probs")
    samples = []
    for row, index in enumerate(evidence.sample_indices(len(responses))):
        mask = None if masks is None else masks[row]
        if not responses[row] or (mask is not None and not mask.any()):
            continue
        values = None if log_probs is None or mask is None else log_probs[row]
        if values is not None and mask is not None:
            values = values[mask.astype(bool)]
        ids = [] if tokens is None else tokens[row]
        samples.append(_Sample(index, responses[row], ids, values))
    return samples


def _signs_of(sample: _Sample, noise: float | None) -> _Signs:
    """Looks for signs; ``noise`` is the log-prob of a uniform draw, -ln V."""
    decisive: list[str] = []
    others: list[str] = []
    if (mean := _mean_log_prob(sample)) is not None and noise is not None:
        told = f"mean log-prob {mean:.2f}, noise has {noise:.2f}"
        if mean < limits.GARBLED_LOG_PROB.value * noise:
            decisive.append(told)
        elif mean < limits.IMPLAUSIBLE_LOG_PROB.value * noise:
            others.append(told)
    replaced = replacement_share(sample.response) or 0.0
    if replaced > limits.REPLACEMENT_DECISIVE.value:
        decisive.append(f"{replaced:.0%} of its characters are U+FFFD")
    elif replaced > limits.REPLACEMENT_SIGN.value:
        others.append(f"{replaced:.0%} of its characters are U+FFFD")
    control = control_share(sample.response) or 0.0
    if control > limits.CONTROL_SIGN.value:
        others.append(f"{control:.0%} control or unassigned characters")
    mixed, words = mixed_script_share(sample.response)
    enough_words = words >= limits.MIXED_SCRIPT_WORDS.value
    if enough_words and mixed / words > limits.MIXED_SCRIPT_SIGN.value:
        others.append(f"{mixed} of {words} words join scripts")
    top = most_common_share(sample.ids)
    enough_tokens = len(sample.ids) >= limits.GARBLED_TOKENS.value
    if enough_tokens and top is not None and top >= limits.ONE_TOKEN_SHARE.value:
        decisive.append(f"one token id fills {top:.0%} of it")
    return _Signs(tuple(decisive), tuple(others))


def _mean_log_prob(sample: _Sample) -> float | None:
    """The sample's own mean log-prob, None for too few tokens."""
    values = sample.log_probs
    if values is None or values.size < limits.GARBLED_TOKENS.value:
        return None
    return float(values.mean(dtype=np.float64))


def _pooled_noise(samples: list[_Sample], noise: float | None) -> str | None:
    """Says so if all tokens together look like noise; short answers need this."""
    kept = [sample.log_probs for sample in samples if sample.log_probs is not None]
    num_tokens = sum(values.size for values in kept)
    if noise is None or num_tokens < limits.GARBLED_POOLED_TOKENS.value:
        return None
    mean = float(sum(values.sum(dtype=np.float64) for values in kept)) / num_tokens
    if mean >= limits.GARBLED_POOLED_LOG_PROB.value * noise:
        return None
    return f"mean log-prob {mean:.2f} over all tokens, noise has {noise:.2f}"


_FIRST_CAUSES = (
    Cause(
        text="the checkpoint was loaded or converted wrongly",
        confidence="high",
        confirm="compare the engine's parameters with the checkpoint, tensor by tensor",
    ),
    Cause(
        text="the engine released buffers that it needs (release_memory_occupation)",
        confidence="medium",
        confirm="generate once before and once after a release",
    ),
    Cause(
        text="a pretrained model instead of the instruct model, or a temperature far "
        "above 1",
        confidence="low",
        confirm="generate with the instruct model of the same structure",
    ),
)
_LATER_CAUSES = (
    Cause(
        text="training has diverged: reward, learning rate or clipping",
        confidence="high",
        confirm="the first garbled rollout, and grad_norm and KL before it",
    ),
    Cause(
        text="a weight update arrived broken",
        confidence="medium",
        confirm="log_probs_vs_rollout of this rollout: engine and trainer disagree",
    ),
)

RULE = Rule(
    id="responses_coherent",
    section="1",
    title="responses are coherent",
    needs=("response", "tokens", "rollout_log_probs", "loss_mask"),
    cost="samples",
    stage="generate",
    judge=judge,
)
