"""What a dump says of itself, as plain lines: for `dumps show` and the Dumps screen.

The lines come from files that anybody may have written; who draws them makes them
visible (`relax_tui.text.visible`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relax.dump.entry import DumpEntry
    from relax.dump.manifest import Manifest
    from relax.dump.removal import Removed


def file_lines(entry: DumpEntry) -> list[str]:
    """The files of a dump, with rank, size, and what a look finds wrong."""
    lines = []
    for file in entry.files:
        rank = "" if file.rank is None else f"rank {file.rank}, "
        fault = f": {file.fault}" if file.fault else ""
        lines.append(f"{file.path} ({rank}{file.bytes:,} bytes){fault}")
    return lines


def removed_text(removed: Sequence[Removed]) -> str:
    """What removals did, e.g. ``deleted 2 files, 1.4 KiB``."""
    count = sum(one.files for one in removed)
    files = "1 file" if count == 1 else f"{count} files"
    return f"deleted {files}, {size_text(sum(one.bytes for one in removed))}"


def size_text(num_bytes: int) -> str:
    """A size as a person reads it, e.g. ``1.4 MiB``."""
    size, unit = float(num_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"


def manifest_lines(manifest: Manifest) -> list[str]:
    """What a manifest says: run, weights, coverage, layout, versions, replay lines."""
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
