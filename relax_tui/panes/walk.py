"""The walk: the guide's check that is due where the run has just stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relax.triage.verdict import Place
from relax_tui.lines import Line, Span, line_width
from relax_tui.panes.numbers import number_text, status_span
from relax_tui.panes.pane import title_rule
from relax_tui.panes.verdicts import UNHEALTHY
from relax_tui.sources.base import Liveness, PausedAt, RunSnapshot, VerdictLine
from relax_tui.text import visible, wrap
from relax_tui.theme import STATUS_ROLES, Glyphs
from relax_tui.widgets.line_view import LineView


@dataclass(frozen=True, kw_only=True)
class WalkStop:
    """A place of the walk.

    Attributes:
        title: What the guide checks there.
        rules: Rules whose verdicts belong to it.
        means: What it means, for a person who has never read the guide.
        next: What `c` runs.
    """

    title: str
    rules: tuple[str, ...]
    means: str
    next: str


_WEIGHTS = WalkStop(
    title="did the weights arrive in the engine?",
    rules=("weights_arrived",),
    means="The trainer's weights went to the engine by the same code that runs after"
    " every rollout. The first responses will show whether the conversion is right.",
    next="generate the first responses",
)
_COHERENT = WalkStop(
    title="check 1 · are the responses coherent?",
    rules=("responses_coherent", "repetition"),
    means="Read them. Gibberish in the first rollout means that the checkpoint or its"
    " conversion is wrong; nothing after this point can be trusted then.",
    next="collect the rewards, then run the log-prob passes",
)
_LOG_PROBS = WalkStop(
    title="check 2 · is log_probs equal to ref_log_probs, and small?",
    rules=(
        "log_probs_equal_ref",
        "first_step_kl",
        "log_probs_magnitude",
        "log_probs_vs_rollout",
        "rewards_have_signal",
    ),
    means="Before any training policy and reference are the same model: every token"
    " must agree to the bit and KL must be 0. A small difference is a kernel that is"
    " not deterministic, a large one other weights, another template or temperature.",
    next="do the first train step",
)
_FIRST_STEP = WalkStop(
    title="check 3 · KL 0 and a small grad_norm at the first step",
    rules=("first_step_kl", "grad_norm", "ppo_kl"),
    means="With one train step a rollout the first KL is 0. A large grad_norm here"
    " points at Megatron or Transformer Engine, for MoE at --moe-permute-fusion.",
    next="send the new weights to the engine",
)
_END = WalkStop(
    title="did the new weights arrive in the engine?",
    rules=("weights_arrived",),
    means="The walk ends here: from now on the run goes on by itself until it is done,"
    " paused, or a stop condition holds.",
    next="go on with the next rollout",
)
STOPS = (_WEIGHTS, _COHERENT, _LOG_PROBS, _FIRST_STEP, _END)


def _stop_at(paused: PausedAt, first: int) -> WalkStop:
    """The stop between two stages, as ``paused`` events name them."""
    if paused.before == "generate":
        return _WEIGHTS if paused.rollout_id == first else _END
    if paused.after == "generate":
        return _COHERENT
    if paused.before == "train":
        return _LOG_PROBS
    if paused.after == "train":
        return _FIRST_STEP
    return WalkStop(
        title=f"before {paused.before}",
        rules=(),
        means="No check of the guide is due here.",
        next=paused.before,
    )


def walk_stop(snapshot: RunSnapshot) -> WalkStop | None:
    """The stop the run waits at; None when it is not walking."""
    paused = snapshot.paused
    if paused is None or snapshot.now.liveness is not Liveness.PAUSED:
        return None
    if paused.why != "walk" or not snapshot.following:
        return None
    return _stop_at(paused, snapshot.first_rollout or 0)


def walk_rows(
    snapshot: RunSnapshot, width: int, height: int, glyphs: Glyphs
) -> list[Line]:
    """The stop's verdicts with their numbers, what they mean, and the keys."""
    stop = walk_stop(snapshot)
    paused = snapshot.paused
    if stop is None or paused is None:
        return []
    title = f"walk {glyphs.dot} {stop.title.replace('·', glyphs.dot)}"
    where = f"paused before {paused.before} of rollout {paused.rollout_id}"
    rows = [title_rule(title, where, width, glyphs=glyphs, focused=True)]
    verdicts = _verdicts_due(snapshot, stop, paused)
    room = height - 2
    means = _means(stop, width)
    keep = min(len(means), max(room - len(verdicts), 0))
    for verdict in verdicts[: room - min(keep, 1)]:
        rows.extend(_verdict(verdict, glyphs))
    if stop.rules and not verdicts:
        rows.append((Span("   no verdict was given for this check", "warn"),))
    rows.extend(means[: max(height - 1 - len(rows), 0)])
    return [*rows[: height - 1], _keys(snapshot, stop, width)]


