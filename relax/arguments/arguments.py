"""`Arguments`: all settings of a run, and where each value came from."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from relax.arguments.environment import redactor
from relax.arguments.flags import GROUPS, Flag, own_flags
from relax.arguments.groups import (
    AlgorithmSettings,
    BatchSettings,
    CheckpointSettings,
    ClusterSettings,
    DataSettings,
    DebugSettings,
    LayoutSettings,
    MegatronSettings,
    RewardSettings,
    RolloutSettings,
    RunSettings,
)
from relax.arguments.redaction import Redactor, is_secret_name
from relax.errors import ArgumentError

DEFAULT: Final = "default"

PASSTHROUGH_HOMES: Final[Mapping[str, str]] = {
    "transformer": "megatron",
    "optimizer": "megatron",
    "ddp": "megatron",
    "sglang": "rollout",
}
"""Mapping that holds another library's settings, and the group that it belongs to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Every setting of a run, in one group an owner.

    Only entry points and the controller see the whole; everything else is handed the
    group, or the numbers, that it needs.

    Attributes:
        origins: By flag name: ``flag``, ``FILE:LINE``, ``default`` or
            ``derived from …``.
    """

    cluster: ClusterSettings
    checkpoint: CheckpointSettings
    data: DataSettings
    batch: BatchSettings
    rollout: RolloutSettings
    algorithm: AlgorithmSettings
    reward: RewardSettings
    layout: LayoutSettings
    megatron: MegatronSettings
    debug: DebugSettings
    run: RunSettings
    origins: Mapping[str, str] = field(default_factory=dict)

    @property
    def data_parallel_size(self) -> int:
        """Ranks over which the samples of a step are split."""
        return self.cluster.world_size // self.layout.model_parallel_size

    def was_given(self, name: str) -> bool:
        """Whether a flag or a file set this value."""
        origin = self.origins.get(name, DEFAULT)
        return origin != DEFAULT and not origin.startswith("derived")

    def values(self) -> dict[str, Any]:
        """Every value by flag name, other libraries' included; no secret removed."""
        values = {
            flag.name: getattr(getattr(self, flag.owner), flag.name)
            for flag in own_flags().values()
        }
        for name, (_, value) in self.passthrough().items():
            values[name] = value
        return values

    def passthrough(self) -> dict[str, tuple[tuple[str, ...], Any]]:
        """By flag name: the mappings another library's setting is in, and its value."""
        homes: dict[str, tuple[str, ...]] = {}
        values: dict[str, Any] = {}
        for config, group in PASSTHROUGH_HOMES.items():
            for name, value in getattr(getattr(self, group), config).items():
                flag_name = f"sglang_{name}" if config == "sglang" else name
                homes[flag_name] = (*homes.get(flag_name, ()), config)
                values[flag_name] = value
        return {name: (homes[name], values[name]) for name in sorted(values)}

    def to_json(self) -> dict[str, dict[str, Any]]:
        """The settings as they are recorded: flat, without secrets.

        Returns:
            ``{name: {"value": …, "origin": …}}``, nulls included; another library's
            settings also say ``"configs"``, the mappings they are in.
        """
        redact = self._redactor()
        passthrough = self.passthrough()
        document: dict[str, dict[str, Any]] = {}
        for name, value in self.values().items():
            entry: dict[str, Any] = {
                "value": redact.value(name, _plain(value)),
                "origin": redact.text(self.origins.get(name, DEFAULT)),
            }
            if name in passthrough:
                entry["configs"] = list(passthrough[name][0])
            document[name] = entry
        return document

    def _redactor(self) -> Redactor:
        """One that also finds the secrets given as arguments, wherever repeated."""
        known = redactor().known
        given = (
            value
            for name, value in self.values().items()
            if isinstance(value, str) and is_secret_name(name)
        )
        return Redactor.knowing([*known, *given])

    def digest(self) -> str:
        """SHA-256, in hexadecimal, over the values as `to_json` gives them."""
        values = {name: entry["value"] for name, entry in self.to_json().items()}
        text = json.dumps(values, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def from_json(cls, document: Mapping[str, Mapping[str, Any]]) -> Arguments:
        """Reads `to_json`'s answer back; equal, where no secret was removed.

        Raises:
            ArgumentError: A name is missing or unknown: another version wrote it.
        """
        own = own_flags()
        values: dict[str, Any] = {}
        configs: dict[str, tuple[str, ...]] = {}
        for name, entry in document.items():
            values[name] = entry["value"]
            if "configs" in entry:
                configs[name] = tuple(entry["configs"])
            elif name in own:
                values[name] = _typed(own[name], entry["value"])
            else:
                raise ArgumentError(
                    f"the recorded settings hold {name!r}, which is unknown here",
                    hint="read them with the version that wrote them",
                )
        origins = {name: str(entry["origin"]) for name, entry in document.items()}
        return build(values, configs=configs, origins=origins)


def build(
    values: Mapping[str, Any],
    *,
    configs: Mapping[str, tuple[str, ...]],
    origins: Mapping[str, str],
) -> Arguments:
    """Puts flat values into their groups.

    Args:
        values: By flag name; every own flag is there.
        configs: For another library's settings: the mappings they go into.
        origins: By flag name.

    Raises:
        ArgumentError: An own flag has no value here.
    """
    own = own_flags()
    missing = [name for name in own if name not in values]
    if missing:
        raise ArgumentError(
            f"settings lack {', '.join(missing)}",
            hint="read them with the version that wrote them",
        )
    grouped: dict[str, dict[str, Any]] = {owner: {} for owner in GROUPS}
    for name, flag in own.items():
        grouped[flag.owner][name] = values[name]
    for config, group in PASSTHROUGH_HOMES.items():
        grouped[group][config] = {
            name.removeprefix("sglang_") if config == "sglang" else name: values[name]
            for name in sorted(configs)
            if config in configs[name]
        }
    groups = {owner: GROUPS[owner](**grouped[owner]) for owner in GROUPS}
    return Arguments(**groups, origins=dict(origins))


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def _typed(flag: Flag, value: Any) -> Any:
    if value is None:
        return None
    if flag.type.many:
        return tuple(value)
    if flag.type.base == "path":
        return Path(value)
    return float(value) if flag.type.base == "float" else value


def replaced(arguments: Arguments, **changes: Any) -> Arguments:
    """A copy with other own values, by flag name; for tests and for excursions.

    Raises:
        ArgumentError: A name is no own flag.
    """
    own = own_flags()
    groups: dict[str, Any] = {}
    for name, value in changes.items():
        if name not in own:
            raise ArgumentError(
                f"{name} is no setting", hint="see --help for all flags"
            )
        group = groups.get(own[name].owner, getattr(arguments, own[name].owner))
        groups[own[name].owner] = dataclasses.replace(group, **{name: value})
    return dataclasses.replace(arguments, **groups)
