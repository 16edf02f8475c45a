"""``--help`` and ``--show-arguments`` as text."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from relax.arguments.arguments import Arguments
from relax.arguments.flags import GROUPS, READ_ONLY_NAMES, Flag, FlagTable, own_flags
from relax.arguments.passthrough import flag_table
from relax.arguments.read import parse_arguments, read_raw
from relax.arguments.refusal import dashed

_WIDTH: Final = 88
_WIDEST_VALUE: Final = 60

_USAGE: Final = """\
usage: train.py --hf-checkpoint FOLDER --prompt-data FILE [--name value ...]

Names are never abbreviated. --no-NAME switches NAME off. Values come from flags, then
from --config FILE.yaml (the same names), then from the defaults.
"""


def asked_text(
    argv: Sequence[str], *, has_gpu: bool = False, python: Path | None = None
) -> str | None:
    """The text that ``--help`` or ``--show-arguments`` asks for.

    Args:
        argv: Words after the program's name.
        has_gpu: Whether the run has GPUs.
        python: Interpreter that will train; None is this one.

    Returns:
        The text to print before ending, or None when neither was asked for.

    Raises:
        ArgumentError: The arguments to show cannot stand.
    """
    if any(word in ("--help", "-h") for word in argv):
        return help_text(python=python)
    raw, _ = read_raw(argv, python=python)
    asked = raw.read_only.get("show_arguments")
    if asked is None or not asked.value:
        return None
    return show_arguments(parse_arguments(argv, has_gpu=has_gpu, python=python))


def show_arguments(arguments: Arguments) -> str:
    """Every value with its origin, aligned, a block an owner; no secrets."""
    document = arguments.to_json()
    width = max(len(name) for name in document)
    widest = max(len(_shown(entry["value"])) for entry in document.values())
    value_width = min(widest, _WIDEST_VALUE)
    own = own_flags()
    lines: dict[str, list[str]] = {
        owner: [] for owner in (*GROUPS, "megatron-core", "sglang")
    }
    for name, entry in document.items():
        if name in own:
            owner = own[name].owner
        else:
            owner = "sglang" if entry["configs"] == ["sglang"] else "megatron-core"
        value = _shown(entry["value"])
        lines[owner].append(
            f"  {name:<{width}}  {value:<{value_width}}  {entry['origin']}".rstrip()
        )
    blocks = ("\n".join([owner, *block]) for owner, block in lines.items() if block)
    return "\n".join(blocks) + "\n"


def help_text(*, python: Path | None = None) -> str:
    """All flags by owner, with type, default and one sentence.

    Args:
        python: Interpreter whose megatron-core and SGLang are listed; None is this one.
    """
    table = flag_table(python=python)
    parts = [_USAGE]
    for owner in GROUPS:
        flags = [flag for flag in own_flags().values() if flag.owner == owner]
        parts.append("\n".join([f"{owner}:", *(_help_of(flag) for flag in flags)]))
    read_only = "\n".join(
        _wrapped(dashed(name), meaning) for name, meaning in READ_ONLY_NAMES.items()
    )
    parts.append(f"reading:\n{read_only}")
    parts.extend(
        _passthrough_help(table, owner) for owner in ("megatron-core", "sglang")
    )
    return "\n\n".join(parts) + "\n"


def _passthrough_help(table: FlagTable, owner: str) -> str:
    names = sorted(
        dashed(flag.name)
        for flag in table.flags.values()
        if flag.owner == owner and not flag.refused
    )
    if not names:
        return f"{owner}:\n  its settings under their own names, such as --{owner}-…"
    listed = textwrap.fill(
        "  ".join(names),
        width=_WIDTH,
        initial_indent="  ",
        subsequent_indent="  ",
        break_on_hyphens=False,
    )
    return f"{owner} ({len(names)} settings under their own names):\n{listed}"


def _help_of(flag: Flag) -> str:
    kind = "" if flag.type.is_switch else f" {_metavar(flag)}"
    tail = ""
    if flag.derived:
        tail = f" [default: {flag.derived}]"
    elif flag.default not in (None, (), False):
        tail = f" [default: {_shown(flag.default)}]"
    return _wrapped(dashed(flag.name) + kind, flag.help + tail)


def _metavar(flag: Flag) -> str:
    if flag.type.base == "choice":
        return "|".join(flag.type.choices)
    return flag.type.base.upper() + (" ..." if flag.type.many else "")


def _wrapped(head: str, text: str) -> str:
    body = textwrap.fill(
        text, width=_WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6
    )
    return f"  {head}\n{body}"


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, str | Path):
        return str(value)
    return json.dumps(list(value) if isinstance(value, tuple) else value)
