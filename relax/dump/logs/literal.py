"""A small reader of Python literals as logs print them; nothing is evaluated.

Takes what ``print(metrics)`` of the engines gives: dicts, lists and tuples of numbers
and texts, ``nan`` and ``inf``, ``np.float64(0.5)``, ``tensor(0.5, device='cuda:0')``.
What is none of these becomes an `Opaque`, so that one odd value costs no line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

MOST_NESTING: Final = 32

_SPACE: Final = re.compile(r"\s*")
_NUMBER: Final = re.compile(
    r"[+-]?(?:inf(?:inity)?|nan|\d[\d_]*\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?)",
    re.IGNORECASE,
)
_NAME: Final = re.compile(r"[A-Za-z_][\w.]*")
_STRING: Final = re.compile(
    r"""(?P<prefix>[bru]{0,2})"""
    r"""("(?P<d>[^"\\]*(?:\\.[^"\\]*)*)"|'(?P<s>[^'\\]*(?:\\.[^'\\]*)*)')""",
    re.IGNORECASE | re.DOTALL,
)
_ESCAPE: Final = re.compile(
    r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL
)
_CONTROL: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "a": "\a", "b": "\b"}
_WORDS: Final = {
    "None": None, "null": None, "True": True, "true": True, "False": False,
    "false": False,
}  # fmt: skip
_SCALARS: Final = (
    "float",
    "int",
    "uint",
    "bfloat",
    "tensor",
    "array",
    "bool",
    "Scalar",
)
"""Beginnings of the last part of a call's name whose first argument is the value."""
_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}


class NotALiteral(ValueError):
    """The text is cut short or is no literal."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value that is printed in a way that says nothing to us."""

    text: str


def parse_literal(text: str, start: int = 0) -> tuple[Any, int]:
    """Reads one literal.

    Args:
        text: Holds the literal from ``start`` on, and anything behind it.
        start: Where it begins.

    Returns:
        The value, and where it ends.

    Raises:
        NotALiteral: There is none, or it is cut short.
    """
    return _Reader(text).value(start, 0)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, at: int, depth: int) -> tuple[Any, int]:
        at = self._skip(at)
        if depth > MOST_NESTING:
            raise NotALiteral(f"nested deeper than {MOST_NESTING} levels")
        first = self._text[at : at + 1]
        if not first:
            raise NotALiteral("it is cut short")
        if first == "{":
            return self._dict(at + 1, depth)
        if first in "[(":
            return self._items(at + 1, _CLOSING[first], depth)
        if (match := _STRING.match(self._text, at)) is not None:
            return _unescape(match), match.end()
        if (match := _NUMBER.match(self._text, at)) is not None:
            after = self._text[match.end() : match.end() + 1]
            if not (after.isalnum() or after == "_"):
                return _number(match[0]), match.end()
        if (match := _NAME.match(self._text, at)) is not None:
            return self._named(match[0], match.end(), depth)
        return self._opaque(at)

    def _skip(self, at: int) -> int:
        match = _SPACE.match(self._text, at)
        return at if match is None else match.end()

    def _dict(self, at: int, depth: int) -> tuple[Any, int]:
        pairs: dict[Any, Any] = {}
        loose: list[Any] = []
        while True:
            at = self._skip(at)
            if self._text[at : at + 1] == "}":
                return (loose if loose else pairs), at + 1
            key, at = self.value(at, depth + 1)
            at = self._skip(at)
            if self._text[at : at + 1] == ":":
                value, at = self.value(at + 1, depth + 1)
                pairs[key if isinstance(key, str | int | float) else str(key)] = value
            else:
                loose.append(key)
            at = self._after_item(at, "}")

    def _items(self, at: int, closing: str, depth: int) -> tuple[Any, int]:
        items: list[Any] = []
        while True:
            at = self._skip(at)
            if self._text[at : at + 1] == closing:
                return items, at + 1
            item, at = self.value(at, depth + 1)
            items.append(item)
            at = self._after_item(at, closing)

    def _after_item(self, at: int, closing: str) -> int:
        """Past a comma; or at the closing bracket."""
        at = self._skip(at)
        following = self._text[at : at + 1]
        if following == ",":
            return at + 1
        if following == closing:
            return at
        raise NotALiteral("it is cut short" if not following else "a comma is missing")

    def _named(self, name: str, at: int, depth: int) -> tuple[Any, int]:
        if name in _WORDS:
            return _WORDS[name], at
        if self._text[at : at + 1] != "(":
            return Opaque(name), at
        first, at = self._call(at + 1, depth)
        last = name.rpartition(".")[2]
        if not last.startswith(_SCALARS) or isinstance(first, Opaque):
            return Opaque(name), at
        return first, at

    def _call(self, at: int, depth: int) -> tuple[Any, int]:
        """The first argument of a call, and where the call ends."""
        first: Any = Opaque("nothing")
        count = 0
        while True:
            at = self._skip(at)
            if self._text[at : at + 1] == ")":
                return first, at + 1
            value, at = self.value(at, depth + 1)
            at = self._skip(at)
            if self._text[at : at + 1] == "=":
                # A keyword, such as device='cuda:0'.
                _, at = self.value(at + 1, depth + 1)
            elif not count:
                first = value
            count += 1
            at = self._after_item(at, ")")

    def _opaque(self, at: int) -> tuple[Opaque, int]:
        """Anything else, up to the comma or bracket that ends it: ``<Status: 3>``."""
        start, open_brackets = at, 0
        while at < len(self._text):
            char = self._text[at]
            if char in "<([{":
                open_brackets += 1
            elif char in ">)]}":
                if not open_brackets and char != ">":
                    break
                open_brackets -= 1
            elif char == "," and open_brackets <= 0:
                break
            at += 1
        if at == start:
            raise NotALiteral(f"{self._text[at : at + 1]!r} begins no value")
        return Opaque(self._text[start:at].strip()), at


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _unescape(match: re.Match[str]) -> str:
    raw = match["d"] if match["d"] is not None else match["s"]
    if "\\" not in raw or "r" in match["prefix"].lower():
        return raw
    return _ESCAPE.sub(_character, raw)


def _character(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "xuU" and len(code) > 1:
        number = int(code[1:], 16)
        return chr(number) if number < 0x110000 else "\ufffd"
    return _CONTROL.get(code, "" if code == "\n" else code)
