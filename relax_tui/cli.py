"""The command line; Textual, Arrow and aiohttp are imported only where used."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from relax.errors import ArgumentError, ControlError
from relax_tui import check_commands, order_commands
from relax_tui.dumps_commands import app as dumps_app
from relax_tui.printing import guarded, quoted, say

if TYPE_CHECKING:
    from relax_tui.launch import Launch
    from relax_tui.terminal import Capabilities

app = typer.Typer(
    add_completion=False,
    no_args_is_help=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="See, walk and steer an RL post-training run from the terminal.",
)

app.add_typer(dumps_app, name="dumps")
check_commands.register(app)
order_commands.register(app)

AsciiOption = Annotated[
    bool, typer.Option("--ascii", help="Draw with ASCII characters only.")
]
MouseOption = Annotated[
    bool, typer.Option("--mouse", help="Let the console have the mouse.")
]
ReadOnlyOption = Annotated[
    bool, typer.Option("--read-only", help="Give no commands to the run.")
]
RunsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[RUN | PATH…]", help="A run, or another engine's files."),
]


class Options:
    """Options that every command shares, set by the callback."""

    ascii_only: bool = False
    mouse: bool = False


@app.callback(invoke_without_command=True)
def console(
    context: typer.Context, ascii_only: AsciiOption = False, mouse: MouseOption = False
) -> None:
    """Without a command: the list of runs and what can be done."""
    Options.ascii_only, Options.mouse = ascii_only, mouse
    if context.invoked_subcommand is not None:
        return
    capabilities = _capabilities()
    if capabilities.headless:
        _print_runs()
        return
    _draw(None, capabilities)


@app.command()
def demo(  # noqa: PLR0913, PLR0917 - one parameter an option is how Typer works
    model: Annotated[str, typer.Option(help="tiny, smollm2, or a path.")] = "tiny",
    seed: Annotated[int | None, typer.Option(help="Seed of the run.")] = None,
    fault: Annotated[str, typer.Option(help="Inject a known fault (a drill).")] = "",
    num_rollout: Annotated[int | None, typer.Option(help="Rollouts to run.")] = None,
    run_dir: Annotated[Path | None, typer.Option(help="Run folder.")] = None,
    walk: Annotated[bool, typer.Option("--walk", help="Stop at each check.")] = False,
    python: Annotated[str, typer.Option(help="Interpreter that trains.")] = "",
) -> None:
    """A real run of a small model on this machine, no GPU needed."""
    from relax_tui.launch import demo_flags, new_run_dir

    name = Path(model).stem if model not in ("tiny", "smollm2") else f"{model}-demo"
    flags = demo_flags(model)
    for flag, value in (
        ("--seed", seed),
        ("--num-rollout", num_rollout),
        ("--inject-fault", fault or None),
    ):
        if value is not None:
            flags += [flag, str(value)]
    flags += ["--walk"] if walk else []
    _start(flags, run_dir=run_dir or new_run_dir(name), python=python)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def run(
    context: typer.Context,
    run_dir: Annotated[Path | None, typer.Option(help="Run folder.")] = None,
    python: Annotated[str, typer.Option(help="Interpreter that trains.")] = "",
    walk: Annotated[bool, typer.Option("--walk", help="Stop at each check.")] = False,
    pause_at: Annotated[
        list[str] | None,
        typer.Option(help="start, R:STAGE, 'grad_norm > 10' or verdict:FAIL."),
    ] = None,
) -> None:
    """Start a run and look at it: relax-tui run [OPTIONS] -- TRAIN FLAGS."""
    from relax_tui.launch import new_run_dir

    flags = [*context.args]
    flags += ["--walk"] if walk else []
    for condition in pause_at or ():
        flags += ["--pause-at", condition]
    _start(flags, run_dir=run_dir or new_run_dir("run"), python=python)


@app.command()
def attach(
    wanted: RunsArgument = None,
    read_only: ReadOnlyOption = False,
) -> None:
    """Look at a run: a folder, an id or a name; without one the newest.

    Logs, dump folders and JSONL of another engine's run open read-only.
    """
    capabilities = _capabilities()
    if foreign := _foreign(wanted):
        _look_at_foreign(foreign, capabilities)
        return
    run_dir = _find(_only(wanted))
    if capabilities.headless:
        _print_report(run_dir, capabilities)
        return
    _draw(run_dir, capabilities, read_only="asked for" if read_only else "")


@app.command("ls")
def list_command(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """List the runs."""
    from relax_tui.runs import list_runs

    if as_json:
        print(json.dumps([asdict(summary) for summary in list_runs()], indent=2))
    else:
        _print_runs()


@app.command()
def show(
    wanted: RunsArgument = None,
    rollout: Annotated[int | None, typer.Option(help="Rollout to show.")] = None,
    sample: Annotated[int | None, typer.Option(help="Sample to show in full.")] = None,
) -> None:
    """A run as plain text; also logs, dumps and JSONL of another engine's."""
    capabilities = _capabilities()
    if foreign := _foreign(wanted):
        from relax_tui.report import foreign_report

        glyphs = capabilities.look.glyphs
        text = foreign_report(
            foreign, glyphs=glyphs, width=_columns(), rollout=rollout, sample=sample
        )
        print(text, end="")
        return
    _print_report(_find(_only(wanted)), capabilities, rollout=rollout, sample=sample)


