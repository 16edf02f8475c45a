"""The one key table: bindings, footer, help, palette and tests are made from it.

A key that a screen does not implement is still bound: it says so, and where it works.
Plain letters carry every function, because modified keys do not survive tmux.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from textual.binding import Binding


class Group(StrEnum):
    """Headings of the help, in order."""

    MOVE = "Moving"
    VIEW = "The view"
    RUN = "The run"
    DEBUG = "Debugging"
    DUMPS = "Dumps"
    TOKENS = "Tokens"
    COPY = "Copying out"


class Where(StrEnum):
    """Screens, by the names that help and footer use."""

    LIVE = "live"
    STEP = "step"
    TRIAGE = "triage"
    LOG = "log"
    RUNS = "runs"
    DUMPS = "dumps"
    COMPARE = "compare"
    HELP = "help"


EVERYWHERE: Final = frozenset(Where)
_RUN_SCREENS: Final = frozenset({Where.LIVE, Where.STEP, Where.TRIAGE, Where.LOG})
_LIVE: Final = frozenset({Where.LIVE})
_STEP: Final = frozenset({Where.STEP})
_DUMPS: Final = frozenset({Where.DUMPS})
_COMPARE: Final = frozenset({Where.COMPARE})
_PANED: Final = (
    frozenset({Where.LIVE, Where.STEP, Where.TRIAGE, Where.DUMPS}) | _COMPARE
)


@dataclass(frozen=True, kw_only=True)
class Key:
    """One function and the keys that call it.

    Attributes:
        id: Stable; remapping and tests name it.
        default_keys: Textual key names, the first is shown.
        label: One or two words for the footer.
        help: One sentence.
        where: Screens that implement it.
        footer: Place in the footer; 0 keeps it out.
        later: Why it is not available yet; '' when it is.
        shown: How the key is written, when its name is not what is printed on it.
    """

    id: str
    default_keys: tuple[str, ...]
    label: str
    help: str
    group: Group
    where: frozenset[Where] = EVERYWHERE
    footer: int = 0
    later: str = ""
    shown: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that call it now."""
        return _remapped.get(self.id, self.default_keys)

    @property
    def display(self) -> str:
        """The key as a person reads it."""
        if self.id in _remapped:
            return printed(self.keys[0])
        return self.shown or self.keys[0]


def printed(name: str) -> str:
    """A key as it is printed on a keyboard, from Textual's name of it."""
    try:
        return PRINTED.get(name) or unicodedata.lookup(name.replace("_", " "))
    except KeyError:
        return name


_remapped: dict[str, tuple[str, ...]] = {}


def remap(keys: Mapping[str, tuple[str, ...]]) -> None:
    """Gives functions other keys, for this process; help and footer follow.

    Args:
        keys: By function id; those that are not named have their usual ones.
    """
    _remapped.clear()
    _remapped.update(keys)


def _key(
    id: str, keys: str, label: str, help: str, group: Group, **more: object
) -> Key:
    names = tuple(keys.split())
    return Key(id=id, default_keys=names, label=label, help=help, group=group, **more)  # type: ignore[arg-type]


_MOVE, _VIEW, _RUN = Group.MOVE, Group.VIEW, Group.RUN
_DEBUG, _TOKENS, _COPY = Group.DEBUG, Group.TOKENS, Group.COPY
_DUMP_KEYS = Group.DUMPS

