"""Guide, section 1: every sample came to its end, with a reward.

A sample fails when the engine answers with an error or with log-probs that are missing
or not finite, or when its reward raises or is no number. Failed samples are left out of
training, and so the baseline of their group is taken over the others: a few cost data,
many change what is learnt.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relax.triage.evidence import RolloutEvidence
from relax.triage.rule import Finding, Rule, not_run, vacuous
from relax.triage.thresholds import FAILED_SAMPLES_FAIL, FAILED_SAMPLES_WARN
from relax.triage.verdict import Cause, Evidence, Place, Status

KINDS_SHOWN = 3
_RAISED = re.compile(r"the reward raised (\w+): (.*?)(?: at (\S+:\d+))?$", re.DOTALL)
_IN_REWARD = " in the reward"
_BAD_REWARDS = ("the reward ", "the group's rewards ")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True, kw_only=True)
class _Failed:
    """One failed sample.

    Attributes:
        kind: What failed samples of one cause have in common.
        text: Its own failure.
    """

    sample_index: int
    kind: str
    text: str


def judge(evidence: RolloutEvidence) -> Finding:
    """Counts failed samples, and what they failed of."""
    statuses = evidence.columns.get("status")
    failed = _failed_samples(evidence)
    total = evidence.number("rollout/num_samples")
    count = evidence.number("rollout/num_failed")
    if total is None or count is None:
        if statuses is None:
            return not_run("status of the samples", get_it="keep samples")
        total, count = float(len(statuses)), float(len(failed))
    if total == 0:
        return vacuous("the rollout has no samples", {"samples": 0})
    share = count / total
    numbers = {"failed": count, "samples": total}
    summary = f"failed {count:.0f} of {total:.0f} samples"
    if not count:
        return Finding(status=Status.PASS, summary=summary, numbers=numbers)
    kinds = Counter(sample.kind for sample in failed)
    if kinds:
        kind, most = kinds.most_common(1)[0]
        summary += f": {most} × {kind}"
    numbers |= {
        "threshold_warn": FAILED_SAMPLES_WARN.value,
        "threshold_fail": FAILED_SAMPLES_FAIL.value,
    }
    shown = _examples(kinds, failed, evidence.rollout_id)
    return Finding(
        status=_status(share),
        summary=summary,
        numbers=numbers,
        where=shown[0].where if shown else None,
        evidence=shown,
        causes=_causes(kinds),
    )


def _status(share: float) -> Status:
    if share >= FAILED_SAMPLES_FAIL.value:
        return Status.FAIL
    return Status.WARN if share >= FAILED_SAMPLES_WARN.value else Status.INFO


def _failed_samples(evidence: RolloutEvidence) -> list[_Failed]:
    """Those at hand; a live run carries the failed ones first."""
    statuses = evidence.columns.get("status")
    if statuses is None:
        return []
    indices = evidence.sample_indices(len(statuses))
    failures = evidence.columns.get("failure", [None] * len(statuses))
    return [
        _Failed(
            sample_index=index, kind=_kind(failure), text=failure or "no reason given"
        )
        for index, status, failure in zip(indices, statuses, failures, strict=True)
        if status == "failed"
    ]


def _kind(failure: str | None) -> str:
    """What an exception is and where it was raised, or a text without its numbers."""
    if not failure:
        return "no reason given"
    raised = _RAISED.fullmatch(failure)
    if raised is None:
        return _NUMBER.sub("N", failure.splitlines()[0])
    name, _, place = raised.groups()
    file = place.rpartition("/")[2] if place else ""
    return f"{name}{_IN_REWARD}" + (f" ({file})" if file else "")


def _examples(
    kinds: Mapping[str, int], failed: Sequence[_Failed], rollout_id: int
) -> tuple[Evidence, ...]:
    """The first sample of each of the most frequent kinds."""
    shown = []
    for kind, count in Counter(kinds).most_common(KINDS_SHOWN):
        first = next(sample for sample in failed if sample.kind == kind)
        shown.append(
            Evidence(
                text=f"{count} × {kind}; the first: {first.text.splitlines()[0]}",
                where=Place(rollout_id=rollout_id, sample_index=first.sample_index),
            )
        )
    return tuple(shown)


def _causes(kinds: Mapping[str, int]) -> tuple[Cause, ...]:
    """By how many samples each explains."""
    raised = sum(n for kind, n in kinds.items() if _IN_REWARD in kind)
    unusable = sum(n for kind, n in kinds.items() if kind.startswith(_BAD_REWARDS))
    others = sum(kinds.values()) - raised - unusable
    told = (
        (
            raised,
            "the reward function does not cope with some of these answers or labels",
            "call it on the sample shown, at the line shown",
        ),
        (
            unusable,
            "the reward function gives no finite number for some answers",
            "look at what it returns for the sample shown; --reward-key for a dict",
        ),
        (
            others,
            "the rollout engine refuses requests or answers without usable log-probs",
            "the engine's own log at that time, in RUN/logs",
        ),
    )
    ranked = sorted(told, key=lambda cause: -cause[0])
    return tuple(
        Cause(text=text, confidence="medium" if place else "high", confirm=confirm)
        for place, (count, text, confirm) in enumerate(ranked)
        if count
    )


RULE = Rule(
    id="samples_failed",
    section="1",
    title="samples come to their end, with a reward",
    needs=("status", "failure"),
    cost="metrics",
    stage="generate",
    judge=judge,
)
