"""How roles look, in 256 colours, in 16 and in none; and the glyphs of the chrome.

Colours come from the terminal's own background (nothing paints it) and from indexes of
the 256-colour table, whose codes are short on the wire and the same in a truecolor
terminal. With 16 colours the names of the terminal's palette are used; without colours
bold, underline and reverse remain. No meaning is carried by a colour alone: each status
has its word, each difference its sign.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final

from rich.style import Style


class Colours(Enum):
    """How many colours there are."""

    RICH = "256"
    BASIC = "16"
    NONE = "none"


# role: (256 colours, 16 colours, no colours)
ROLES: Final[Mapping[str, tuple[str, str, str]]] = {
    "": ("", "", ""),
    "dim": ("color(245)", "bright_black", ""),
    "rule": ("color(240)", "bright_black", ""),
    "title": ("bold", "bold", "bold"),
    "focus": ("bold color(75)", "bold bright_blue", "bold underline"),
    "key": ("bold color(75)", "bold bright_blue", "bold"),
    "label": ("color(245)", "bright_black", ""),
    "number": ("bold", "bold", "bold"),
    "good": ("color(71)", "green", ""),
    "bad": ("bold color(203)", "bold bright_red", "bold reverse"),
    "warn": ("bold color(178)", "bold yellow", "bold"),
    "info": ("color(110)", "cyan", ""),
    "muted": ("color(245)", "bright_black", ""),
    "running": ("color(75)", "bright_blue", ""),
    "alarm": ("bold color(231) on color(160)", "bold white on red", "bold reverse"),
    "notice": ("bold color(16) on color(178)", "black on yellow", "reverse"),
    "selected": ("color(231) on color(24)", "white on blue", "reverse"),
    "spark": ("color(75)", "bright_blue", ""),
    "masked": ("color(240) italic", "bright_black", ""),
    "special": ("color(139)", "magenta", "underline"),
    "heat1": ("color(109)", "cyan", ""),
    "heat2": ("color(179)", "yellow", ""),
    "heat3": ("color(173)", "bright_yellow", "bold"),
    "heat4": ("bold color(203)", "bold bright_red", "bold reverse"),
    "match": ("color(16) on color(179)", "black on yellow", "reverse"),
}

STATUS_ROLES: Final[Mapping[str, str]] = {
    "FAIL": "bad",
    "NON_FINITE": "bad",
    "WARN": "warn",
    "PASS": "good",
    "INFO": "info",
    "VACUOUS": "muted",
    "NOT_RUN": "muted",
}
"""Role of each verdict status."""

STATUS_WORDS: Final[Mapping[str, str]] = {
    "FAIL": "FAIL",
    "NON_FINITE": "NONF",
    "WARN": "WARN",
    "PASS": "PASS",
    "INFO": "INFO",
    "VACUOUS": "VACU",
    "NOT_RUN": "NOTR",
}
"""Each verdict status in four cells."""


@lru_cache(maxsize=256)
def style(role: str, colours: Colours) -> Style:
    """The style of a role; a role that is not in the table is drawn plainly."""
    rich, basic, none = ROLES.get(role, ("", "", ""))
    text = {Colours.RICH: rich, Colours.BASIC: basic, Colours.NONE: none}[colours]
    return Style.parse(text) if text else Style.null()


@dataclass(frozen=True, kw_only=True)
class Glyphs:
    """Characters of the chrome.

    Attributes:
        bars: From empty to full, for curves and difference strips.
    """

    rule: str
    heavy: str
    cursor: str
    dot: str
    ellipsis: str
    arrow: str
    minus: str
    bars: str
    column: str
    absent: str


UNICODE: Final = Glyphs(
    rule="─",
    heavy="━",
    cursor="▸",
    dot="·",
    ellipsis="…",
    arrow="▸",
    minus="−",
    bars=" ▁▂▃▄▅▆▇█",
    column="│",
    absent="—",
)

ASCII: Final = Glyphs(
    rule="-",
    heavy="=",
    cursor=">",
    dot=".",
    ellipsis="~",
    arrow=">",
    minus="-",
    bars=" _.-=+*%#",
    column="|",
    absent="-",
)


@dataclass(frozen=True, kw_only=True)
class Look:
    """How this terminal is drawn on."""

    colours: Colours = Colours.RICH
    glyphs: Glyphs = UNICODE

    @property
    def ascii_only(self) -> bool:
        """Whether only ASCII may be sent."""
        return self.glyphs is ASCII

    def style(self, role: str) -> Style:
        """The style of a role."""
        return style(role, self.colours)