KEYS: Final[tuple[Key, ...]] = (
    # Moving
    _key("up", "k up", "up", "One line up.", _MOVE),
    _key("down", "j down", "down", "One line down.", _MOVE),
    _key("left", "h left", "left", "The pane before, or the sample before.",
         _MOVE, where=_RUN_SCREENS | _COMPARE),
    _key("right", "l right", "right", "The next pane, or the next sample.",
         _MOVE, where=_RUN_SCREENS | _COMPARE),
    _key("top", "g home", "first", "To the first line.", _MOVE),
    _key("bottom", "G end", "last", "To the last line; a growing list is followed.",
         _MOVE),
    _key("page_up", "pageup ctrl+u", "page up", "One page up.", _MOVE, shown="PgUp"),
    _key("page_down", "pagedown ctrl+d", "page down", "One page down.", _MOVE,
         shown="PgDn"),
    _key("open", "enter", "open", "Open what the cursor is on.", _MOVE,
         where=frozenset({Where.LIVE, Where.TRIAGE, Where.RUNS, Where.STEP,
                          Where.DUMPS}), footer=40, shown="⏎"),
    _key("back", "q escape backspace", "back",
         "Back; on the first screen leave the console. The run goes on.", _MOVE,
         footer=95),
    _key("leave", "ctrl+q ctrl+c", "leave",
         "Leave the console from any screen. The run goes on.", _MOVE),
    _key("next_pane", "tab", "next pane", "Focus the next pane.", _MOVE,
         where=_PANED, shown="Tab"),
    _key("previous_pane", "shift+tab", "previous pane", "Focus the pane before.", _MOVE,
         where=_PANED, shown="S-Tab"),
    _key("previous_rollout", "left_square_bracket", "older",
         "Look at the rollout before; the run is not touched.", _MOVE,
         where=frozenset({Where.LIVE, Where.STEP}), footer=50, shown="["),
    _key("next_rollout", "right_square_bracket", "newer",
         "Look at the next rollout; past the newest the view follows the run again.",
         _MOVE, where=frozenset({Where.LIVE, Where.STEP}), footer=51, shown="]"),
    # The view
    _key("help", "question_mark f1", "help", "Help for this screen, and all keys.",
         _VIEW, footer=100, shown="?"),
    _key("palette", "colon ctrl+p", "all actions", "Choose an action by name.", _VIEW,
         footer=90, shown=":"),
    _key("search", "slash", "search",
         "Search the focused list for a text or a regular expression.",
         _VIEW, footer=60, shown="/"),
    _key("search_next", "n", "next match", "To the next match.", _VIEW),
    _key("search_previous", "N", "match before", "To the match before.", _VIEW),
    _key("filter", "ampersand", "filter",
         "Only the samples for which conditions hold; nothing shows all again.",
         _VIEW, where=_LIVE | _STEP, footer=74, shown="&"),
    _key("sort", "O", "sort", "Choose the order of the samples.", _VIEW,
         where=_LIVE | _STEP, footer=74),
    _key("freeze", "space", "freeze", "Freeze or unfreeze the view; the run goes on.",
         _VIEW, where=_RUN_SCREENS, footer=62, shown="Spc"),
    _key("zoom", "z", "zoom", "The focused pane alone, and back.", _VIEW,
         where=_PANED, footer=64),
    *(
        _key(f"pane_{number}", str(number), f"pane {number}",
             f"Show or hide pane {number}.", _VIEW, where=_LIVE)
        for number in range(1, 7)
    ),
    _key("log", "L", "log", "The tail of the run's own log.", _VIEW, where=_RUN_SCREENS,
         footer=70),
    _key("runs", "R", "runs", "The list of runs.", _VIEW),
    _key("dumps", "D", "dumps", "The dumps of the run, or of a folder.", _VIEW,
         where=_RUN_SCREENS | {Where.RUNS}, footer=72),
    # The run
    _key("pause", "p", "pause", "Pause the run at the next safe point.", _RUN,
         where=_RUN_SCREENS, footer=10),
    _key("continue", "c", "continue", "Let a paused run go on.", _RUN,
         where=_RUN_SCREENS, footer=11),
    _key("step_stage", "s", "step", "Run one stage, then pause.", _RUN,
         where=_RUN_SCREENS, footer=12),
    _key("step_rollout", "S", "step rollout", "Run one rollout, then pause.", _RUN,
         where=_RUN_SCREENS, footer=13),
    _key("stop_when", "b", "stop when", "Set the conditions at which the run pauses.",
         _RUN, where=_RUN_SCREENS, footer=14),
    _key("withdraw", "W", "withdraw", "Take back a command that still waits.", _RUN,
         where=_RUN_SCREENS),
    _key("abort_generation", "A", "abort generation",
         "Abort the generation that runs; finished and partial samples are kept.", _RUN,
         where=_RUN_SCREENS),
    _key("stop_run", "X", "stop run", "End the run at the next safe point.", _RUN,
         where=_RUN_SCREENS),
    _key("kill_run", "K", "kill run", "End the run's processes at once.", _RUN,
         where=_RUN_SCREENS),
    # Debugging
    _key("triage", "t", "triage", "Verdicts and their evidence, worst first.", _DEBUG,
         where=_RUN_SCREENS, footer=30),
    _key("stacks", "x", "stacks", "Python stacks of all processes of the run.", _DEBUG,
         where=_RUN_SCREENS, footer=31),
    _key("dump", "d", "dump", "Dump the rollout on screen, also after the fact.",
         _DEBUG, where=_RUN_SCREENS, footer=5),
    _key("replay", "r", "replay",
         "Replay the rollout on screen: probe, reward, train or forge.", _DEBUG,
         where=_RUN_SCREENS, footer=6),
    _key("mode", "m", "mode",
         "An excursion to rollout-only or train-only, and back.", _DEBUG,
         where=_RUN_SCREENS, footer=7),
    _key("compare_with", "C", "compare with",
         "Two rollouts or runs side by side, from the first place they differ.",
         _DEBUG, where=_RUN_SCREENS | {Where.RUNS}, footer=73),
    _key("restart_engine", "T", "restart engine",
         "Start the rollout engine again and bring it the trainer's weights.", _DEBUG,
         where=_RUN_SCREENS),
    _key("verify", "v", "verify weights", "Compare the weights on disk, in the"
         " trainer and in the engines.", _DEBUG, where=_RUN_SCREENS),
    # Dumps
    _key("verify_dump", "V", "verify",
         "Read the dump in full and compare its hashes; again cancels.", _DUMP_KEYS,
         where=_DUMPS, footer=20),
    _key("delete_dump", "E", "delete", "Delete the dump and its manifest; asks first.",
         _DUMP_KEYS, where=_DUMPS, footer=22),
    _key("add_folder", "a", "add folder", "Look at the dumps of another folder too.",
         _DUMP_KEYS, where=_DUMPS, footer=24),
    # Tokens
    _key("subtract", "equals_sign", "compare", "Choose what to subtract from what.",
         _TOKENS, where=_STEP, footer=20, shown="="),
    _key("next_unequal", "u", "next unequal", "The next token that differs.", _TOKENS,
         where=_STEP | _COMPARE, footer=21),
    _key("previous_unequal", "U", "unequal before", "To the differing token before.",
         _TOKENS, where=_STEP | _COMPARE),
    _key("worst", "exclamation_mark", "worst", "To the token that differs most.",
         _TOKENS, where=_STEP | _COMPARE, footer=22, shown="!"),
    _key("flow", "f", "flow", "Tokens as running text, and back to the table.", _TOKENS,
         where=_STEP, footer=23),
    _key("bytes", "B", "bytes", "Tokens as bytes, and back to text.", _TOKENS,
         where=_STEP),
    # Copying out
    _key("copy", "y", "copy", "Copy what has the focus.", _COPY, footer=66),
    _key("copy_choose", "Y", "copy what", "Choose what to copy.", _COPY,
         where=_RUN_SCREENS | _COMPARE),
    _key("pager", "o", "pager", "Open what has the focus in $PAGER.", _COPY),
    _key("write", "w", "write", "Write what has the focus to a file.", _COPY),
)  # fmt: skip

