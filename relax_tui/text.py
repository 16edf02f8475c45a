"""The one boundary between text from outside and the terminal.

Model responses, prompts, log lines, file names and error texts are hostile input: an
escape sequence in a response must not reach the terminal, and a bracket must not be
read as markup. `visible` turns everything that a terminal would obey, hide or reorder
into a form that a person can see; whatever is drawn has gone through it. Widths are
counted in terminal cells, never in characters.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from rich.cells import cell_len

_PLAIN = re.compile(r"[ -~]*")
_PLAIN_OR_WIDE = re.compile(r"[ -~\u00a1-\u00ac\u00ae-\u02ff\u4e00-\u9fff]*")

# Zero-width joiners and variation selectors: terminals disagree about their width.
_INVISIBLE = frozenset(
    "\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200c\u200d\u200e\u200f\u2028"
    "\u2029\u2060\u2061\u2062\u2063\u2064\u2065\u3164\ufeff\uffa0"
) | {chr(code) for code in (*range(0xFE00, 0xFE10), *range(0x202A, 0x202F))}
_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"})
DOTTED_CIRCLE = "\u25cc"
_CHARACTERS_A_CELL = 4
"""At most, with combining marks; a longer run of them is broken."""
# What our own sentences use, for terminals that know ASCII only.
_ASCII_WORDS = {"Δ": "d", "±": "+-", "≤": "<=", "≥": ">=", "≠": "!=", "×": "x",
                "→": "->", "−": "-", "·": ".", "…": "...", "—": "-"}  # fmt: skip


def visible(text: str, *, ascii_only: bool = False) -> str:
    r"""The text with everything a terminal would obey or hide made visible.

    C0 controls become their pictures (``␛``, ``↵`` for a newline), C1 controls, bidi
    controls, invisible and unassigned characters ``\xNN`` or ``\uNNNN``; a combining
    mark without a base gets a dotted circle. Applying it twice changes nothing.

    Args:
        text: Text from outside.
        ascii_only: Also write every non-ASCII character in ASCII: a few signs as words
            of the same meaning, the others as escapes.

    Returns:
        One line of printable text.
    """
    if _PLAIN.fullmatch(text):
        return text
    if ascii_only:
        return "".join(map(_ascii_form, text))
    if _PLAIN_OR_WIDE.fullmatch(text):
        return text
    shown = "".join(map(_visible_form, text))
    if shown and unicodedata.combining(shown[0]):
        return DOTTED_CIRCLE + shown
    return shown


@lru_cache(maxsize=8192)
def _visible_form(char: str) -> str:
    code = ord(char)
    if char == "\n":
        return "↵"
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if char in _INVISIBLE or unicodedata.category(char) in _UNSAFE_CATEGORIES:
        return _escape(code)
    return char


def _ascii_form(char: str) -> str:
    if " " <= char <= "~":
        return char
    return _ASCII_WORDS.get(char) or _escape(ord(char))


def _escape(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def visible_lines(text: str, *, ascii_only: bool = False) -> list[str]:
    """Like `visible`, but newlines stay line breaks; tabs become four spaces."""
    parts = text.replace("\r\n", "\n").replace("\t", "    ").split("\n")
    return [visible(part, ascii_only=ascii_only) for part in parts]


def width(text: str) -> int:
    """Terminal cells of a text that went through `visible`."""
    return len(text) if text.isascii() else cell_len(text)


def cut(text: str, cells: int, ellipsis: str = "…") -> str:
    """At most ``cells`` cells of a text, cut between characters.

    Args:
        text: Text that went through `visible`.
        cells: Cells there are.
        ellipsis: Put at the end of a text that was cut.

    Returns:
        A text of at most ``cells`` cells.
    """
    if cells <= 0:
        return ""
    if len(text) <= cells * _CHARACTERS_A_CELL and width(text) <= cells:
        return text
    room = cells - width(ellipsis)
    return head(text, room) + ellipsis if room >= 0 else head(text, cells)


def head(text: str, cells: int) -> str:
    """The longest beginning of a text that fits into ``cells`` cells."""
    if text.isascii():
        return text[:cells]
    low, high = 0, min(len(text), max(cells, 0) * _CHARACTERS_A_CELL)
    while low < high:
        middle = (low + high + 1) // 2
        if cell_len(text[:middle]) <= cells:
            low = middle
        else:
            high = middle - 1
    return text[:low]


def pad(text: str, cells: int, align: str = "<") -> str:
    """A text in exactly ``cells`` cells, cut or padded.

    Args:
        text: Text that went through `visible`.
        cells: Cells to fill.
        align: ``<`` left, ``>`` right.

    Returns:
        The text with its padding.
    """
    shown = cut(text, cells)
    fill = " " * (cells - width(shown))
    return fill + shown if align == ">" else shown + fill


def wrap(text: str, cells: int, *, ascii_only: bool = False) -> list[str]:
    """A text from outside as lines of at most ``cells`` cells, broken at spaces.

    Args:
        text: Raw text; it is made visible here.
        cells: Width of a line, at least 1.
        ascii_only: As in `visible`.

    Returns:
        The lines; an empty text gives one empty line.
    """
    lines: list[str] = []
    for paragraph in visible_lines(text, ascii_only=ascii_only):
        lines.extend(_wrap_paragraph(paragraph, max(cells, 1)))
    return lines


def _wrap_paragraph(paragraph: str, cells: int) -> list[str]:
    lines: list[str] = []
    at = 0
    # What a line can hold at most, so that a line of megabytes costs what it is long.
    room = _CHARACTERS_A_CELL * cells
    while at + room < len(paragraph) or width(paragraph[at:]) > cells:
        line = head(paragraph[at : at + room], cells) or paragraph[at]
        space = line.rfind(" ")
        # A break at a space, unless that would leave most of the line empty.
        taken = space + 1 if space > cells // 2 else len(line)
        lines.append(paragraph[at : at + taken].rstrip(" "))
        at += taken
    lines.append(paragraph[at:])
    return lines
