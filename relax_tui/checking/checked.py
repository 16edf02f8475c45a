"""How to check, and what came out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from relax.triage.verdict import Verdict

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What the rules said, and of what.

    Attributes:
        verdicts: By rollout, then in the order of the guide; log rules last.
        read: What was read, one phrase each.
        rollouts: Ids of the rollouts that were judged.
        unread: What could not be read, one sentence each.
        missing: What was not there, and how to get it, one sentence each.
    """

    verdicts: tuple[Verdict, ...]
    read: tuple[str, ...]
    rollouts: tuple[int, ...] = ()
    unread: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """How to check.

    Attributes:
        arguments_file: Settings of the run; None when there are none.
        max_memory: Bytes that decoding one step may take.
        tell: Told what is being read.
        cancel: Ends soon after it is set.
    """

    arguments_file: Path | None = None
    max_memory: int = 8 << 30
    tell: Tell = lambda _: None
    cancel: threading.Event | None = None
