"""The same weights looked at on disk, in the trainer and in each engine.

Every tensor's sha256 is compared by its Hugging Face name, so the first one that
differs is named. The checkpoint on disk is what training started from: after an
optimizer step the trainer has left it, which is told and is no fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from relax.triage.verdict import Cause, Evidence, Place, Status, Verdict

RULE = "weights_verified"
SHOWN = 5

Digests: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class WeightsSeen:
    """What each side holds at one moment: sha256 by Hugging Face name.

    Attributes:
        rollout_id: The rollout after which it was looked; -1 before rollout 0.
        version: Optimizer steps since the start.
        engines: Of each engine, by its name.
        trainer: Of the trainer, in the model's order; None when nothing trains.
        disk: Of the checkpoint that the run started from; None: not looked at.
        run: Run folder as a command line would name it.
    """

    rollout_id: int
    version: int
    engines: Mapping[str, Digests]
    trainer: Digests | None = None
    disk: Digests | None = None
    run: str = "RUN"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Two sides that should hold the same.

    Attributes:
        left, right: The sides.
        tensors: How many names there are on either side.
        names: Of tensors that differ or are on one side only, the first first.
        lacking: Which of them are on one side only.
    """

    left: str
    right: str
    tensors: int
    names: Sequence[str]
    lacking: frozenset[str] = field(default=frozenset())

    def __str__(self) -> str:
        """One line, e.g. ``engine-0 ≠ trainer: 1 of 26 tensors, first lm_head``."""
        if not self.names:
            return f"{self.left} = {self.right}: {self.tensors} tensors bitwise"
        first = self.names[0]
        missing = " (on one side only)" if first in self.lacking else ""
        return (
            f"{self.left} ≠ {self.right}: {len(self.names)} of {self.tensors} tensors, "
            f"first {first}{missing}"
        )


def difference(left: str, right: str, ours: Digests, theirs: Digests) -> Difference:
    """Compares two sides tensor by tensor, in the order of the second one.

    Args:
        left: Name of one side.
        right: Name of the other.
        ours: What the left side holds.
        theirs: What the right side holds.
    """
    names = [*theirs, *(name for name in ours if name not in theirs)]
    return Difference(
        left=left,
        right=right,
        tensors=len(names),
        names=[name for name in names if ours.get(name) != theirs.get(name)],
        lacking=frozenset(ours.keys() ^ theirs.keys()),
    )


def judge_weights(seen: WeightsSeen) -> Verdict:
    """FAIL when an engine holds other weights than it should.

    It should hold the trainer's, or without a trainer those of the checkpoint.
    """
    told: list[Difference] = []
    trained: list[Difference] = []
    trainer, disk = seen.trainer, seen.disk
    for name, held in seen.engines.items():
        if trainer is not None:
            told.append(difference(name, "trainer", held, trainer))
        elif disk is not None:
            told.append(difference(name, "checkpoint", held, disk))
    if trainer is not None and disk is not None:
        start = told if seen.version == 0 else trained
        start.append(difference("trainer", "checkpoint", trainer, disk))
    if not told:
        return _verdict(seen, Status.NOT_RUN, "there is nothing to compare with", [])
    wrong = [one for one in told if one.names]
    status = Status.FAIL if wrong else Status.PASS
    summary = "; ".join(str(one) for one in wrong or told)
    if trained and not wrong:
        summary += f"; {seen.version} steps from the checkpoint"
    return _verdict(seen, status, summary, [*wrong, *_others(told, wrong), *trained])


def _others(
    told: Sequence[Difference], wrong: Sequence[Difference]
) -> list[Difference]:
    return [one for one in told if one not in wrong]


def _verdict(
    seen: WeightsSeen, status: Status, summary: str, found: Sequence[Difference]
) -> Verdict:
    failed = status is Status.FAIL
    names = found[0].names[:SHOWN] if failed else ()
    return Verdict(
        rule=RULE,
        section="1",
        status=status,
        summary=summary,
        where=Place(rollout_id=seen.rollout_id),
        numbers={
            "unequal": float(sum(len(one.names) for one in found)) if failed else 0.0,
            "tensors": float(found[0].tensors if found else 0),
            "version": float(seen.version),
        },
        evidence=(
            *(Evidence(text=str(one)) for one in found),
            *(Evidence(text=f"differs: {name}") for name in names),
        ),
        causes=_CAUSES if failed else (),
        next_command=f"relax-tui tell {seen.run} restart-engine" if failed else None,
    )


_CAUSES = (
    Cause(
        text="a tensor was lost, changed, kept from an earlier update or converted "
        "wrongly on its way",
        confidence="high",
        confirm="the names that differ: one layer, one kind of tensor, or all",
    ),
)