@app.command()
def shot(
    wanted: RunsArgument = None,
    keys: Annotated[str, typer.Option(help="Keys to press first: 't,j,enter'.")] = "",
    size: Annotated[str, typer.Option(help="Columns and rows.")] = "120x40",
    out: Annotated[
        Path | None,
        typer.Option(help="FILE.svg or FILE.txt; without one, text is printed."),
    ] = None,
) -> None:
    """A screen of the console as text or SVG; no terminal needed, no commands."""
    from relax_tui.shot import Wanted, take_shot

    foreign = _foreign(wanted)
    paths = foreign or (_find(_only(wanted)),)
    pressed = tuple(key for key in keys.split(",") if key)
    asked = Wanted(paths=paths, ours=not foreign, keys=pressed, size=size, out=out)
    said = take_shot(asked, ascii_only=Options.ascii_only)
    print(said, end="")


@app.command()
def tell(
    wanted: Annotated[str, typer.Argument(metavar="RUN")],
    command: Annotated[str, typer.Argument(help="pause, continue, step-stage, …")],
    when: Annotated[
        list[str] | None, typer.Option(help="For set-stops: a stop condition.")
    ] = None,
) -> None:
    """Give a run a command: pause, continue, step-stage, restart-engine, …."""
    _tell(wanted, command, tuple(when or ()))


@app.command()
def stop(wanted: Annotated[str, typer.Argument(metavar="RUN")]) -> None:
    """End a run at its next safe point."""
    _tell(wanted, "stop", ())


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """What this machine and terminal can do, and what is known to go wrong on it."""
    from relax_tui.doctor import diagnose, document

    if as_json:
        print(json.dumps(document(_capabilities()), indent=2))
    else:
        print(diagnose(_capabilities()), end="")


def _foreign(wanted: list[str] | None) -> tuple[Path, ...]:
    """The paths, when they are not a run of ours; () when they are."""
    paths = tuple(Path(word) for word in wanted or ())
    if not paths or not all(path.exists() for path in paths):
        return ()
    is_run = len(paths) == 1 and (paths[0] / "run.json").is_file()
    return () if is_run else paths


def _only(wanted: list[str] | None) -> str | None:
    if wanted and len(wanted) > 1:
        raise ArgumentError(
            f"{' '.join(wanted)}: not all of these exist",
            hint="several paths are taken for one run of another engine",
        )
    return wanted[0] if wanted else None


