"""Numbers of a run against those of another run's same step."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from relax.measure.reduction import metric_values
from relax.triage.evidence import RolloutEvidence
from relax.triage.verdict import Cause, Evidence, Place, Status, Verdict
from relax_tui.checking.checked import CheckOptions
from relax_tui.checking.gathering import Gathering
from relax_tui.checking.inputs import classify

RULE: Final = "baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """A number that is held against the baseline's.

    Attributes:
        floor: Below this both are noise.
        warn, fail: Ratio of the larger to the smaller from which it counts; judgement:
            a layout or kernel moves these numbers by a few per cent.
    """

    names: tuple[str, ...]
    floor: float
    warn: float = 2.0
    fail: float = 10.0


_JUDGED: Final = (
    _Judged(
        names=("logprob_rollout/abs_diff", "train/train_rollout_logprob_abs_diff"),
        floor=1e-6,
    ),
    _Judged(names=("train/grad_norm",), floor=1e-6),
    _Judged(names=("rollout/log_probs",), floor=1e-3, warn=1.2, fail=3.0),
    _Judged(names=("rollout/ref_log_probs",), floor=1e-3, warn=1.2, fail=3.0),
    _Judged(names=("rollout/entropy", "train/entropy_loss"), floor=1e-3, warn=1.5),
    _Judged(names=("rollout/kl_k3", "train/kl_loss"), floor=1e-6, warn=5.0, fail=50.0),
    _Judged(names=("rollout/response_len/mean",), floor=1.0),
)


def against_baseline(
    paths: Sequence[Path], baseline: Path, options: CheckOptions
) -> list[Verdict]:
    """One verdict a rollout that both have; one NOT_RUN when there is none.

    Args:
        paths: What is judged.
        baseline: A healthy run, its dumps or its log.
        options: How to read both.

    Raises:
        DumpError: Something cannot be read.
    """
    ours, theirs = _numbers(paths, options), _numbers([baseline], options)
    shared = sorted(ours.keys() & theirs.keys())
    verdicts = [
        _verdict(rollout, ours[rollout], theirs[rollout], baseline)
        for rollout in shared
    ]
    if verdicts:
        return verdicts
    return [
        Verdict(
            rule=RULE,
            section="all",
            status=Status.NOT_RUN,
            summary="no rollout of the baseline has numbers that this run has too",
            where=Place(rollout_id=-1),
        )
    ]


def _numbers(
    paths: Sequence[Path], options: CheckOptions
) -> dict[int, dict[str, float]]:
    with tempfile.TemporaryDirectory(prefix="relax-check-") as scratch:
        gathering = Gathering(options, Path(scratch))
        gathering.take(classify(paths), alone=True)
        return {
            evidence.rollout_id: judged_numbers(evidence)
            for evidence in gathering.evidence(str(paths[0]))
            if evidence.rollout_id >= 0
        }


def judged_numbers(evidence: RolloutEvidence) -> dict[str, float]:
    """The numbers of a rollout, measured from its tokens where they are here."""
    return metric_values(evidence.measured)


def _verdict(
    rollout_id: int,
    ours: Mapping[str, float],
    theirs: Mapping[str, float],
    baseline: Path,
) -> Verdict:
    status, observed = Status.PASS, []
    numbers: dict[str, float] = {}
    compared = 0
    for judged in _JUDGED:
        name = next((n for n in judged.names if n in ours and n in theirs), None)
        if name is None:
            continue
        compared += 1
        ratio = _ratio(ours[name], theirs[name], judged.floor)
        if ratio < judged.warn:
            continue
        worst = Status.FAIL if ratio >= judged.fail else Status.WARN
        status = worst if status is Status.PASS or worst is Status.FAIL else status
        numbers |= {name: ours[name], f"{name} of the baseline": theirs[name]}
        text = f"{name} {ours[name]:.4g}, baseline {theirs[name]:.4g}"
        observed.append((ratio, text))
    observed.sort(reverse=True)
    summary = observed[0][1] if observed else f"{compared} numbers as in the baseline"
    if not compared:
        status, summary = Status.NOT_RUN, "no number that both runs have"
    return Verdict(
        rule=RULE,
        section="all",
        status=status,
        summary=summary,
        where=Place(rollout_id=rollout_id),
        numbers=numbers,
        evidence=tuple(Evidence(text=text) for _, text in observed[:4]),
        causes=(_CAUSE,) if observed else (),
        next_command=f"relax-tui diff {baseline} RUN --rollout {rollout_id}"
        if observed
        else None,
    )


def _ratio(one: float, other: float, floor: float) -> float:
    """The larger size over the smaller; infinite when only one is finite."""
    if not (math.isfinite(one) and math.isfinite(other)):
        return 1.0 if math.isfinite(one) == math.isfinite(other) else math.inf
    large, small = max(abs(one), abs(other)), min(abs(one), abs(other))
    if large <= floor:
        return 1.0
    return large / small if small > floor else large / floor


_CAUSE: Final = Cause(
    text="what differs between the two runs: layout, kernels, weights or settings",
    confidence="medium",
    confirm="relax-tui diff names the arguments that differ",
)
