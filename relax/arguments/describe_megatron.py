"""Prints, as JSON, the settings that the installed megatron-core understands.

Run by the interpreter that will train (``PYTHON -P describe_megatron.py``), which need
not have relax installed: only the standard library and megatron-core are used. This is
the one file of `relax.arguments` that loads megatron-core, and only when it is run.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import importlib
import importlib.metadata
import json
import sys
import types
import typing
from typing import Any

CONFIGS = {
    "transformer": (
        "megatron.core.transformer.transformer_config",
        "TransformerConfig",
    ),
    "optimizer": ("megatron.core.optimizer", "OptimizerConfig"),
    "ddp": ("megatron.core.distributed", "DistributedDataParallelConfig"),
}
"""Mapping of `MegatronSettings`, and the class it fills."""

_PLAIN = {bool: "bool", int: "int", float: "float", str: "str"}


def describe() -> dict[str, Any]:
    """Every field that a text can set: name, mappings, type, default.

    Returns:
        ``{"version": …, "fields": [{"name", "configs", "base", "optional", "choices",
        "accepts", "default", "refused"}]}``; ``refused`` fields hold Python objects.
    """
    fields: dict[str, dict[str, Any]] = {}
    for config, (module, name) in CONFIGS.items():
        owner = getattr(importlib.import_module(module), name)
        annotations = typing.get_type_hints(owner)
        for field in dataclasses.fields(owner):
            if not field.init:
                continue
            if field.name in fields:
                fields[field.name]["configs"].append(config)
                continue
            fields[field.name] = {
                "name": field.name,
                "configs": [config],
                "default": _plain(_default(field)),
                **_describe_type(annotations[field.name]),
            }
    version = importlib.metadata.version("megatron-core")
    return {"version": version, "fields": [fields[name] for name in sorted(fields)]}


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


def _plain(value: Any) -> Any:
    """A default as JSON: an enum's or dtype's name, None for what has no text."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if type(value).__name__ == "dtype":
        return str(value).removeprefix("torch.")
    return value if isinstance(value, bool | int | float | str) else None


def _describe_type(annotation: Any) -> dict[str, Any]:
    members = list(typing.get_args(annotation))
    union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    options = members if union else [annotation]
    optional = type(None) in options
    options = [option for option in options if option is not type(None)]
    shape = {"optional": optional, "choices": [], "accepts": [], "refused": False}
    if len(options) == 1:
        return shape | _describe_one(options[0])
    # A union of text and an object: the text is what a command line can give.
    accepts = sorted({_yaml_name(option) for option in options} - {""})
    return shape | {"base": "yaml", "accepts": accepts, "refused": not accepts}


def _describe_one(option: Any) -> dict[str, Any]:
    if option in _PLAIN:
        return {"base": _PLAIN[option]}
    if typing.get_origin(option) is typing.Literal:
        return {"base": "choice", "choices": list(typing.get_args(option))}
    if isinstance(option, type) and issubclass(option, enum.Enum):
        return {"base": "choice", "choices": [member.name for member in option]}
    if getattr(option, "__name__", "") == "dtype":
        return {"base": "choice", "choices": ["float32", "bfloat16", "float16"]}
    if _yaml_name(option) == "list":
        return {"base": "yaml", "accepts": ["list"]}
    return {"base": "str", "refused": True}


def _yaml_name(option: Any) -> str:
    origin = typing.get_origin(option) or option
    if origin in (list, tuple, collections.abc.Sequence):
        return "list"
    return _PLAIN.get(origin, "")


if __name__ == "__main__":
    json.dump(describe(), sys.stdout, indent=1)
    sys.stdout.write("\n")