def _look_at_foreign(paths: tuple[Path, ...], capabilities: Capabilities) -> None:
    if capabilities.headless:
        from relax_tui.report import foreign_report

        glyphs = capabilities.look.glyphs
        print(foreign_report(paths, glyphs=glyphs, width=_columns()), end="")
        return
    _draw(paths[0], capabilities, foreign=paths)


def _capabilities() -> Capabilities:
    from relax.arguments.environment import terminal_environment
    from relax_tui.terminal import detect, is_interactive

    return detect(
        terminal_environment(),
        is_tty=is_interactive(),
        ascii_only=Options.ascii_only,
        encoding=sys.stdout.encoding or "ascii",
    )


def _find(wanted: str | None) -> Path:
    if wanted and (Path(wanted) / "run.json").is_file():
        # The usual case needs no list of runs, nor the tenth of a second it takes.
        return Path(wanted)
    from relax_tui.runs import find_run

    return find_run(wanted)


def _start(flags: list[str], *, run_dir: Path, python: str) -> None:
    from relax_tui.launch import start_driver, wait_until_begun

    capabilities = _capabilities()
    launch = start_driver(flags, run_dir=run_dir, python=python)
    if not capabilities.headless:
        _draw(launch.run_dir, capabilities, launch=launch)
        return
    folder = quoted(str(launch.run_dir))
    say(f"no console here ({capabilities.headless}); the run is {folder}")
    died = wait_until_begun(launch)
    if died is not None:
        say(str(died), to=sys.stderr)
        raise typer.Exit(died.returncode)
    say(f"it has begun; look at it with: relax-tui show {folder}")


def _draw(
    run_dir: Path | None,
    capabilities: Capabilities,
    *,
    launch: Launch | None = None,
    read_only: str = "",
    foreign: tuple[Path, ...] = (),
) -> None:
    from relax_tui.config import read_config
    from relax_tui.console import draw
    from relax_tui.keymap import remap

    remap(read_config().keys)
    outcome = draw(
        run_dir,
        capabilities,
        launch=launch,
        read_only=read_only,
        mouse=Options.mouse,
        foreign=foreign,
    )
    if outcome.words:
        say(outcome.words, to=sys.stderr)
    elif launch is not None:
        from relax_tui.runs import farewell

        say(farewell(launch.run_dir))
    if outcome.returncode:
        raise typer.Exit(outcome.returncode)


def _print_runs() -> None:
    from relax_tui.runs import list_runs, run_rows

    say("\n".join(run_rows(list_runs())))


def _print_report(
    run_dir: Path,
    capabilities: Capabilities,
    *,
    rollout: int | None = None,
    sample: int | None = None,
) -> None:
    from relax_tui.report import full_report

    glyphs = capabilities.look.glyphs
    text = full_report(
        run_dir, glyphs=glyphs, width=_columns(), rollout=rollout, sample=sample
    )
    print(text, end="")


def _columns() -> int | None:
    """Cells of a row of the terminal; None where there is none, and nothing is cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _tell(wanted: str, command: str, conditions: tuple[str, ...]) -> None:
    import asyncio

    from relax.control.client import RunClient
    from relax.events.types import CommandKind

    known = [kind.value for kind in CommandKind]
    if command not in known:
        raise ArgumentError(
            f"no command {command!r}", hint=f"one of {', '.join(known)}"
        )

    kind = CommandKind(command)
    if order := order_commands.plain_order(kind):
        did = order_commands.give_order(wanted, kind, order).did
        say(did)
        if did.startswith("FAIL"):
            raise typer.Exit(1)
        return

    async def ask() -> None:
        client = RunClient(_find(wanted))
        try:
            answer = await client.command(kind, conditions=conditions)
        finally:
            await client.close()
        if not answer.accepted:
            raise ControlError(f"{command} was refused: {answer.reason}")
        waits = (
            f", waits for the safe point {answer.waits_for}" if answer.waits_for else ""
        )
        say(f"{command}: accepted{waits}")

    asyncio.run(ask())


def main() -> None:
    """Entry point: errors are one sentence and an exit code."""
    guarded(app)


if __name__ == "__main__":
    main()