def _keys(snapshot: RunSnapshot, stop: WalkStop, width: int) -> Line:
    """What can be pressed here, as much of it as there is room for."""
    keys: Line = (Span(" c", "key"), Span(f" {stop.next}"))
    opens = _opens(snapshot)
    offers = (("Enter", opens), ("t", "evidence"), ("X", "stop"))
    for key, text in offers:
        more: Line = (Span(f"   {key}", "key"), Span(f" {text}", "dim"))
        if text and line_width(keys) + line_width(more) <= width:
            keys = (*keys, *more)
    return keys


def _verdicts_due(
    snapshot: RunSnapshot, stop: WalkStop, paused: PausedAt
) -> list[VerdictLine]:
    """Verdicts of the stop's check and all that are not healthy, worst first.

    What went wrong at an earlier stop explains what goes wrong here, and a fault that
    no check of this stop looks for must not be walked past. Among equals the order is
    that in which they were given.
    """
    return [
        line
        for line in snapshot.verdicts
        if line.verdict.where.rollout_id <= paused.rollout_id
        and (line.verdict.rule in stop.rules or _is_wrong(line))
    ]


def _is_wrong(line: VerdictLine) -> bool:
    return str(line.verdict.status) in UNHEALTHY


def walk_place(snapshot: RunSnapshot) -> Place | None:
    """The sample that the worst verdict of this stop points at; None without one."""
    stop, paused = walk_stop(snapshot), snapshot.paused
    if stop is None or paused is None:
        return None
    for line in _verdicts_due(snapshot, stop, paused):
        places = (line.verdict.where, *(e.where for e in line.verdict.evidence))
        for place in places if _is_wrong(line) else ():
            if place is not None and place.sample_index is not None:
                return place
    return None


def _opens(snapshot: RunSnapshot) -> str:
    """What Enter opens; '' while there is nothing to open."""
    place = walk_place(snapshot)
    if place is None or place.sample_index is None:
        return "tokens" if snapshot.viewed and snapshot.viewed.rows else ""
    token = "" if place.position is None else f", token t{place.position}"
    return f"sample {place.sample_index}{token}"


def _verdict(line: VerdictLine, glyphs: Glyphs) -> list[Line]:
    verdict = line.verdict
    numbers = "  ".join(
        f"{visible(name)} {number_text(value, glyphs)}"
        for name, value in list(verdict.numbers.items())[:4]
    )
    role = STATUS_ROLES.get(str(verdict.status), "")
    head = (
        Span("   "),
        status_span(str(verdict.status)),
        Span(f" {visible(verdict.rule):<21} ", "label"),
        Span(visible(verdict.summary), "" if role == "good" else role),
        Span(f"   {numbers}", "dim"),
    )
    rows: list[Line] = [head]
    if role in ("bad", "warn") and verdict.causes:
        cause = verdict.causes[0]
        text = f"        {visible(cause.text)} ({cause.confidence})"
        rows.append((Span(text, "dim"),))
    return rows


def _means(stop: WalkStop, width: int) -> list[Line]:
    return [(Span("   " + piece),) for piece in wrap(stop.means, max(width - 6, 20))]


class WalkPane(LineView):
    """There only while a walk waits."""

    DEFAULT_CSS = "WalkPane { height: 0; }"

    def __init__(self) -> None:
        super().__init__(id="walk")
        self.snapshot = RunSnapshot()
        self._height = 0

    def show(self, snapshot: RunSnapshot) -> None:
        """Grows when the run stops for a check."""
        self.snapshot = snapshot
        width, height = self.app.size
        wanted = 0
        if walk_stop(snapshot) is not None:
            limit = 10 if height >= 30 else 7 if height >= 20 else 3
            wanted = min(len(walk_rows(snapshot, width, 40, self.look.glyphs)), limit)
        if wanted != self._height:
            self._height = wanted
            self.styles.height = wanted
        self.repaint()

    def rows(self, width: int, height: int) -> Sequence[Line]:
        """The stop."""
        return walk_rows(self.snapshot, width, height, self.look.glyphs)
