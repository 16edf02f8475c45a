"""``relax-tui dumps``: what dumps there are, whether they are whole, what they say."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relax.errors import DumpError

if TYPE_CHECKING:
    from relax.dump.entry import DumpEntry
    from relax.dump.manifest import Manifest

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List, verify and show dumps: this engine's and other engines'.",
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
        for file in entry.files:
            rank = "" if file.rank is None else f"rank {file.rank}, "
            fault = f": {file.fault}" if file.fault else ""
            print(_plain(f"  {file.path} ({rank}{file.bytes:,} bytes){fault}"))
        if entry.manifest is not None and entry.manifest_path not in shown:
            shown.add(entry.manifest_path)
            for line in _manifest_lines(entry.manifest):
                print(_plain(f"  {line}"))


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
        f"{entry.kind:<8}{entry.name:>7}  {coverage:<14} {_size(entry.bytes):>10}"
        f"  {run:<12}  {FORMATS[entry.format]:<34}  {place}"
    )


def _size(num_bytes: int) -> str:
    size, unit = float(num_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"


def _manifest_lines(manifest: Manifest) -> list[str]:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(manifest.written_at))
    weights, git = manifest.weights, manifest.git
    fingerprint = f" {weights.fingerprint}" if weights.fingerprint else ""
    changed = " (changed)" if git.get("dirty") else ""
    named = {
        "run": f"{manifest.run_id}, attempt {manifest.attempt}, rollout"
        f" {manifest.rollout_id} ({manifest.source}), written {when}",
        "weights": f"v{weights.version}{fingerprint} ({weights.folder})",
        "coverage": str(manifest.coverage),
        "missing": ", ".join(f"{k}: {v}" for k, v in manifest.coverage.missing.items()),
        "layout": " ".join(f"{k}={v}" for k, v in manifest.layout.items()),
        "git": f"{git['commit']}{changed}" if git.get("commit") else "",
        "versions": ", ".join(f"{k} {v}" for k, v in manifest.versions.items()),
        "arguments": " ".join(_given(manifest)),
    }
    lines = [f"{name:<10} {text}" for name, text in named.items() if text]
    lines += [f"replay     {kind}: {line}" for kind, line in manifest.replay.items()]
    return lines


def _given(manifest: Manifest) -> list[str]:
    """Arguments that a flag or a file set."""
    return [
        f"{name}={entry.get('value')}"
        for name, entry in manifest.arguments.items()
        if isinstance(entry, dict)
        and not str(entry.get("origin", "default")).startswith(("default", "derived"))
    ]


def _document(entry: DumpEntry) -> dict[str, Any]:
    manifest = None if entry.manifest is None else asdict(entry.manifest)
    return {**entry.to_json(), "says": manifest}


def _plain(text: str) -> str:
    """Text of a file that anybody may have written, safe for a terminal."""
    from relax_tui.text import visible

    return visible(text)
