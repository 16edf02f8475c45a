"""Dialogs in which a person types a line: what to search for, when to pause."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from relax.errors import ArgumentError
from relax_tui.commands import command_line
from relax_tui.lines import Line, Span
from relax_tui.panes.pane import title_rule
from relax_tui.screens.dialogs import Dialog
from relax_tui.sources.base import RunSnapshot
from relax_tui.text import visible, width, wrap
from relax_tui.theme import Glyphs


@dataclass(frozen=True, kw_only=True)
class LineEdit:
    """A line that is being edited.

    Attributes:
        text: What stands there.
        cursor: Characters before the cursor.
    """

    text: str = ""
    cursor: int = 0

    @classmethod
    def holding(cls, text: str) -> LineEdit:
        """A line with the cursor at its end."""
        return cls(text=text, cursor=len(text))

    def insert(self, text: str) -> LineEdit:
        """Typed or pasted text; a line holds no line breaks or other controls."""
        kept = "".join(c if c.isprintable() else " " for c in text)
        before, after = self.text[: self.cursor], self.text[self.cursor :]
        return LineEdit(text=before + kept + after, cursor=self.cursor + len(kept))

    def press(self, key: str, character: str | None) -> LineEdit:
        """The line after a key; the same one when the key means nothing to it."""
        before, after = self.text[: self.cursor], self.text[self.cursor :]
        match key:
            case "left":
                return replace(self, cursor=max(self.cursor - 1, 0))
            case "right":
                return replace(self, cursor=min(self.cursor + 1, len(self.text)))
            case "home" | "ctrl+a":
                return replace(self, cursor=0)
            case "end" | "ctrl+e":
                return replace(self, cursor=len(self.text))
            case "backspace":
                return LineEdit(
                    text=before[:-1] + after, cursor=max(self.cursor - 1, 0)
                )
            case "delete" | "ctrl+d":
                return replace(self, text=before + after[1:])
            case "ctrl+u":
                return LineEdit(text=after)
            case "ctrl+k":
                return replace(self, text=before)
            case "ctrl+w":
                kept = before.rstrip().rpartition(" ")
                left = kept[0] + kept[1]
                return LineEdit(text=left + after, cursor=len(left))
        if character is not None and character.isprintable():
            return self.insert(character)
        return self

    def row(self, lead: Line, cells: int) -> Line:
        """The line as a row that always shows the cursor.

        Args:
            lead: What stands before it.
            cells: Cells for the line itself.
        """
        before = visible(self.text[: self.cursor])
        under = visible(self.text[self.cursor : self.cursor + 1]) or " "
        while width(before) + width(under) > cells and before:
            before = before[1:]
        after = visible(self.text[self.cursor + 1 :])
        return (*lead, Span(before), Span(under, "selected"), Span(after))


class EntryDialog(Dialog[str | None]):
    """Asks for a line of text; None when it was closed without one.

    Args:
        title: What is asked for.
        value: What stands there at first.
    """

    def __init__(self, *, title: str, value: str = "") -> None:
        super().__init__()
        self._title = title
        self.edit = LineEdit.holding(value)

    def take_key(self, key: str, character: str | None) -> None:
        """Edits; Enter answers, Escape does not."""
        if key == "escape":
            self.dismiss(None)
        elif key == "enter":
            self.dismiss(self.edit.text)
        else:
            self.edit = self.edit.press(key, character)
            self.draw()

    def take_paste(self, text: str) -> None:
        """Pasted text goes where the cursor is."""
        self.edit = self.edit.insert(text)
        self.draw()

    def panel_rows(self, width: int, height: int, glyphs: Glyphs) -> list[Line]:
        """Heading and line."""
        hint = "Enter sets it, Esc leaves it as it was"
        return [
            title_rule(self._title, hint, width, glyphs=glyphs, focused=True),
            self.edit.row((Span(" "),), width - 2),
        ]


SetStops = Callable[[tuple[str, ...]], Awaitable[str]]

STOP_FORMS = (
    ("start", "before the first rollout"),
    ("3:train  *:train", "before a stage of one rollout, or of each"),
    ("grad_norm > 10", "after the step whose metric crosses the bound"),
    ("verdict:FAIL", "when a check gives this verdict"),
)


class StopsDialog(Dialog[tuple[str, ...] | None]):
    """The conditions at which the run pauses: each can be removed, others added.

    It stays until the run has answered: a refusal is shown here, and what was typed
    stays. Its answer are the conditions now in force; None when nothing was changed.

    Args:
        run_dir: The run folder, for the command line.
        conditions: In force now.
        set_stops: Sets all conditions; gives the refusal, or ''.
    """

    def __init__(
        self, *, run_dir: str, conditions: tuple[str, ...], set_stops: SetStops
    ) -> None:
        super().__init__()
        self.edit = LineEdit()
        self.conditions = self._followed = conditions
        self._run_dir, self._set_stops = run_dir, set_stops
        # Which condition the cursor is on; behind the last one it is on the entry.
        self._at = len(conditions)
        self._waits = False
        self._changed = False
        self._note: Line = ()

    @property
    def _on_entry(self) -> bool:
        return self._at >= len(self.conditions)

    def follow(self, snapshot: RunSnapshot) -> None:
        """Shows what is in force, whoever set it."""
        if self._waits or snapshot.stop_conditions == self._followed:
            # Nothing new: what was set here may not be in the event log yet.
            return
        self._followed = snapshot.stop_conditions
        on_entry = self._on_entry
        self.conditions = snapshot.stop_conditions
        last = len(self.conditions)
        self._at = last if on_entry else min(self._at, last)
        self.draw()

    def take_key(self, key: str, character: str | None) -> None:
        """Edits the entry, moves among the conditions, removes one, adds."""
        if key == "escape" or (key == "q" and not self._on_entry):
            self.dismiss(self.conditions if self._changed else None)
            return
        if key in ("up", "down", "tab", "shift+tab"):
            step = -1 if key in ("up", "shift+tab") else 1
            self._at = max(0, min(self._at + step, len(self.conditions)))
        elif not self._on_entry:
            if key in ("delete", "backspace", "d", "x", "ctrl+d"):
                self._remove()
            elif key == "enter":
                self._say("Del removes this condition", "dim")
        elif key == "enter":
            self._add()
        else:
            self.edit = self.edit.press(key, character)
        self.draw()

    def take_paste(self, text: str) -> None:
        """Pasted text goes into the entry."""
        self._at = len(self.conditions)
        self.edit = self.edit.insert(text)
        self.draw()

    def _remove(self) -> None:
        kept = tuple(c for n, c in enumerate(self.conditions) if n != self._at)
        self._send(kept, f"removed: {self.conditions[self._at]}", closes=False)

    def _add(self) -> None:
        wanted = [part.strip() for part in self.edit.text.split(",") if part.strip()]
        if not wanted:
            self.dismiss(self.conditions if self._changed else None)
            return
        # Parsing is light, but not needed before somebody sets a condition.
        from relax.arguments.pause import parse_stop_condition  # noqa: PLC0415

        try:
            new = [str(parse_stop_condition(part)) for part in wanted]
        except ArgumentError as error:
            self._say(f"refused: {error.what}; {error.hint}".rstrip("; "), "warn")
            return
        conditions = tuple(dict.fromkeys((*self.conditions, *new)))
        if conditions == self.conditions:
            self._say("it is in force already", "warn")
            return
        self._send(conditions, "", closes=True)

    def _send(self, conditions: tuple[str, ...], done: str, *, closes: bool) -> None:
        if self._waits:
            self._say("the answer to the last change is not there yet", "warn")
            return
        self._waits = True
        self._say("sent", "running")
        # The app's worker: a dialog that is closed meanwhile must not take it along.
        self.app.run_worker(self._asked(conditions, done, closes=closes))

    async def _asked(
        self, conditions: tuple[str, ...], done: str, *, closes: bool
    ) -> None:
        refusal = await self._set_stops(conditions)
        self._waits = False
        if not self.is_current:
            return
        if refusal:
            self._say(f"refused: {refusal}", "warn")
        else:
            self._changed = True
            self.conditions = conditions
            self._at = min(self._at, len(conditions))
            self._say(done, "good")
            if closes:
                self.dismiss(conditions)
                return
        self.draw()

    def _say(self, text: str, role: str) -> None:
        self._note = (Span(visible(text), role),) if text else ()

    def panel_rows(self, width: int, height: int, glyphs: Glyphs) -> list[Line]:
        """Conditions in force, the entry, what became of it, how to write one."""
        keys = "Enter adds, Up Down choose, Del removes, Esc closes"
        title = "the run pauses when"
        wide = width >= len(title) + len(keys) + 8
        hint = keys if wide else ""
        rows: list[Line] = [title_rule(title, hint, width, glyphs=glyphs, focused=True)]
        mark = Span(f" {glyphs.cursor} ", "focus")
        off = Span("   ")
        for number, text in enumerate(self.conditions):
            here = number == self._at
            shown = Span(visible(text), "selected" if here else "number")
            rows.append((mark if here else off, shown))
        if not self.conditions:
            rows.append((off, Span("no condition is in force", "dim")))
        lead = (mark if self._on_entry else off, Span("add: ", "label"))
        rows.append(self.edit.row(lead, width - 10))
        for note in self._note:
            pieces = wrap(note.text, width - 4)
            rows += [(off, Span(piece, note.role)) for piece in pieces]
        if not wide:
            rows.append((off, Span(keys, "dim")))
        if height >= 15:
            rows += [
                (Span(f"   {form:<17} {means}", "dim"),) for form, means in STOP_FORMS
            ]
        rows += [(off, Span(p, "dim")) for p in wrap(self._shell(), width - 4)]
        return rows

    def _shell(self) -> str:
        """The same change for a shell, with what is typed as far as it is."""
        typed = tuple(p.strip() for p in self.edit.text.split(",") if p.strip())
        after = (*self.conditions, *typed)
        return f"from a shell: {command_line('stop_when', self._run_dir, after)}"
