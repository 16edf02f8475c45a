"""A stage that takes too long: which rank stands still, in which function and line.

Where the ranks stand is asked twice. Who is at the same line both times and has used no
processor time is asleep. Ranks that wait in a collective wait for somebody: whoever
sleeps elsewhere comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relax.triage.verdict import Cause, Evidence, Place, Status, Verdict

RULE = "stage_hangs"
SHARE_ASLEEP = 0.05
"""Of one processor, below which a process counts as asleep: a wait wakes up now and
then, and asking for its stack costs some milliseconds."""

_COLLECTIVE = ("distributed_c10d.py", "c10d_logger.py", "p2p_communication.py")
_IDLE = (" in main_loop", " in select")
"""Where a process of Ray waits for the next call."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where one process stands.

    Attributes:
        name: E.g. ``train-1``.
        place: Innermost line of Python, ``file.py:12 in function``.
        stays: Whether it stood there the time before.
        share: Of a processor that it used in between; None where that is not known.
    """

    name: str
    place: str
    stays: bool
    share: float | None

    @property
    def asleep(self) -> bool:
        """Whether it stands still."""
        return self.stays and (self.share is None or self.share < SHARE_ASLEEP)

    @property
    def idle(self) -> bool:
        """Whether it takes no part: it waits for its next call."""
        return not self.place or self.place.endswith(_IDLE)

    @property
    def collective(self) -> bool:
        """Whether it waits for other ranks."""
        return self.place.partition(":")[0] in _COLLECTIVE


@dataclass(frozen=True, kw_only=True)
class SlowStage:
    """A stage that runs for longer than three medians.

    Attributes:
        seconds: So far.
        median_seconds: As usual.
        standings: Of the processes that take part in the stage.
        run: Run folder as a command line would name it.
    """

    rollout_id: int
    stage: str
    seconds: float
    median_seconds: float
    standings: Sequence[Standing]
    run: str = "RUN"


def judge_slow_stage(slow: SlowStage) -> Verdict:
    """Who holds the stage up: FAIL for a rank asleep, else WARN."""
    at_work = stuck_first(slow.standings)
    asleep = [one for one in at_work if one.asleep]
    took = (
        f"{slow.stage} runs for {slow.seconds:.0f} s, usually {slow.median_seconds:.2g}"
    )
    if asleep:
        stuck = asleep[0]
        summary = f"{stuck.name} stands in {stuck.place}; {took} s"
    else:
        summary = f"{took} s; no rank stands still"
    return Verdict(
        rule=RULE,
        section="4",
        status=Status.FAIL if asleep else Status.WARN,
        summary=summary,
        where=Place(rollout_id=slow.rollout_id),
        numbers={"seconds": slow.seconds, "median_seconds": slow.median_seconds},
        evidence=tuple(Evidence(text=_told(one)) for one in at_work),
        causes=_causes(asleep),
        next_command=f"relax-tui tell {slow.run} stop" if asleep else None,
    )


def stuck_first(standings: Sequence[Standing]) -> list[Standing]:
    """Those who do something, the likeliest cause of a hang first.

    Asleep in a function of their own, asleep in a collective, and at work; who waits
    for the next call takes no part.
    """
    at_work = [one for one in standings if not one.idle]
    return sorted(at_work, key=lambda one: (not one.asleep, one.collective, one.name))


def _told(one: Standing) -> str:
    used = "" if one.share is None else f", {one.share:.0%} of a processor"
    return f"{one.name}: {one.place}{used}"


def _causes(asleep: Sequence[Standing]) -> tuple[Cause, ...]:
    if not asleep:
        return (
            Cause(
                text="the stage has more to do than before, or the machine is busy",
                confidence="medium",
                confirm="look again at the next warning; response lengths; top",
            ),
        )
    stuck = asleep[0]
    if stuck.collective:
        text = "a collective that not all ranks have entered, or a broken connection"
        confirm = "x shows the stacks of all ranks; NCCL_DEBUG=INFO for the next run"
    else:
        text = f"{stuck.name} waits for something that does not come"
        confirm = f"read the code at {stuck.place}; x shows its whole stack"
    return (Cause(text=text, confidence="high", confirm=confirm),)
