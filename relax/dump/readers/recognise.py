"""Which project wrote a dump, told from its keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from relax.dump.readers.values import integer
from relax.errors import DumpError, DumpTooNew

NEWEST_SLIME_TRAIN: Final = 2

_OF_RELAX: Final = frozenset({"rollout_tokens", "decoded_tokens", "abort_count"})
_OF_SLIME: Final = frozenset(
    {"rollout_top_p_token_ids", "apply_chat_template_kwargs", "custom_rm_path", "trace"}
)
_KEYS_SHOWN: Final = 8


@dataclass(frozen=True, kw_only=True)
class Recognised:
    """What a file is.

    Attributes:
        kind: ``rollout`` or ``train``.
        source: The format's name, e.g. ``slime train v2``.
        rollout_id: As the file says; None if it does not.
        rank: Of a train file.
    """

    kind: Literal["rollout", "train"]
    source: str
    rollout_id: int | None
    rank: int | None = None


def recognise(keys: Mapping[str, Any], *, has_samples: bool, where: str) -> Recognised:
    """Tells from the top dict what a file is.

    Args:
        keys: The top dict without ``samples``.
        has_samples: Whether it has a list of that name.
        where: The file.

    Raises:
        DumpTooNew: It names a format version that is not known yet.
        DumpError: It is neither a rollout nor a train dump.
    """
    rollout_id, rank = integer(keys.get("rollout_id")), integer(keys.get("rank"))
    if "ppo_kl" in keys and "call" in keys:
        raise DumpError(
            "is a policy_loss_debug file of miles, which names no step and no samples",
            where=where,
            hint="open the rollout and train dumps of that step",
        )
    if has_samples and "rank" not in keys:
        source = "miles rollout" if "metadata" in keys else "rollout"
        return Recognised(kind="rollout", source=source, rollout_id=rollout_id)
    if has_samples:
        version = integer(keys.get("format_version"))
        if version is not None and version > NEWEST_SLIME_TRAIN:
            raise DumpTooNew(
                f"is a slime train dump of format {version}; up to "
                f"{NEWEST_SLIME_TRAIN} is known",
                where=where,
                hint="open it with a newer relax-tui",
            )
        source = "slime train v2" if version is not None else "Relax train"
    elif isinstance(keys.get("rollout_data"), dict):
        source = "miles train" if "cp_size" in keys else "slime train v1"
    else:
        names = ", ".join(repr(key)[:40] for key in list(keys)[:_KEYS_SHOWN])
        raise DumpError(
            f"is neither a rollout nor a train dump; its keys are {names or 'none'}",
            where=where,
        )
    return Recognised(kind="train", source=source, rollout_id=rollout_id, rank=rank)


def rollout_source(sample: Mapping[str, Any]) -> str:
    """The project that wrote a rollout dump, told from the fields of a sample."""
    if _OF_RELAX & sample.keys():
        return "Relax rollout"
    if _OF_SLIME & sample.keys():
        return "slime rollout"
    return "rollout"
