"""The one exception tree of relax.

Every error a person can meet has a stable code, says what happened, where, and what to
do about it, and carries the exit code of the process that ends with it.

    RelaxError                      1
    ├── ArgumentError               2   a flag, its value and the fix
    ├── RecordError                 3   a step record or event file
    │   ├── RecordMissing
    │   ├── RecordTruncated
    │   └── RecordTooNew
    ├── DumpError                   3   a foreign dump or log
    │   ├── DumpMissing
    │   ├── DumpTruncated
    │   ├── DumpRefused
    │   └── DumpTooNew
    ├── EngineError                 4   the rollout engine
    │   ├── EngineUnreachable
    │   ├── EngineDied
    │   └── EngineMismatch
    ├── WorkerError                 5   a training or reward worker
    ├── ControlError                6   the run cannot be reached or refuses
    ├── RunLocked                   6   another driver lives in the run folder
    ├── ClusterError                7   nodes, bundles, versions
    └── InternalError              70   a broken invariant: a defect of relax
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar


class RelaxError(Exception):
    """Base of every error that relax raises on purpose.

    Args:
        what: One clear sentence: what happened, with the offending value.
        where: File, flag, rank or place, when there is one.
        hint: What the reader can do about it.
    """

    code: ClassVar[str] = "relax"
    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        """The error as one line: ``where: what; hint``."""
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}; {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[Callable[..., RelaxError], tuple[object, ...]]:
        """Pickle by constructor, so that Ray hands the error over unchanged."""
        return _rebuild, (type(self), self.what, self.where, self.hint)


def _rebuild(kind: type[RelaxError], what: str, where: str, hint: str) -> RelaxError:
    return kind(what, where=where, hint=hint)


class ArgumentError(RelaxError):
    """A flag is unknown, has a bad value, or contradicts another flag."""

    code = "argument"
    exit_code = 2


class RecordError(RelaxError):
    """A step record or an event file cannot be used."""

    code = "record"
    exit_code = 3


class RecordMissing(RecordError):
    """The stage file or event file does not exist (yet)."""

    code = "record-missing"


class RecordTruncated(RecordError):
    """The file ends before its own structure does."""

    code = "record-truncated"


class RecordTooNew(RecordError):
    """The file was written by a newer schema than this version reads."""

    code = "record-too-new"


class DumpError(RelaxError):
    """A dump or log of this or another engine cannot be used."""

    code = "dump"
    exit_code = 3


class DumpMissing(DumpError):
    """The dump file does not exist."""

    code = "dump-missing"


class DumpTruncated(DumpError):
    """The dump ends before its own structure does."""

    code = "dump-truncated"


class DumpRefused(DumpError):
    """The dump holds something that is not data, or exceeds a limit."""

    code = "dump-refused"


class DumpTooNew(DumpError):
    """The dump names a format version newer than this version reads."""

    code = "dump-too-new"


class EngineError(RelaxError):
    """The rollout engine failed."""

    code = "engine"
    exit_code = 4


class EngineUnreachable(EngineError):
    """The rollout engine does not answer."""

    code = "engine-unreachable"


class EngineDied(EngineError):
    """The rollout engine's process ended."""

    code = "engine-died"


class EngineMismatch(EngineError):
    """The rollout engine answered something that does not fit the request."""

    code = "engine-mismatch"


class WorkerError(RelaxError):
    """A training, rollout or reward worker failed; carries rank and remote text."""

    code = "worker"
    exit_code = 5


class ControlError(RelaxError):
    """A run cannot be reached, or refuses a command."""

    code = "control"
    exit_code = 6


class RunLocked(ControlError):
    """Another driver lives in the run folder."""

    code = "run-locked"


class ClusterError(RelaxError):
    """Nodes, bundles or versions of the cluster do not fit the run."""

    code = "cluster"
    exit_code = 7


class InternalError(RelaxError):
    """A broken invariant: a defect of relax itself."""

    code = "internal"
    exit_code = 70
