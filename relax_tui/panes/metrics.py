"""The newest rollout's numbers with their curves over rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relax_tui.lines import Line, Span, fill, line_width
from relax_tui.panes.numbers import number_text, percent_text
from relax_tui.panes.pane import Pane
from relax_tui.sources.base import RunSnapshot
from relax_tui.text import pad
from relax_tui.theme import Glyphs
from relax_tui.widgets.sparkline import sparkline


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A metric that has a curve: its key, its name, its name where cells are few."""

    key: str
    label: str
    short: str
    percent: bool = False


CURVES = (
    Curve(key="rollout/raw_reward", label="reward", short="reward"),
    Curve(key="rollout/kl_k3", label="kl (k3)", short="kl"),
    Curve(key="train/grad_norm", label="grad_norm", short="grad"),
    Curve(key="rollout/entropy", label="entropy", short="entr"),
    Curve(key="logprob_rollout/abs_diff", label="|lp-roll|", short="|lp-ro|"),
    Curve(key="logprob_rollout/max_abs", label="…max", short="max"),
    Curve(key="rollout/response_len/mean", label="length", short="len"),
    Curve(
        key="rollout/truncated_ratio", label="truncated", short="trunc", percent=True
    ),
)
LABEL, VALUE = 10, 8


def metric_rows(snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> list[Line]:
    """Two metrics a row, each with its curve; then those without one."""
    if snapshot.latest_rollouts is None:
        return [(Span(" not yet: no stage has measured anything", "dim"),)]
    half = (width - 2) // 2
    cells = [_curve(curve, snapshot, half - 1, glyphs) for curve in CURVES]
    rows: list[Line] = []
    for left, right in zip(cells[::2], cells[1::2], strict=True):
        rows.append((Span(" "), *fill(left, half), Span(" "), *right))
    rows.append(others_row(snapshot, glyphs))
    return rows


def metric_lines(
    snapshot: RunSnapshot, width: int, height: int, glyphs: Glyphs
) -> list[Line]:
    """The most telling metrics in one or two rows, for a small terminal."""
    if snapshot.latest_rollouts is None:
        return [(Span("now  ", "title"), Span("not yet", "dim"))]
    per_row = 4 if width >= 76 else 3 if width >= 54 else 2
    head = f"{latest_place(snapshot, 'r')} "
    share = (width - len(head)) // per_row
    rows: list[Line] = []
    for number in range(height):
        curves = CURVES[number * per_row : (number + 1) * per_row]
        cells = [fill(_short(c, snapshot, share - 1, glyphs), share) for c in curves]
        lead = head if number == 0 else " " * len(head)
        rows.append((Span(lead, "title"), *(span for cell in cells for span in cell)))
    return rows


def _curve(curve: Curve, snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> Line:
    value, points = _value(curve, snapshot, glyphs)
    label = curve.label.replace("…", glyphs.ellipsis)
    return (
        Span(pad(label, LABEL), "label"),
        Span(pad(value, VALUE, ">"), "number" if points else "dim"),
        Span(" "),
        *sparkline(points, width - LABEL - VALUE - 1, glyphs),
    )


def _short(curve: Curve, snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> Line:
    value, points = _value(curve, snapshot, glyphs)
    head: Line = (Span(f"{curve.short} ", "label"), Span(f"{value} ", "number"))
    return (*head, *sparkline(points, min(width - line_width(head), 12), glyphs))


def _value(
    curve: Curve, snapshot: RunSnapshot, glyphs: Glyphs
) -> tuple[str, tuple[float | None, ...]]:
    series = snapshot.series.get(curve.key)
    last = series.last if series else None
    if not snapshot.following:
        # Looking back, what this rollout did not measure is not what another did.
        last = snapshot.latest.get(curve.key)
    text = percent_text(last, glyphs) if curve.percent else number_text(last, glyphs)
    return text, series.points if series else ()


def others_row(snapshot: RunSnapshot, glyphs: Glyphs) -> Line:
    """Metrics that have no curve, those that cannot fail said to be so."""
    latest = snapshot.latest
    parts: list[Span] = [Span(" ")]
    share = latest.get("rollout/zero_std/frac")
    if share is not None:
        flat = sum(
            v for k, v in latest.items() if k.startswith("rollout/zero_std/count")
        )
        parts += [
            Span("zero-std groups ", "label"),
            Span(f"{flat:.0f} ({percent_text(share, glyphs)})", "number"),
            Span("  "),
        ]
    for key, label in (("train/pg_clipfrac", "clipfrac"), ("train/ppo_kl", "ppo_kl")):
        if key in latest:
            parts += [
                Span(f"{label} ", "label"),
                Span(number_text(latest[key], glyphs), "number"),
                Span(" VACU" if key in snapshot.vacuous else "", "muted"),
                Span("  "),
            ]
    return tuple(parts)


def latest_place(snapshot: RunSnapshot, word: str) -> str:
    """``rollout 6``, or ``rollout 5-6`` while only some stages of 6 have measured."""
    if snapshot.latest_rollouts is None:
        return ""
    oldest, newest = snapshot.latest_rollouts
    return f"{word}{newest}" if oldest == newest else f"{word}{oldest}-{newest}"


class MetricsPane(Pane):
    """Now: the newest values and how they got there."""

    def about(self) -> tuple[str, str]:
        """The rollout the numbers belong to."""
        self.pane_name = "now" if self.snapshot.following else "then"
        return "", latest_place(self.snapshot, "rollout ")

    def body(self, width: int, height: int) -> Sequence[Line]:
        """The metrics."""
        if height < 3:
            return metric_lines(self.snapshot, width, height, self.look.glyphs)
        return metric_rows(self.snapshot, width, self.look.glyphs)
