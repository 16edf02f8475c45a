"""``relax-tui dumps``: what dumps there are, whether they are whole, what they say."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relax.errors import DumpError
from relax_tui.dumps_text import file_lines, manifest_lines, removed_text, size_text

if TYPE_CHECKING:
    from relax.dump.entry import DumpEntry

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List, verify, show and delete dumps: this engine's and other engines'.",
)

PathArgument = Annotated[
    Path, typer.Argument(metavar="PATH", help="A folder, a dump file or a manifest.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document.")]

DAMAGED = DumpError.exit_code


@app.command("ls")
def list_dumps(path: PathArgument = Path(), as_json: JsonOption = False) -> None:
    """List the dumps in a folder and below, without opening them."""
    entries = _entries(path)
    if as_json:
        print(json.dumps([entry.to_json() for entry in entries], indent=2))
        return
    for entry in entries:
        print(_row(entry))
        for fault in entry.faults:
            print(f"  {_plain(fault)}")
    if not entries:
        print(f"no dump in {path}")


@app.command()
def verify(path: PathArgument, as_json: JsonOption = False) -> None:
    """Read dumps in full and compare them with their hashes; exit code 3 on damage."""
    from relax.dump.catalogue import verify as verify_entry

    entries = _some(path)
    results = []
    for entry in entries:
        problems = verify_entry(entry)
        against = "manifest" if entry.manifest else "check sums within the file"
        results.append(
            {**entry.to_json(), "compared_with": against, "problems": problems}
        )
        if not as_json:
            words = "DAMAGED" if problems else f"whole, by its {against}"
            print(f"{_row(entry)}  {words}")
            for problem in problems:
                print(f"  {_plain(problem)}")
    if as_json:
        print(json.dumps(results, indent=2))
    if any(result["problems"] for result in results):
        raise typer.Exit(DAMAGED)


@app.command()
def show(path: PathArgument, as_json: JsonOption = False) -> None:
    """What a dump says of itself: files, coverage, weights, versions, replay lines."""
    entries = _some(path)
    if as_json:
        print(json.dumps([_document(entry) for entry in entries], indent=2))
        return
    shown: set[Path | None] = {None}
    for entry in entries:
        print(_row(entry))
        for line in file_lines(entry):
            print(_plain(f"  {line}"))
        if entry.manifest is not None and entry.manifest_path not in shown:
            shown.add(entry.manifest_path)
            for line in manifest_lines(entry.manifest):
                print(_plain(f"  {line}"))


@app.command()
def delete(
    path: PathArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete dumps, each with all files that its manifest names; asks first."""
    from relax.dump.removal import removable, remove_dump

    entries = removable(_some(path))
    for entry in entries:
        print(_row(entry))
    many = "1 dump" if len(entries) == 1 else f"{len(entries)} dumps"
    size = size_text(sum(entry.step_bytes for entry in entries))
    if not yes:
        typer.confirm(f"delete {many}, {size}, for good?", abort=True)
    root = path if path.is_dir() else path.parent
    removed = [remove_dump(entry, root=root) for entry in entries]
    print(removed_text(removed))
    left = [text for one in removed for text in one.left]
    for text in left:
        print(_plain(f"  {text}"))
    if left:
        raise typer.Exit(DAMAGED)


def _entries(path: Path) -> list[DumpEntry]:
    from relax.dump.catalogue import find_dumps

    return find_dumps(path)


def _some(path: Path) -> list[DumpEntry]:
    entries = _entries(path)
    if not entries:
        raise DumpError(
            "there is no dump",
            where=str(path),
            hint="give a dump file, its manifest, or a folder that holds some",
        )
    return entries


def _row(entry: DumpEntry) -> str:
    from relax.dump.look import FORMATS

    run = entry.manifest.run_id if entry.manifest else "-"
    place = entry.files[0].path if len(entry.files) == 1 else entry.files[0].path.parent
    coverage = entry.coverage or "-"
    return _plain(
        f"{entry.kind:<8}{entry.name:>7}  {coverage:<14} {size_text(entry.bytes):>10}"
        f"  {run:<12}  {FORMATS[entry.format]:<34}  {place}"
    )


def _document(entry: DumpEntry) -> dict[str, Any]:
    manifest = None if entry.manifest is None else asdict(entry.manifest)
    return {**entry.to_json(), "says": manifest}


def _plain(text: str) -> str:
    """Text of a file that anybody may have written, safe for a terminal."""
    from relax_tui.text import visible

    return visible(text)
