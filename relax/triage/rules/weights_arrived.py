"""Guide, section 1: the engine holds exactly the weights that the trainer sent.

Trainer and engine each take a fingerprint over names, dtypes, shapes and bytes of every
tensor, in their own process; equal fingerprints are equal weights. The very first
update goes through the same conversion as all later ones.
"""

from __future__ import annotations

from relax.triage.evidence import RolloutEvidence
from relax.triage.rule import Finding, Rule, not_run
from relax.triage.verdict import Cause, Status


def judge(evidence: RolloutEvidence) -> Finding:
    """Compares the fingerprints of one weight update."""
    tensors = evidence.number("weights/tensors")
    unequal = evidence.number("weights/engines_unequal")
    if tensors is None or unequal is None:
        return not_run(
            "fingerprints of a weight update", get_it="run with a rollout engine"
        )
    numbers = {"tensors": tensors, "engines_unequal": unequal}
    if not unequal:
        return Finding(
            status=Status.PASS,
            summary=f"engine = trainer, {tensors:.0f} tensors bitwise",
            numbers=numbers,
        )
    return Finding(
        status=Status.FAIL,
        summary=f"{unequal:.0f} engine(s) hold other weights than the trainer sent",
        numbers=numbers,
        causes=(
            Cause(
                text="a tensor was lost, changed or converted wrongly on its way",
                confidence="high",
                confirm="compare the names and shapes in the engine's log",
            ),
        ),
    )


RULE = Rule(
    id="weights_arrived",
    section="1",
    title="the engine holds the trainer's weights",
    needs=("weights/tensors", "weights/engines_unequal"),
    cost="metrics",
    stage="update_weights",
    judge=judge,
)
