"""Prints, as JSON, the settings that an installed library understands.

Run by the interpreter that will use the library (``PYTHON -P describe.py
megatron-core``), which need not have relax installed: only the standard library and the
library asked about are used, and that one is loaded only when this file is run.
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

LIBRARIES: dict[str, dict[str, tuple[str, str]]] = {
    "megatron-core": {
        "transformer": (
            "megatron.core.transformer.transformer_config",
            "TransformerConfig",
        ),
        "optimizer": ("megatron.core.optimizer", "OptimizerConfig"),
        "ddp": ("megatron.core.distributed", "DistributedDataParallelConfig"),
    },
    "sglang": {"sglang": ("sglang.srt.server_args", "ServerArgs")},
}
"""For each distribution: the mapping of our settings, and the class that it fills."""

PREFIXES = {"megatron-core": "", "sglang": "sglang_"}

_PLAIN = {bool: "bool", int: "int", float: "float", str: "str"}


def describe(library: str) -> dict[str, Any]:
    """Every field of a library's settings: name, mappings, type, default.

    Returns:
        ``{"version": …, "fields": [{"name", "configs", "default", "optional",
        "choices", "accepts", "base", "refused"}]}``; a ``refused`` field holds a Python
        object, which no text can give.
    """
    fields: dict[str, dict[str, Any]] = {}
    for config, (module, owner_name) in LIBRARIES[library].items():
        owner = getattr(importlib.import_module(module), owner_name)
        annotations = typing.get_type_hints(owner)
        for field in dataclasses.fields(owner):
            if not field.init or field.name.startswith("_"):
                continue
            name = PREFIXES[library] + field.name
            if name in fields:
                fields[name]["configs"].append(config)
                continue
            fields[name] = {
                "name": name,
                "configs": [config],
                "default": _plain(_default(field)),
                **_describe_type(annotations[field.name]),
            }
    version = importlib.metadata.version(library)
    return {"version": version, "fields": [fields[name] for name in sorted(fields)]}


def render(described: dict[str, Any]) -> str:
    """`describe`'s answer as JSON, one field a line."""
    lines = ",\n".join(json.dumps(field) for field in described["fields"])
    version = json.dumps(described["version"])
    return f'{{\n"version": {version},\n"fields": [\n{lines}\n]\n}}\n'


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
    sys.stdout.write(render(describe(sys.argv[1])))
