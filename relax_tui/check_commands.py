"""``relax-tui check``, ``lint``, ``diff``, ``rules``: checks without a screen."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from relax.errors import ArgumentError, DumpError, RecordError
from relax_tui.printing import UNCUT, say

PathsArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="PATH…", help="A run, dumps, a log, JSONL, or several of them."
    ),
]
ArgumentsOption = Annotated[
    Path | None,
    typer.Option("--args", metavar="FILE", help="The run's flags: YAML, JSON, script."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document.")]
DetailsOption = Annotated[
    bool, typer.Option("--details", help="Everything, also beyond one screen.")
]
FailOnOption = Annotated[
    str, typer.Option("--fail-on", metavar="fail|warn", help="What exits with 1.")
]

UNREADABLE = 2


def register(app: typer.Typer) -> None:
    """Adds the commands to the command line."""
    app.command()(check)
    app.command()(lint)
    app.command()(diff)
    app.command()(rules)


def check(  # noqa: PLR0913, PLR0917 - one parameter an option is how Typer works
    paths: PathsArgument,
    args: ArgumentsOption = None,
    rule: Annotated[
        list[str] | None, typer.Option("--rule", metavar="ID", help="Only this rule.")
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Judge numbers against this run's same step."),
    ] = None,
    fail_on: FailOnOption = "fail",
    as_json: JsonOption = False,
    details: DetailsOption = False,
) -> None:
    """Check runs, dumps, logs and JSONL of this engine and of others.

    Exit code 0: nothing found; 1: a fault; 2: cannot be read; 3: nothing to check.
    """
    from relax_tui.checking.baseline import against_baseline
    from relax_tui.checking.check import check as run_check
    from relax_tui.checking.checked import CheckOptions
    from relax_tui.checking.outcome import document, exit_code
    from relax_tui.checking.text_report import text_report

    level = _fail_on(fail_on)
    wanted = _known_rules(rule or ())
    options = CheckOptions(arguments_file=args, tell=_teller(quiet=as_json))
    try:
        checked = run_check(paths, options)
        if baseline is not None:
            verdicts = against_baseline(paths, baseline, options)
            checked = replace(checked, verdicts=(*checked.verdicts, *verdicts))
    except (DumpError, RecordError) as error:
        _clear_line()
        say(f"relax-tui: {error}", to=sys.stderr)
        raise typer.Exit(UNREADABLE) from error
    _clear_line()
    if wanted:
        kept = tuple(v for v in checked.verdicts if v.rule in wanted)
        checked = replace(checked, verdicts=kept)
    if as_json:
        print(json.dumps(document(checked, fail_on=level), indent=2))
    else:
        columns, rows = _screen(cut=not details)
        text = text_report(checked, columns=columns, rows=rows, details=details)
        print(text, end="")
    nothing_read = checked.unread and not checked.read
    code = exit_code(checked.verdicts, fail_on=level)
    if code:
        raise typer.Exit(UNREADABLE if nothing_read else code)


def lint(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH…", help="Settings, launch scripts, Python, or folders."
        ),
    ],
    tokenizer: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="tokenizer.json or its checkpoint's folder."),
    ] = None,
    fail_on: FailOnOption = "fail",
    as_json: JsonOption = False,
) -> None:
    """Find faults before a run starts; nothing is imported or run."""
    from relax.triage.lint.lint import lint as find
    from relax_tui.checking.checked import Checked
    from relax_tui.checking.outcome import FOUND, UNREADABLE, document, exit_code
    from relax_tui.checking.text_report import text_report

    level = _fail_on(fail_on)
    found = find(paths, tokenizer=tokenizer)
    read: tuple[str, ...] = (f"{found.files} file(s)",)
    if found.tokenizer:
        read += (f"ids of {found.tokenizer}",)
    checked = Checked(verdicts=found.verdicts, read=read, unread=found.unread)
    if as_json:
        print(json.dumps(document(checked, fail_on=level), indent=2))
    elif found.verdicts:
        print(text_report(checked, columns=_screen(cut=False)[0], details=True), end="")
    else:
        print(f"nothing found in {found.files} file(s)")
    if exit_code(found.verdicts, fail_on=level) == FOUND:
        raise typer.Exit(FOUND)
    if not found.files:
        raise typer.Exit(UNREADABLE)


def diff(
    first: Annotated[Path, typer.Argument(metavar="A")],
    second: Annotated[Path, typer.Argument(metavar="B")],
    rollout: Annotated[
        list[int] | None,
        typer.Option(help="Rollout; given twice: A's and B's."),
    ] = None,
    tokens: Annotated[
        int,
        typer.Option(metavar="N", help="With --json: N samples token beside token."),
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Compare two steps, runs or files: samples, tokens, numbers, arguments.

    Exit code 0: no difference; 1: some; 2: cannot be read.
    """
    from relax_tui.checking.difference import compare
    from relax_tui.checking.difference_text import difference_text

    chosen = list(rollout or ())
    try:
        found = compare(
            first,
            second,
            rollouts=(chosen[0] if chosen else None, chosen[-1] if chosen else None),
            aligned=tokens,
        )
    except (DumpError, RecordError) as error:
        say(f"relax-tui: {error}", to=sys.stderr)
        raise typer.Exit(UNREADABLE) from error
    if as_json:
        print(json.dumps(found.to_json(), indent=2))
    else:
        print(difference_text(found, columns=_screen(cut=False)[0]), end="")
    if found.differs:
        raise typer.Exit(1)


