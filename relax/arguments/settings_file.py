"""A YAML file of flags: flat, with the line of each value, nothing else.

Scalars are handed on as they were written, so that ``lr: 1e-6`` and ``--lr 1e-6`` are
read by the same rule, and not by YAML's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from relax.errors import ArgumentError

_NULL_TAG: Final = "tag:yaml.org,2002:null"
_MERGE_TAG: Final = "tag:yaml.org,2002:merge"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One key of the file.

    Attributes:
        name: With underscores.
        texts: The values as written; None for ``null``.
        origin: ``FILE:LINE``.
    """

    name: str
    texts: tuple[str, ...] | None
    origin: str


def read_settings_file(path: Path) -> list[FileEntry]:
    """The keys of a YAML file, in order.

    Raises:
        ArgumentError: No such file, not YAML, not flat, or a key given twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(
            f"--config {path}: the file cannot be read: {error}",
            hint="name a YAML file that exists",
        ) from error
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f":{error.problem_mark.line + 1}"
        raise ArgumentError(
            f"not YAML: {error.problem}",
            where=f"{path}{line}",
            hint="write one 'name: value' a line",
        ) from error
    except yaml.YAMLError as error:
        raise ArgumentError(
            f"not YAML: {error}", where=str(path), hint="write one 'name: value' a line"
        ) from error
    if root is None:
        return []
    if not isinstance(root, yaml.MappingNode):
        raise ArgumentError(
            "the file is not a mapping of names to values",
            where=str(path),
            hint="write one 'name: value' a line",
        )
    return list(_entries(root, path))


def _entries(root: yaml.MappingNode, path: Path) -> Iterator[FileEntry]:
    seen: dict[str, str] = {}
    for key, value in root.value:
        origin = f"{path}:{key.start_mark.line + 1}"
        if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE_TAG:
            raise ArgumentError(
                "a key is not a plain name",
                where=origin,
                hint="write one 'name: value' a line, without merge keys",
            )
        name = key.value.removeprefix("--").replace("-", "_")
        if name in seen:
            raise ArgumentError(
                f"{name} is given twice, first at {seen[name]}",
                where=origin,
                hint="keep one of the two",
            )
        seen[name] = origin
        yield FileEntry(name=name, texts=_texts(name, value, origin), origin=origin)


def _texts(name: str, node: yaml.Node, origin: str) -> tuple[str, ...] | None:
    if isinstance(node, yaml.ScalarNode):
        return None if node.tag == _NULL_TAG else (node.value,)
    if isinstance(node, yaml.SequenceNode):
        if all(isinstance(item, yaml.ScalarNode) for item in node.value):
            return tuple(item.value for item in node.value)
    elif name == "resource":
        return (json.dumps(yaml.safe_load(yaml.serialize(node))),)
    raise ArgumentError(
        f"{name} holds nested values",
        where=origin,
        hint="the file is flat: write one 'name: value' a line",
    )
