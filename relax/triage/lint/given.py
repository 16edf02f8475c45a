"""Settings as they stand in files of any engine: name, value, file and line.

Reads YAML, JSON, TOML and launch scripts. Nested names are joined by dots; values that
a shell would fill in stay as they are written.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from relax.errors import ArgumentError

MOST_BYTES: Final = 4 << 20
SETTINGS_SUFFIXES: Final = (".yaml", ".yml", ".json", ".toml", ".sh", ".txt", ".args")

_FLAG: Final = re.compile(r"--?([A-Za-z][\w.-]*)(?:=(.*))?")
_DOTTED: Final = re.compile(r"\+{0,2}([A-Za-z_][\w.]*)=(.*)")
"""``actor_rollout_ref.rollout.temperature=1.0``, as verl's scripts set it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A setting that a file makes.

    Attributes:
        name: With underscores; nested names joined by dots.
        value: As YAML reads it; a flag without a value is True.
        file: Where.
        line: From 1; 0 when it is not known.
    """

    name: str
    value: Any
    file: str
    line: int = 0

    @property
    def origin(self) -> str:
        """``FILE:LINE``."""
        return f"{self.file}:{self.line}" if self.line else self.file


def read_given(path: Path) -> list[Given]:
    """The settings in a file.

    Args:
        path: A YAML, JSON or TOML file, or a script with flags in it.

    Raises:
        ArgumentError: It cannot be read, or is not what its name says.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ArgumentError("is too large for a file of settings", where=str(path))
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ArgumentError(
            f"cannot be read: {error.strerror}", where=str(path)
        ) from error
    name, suffix = str(path), path.suffix
    try:
        if suffix in (".yaml", ".yml"):
            return list(_from_yaml(text, name))
        if suffix == ".json":
            return list(_from_tree(json.loads(text), name))
        if suffix == ".toml":
            return list(_from_tree(tomllib.loads(text), name))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        kind = suffix.lstrip(".").upper()
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ArgumentError(f"is no {kind}: {first}", where=name) from error
    return list(_from_script(text, name))


def by_name(settings: Iterable[Given]) -> dict[str, Given]:
    """Settings by name; of one name the last counts."""
    return {setting.name: setting for setting in settings}


def _from_yaml(text: str, file: str) -> Iterator[Given]:
    for root in yaml.compose_all(text, Loader=yaml.SafeLoader):
        if root is not None:
            yield from _from_node(root, file, "")


def _from_node(node: yaml.Node, file: str, prefix: str) -> Iterator[Given]:
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        name = f"{prefix}{_underscored(key.value)}"
        if isinstance(value, yaml.MappingNode):
            yield from _from_node(value, file, f"{name}.")
            continue
        yield Given(
            name=name,
            value=_constructed(value),
            file=file,
            line=key.start_mark.line + 1,
        )


def _constructed(node: yaml.Node) -> Any:
    return plain(yaml.safe_load(yaml.serialize(node)))


def plain(value: Any) -> Any:
    """A value with numbers that YAML 1.1 leaves as texts, such as ``1e-6``."""
    if isinstance(value, str):
        try:
            return (
                float(value)
                if re.fullmatch(r"[-+]?\d[\d.]*e[-+]?\d+", value)
                else value
            )
        except ValueError:
            return value
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def _from_tree(tree: Any, file: str, prefix: str = "") -> Iterator[Given]:
    if not isinstance(tree, Mapping):
        return
    for key, value in tree.items():
        name = f"{prefix}{_underscored(str(key))}"
        if isinstance(value, Mapping) and "value" in value and "origin" in value:
            # As this engine records its arguments.
            yield Given(name=name, value=value["value"], file=file)
        elif isinstance(value, Mapping):
            yield from _from_tree(value, file, f"{name}.")
        else:
            yield Given(name=name, value=value, file=file)


def _from_script(text: str, file: str) -> Iterator[Given]:
    """Flags and ``name=value`` words of a shell script or of a text of flags."""
    open_flag: tuple[str, int, list[Any]] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        for word in _words(line):
            flag = _FLAG.fullmatch(word) if not _is_number(word) else None
            if flag is not None:
                yield from _closed(open_flag, file)
                open_flag = (_underscored(flag[1]), number, [])
                if flag[2] is not None:
                    open_flag[2].append(_scalar(flag[2]))
            elif (pair := _DOTTED.fullmatch(word)) is not None and "." in pair[1]:
                yield from _closed(open_flag, file)
                open_flag = None
                yield Given(
                    name=pair[1], value=_scalar(pair[2]), file=file, line=number
                )
            elif word in (")", "(", "\\") or word.endswith(("=(", "[@]}", "[*]}")):
                yield from _closed(open_flag, file)
                open_flag = None
            elif open_flag is not None:
                open_flag[2].append(_scalar(word))
    yield from _closed(open_flag, file)


def _closed(flag: tuple[str, int, list[Any]] | None, file: str) -> Iterator[Given]:
    if flag is None:
        return
    name, line, values = flag
    value = True if not values else values[0] if len(values) == 1 else values
    yield Given(name=name, value=value, file=file, line=line)


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        # A quote that the next line closes.
        return line.partition("#")[0].split()


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _scalar(word: str) -> Any:
    try:
        return plain(yaml.safe_load(word))
    except yaml.YAMLError:
        return word


def _underscored(name: str) -> str:
    return name.strip().removeprefix("--").replace("-", "_")
