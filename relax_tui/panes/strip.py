"""The rows at the screen's edges: status, message and footer."""

from __future__ import annotations

from collections.abc import Sequence

from relax_tui.keymap import Where, footer_keys
from relax_tui.lines import BLANK, Line, Span, beside, fit, join, line_width
from relax_tui.panes.numbers import clock_text
from relax_tui.panes.stages import SHORT_STAGES
from relax_tui.sources.base import Liveness, RunSnapshot
from relax_tui.text import visible, wrap
from relax_tui.theme import Glyphs
from relax_tui.widgets.line_view import LineView

_LIVENESS_ROLES = {
    Liveness.STARTING: "running",
    Liveness.RUNNING: "running",
    Liveness.PAUSED: "notice",
    Liveness.STOPPING: "notice",
    Liveness.KILLING: "notice",
    Liveness.FINISHED: "good",
    Liveness.STOPPED: "warn",
    Liveness.FAILED: "alarm",
    Liveness.LOST: "alarm",
    Liveness.QUIET: "dim",
}


def status_line(snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> Line:
    """Run, state, place and weights in one row."""
    header, now = snapshot.header, snapshot.now
    state = Span(_word(now.liveness, glyphs), _LIVENESS_ROLES[now.liveness])
    wide = width >= 76
    parts: list[Line] = [(Span(visible(header.name or "?"), "title"),)]
    if wide:
        parts.insert(0, (Span("relax-tui", "dim"),))
    parts.append((Span(f"{header.mode} {glyphs.arrow} ", "dim"), state))
    if now.rollout_id >= 0 and header.num_rollout:
        parts.append(_place(snapshot, wide=wide))
    if now.weights_version is not None:
        head = "weights v" if wide else "v"
        parts.append((Span(head, "label"), Span(str(now.weights_version), "number")))
    if header.read_only:
        parts.append((Span("READ-ONLY", "warn"),))
    if header.attempt > 1:
        parts.append((Span(f"attempt {header.attempt}", "dim"),))
    strip: Line = (Span(" "), *join(parts))
    for forms in (_unread(snapshot), _stops(snapshot)):
        # The fullest form that fits; the shortest one in any case.
        room = width - line_width(strip) - 2
        shown = next((f for f in forms if line_width(f) <= room), forms[-1])
        strip = join([strip, shown])
    return fit(strip, width, ellipsis=glyphs.ellipsis)


def _place(snapshot: RunSnapshot, *, wide: bool) -> Line:
    """The rollout that runs, counted from 0; or how many are done, when all are."""
    now, header = snapshot.now, snapshot.header
    total = header.num_rollout
    if now.liveness is Liveness.FINISHED:
        done = f"{now.rollout_id + 1}"
        return (Span(done, "number"), Span(f" of {total} rollouts", "label"))
    head = "rollout " if wide else "r"
    return (Span(head, "label"), Span(f"{now.rollout_id}/{total}", "number"))


def _unread(snapshot: RunSnapshot) -> list[Line]:
    """That something of the event log is not shown; the log screen says what."""
    if not snapshot.unread:
        return [BLANK]
    return [(Span("event log incomplete: L", "warn"),), (Span("log?", "warn"),)]


def _stops(snapshot: RunSnapshot) -> list[Line]:
    """The stop conditions in force."""
    texts = snapshot.stop_conditions
    if not texts or snapshot.now.liveness.ended:
        return [BLANK]
    every: Line = (Span("stops at ", "label"), Span(visible(", ".join(texts))))
    count = "1 stop" if len(texts) == 1 else f"{len(texts)} stops"
    return [every, (Span(count, "label"),)]


def clock_line(snapshot: RunSnapshot, width: int) -> Line:
    """What changes by itself: the stage that runs, and how old the data are."""
    short = width < 30
    line = join([_stage(snapshot, short=short), _age(snapshot, short=width < 25)])
    return (Span(" "), *line, Span(" "))


def _word(liveness: Liveness, glyphs: Glyphs) -> str:
    if liveness.ending:
        return f"{liveness}{'...' if glyphs.rule.isascii() else '…'}"
    loud = liveness in (Liveness.FAILED, Liveness.LOST, Liveness.PAUSED)
    return str(liveness).upper() if loud else str(liveness)


def _stage(snapshot: RunSnapshot, *, short: bool) -> Line:
    now = snapshot.now
    if not now.stage or now.liveness.ended:
        return BLANK
    stage = SHORT_STAGES.get(now.stage, now.stage) if short else now.stage
    if now.liveness is Liveness.PAUSED:
        return (Span("next ", "label"), Span(stage, "number"))
    progress = snapshot.progress
    count = ""
    if now.stage == "generate" and progress and progress.rollout_id == now.rollout_id:
        count = f" {progress.done}/{progress.total}"
    return (Span(stage, "number"), Span(f"{count} {now.stage_age}", "dim"))


def _age(snapshot: RunSnapshot, *, short: bool) -> Line:
    now = snapshot.now
    if now.data_age:
        stale = now.data_age.endswith(("min", "h"))
        text = now.data_age if now.data_age == "now" else f"{now.data_age} ago"
        head = "" if short else "data "
        return (Span(head, "label"), Span(text, "warn" if stale else "dim"))
    since = clock_text(now.since)
    return (Span(f"since {since}" if since else "", "dim"),)


class StatusStrip(LineView):
    """The first row: which run, what it does, how old the data are."""

    def __init__(self) -> None:
        super().__init__(id="status")
        self.snapshot = RunSnapshot()
        self.frozen = ""

    def show(self, snapshot: RunSnapshot) -> None:
        """Draws another snapshot."""
        self.snapshot = snapshot
        self.repaint()

    def rows(self, width: int, height: int) -> Sequence[Line]:
        """The strip."""
        line = status_line(self.snapshot, width, self.look.glyphs)
        mark = view_mark(self.snapshot, self.frozen)
        return [beside(line, (Span(mark, "notice"),), width) if mark else line]


def view_mark(snapshot: RunSnapshot, frozen: str) -> str:
    """What is on the screen when it is not the run as it is now; '' when it is.

    Args:
        snapshot: What is shown.
        frozen: Since when the view is frozen; '' when it is not.
    """
    if frozen:
        return f" VIEW FROZEN at {frozen} "
    if snapshot.following or snapshot.viewed is None:
        return ""
    return f" VIEW OF ROLLOUT {snapshot.viewed.rollout_id} "


class ClockStrip(LineView):
    """The end of the first row: what changes by itself.

    It is a widget apart because Textual repaints a row from its widget's left edge to
    the change: a narrow widget sends few bytes.
    """

    def __init__(self) -> None:
        super().__init__(id="clock")
        self.snapshot = RunSnapshot()

    def show(self, snapshot: RunSnapshot) -> None:
        """Draws another snapshot."""
        self.snapshot = snapshot
        self.repaint()

    def rows(self, width: int, height: int) -> Sequence[Line]:
        """Stage and age."""
        return [clock_line(self.snapshot, width)]


class MessageLine(LineView):
    """One row for answers: sent, accepted, refused, done; why a key does nothing."""

    def __init__(self) -> None:
        super().__init__(id="message")
        self._message: Line = BLANK

    def say(self, message: Line) -> None:
        """Shows a message until the next one."""
        self._message = message
        self.repaint()

    @property
    def text(self) -> str:
        """What it says now."""
        return "".join(span.text for span in self._message)

    def rows(self, width: int, height: int) -> Sequence[Line]:
        """The message."""
        return [self._message]


def footer_line(
    where: Where, width: int, glyphs: Glyphs, *, without: Sequence[str] = ()
) -> Line:
    """As many keys as fit, those that are not available yet last.

    Args:
        where: The screen.
        width: Cells there are.
        glyphs: Of the terminal.
        without: Ids of keys that make no sense now.
    """
    keys = [key for key in footer_keys(where) if key.id not in without]
    keys.sort(key=lambda key: (bool(key.later), key.footer))
    last = next(key for key in keys if key.id == "help")
    tail: Line = (Span(last.display, "key"), Span(f" {last.label}", "dim"))
    spans: list[Span] = [Span(" ")]
    plain = glyphs.rule.isascii()
    room = width - line_width(tail) - 1
    for key in keys:
        if key is last:
            continue
        display = key.display if key.display.isascii() or not plain else "Enter"
        role = "dim" if key.later else "key"
        part = (Span(display, role), Span(f" {key.label}  ", "dim"))
        used = line_width(part)
        if used > room:
            continue
        spans.extend(part)
        room -= used
    return (*spans, *tail)


def pointless_keys(liveness: Liveness) -> tuple[str, ...]:
    """Keys of the run that could only be refused now."""
    resuming = ("continue", "step_stage", "step_rollout")
    ordering = ("dump", "replay", "mode")
    if liveness.ended:
        return (*resuming, *ordering, "pause", "stop_when", "stacks")
    if liveness.ending:
        return (*resuming, *ordering, "pause", "stop_when")
    return ("pause",) if liveness is Liveness.PAUSED else resuming


class FooterBar(LineView):
    """The last row: keys of this screen, out of the one table."""

    def __init__(self, where: Where) -> None:
        super().__init__(id="footer")
        self._where = where
        self._without: tuple[str, ...] = ()

    def show(self, snapshot: RunSnapshot) -> None:
        """Keys that make sense in this state."""
        without = pointless_keys(snapshot.now.liveness)
        if without != self._without:
            self._without = without
            self.repaint()

    def rows(self, width: int, height: int) -> Sequence[Line]:
        """The keys."""
        return [
            footer_line(self._where, width, self.look.glyphs, without=self._without)
        ]


def note_rows(text: str, width: int, role: str = "") -> list[Line]:
    """A sentence as wrapped rows."""
    return [(Span(" " + piece, role),) for piece in wrap(text, max(width - 2, 8))]
