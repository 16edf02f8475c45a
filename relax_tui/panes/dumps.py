"""The catalogue of dumps, and what one of them says of itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relax.dump.entry import DumpEntry
from relax.dump.look import FORMATS
from relax_tui.dumps_text import file_lines, manifest_lines, size_text
from relax_tui.lines import Line, Span
from relax_tui.panes.pane import ListPane, ScrollPane
from relax_tui.panes.strip import note_rows
from relax_tui.text import pad, visible

ROOMY = 76


class DumpsPane(ListPane):
    """One row a dump, by folder and rollout.

    Attributes:
        entries: ``(folder, dump)``.
        known: Whether the folders were read.
        verified: By a dump's first file: what is wrong with it; empty when nothing is.
    """

    entries: Sequence[tuple[Path, DumpEntry]] = ()
    folders: Sequence[Path] = ()
    known = False

    def __init__(self, *, number: int, name: str, id: str) -> None:
        super().__init__(number=number, name=name, id=id)
        self.verified: dict[Path, Sequence[str]] = {}

    @property
    def selected(self) -> tuple[Path, DumpEntry] | None:
        """Folder and dump under the cursor."""
        return self.entries[self.cursor] if self.cursor < len(self.entries) else None

    def count(self) -> int:
        """Dumps there are."""
        return len(self.entries)

    def header(self, width: int) -> Line | None:
        """Column heads."""
        heads = f"{'rollout':>8} {'kind':<8}{'coverage':<14} {'size':>9} {'state':<8}"
        more = f" {'run':<12} file" if width >= ROOMY else ""
        return (Span(heads + more, "label"),)

    def item(self, index: int, width: int) -> Line:
        """Which step, how much of it, how large, whether it is whole, where it lies."""
        folder, entry = self.entries[index]
        words, role = self.state(entry)
        row: Line = (
            Span(pad(visible(entry.name), 8, ">"), "number"),
            Span(f" {pad(entry.kind, 8)}"),
            Span(pad(entry.coverage or "-", 14), "dim"),
            Span(f" {size_text(entry.bytes):>9} ", "number"),
            Span(pad(words, 8), role),
        )
        if width < ROOMY:
            return row
        run = entry.manifest.run_id if entry.manifest else "-"
        place = str(entry.files[0].path.relative_to(folder))
        return (
            *row,
            Span(f" {pad(visible(run), 12)} ", "dim"),
            Span(visible(place), "dim"),
        )

    def state(self, entry: DumpEntry) -> tuple[str, str]:
        """One word and its role; a dump that was only looked at is not called whole."""
        if entry.faults:
            return "damaged", "bad"
        problems = self.verified.get(entry.files[0].path)
        if problems is None:
            return "not read", "dim"
        return ("DAMAGED", "bad") if problems else ("whole", "good")

    def empty(self) -> str:
        """Why there are none, and how to get one."""
        if not self.known:
            return "looking for dumps"
        if not self.folders:
            return "no dump yet: d writes one on the live screen; a looks elsewhere"
        return "no dump here: a looks in another folder"

    def about(self) -> tuple[str, str]:
        """Where they lie."""
        return " ".join(visible(str(folder)) for folder in self.folders), (
            self.position()
        )


class DumpPane(ScrollPane):
    """Files, faults and manifest of the dump under the cursor."""

    shown: tuple[Path, DumpEntry] | None = None
    problems: Sequence[str] | None = None

    def show_dump(
        self, shown: tuple[Path, DumpEntry] | None, problems: Sequence[str] | None
    ) -> None:
        """Shows another dump.

        Args:
            shown: Folder and dump.
            problems: What a comparison with its hashes found; None before one.
        """
        if shown != self.shown:
            self.offset_y = 0
        self.shown, self.problems = shown, problems
        self.repaint()

    def content(self, width: int) -> Sequence[Line]:
        """The dump in words."""
        if self.shown is None:
            return [(Span(" no dump is selected", "dim"),)]
        entry = self.shown[1]
        rows: list[Line] = [
            (Span(f" {entry.kind} dump of rollout {visible(entry.name)}", "title"),
             Span(f"  {FORMATS[entry.format]}", "dim")),
        ]  # fmt: skip
        rows += self._proof(entry, width)
        for text in file_lines(entry):
            rows += note_rows(text, width)
        if entry.manifest is None:
            rows += note_rows("no manifest: written by another engine", width, "dim")
            return rows
        for text in manifest_lines(entry.manifest):
            rows += note_rows(text, width, "dim")
        return rows

    def _proof(self, entry: DumpEntry, width: int) -> list[Line]:
        """What is known of its being whole."""
        against = "manifest's hashes" if entry.manifest else "check sums in the file"
        if self.problems is None:
            return note_rows(f"not verified; V compares the {against}", width, "dim")
        if not self.problems:
            return note_rows(f"whole, by the {against}", width, "good")
        return [row for text in self.problems for row in note_rows(text, width, "bad")]
