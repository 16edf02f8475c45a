"""What the guide's checks say, worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from relax_tui.lines import Line, Span, beside, fit
from relax_tui.panes.numbers import status_span
from relax_tui.panes.pane import Pane
from relax_tui.sources.base import RunSnapshot, VerdictLine
from relax_tui.text import pad, visible
from relax_tui.theme import STATUS_ROLES, Glyphs

UNHEALTHY = ("FAIL", "NON_FINITE", "WARN")


def verdict_rows(
    snapshot: RunSnapshot, width: int, height: int, glyphs: Glyphs
) -> list[Line]:
    """One row a rule; the likeliest cause below those that are not healthy."""
    lines = snapshot.verdicts
    if not lines and not snapshot.following:
        return [(Span(" none is known of this rollout", "dim"),)]
    if not lines:
        return [(Span(" none yet: checks run when their stage ends", "dim"),)]
    rows: list[Line] = []
    left = height
    for number, line in enumerate(lines):
        if left <= 0:
            break
        rows.append(verdict_row(line, width, glyphs))
        left -= 1
        causes = line.verdict.causes
        room = left > len(lines) - number - 1 or number == 0
        if causes and str(line.verdict.status) in UNHEALTHY and room and left > 0:
            cause = visible(causes[0].text)
            rows.append((Span(f"      {cause} ({causes[0].confidence})", "dim"),))
            left -= 1
    return rows


def verdict_row(line: VerdictLine, width: int, glyphs: Glyphs) -> Line:
    """``FAIL  log_probs_vs_rollout  slope 0.70 …   r37 s12``."""
    verdict = line.verdict
    status = str(verdict.status)
    role = STATUS_ROLES.get(status, "") if status in UNHEALTHY else ""
    tail = visible(str(verdict.where))
    if line.times > 1:
        tail += f" x{line.times}"
    left = (
        Span(" "),
        status_span(status),
        Span(f" {pad(visible(verdict.rule), 20 if width > 50 else 14)} ", "label"),
        Span(visible(verdict.summary), role),
    )
    right: Line = (Span(f" {tail} ", "dim"),)
    room = width - len(tail) - 2
    return beside(fit(left, room, ellipsis=glyphs.ellipsis), right, width)


def verdict_counts(snapshot: RunSnapshot) -> str:
    """``1 FAIL 7 PASS``, worst first."""
    counts = Counter(str(line.verdict.status) for line in snapshot.verdicts)
    order = [str(line.verdict.status) for line in snapshot.verdicts]
    return "  ".join(f"{counts[s]} {s}" for s in dict.fromkeys(order))


class VerdictsPane(Pane):
    """Verdicts of the whole run; `t` opens their evidence."""

    def about(self) -> tuple[str, str]:
        """How many say what, and of which rollout when it is one alone."""
        snapshot = self.snapshot
        view = snapshot.viewed
        one = "" if snapshot.following or not view else f"rollout {view.rollout_id}"
        return one, verdict_counts(snapshot)

    def body(self, width: int, height: int) -> Sequence[Line]:
        """The verdicts."""
        return verdict_rows(self.snapshot, width, height, self.look.glyphs)
