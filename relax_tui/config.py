"""The console's own settings: ``$XDG_CONFIG_HOME/relax/console.toml``."""

from __future__ import annotations

import difflib
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from relax.arguments.environment import config_home
from relax.errors import ArgumentError
from relax_tui.keymap import BY_ID, DIALOG_KEYS, KEYS

EXAMPLE: Final = '[keys]\ndump = "ctrl+d"\nnext_unequal = ["u", "+"]'
_MODIFIERS: Final = frozenset({"ctrl", "shift", "alt"})
_NAMED: Final = frozenset(
    {"enter", "escape", "tab", "space", "backspace", "delete", "insert", "home", "end",
     "pageup", "pagedown", "up", "down", "left", "right",
     *(f"f{number}" for number in range(1, 25))}
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ConsoleConfig:
    """What a person has set.

    Attributes:
        keys: Table ``[keys]``: by a function's id, as in the key sheet, the keys that
            call it instead of the usual ones, as Textual names them. In the file a key
            is written as it is printed (``"&"``), by its name (``"pageup"``) or with a
            modifier (``"ctrl+e"``); several as a list.
    """

    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def config_file() -> Path:
    """Where the settings are, whether or not they are there."""
    return config_home() / "relax" / "console.toml"


def read_config(path: Path | None = None) -> ConsoleConfig:
    """The settings; the usual ones when there is no file.

    Args:
        path: The file; `config_file` when left out.

    Raises:
        ArgumentError: It cannot be read, or sets what there is not.
    """
    path = path or config_file()
    try:
        given = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return ConsoleConfig()
    except OSError as error:
        raise ArgumentError(f"{path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path} is not TOML: {error}", hint=EXAMPLE) from error
    known = [setting.name for setting in fields(ConsoleConfig)]
    for name in given:
        if name not in known:
            raise ArgumentError(f"{path}: no setting {name!r}", hint=_near(name, known))
    keys = given.get("keys", {})
    if not isinstance(keys, dict):
        raise ArgumentError(f"{path}: keys is a table", hint=EXAMPLE)
    try:
        return ConsoleConfig(keys=chosen_keys(keys))
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error.what}", hint=error.hint) from error


def chosen_keys(given: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The table ``[keys]`` in Textual's names of keys.

    Args:
        given: By function id, a key or a list of keys.

    Raises:
        ArgumentError: There is no such function or key, or two functions of one screen
            would have the same key.
    """
    chosen = {}
    for name, value in given.items():
        if name not in BY_ID:
            raise ArgumentError(f"no function {name!r} to give keys to",
                                hint=_near(name, BY_ID))  # fmt: skip
        wanted = [value] if isinstance(value, str) else value
        strings = isinstance(wanted, list) and all(isinstance(k, str) for k in wanted)
        if not strings or not wanted:
            raise ArgumentError(f"{name}: a key or a list of keys", hint=EXAMPLE)
        chosen[name] = tuple(_textual_name(name, key) for key in wanted)
        taken = set(chosen[name]) & set(DIALOG_KEYS) - set(BY_ID[name].default_keys)
        if taken:
            raise ArgumentError(
                f"{name}: {min(taken)} answers dialogs, and is not free"
            )
    _refuse_twins(chosen)
    return chosen


def _refuse_twins(chosen: Mapping[str, tuple[str, ...]]) -> None:
    for number, key in enumerate(KEYS):
        ours = chosen.get(key.id, key.default_keys)
        for other in KEYS[number + 1 :]:
            shared = set(ours) & set(chosen.get(other.id, other.default_keys))
            if shared:
                raise ArgumentError(
                    f"{min(shared)} would be {key.id} and {other.id}",
                    hint=f"give {key.id if other.id in chosen else other.id} another",
                )


def _textual_name(function: str, key: str) -> str:
    *modifiers, last = key.split("+") if len(key) > 1 else [key]
    if len(last) == 1 and not last.isalnum():
        named = unicodedata.name(last, "").lower()
        last = named.replace(" ", "_").replace("-", "_")
    known = len(last) == 1 or last in _NAMED or (len(key) == 1 and last)
    if not known or not _MODIFIERS.issuperset(modifiers):
        printed = [word for named in KEYS for word in named.default_keys]
        if key in printed:
            return key
        near = _near(key, [*_NAMED, *printed])
        raise ArgumentError(f"{function}: no key {key!r}", hint=near)
    return "+".join([*modifiers, last])


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)
    return f"did you mean {near[0]}?" if near else ""
