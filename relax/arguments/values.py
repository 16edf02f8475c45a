"""Text becomes a value of the flag's type, or an error that says what was expected."""

from __future__ import annotations

import json
import math
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from relax.errors import InternalError

BaseType = Literal["bool", "int", "float", "str", "path", "choice", "yaml"]

_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})


class ValueProblem(Exception):
    """A text that is no value of the type; says what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueType:
    """The type of a flag's value.

    Attributes:
        base: Type of one value; ``yaml`` is whatever YAML makes of the text.
        many: A sequence of such values.
        optional: None is allowed (``null`` in a file).
        choices: The values of a ``choice``.
        accepts: For ``yaml``: which of int, float, str, bool, list fit; empty: all.
    """

    base: BaseType
    many: bool = False
    optional: bool = False
    choices: tuple[str, ...] = ()
    accepts: tuple[str, ...] = ()

    @property
    def is_switch(self) -> bool:
        """Whether the flag stands alone on a command line."""
        return self.base == "bool" and not self.many

    def describe(self) -> str:
        """What is expected, for a message."""
        one = {
            "bool": "true or false",
            "int": "a whole number",
            "float": "a finite number",
            "str": "a text",
            "path": "a path",
            "choice": f"one of {', '.join(self.choices)}",
            "yaml": " or ".join(self.accepts) or "a YAML value",
        }[self.base]
        return f"values, each {one}" if self.many else one

    def convert(self, text: str) -> Any:
        """One value.

        Raises:
            ValueProblem: The text is no such value.
        """
        if self.base == "bool":
            return _to_bool(text)
        if self.base == "int":
            return _to_int(text)
        if self.base == "float":
            return _to_float(text)
        if self.base == "path":
            if not text:
                raise ValueProblem("expected a path, not an empty text")
            return Path(text)
        if self.base == "choice" and text not in self.choices:
            raise ValueProblem(f"expected {self.describe()}")
        if self.base == "yaml":
            return self._to_yaml(text)
        return text

    def convert_list(self, texts: tuple[str, ...]) -> list[Any]:
        """Several values of a ``yaml`` type that takes a list.

        Raises:
            ValueProblem: They do not make a list of plain values.
        """
        if len(texts) == 1:
            value = self._to_yaml_any(texts[0])
            return value if isinstance(value, list) else [value]
        return [self._to_yaml_any(text) for text in texts]

    def _to_yaml_any(self, text: str) -> Any:
        return ValueType(base="yaml").convert(text)

    def _to_yaml(self, text: str) -> Any:
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueProblem(f"expected {self.describe()}") from error
        if isinstance(value, str):
            value = _number_or_text(value)
        _check_plain(value, accepts=self.accepts)
        if value is None and not self.optional and self.accepts:
            raise ValueProblem(f"expected {self.describe()}")
        return value


def _number_or_text(text: str) -> float | str:
    # YAML 1.1 takes 1e-6 for a text; people and command lines take it for a number.
    try:
        return float(text) if text[:1] in "+-.0123456789" else text
    except ValueError:
        return text


def _check_plain(value: Any, *, accepts: tuple[str, ...]) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueProblem("expected a finite number")
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueProblem("expected numbers, texts and lists only") from error
    kind = type(value).__name__
    fits = kind in accepts or (kind == "int" and "float" in accepts)
    if accepts and value is not None and not fits:
        raise ValueProblem(f"expected {' or '.join(accepts)}")


def _to_bool(text: str) -> bool:
    word = text.lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueProblem("expected true or false")


def _to_int(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ValueProblem("expected a whole number") from error


def _to_float(text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise ValueProblem("expected a finite number") from error
    if not math.isfinite(value):
        raise ValueProblem("expected a finite number")
    return value


_PLAIN: Final[dict[Any, BaseType]] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    Path: "path",
}


def type_of(annotation: Any) -> ValueType:
    """The value type of a settings field's annotation.

    Raises:
        InternalError: The annotation is none that a flag can have.
    """
    origin = typing.get_origin(annotation)
    members = typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union) and type(None) in members:
        (inner,) = (member for member in members if member is not type(None))
        one = type_of(inner)
        return ValueType(base=one.base, optional=True, choices=one.choices)
    if origin is tuple:
        return ValueType(base=type_of(members[0]).base, many=True)
    if origin is Literal:
        return ValueType(base="choice", choices=tuple(members))
    if annotation not in _PLAIN:
        raise InternalError(f"no flag can have the type {annotation!r}")
    return ValueType(base=_PLAIN[annotation])