def rules(as_json: JsonOption = False) -> None:
    """List the rules: id, section of the guide, what holds when it passes."""
    rows = list(_rules())
    if as_json:
        names = ("id", "section", "title", "needs")
        print(
            json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=2)
        )
        return
    for rule_id, section, title, needs in rows:
        print(f"{rule_id:<24} {section:<9} {title}")
        if needs:
            print(f"{'':<34} reads {', '.join(needs)}")


def _rules() -> Iterable[tuple[str, str, str, tuple[str, ...]]]:
    from relax.triage.lint.combinations import COMBINATIONS
    from relax.triage.log_registry import LOG_RULES
    from relax.triage.registry import RULES

    for rule in RULES:
        yield rule.id, rule.section, rule.title, rule.needs
    yield "baseline", "all", "numbers are those of the baseline", ()
    for log_rule in LOG_RULES:
        yield log_rule.id, log_rule.section, log_rule.title, ("log",)
    yield "stop_strings", "SGLang 1", "stop_token_ids instead of string stop", ("lint",)
    for combination in COMBINATIONS:
        yield combination.id, combination.section, combination.title, ("lint",)


def _known_rules(wanted: Iterable[str]) -> frozenset[str]:
    known = {row[0] for row in _rules()}
    for rule_id in wanted:
        if rule_id not in known:
            raise ArgumentError(
                f"--rule {rule_id}: no such rule", hint="`relax-tui rules` lists them"
            )
    return frozenset(wanted)


def _fail_on(text: str) -> Literal["warn", "fail"]:
    if text == "warn":
        return "warn"
    if text == "fail":
        return "fail"
    raise ArgumentError(f"--fail-on {text}: no such level", hint="fail or warn")


def _screen(*, cut: bool = True) -> tuple[int, int]:
    """Columns and rows of the terminal.

    Args:
        cut: Whether a file or a pipe gets what fits 80 x 24 too, or whole rows.
    """
    if not sys.stdout.isatty():
        return (80 if cut else UNCUT), 24
    size = shutil.get_terminal_size((80, 24))
    return max(size.columns, 40), max(size.lines, 10)


def _teller(*, quiet: bool) -> Callable[[str], None]:
    """Says on the terminal what is being read; says nothing into files and pipes."""
    if quiet or not sys.stderr.isatty():
        return lambda _: None
    from relax_tui.text import cut, visible

    columns = _screen()[0]
    return lambda text: print(
        f"\r\x1b[K{cut(visible(text), columns - 1)}",
        end="",
        file=sys.stderr,
        flush=True,
    )


def _clear_line() -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
