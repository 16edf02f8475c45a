"""The table of flags, made from the settings groups: a flag has one place, its field.

Flags of other libraries (`relax.arguments.passthrough`) have the same shape and join
the table when arguments are read.
"""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from relax.arguments import groups
from relax.arguments.flag import METADATA_KEY, Bounds, FlagMetadata, ValueKind
from relax.arguments.values import ValueType, type_of

GROUPS: Final[Mapping[str, type[Any]]] = {
    "cluster": groups.ClusterSettings,
    "checkpoint": groups.CheckpointSettings,
    "data": groups.DataSettings,
    "batch": groups.BatchSettings,
    "rollout": groups.RolloutSettings,
    "algorithm": groups.AlgorithmSettings,
    "reward": groups.RewardSettings,
    "layout": groups.LayoutSettings,
    "megatron": groups.MegatronSettings,
    "debug": groups.DebugSettings,
    "run": groups.RunSettings,
}
"""Attribute of `Arguments` and its class, in the order in which people read them."""

OFF_NAMES: Final[Mapping[str, str]] = {
    "disable_grpo_std_normalization": "grpo_std_normalization",
    "disable_rewards_normalization": "rewards_normalization",
}
"""Upstream's flags that switch something off, and the field they switch."""

READ_ONLY_NAMES: Final[Mapping[str, str]] = {
    "config": "YAML file with flags; flag > file > default",
    "custom_config_path": "YAML file whose values win over flags, as upstream's do",
    "resource": 'JSON {"actor": [1, GPUs], "rollout": [1, GPUs]}',
    "offload": "both --offload-train and --offload-rollout",
    "show_arguments": "print every value with its origin, and end",
    "help": "print this text, and end",
}
"""Names that are understood while reading and leave no field of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag, ours or another library's.

    Attributes:
        name: With underscores.
        owner: Attribute of `Arguments`, or ``transformer``, ``sglang`` … for a
            passthrough.
        type: How its text is read.
        default: Value when it is not given; None also when it is derived.
        required: There is no default at all.
        help: One sentence.
        ours: Not an upstream flag.
        bounds: Interval of a number.
        derived: How it follows from others.
        kind: What the text means.
        configs: For a passthrough, the mappings it is put into.
        refused: It holds a Python object, which no text can give.
    """

    name: str
    owner: str
    type: ValueType
    default: Any = None
    required: bool = False
    help: str = ""
    ours: bool = False
    bounds: Bounds | None = None
    derived: str = ""
    kind: ValueKind = ValueKind.PLAIN
    configs: tuple[str, ...] = ()
    refused: bool = False


def _flags_of(owner: str, group: type[Any]) -> Iterable[Flag]:
    annotations = typing.get_type_hints(group)
    for field in dataclasses.fields(group):
        metadata: FlagMetadata = field.metadata[METADATA_KEY]
        if metadata.kind is ValueKind.PASSTHROUGH:
            continue
        missing = field.default is dataclasses.MISSING
        yield Flag(
            name=field.name,
            owner=owner,
            type=type_of(annotations[field.name]),
            default=None if missing or metadata.derived else field.default,
            required=missing and not metadata.derived,
            help=metadata.help,
            ours=metadata.ours,
            bounds=metadata.bounds,
            derived=metadata.derived,
            kind=metadata.kind,
        )


@cache
def own_flags() -> Mapping[str, Flag]:
    """Every flag of the settings groups by name, in reading order."""
    return {
        flag.name: flag
        for owner, group in GROUPS.items()
        for flag in _flags_of(owner, group)
    }


@dataclass(frozen=True, slots=True)
class FlagTable:
    """All flags that a command line may hold.

    Args:
        flags: By name; ours win over another library's of the same name.
        open_sglang: Take any ``--sglang-…``: no table of this SGLang is known.
    """

    flags: Mapping[str, Flag]
    open_sglang: bool = False

    def find(self, name: str) -> tuple[Flag, bool] | None:
        """The flag that ``name`` means, and whether the name switches it off."""
        if name in self.flags:
            return self.flags[name], False
        positive = OFF_NAMES.get(name, "")
        if name.startswith("no_"):
            positive = name.removeprefix("no_")
        if positive in self.flags and self.flags[positive].type.is_switch:
            return self.flags[positive], True
        if (
            self.open_sglang
            and name.startswith("sglang_")
            and len(name) > len("sglang_")
        ):
            yaml_type = ValueType(base="yaml", optional=True)
            flag = Flag(name=name, owner="sglang", type=yaml_type, configs=("sglang",))
            return flag, False
        return None

    def nearest(self, name: str) -> str | None:
        """The known name that looks most like ``name``."""
        known = [*self.flags, *OFF_NAMES, *READ_ONLY_NAMES]
        bare = name.removeprefix("no_")
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        if not close and bare != name:
            close = difflib.get_close_matches(bare, known, n=1, cutoff=0.6)
        return close[0] if close else None
