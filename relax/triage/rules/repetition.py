"""Guide, section 1: responses do not loop.

A sample loops when upstream's detector flags it (a 10,000-character window that zlib
shrinks more than tenfold) or, for the shorter answers that detector cannot see, when
over 80 % of its 4-grams have occurred before in at least 64 tokens; tables, verse and
code stay below. Base models loop when healthy, so the first rollout never fails.
"""

from __future__ import annotations

from relax.measure.text import is_repetitive, repeated_ngram_share
from relax.triage.evidence import RolloutEvidence
from relax.triage.rule import Finding, Rule, not_run, vacuous
from relax.triage.thresholds import (
    LOOP_NGRAM_SHARE,
    LOOP_TOKENS,
    REPETITION_FAIL,
    REPETITION_WARN,
)
from relax.triage.verdict import Cause, Place, Status


def judge(evidence: RolloutEvidence) -> Finding:
    """Counts looping samples, in the columns at hand or in the metric."""
    loops = _looping_rows(evidence)
    where = None
    if loops is None:
        share = evidence.number("rollout/repetition_frac")
        if share is None:
            return not_run("responses", get_it="keep samples (--dump-details)")
        summary = f"repetitive samples {share:.0%}"
    else:
        num_samples, rows = loops
        if not num_samples:
            return vacuous("every response is empty or masked")
        share = len(rows) / num_samples
        summary = f"looping samples {len(rows)} of {num_samples}"
        if rows:
            names = evidence.sample_indices(len(evidence.columns["response"]))
            where = Place(rollout_id=evidence.rollout_id, sample_index=names[rows[0]])
    if share >= REPETITION_FAIL.value and evidence.rollout_id > 0:
        status = Status.FAIL
    elif share >= REPETITION_WARN.value:
        status = Status.WARN
    else:
        status = Status.PASS
    return Finding(
        status=status,
        summary=summary,
        numbers={"share": share, "threshold_warn": REPETITION_WARN.value},
        where=where if status is not Status.PASS else None,
        causes=_causes(evidence.rollout_id) if status is not Status.PASS else (),
    )


def _looping_rows(evidence: RolloutEvidence) -> tuple[int, list[int]] | None:
    """Number of samples with any unmasked text, and the rows that loop."""
    responses = evidence.columns.get("response")
    if responses is None:
        return None
    masks = evidence.masks
    tokens = evidence.response_tokens()
    judged, rows = 0, []
    for row, response in enumerate(responses):
        if not response or (masks is not None and not masks[row].any()):
            continue
        judged += 1
        ids = tokens[row] if tokens is not None else []
        if is_repetitive(response) or _loops(ids):
            rows.append(row)
    return judged, rows


def _loops(ids: list[int]) -> bool:
    share = repeated_ngram_share(ids) if len(ids) >= LOOP_TOKENS.value else None
    return share is not None and share > LOOP_NGRAM_SHARE.value


def _causes(rollout_id: int) -> tuple[Cause, ...]:
    if rollout_id == 0:
        return (
            Cause(
                text="a base model, or no stop token reaches the engine",
                confidence="medium",
                confirm="try the instruct model; look at the stop reasons",
            ),
        )
    return (
        Cause(
            text="training has collapsed onto a loop",
            confidence="medium",
            confirm="the curves of entropy, KL and response length over rollouts",
        ),
    )


RULE = Rule(
    id="repetition",
    section="1",
    title="responses do not loop",
    needs=("response", "tokens"),
    cost="samples",
    stage="generate",
    judge=judge,
)
