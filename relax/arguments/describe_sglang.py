"""Prints, as JSON, the ServerArgs that the installed SGLang understands.

Run by the interpreter that serves (``PYTHON -P describe_sglang.py``), which need not
have relax installed. SGLang is loaded only when this is run.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import json
import sys
import types
import typing
from typing import Any

_PLAIN = {bool: "bool", int: "int", float: "float", str: "str"}


def describe() -> dict[str, Any]:
    """Every field of ServerArgs, in the shape of `describe_megatron.describe`."""
    owner = importlib.import_module("sglang.srt.server_args").ServerArgs
    annotations = typing.get_type_hints(owner)
    fields = [
        {
            "name": f"sglang_{field.name}",
            "configs": ["sglang"],
            "default": _default(field),
            "refused": False,
            **_describe_type(annotations[field.name]),
        }
        for field in dataclasses.fields(owner)
        if field.init
    ]
    version = importlib.metadata.version("sglang")
    return {"version": version, "fields": sorted(fields, key=lambda item: item["name"])}


def _default(field: dataclasses.Field[Any]) -> Any:
    plain = isinstance(field.default, bool | int | float | str)
    return field.default if plain else None


def _describe_type(annotation: Any) -> dict[str, Any]:
    members = list(typing.get_args(annotation))
    union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    options = members if union else [annotation]
    plain = [option for option in options if option is not type(None)]
    shape: dict[str, Any] = {
        "optional": type(None) in options,
        "choices": [],
        "accepts": [],
        "base": "yaml",
    }
    if len(plain) == 1 and plain[0] in _PLAIN:
        shape["base"] = _PLAIN[plain[0]]
    if len(plain) == 1 and typing.get_origin(plain[0]) is typing.Literal:
        shape |= {"base": "choice", "choices": list(typing.get_args(plain[0]))}
    return shape


if __name__ == "__main__":
    json.dump(describe(), sys.stdout, indent=1)
    sys.stdout.write("\n")
