"""Paths → verdicts."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from relax.triage.log_registry import run_log_rules
from relax.triage.registry import run_rules
from relax.triage.rule import Stage
from relax.triage.verdict import Evidence, Status, Verdict
from relax_tui.checking.checked import Checked, CheckOptions
from relax_tui.checking.gathering import Gathering
from relax_tui.checking.inputs import classify
from relax_tui.checking.logs import log_evidence

__all__ = ["CheckOptions", "Checked", "check"]

NUMBERS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "log_probs_equal_ref": ("rollout/log_probs", "rollout/ref_log_probs"),
    "log_probs_magnitude": ("rollout/log_probs", "train/entropy_loss"),
    "log_probs_vs_rollout": ("train/train_rollout_logprob_abs_diff",),
    "first_step_kl": ("train/kl_loss",),
    "grad_norm": ("train/grad_norm",),
    "ppo_kl": ("train/ppo_kl",),
    "rewards_have_signal": ("rollout/raw_reward",),
}
"""The numbers in a log that a rule goes by, for pointing at their lines."""
_SHOWN_WITH_LINE: Final = (Status.FAIL, Status.NON_FINITE, Status.WARN)


def check(paths: Sequence[Path], options: CheckOptions | None = None) -> Checked:
    """Checks whatever is at some paths.

    Args:
        paths: Run folders, dump folders, dump files, step records, logs, JSONL.
        options: How.

    Raises:
        DumpMissing: A path does not exist.
        DumpError: A file that was named cannot be read.
        ArgumentError: The file of arguments cannot be read.
    """
    options = options or CheckOptions()
    with tempfile.TemporaryDirectory(prefix="relax-check-") as scratch:
        gathering = Gathering(options, Path(scratch))
        gathering.take(classify(paths), alone=len(paths) == 1)
        return _judge(
            gathering, " ".join(shlex.quote(str(path)) for path in paths), options
        )


def _judge(gathering: Gathering, named: str, options: CheckOptions) -> Checked:
    """Runs the rules; ``named`` is how next commands name the paths."""
    verdicts: list[Verdict] = []
    for evidence in gathering.evidence(named):
        # Before the first rollout there is only the first weight update.
        stage: Stage | None = "update_weights" if evidence.rollout_id < 0 else None
        judged = run_rules(evidence, stage)
        verdicts += [_with_log_line(verdict, gathering) for verdict in judged]
    if gathering.stories:
        where = options.arguments_file
        verdicts += run_log_rules(
            log_evidence(
                gathering.stories,
                arguments=gathering.facts.arguments,
                arguments_file="" if where is None else str(where),
            )
        )
    else:
        gathering.missing.append("no log: crash signatures were not looked for")
    return Checked(
        verdicts=tuple(verdicts),
        read=tuple(gathering.read),
        rollouts=tuple(sorted(number for number in gathering.parts if number >= 0)),
        unread=tuple(gathering.unread),
        missing=tuple(gathering.missing),
    )


def _with_log_line(verdict: Verdict, gathering: Gathering) -> Verdict:
    """Where the number that a verdict is about stands, when a log has it."""
    if verdict.status not in _SHOWN_WITH_LINE:
        return verdict
    wanted = NUMBERS_OF.get(verdict.rule, ())
    seen = []
    for log, spots in gathering.spots:
        seen += [
            Evidence(
                text=f"{log.name}:{spot.line}: {name} {spot.value:.6g}",
                file=str(log),
                line=spot.line,
            )
            for name, spot in spots.get(verdict.where.rollout_id, {}).items()
            if name in wanted
        ]
    return replace(verdict, evidence=(*seen[:2], *verdict.evidence))
