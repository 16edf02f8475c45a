"""A command line and YAML files become typed values, each with its origin.

Flag over file over default; a file named by ``--custom-config-path`` over both, as
upstream has it. Names are never abbreviated, unknown ones are refused with the nearest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from relax.arguments.flag import ValueKind
from relax.arguments.flags import READ_ONLY_NAMES, Flag, FlagTable
from relax.arguments.foreign import ALIASES, SAID_ANYWAY, refusal_of
from relax.arguments.refusal import dashed, refuse
from relax.arguments.settings_file import FileEntry, read_settings_file
from relax.arguments.values import ValueProblem
from relax.errors import ArgumentError

FROM_COMMAND_LINE: Final = "flag"


@dataclass(frozen=True, slots=True)
class RawValue:
    """A value that was given.

    Attributes:
        value: Of the flag's type.
        origin: ``flag``, or file and line.
    """

    value: Any
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RawArguments:
    """What was given, and nothing that was not.

    Attributes:
        values: By field name.
        read_only: ``resource``, ``offload`` and others that are no fields.
    """

    values: Mapping[str, RawValue] = field(default_factory=dict)
    read_only: Mapping[str, RawValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """One flag as written: its name, its texts, where it stands."""

    name: str
    texts: tuple[str, ...] | None
    origin: str
    base: Path


def parse(argv: Sequence[str], *, table: FlagTable) -> RawArguments:
    """Reads a command line and the files that it names.

    Args:
        argv: Words after the program's name.
        table: All flags there are.

    Raises:
        ArgumentError: A flag is unknown or refused, or its value is not of its type.
    """
    line = _Reading(table)
    for given in _split(argv, table, base=Path.cwd()):
        line.take(given)
    below = _read_file(line, "config", table)
    custom_from = line if "custom_config_path" in line.read_only else below
    above = _read_file(custom_from, "custom_config_path", table)
    merged = _Reading(table)
    for layer in (below, line, above):
        merged.values.update(layer.values)
        merged.read_only.update(layer.read_only)
    return RawArguments(values=merged.values, read_only=merged.read_only)


def _read_file(layer: _Reading, name: str, table: FlagTable) -> _Reading:
    reading = _Reading(table)
    if name not in layer.read_only:
        return reading
    path: Path = layer.read_only[name].value
    for entry in read_settings_file(path):
        if entry.name == "config" or entry.name == name:
            raise refuse(
                entry.name,
                None,
                "a file of flags cannot name another",
                fix="put the values into one file",
                origin=entry.origin,
            )
        reading.take(_from_file(entry, path))
    return reading


def _from_file(entry: FileEntry, path: Path) -> _Given:
    return _Given(
        name=entry.name,
        texts=entry.texts,
        origin=entry.origin,
        base=path.absolute().parent,
    )


def _split(argv: Sequence[str], table: FlagTable, *, base: Path) -> Iterable[_Given]:
    """The flags of a command line with the words that belong to each."""
    position = 0
    while position < len(argv):
        word = argv[position]
        position += 1
        if word == "-h":
            word = "--help"
        if not word.startswith("--") or word == "--":
            raise ArgumentError(
                f"{word!r} is not a flag, and no flag before it takes it",
                hint="write --name value, or --name=value",
            )
        name, equals, text = word.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        texts = [text] if equals else []
        if not equals:
            most = _most_words(name, table)
            while position < len(argv) and len(texts) < most:
                if argv[position].startswith("--"):
                    break
                texts.append(argv[position])
                position += 1
        yield _Given(name=name, texts=tuple(texts), origin=FROM_COMMAND_LINE, base=base)


def _most_words(name: str, table: FlagTable) -> int:
    """How many words after a flag belong to it."""
    if name in READ_ONLY_NAMES:
        return 0 if name in ("help", "show_arguments", "offload") else 1
    found = table.find(ALIASES.get(name, name))
    if found is None:
        return 1
    flag, _ = found
    if flag.type.is_switch:
        return 0
    several = flag.type.many or "list" in flag.type.accepts
    return 10_000 if several and flag.kind is not ValueKind.REPEATED else 1


class _Reading:
    """Values of one layer, taken flag by flag."""

    def __init__(self, table: FlagTable) -> None:
        self.values: dict[str, RawValue] = {}
        self.read_only: dict[str, RawValue] = {}
        self._table = table

    def take(self, given: _Given) -> None:
        """Reads one flag.

        Raises:
            ArgumentError: It is unknown, refused, or its value is not of its type.
        """
        if given.name in READ_ONLY_NAMES:
            self.read_only[given.name] = _read_only(given)
            return
        found = self._table.find(ALIASES.get(given.name, given.name))
        if found is None:
            self._refuse_unknown(given)
            return
        flag, negated = found
        if flag.refused:
            raise refuse(
                given.name,
                given.texts,
                "holds a Python object, which no text can give",
                fix="leave it away",
                origin=given.origin,
            )
        value = _interpret(flag, given, negated=negated)
        if flag.kind is ValueKind.REPEATED and flag.name in self.values:
            value = self.values[flag.name].value + value
        self.values[flag.name] = RawValue(value, given.origin)

    def _refuse_unknown(self, given: _Given) -> None:
        """Raises, unless the flag says what is so anyway."""
        shown = given.texts or None
        if given.name in SAID_ANYWAY:
            allowed = SAID_ANYWAY[given.name]
            if given.texts and given.texts[0] in allowed:
                return
            raise refuse(
                given.name,
                shown,
                "is not built",
                fix=f"use {' or '.join(allowed)}, or leave it away",
                origin=given.origin,
            )
        refusal = refusal_of(given.name)
        if refusal is not None:
            raise refuse(
                given.name,
                shown,
                refusal.problem,
                fix=refusal.fix,
                origin=given.origin,
            )
        near = self._table.nearest(given.name)
        fix = "see --help for all flags"
        if near is not None:
            fix = f"did you mean {dashed(near)}?"
        raise refuse(given.name, shown, "unknown flag", fix=fix, origin=given.origin)


def _read_only(given: _Given) -> RawValue:
    texts = given.texts or ()
    if given.name in ("help", "show_arguments", "offload"):
        if texts not in ((), ("true",), ("false",)):
            raise refuse(
                given.name,
                texts,
                "expected true or false",
                fix=f"write {dashed(given.name)}",
                origin=given.origin,
            )
        return RawValue(texts != ("false",), given.origin)
    if len(texts) != 1 or not texts[0]:
        raise refuse(
            given.name,
            texts,
            "expected one value",
            fix=f"it is: {READ_ONLY_NAMES[given.name]}",
            origin=given.origin,
        )
    if given.name == "resource":
        return RawValue(texts[0], given.origin)
    return RawValue(given.base / Path(texts[0]).expanduser(), given.origin)


def _interpret(flag: Flag, given: _Given, *, negated: bool) -> Any:
    """The value of a flag's texts.

    Raises:
        ArgumentError: They are not of its type, or out of its bounds.
    """
    texts = given.texts
    if texts is None:
        if not flag.type.optional and not flag.derived:
            raise _bad(given, f"expected {flag.type.describe()}, not null")
        return None
    try:
        if flag.type.many and not texts and given.origin == FROM_COMMAND_LINE:
            raise ValueProblem(f"expected {flag.type.describe()}")
        value = _typed(flag, texts)
    except ValueProblem as problem:
        raise _bad(given, str(problem)) from problem
    if negated:
        value = not value
    numbers = value if isinstance(value, tuple | list) else (value,)
    for number in numbers:
        numeric = isinstance(number, int | float) and not isinstance(number, bool)
        if flag.bounds is not None and numeric and not flag.bounds.admit(number):
            raise _bad(given, f"expected a number {flag.bounds}")
    return _located(flag, value, given.base)


def _bad(given: _Given, problem: str) -> ArgumentError:
    return refuse(
        given.name,
        given.texts,
        problem,
        fix="see --help for what it means",
        origin=given.origin,
    )


def _typed(flag: Flag, texts: tuple[str, ...]) -> Any:
    kind = flag.type
    # Where SGLang's own table is not known, a flag of its alone can only be a switch.
    if not texts and (kind.is_switch or (flag.owner == "sglang" and kind.optional)):
        return True
    if kind.many:
        return tuple(kind.convert(text) for text in texts)
    if "list" in kind.accepts and (len(texts) > 1 or kind.accepts == ("list",)):
        return kind.convert_list(texts)
    if len(texts) != 1:
        raise ValueProblem(f"expected {kind.describe()}, and one value")
    return kind.convert(texts[0])


def _located(flag: Flag, value: Any, base: Path) -> Any:
    """Paths made absolute: a worker may run in another folder."""
    if flag.kind is ValueKind.PATH:
        return base / value.expanduser()
    if flag.kind is ValueKind.TEMPLATE:
        return str(base / Path(value).expanduser())
    if flag.kind is ValueKind.NAMED_PATHS:
        return tuple(
            str(base / Path(text).expanduser()) if place % 2 else text
            for place, text in enumerate(value)
        )
    return value