PRINTED: Final = {
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "question_mark": "?",
    "ampersand": "&",
    "colon": ":",
    "slash": "/",
    "equals_sign": "=",
    "exclamation_mark": "!",
    "space": "Space",
    "escape": "Esc",
    "enter": "Enter",
    "backspace": "Backsp",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "tab": "Tab",
    "shift+tab": "Shift-Tab",
    "up": "Up",
    "down": "Down",
    "left": "Left",
    "right": "Right",
    "home": "Home",
    "end": "End",
}
"""Keys as they are printed, where Textual's name is another word."""

BY_ID: Final = {key.id: key for key in KEYS}

DIALOG_KEYS: Final = ("y", "n", "enter", "escape", "q")
"""Keys of the dialogs: `y` confirms, so no function that asks may open with it."""


def bindings() -> Iterator[Binding]:
    """Textual bindings of the whole table, for the app."""
    # Only the app calls this: the table itself costs no Textual import.
    from textual.binding import Binding  # noqa: PLC0415

    for key in KEYS:
        yield Binding(
            ",".join(key.default_keys),
            f"press('{key.id}')",
            key.label,
            show=False,
            id=key.id,
            tooltip=key.help,
            # At once and in order, before the key is handed to a screen's own queue.
            priority=True,
        )


def footer_keys(where: Where) -> list[Key]:
    """Keys of a screen's footer, in their order."""
    keys = [key for key in KEYS if key.footer and where in key.where]
    return sorted(keys, key=lambda key: key.footer)


def not_here(key: Key, where: Where) -> str:
    """Why a key does nothing on a screen, as one sentence."""
    places = ", ".join(sorted(key.where))
    what = f"{key.display} ({key.label})"
    return f"{what} does nothing on the {where} screen; it works on: {places}"
