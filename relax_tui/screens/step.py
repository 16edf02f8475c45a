"""Step: one rollout's samples, groups and micro-batches, and one sample's tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from textual.containers import Horizontal
from textual.widget import Widget

from relax_tui.keymap import Where
from relax_tui.lines import Line, Span, line
from relax_tui.panes.choosing import ALL, Choice
from relax_tui.panes.differences import PAIRINGS
from relax_tui.panes.numbers import length_text, number_text, reward_text
from relax_tui.panes.pane import ListPane, ScrollPane
from relax_tui.panes.responses import (
    BAD_FLAGS,
    chosen_title,
    pointed_at,
    worst_first,
)
from relax_tui.panes.tokens import TokensPane
from relax_tui.screens.console_screen import ConsoleScreen
from relax_tui.screens.dialogs import ChoiceDialog
from relax_tui.screens.sample_choices import SampleChoices
from relax_tui.sources.base import RolloutView, RunSnapshot, SampleRow
from relax_tui.text import pad, visible
from relax_tui.theme import Glyphs


class SamplesPane(ListPane):
    """The rollout's samples in few cells: index, group, reward, place in training."""

    def __init__(self, *, number: int, name: str, id: str) -> None:
        super().__init__(number=number, name=name, id=id)
        self.order: list[SampleRow] = []
        self._places: dict[int, str] = {}
        self._view: RolloutView | None = None
        self._pointed: tuple[int, ...] = ()
        self.choice = ALL

    def choose(self, choice: Choice) -> None:
        """Shows other samples, or in another order."""
        self.choice, self._view = choice, None
        self.show_view(self.snapshot, None)

    def show_view(self, snapshot: RunSnapshot, wanted: int | None) -> None:
        """Takes a rollout in; the cursor goes to the wanted sample."""
        self.snapshot = snapshot
        view, pointed = snapshot.viewed, pointed_at(snapshot)
        if view == self._view and pointed == self._pointed and wanted is None:
            return
        keep = self.selected.index if self.selected else None
        self._view, self._pointed = view, pointed
        rows = worst_first(view.rows, pointed) if view else []
        self.order = self.choice.arrange(rows, pointed)
        if wanted is not None and all(row.index != wanted for row in self.order):
            # A place that was asked for is shown, whatever the filter says.
            self.choice, self.order = ALL, rows
        self._places = {
            batch.index: f"{batch.rank}/{batch.micro_batch}/{batch.place}"
            for batch in (view.micro_batches if view else ())
        }
        target = wanted if wanted is not None else keep
        places = [n for n, row in enumerate(self.order) if row.index == target]
        self.cursor = places[0] if places else 0
        self.repaint()

    @property
    def selected(self) -> SampleRow | None:
        """The sample under the cursor."""
        return self.order[self.cursor] if self.cursor < len(self.order) else None

    def count(self) -> int:
        """Samples there are."""
        return len(self.order)

    def header(self, width: int) -> Line | None:
        """Column heads."""
        return (Span(f"{'#':>5}{'grp':>5}{'reward':>7}{'len':>5} flag", "label"),)

    def item(self, index: int, width: int) -> Line:
        """One sample."""
        row = self.order[index]
        glyphs = self.look.glyphs
        group = glyphs.absent if row.group is None else str(row.group)
        reward = reward_text(row.reward, glyphs)
        flag = row.flags[0] if row.flags else ""
        kept = "" if row.tokens_kept else " no tokens"
        role = "bad" if flag in BAD_FLAGS else "warn"
        return (
            Span(f"{row.index:>5}"),
            Span(f"{group:>5}", "dim"),
            Span(f"{reward:>7}", "number"),
            Span(f"{length_text(row.length, glyphs):>5} "),
            Span(pad(flag, 5), role),
            Span(kept, "dim"),
        )

    def item_text(self, index: int) -> str:
        """Text and label are searched."""
        row = self.order[index]
        return f"{row.index} {row.prompt} {row.response} {row.label}"

    def empty(self) -> str:
        """Why there are none."""
        if self._view and self._view.rows:
            return f"none fits: {visible(self.choice.words)}; & changes it"
        return why_empty(self.snapshot)

    def about(self) -> tuple[str, str]:
        """The rollout."""
        title = f"r{self._view.rollout_id}" if self._view else ""
        return chosen_title(title, self.choice), self.position()

    def place_of(self, row: SampleRow) -> str:
        """``rank/micro-batch/place`` in training; '' before the train stage."""
        return self._places.get(row.index, "")


def why_empty(snapshot: RunSnapshot) -> str:
    """Why a rollout has no samples to show."""
    view = snapshot.viewed
    if view is None:
        return f"no rollout is recorded yet: the run is {snapshot.now.liveness}"
    if view.damaged:
        return "damaged: see above"
    return view.note or "the rollout has no samples"


class AboutPane(ScrollPane):
    """What else is known of the selected sample, and of its group."""

    facts: Sequence[Line] = ()

    def content(self, width: int) -> Sequence[Line]:
        """The facts."""
        return self.facts


def sample_facts(
    row: SampleRow, view: RolloutView, place: str, glyphs: Glyphs
) -> list[Line]:
    """The sample's scalars, its group's rewards, where its columns came from."""
    number = number_text
    group = [r for r in view.rows if r.group == row.group and r.group is not None]
    rewards = " ".join(number(r.reward, glyphs) for r in group)
    versions = ", ".join(map(visible, row.weight_versions)) or glyphs.absent
    passes = ", ".join(f"{k} from {v}" for k, v in view.passes.items())
    facts: list[tuple[str, str]] = [
        ("status", f"{visible(row.status)} {visible(row.stop_reason)}".strip()),
        ("reward", f"{number(row.reward, glyphs)}  normalized"
                   f" {number(row.normalized_reward, glyphs)}"),
        ("group", f"{row.group}: {rewards}"),
        ("mean", f"lp {number(row.log_prob_mean, glyphs)}  entropy"
                 f" {number(row.entropy_mean, glyphs)}"),
        ("length", f"{row.length} of {row.total_length}, masked"
                   f" {glyphs.absent if row.masked is None else row.masked}"),
        ("weights", f"v{versions}"),
        ("trained at", f"rank/micro-batch/place {place}" if place else "not yet"),
        ("columns", passes or glyphs.absent),
    ]  # fmt: skip
    if row.failure:
        facts.insert(0, ("failure", visible(row.failure)))
    return [(Span(f" {name:<10} ", "label"), Span(text)) for name, text in facts]


class StepScreen(SampleChoices, ConsoleScreen):
    """One rollout, sample by sample and token by token.

    Args:
        sample_index: Sample to begin with; None for the worst.
    """

    WHERE: ClassVar[Where] = Where.STEP
    DEFAULT_CSS = """
    StepScreen #columns { height: 1fr; }
    StepScreen #tokens { width: 1fr; height: 100%; }
    StepScreen #samples { height: 100%; width: 34; margin: 0 1 0 0; }
    StepScreen.-medium #samples { width: 30; }
    StepScreen.-narrow #samples { display: none; }
    StepScreen #about { height: 9; }
    StepScreen.-short #about, StepScreen.-tiny #about { display: none; }
    StepScreen.-zoom #samples.-focused { display: block; width: 1fr; }
    StepScreen.-zoom #columns { height: 0; }
    StepScreen.-zoom #columns.-has-focus { height: 1fr; }
    """

    def __init__(self, sample_index: int | None = None) -> None:
        super().__init__()
        self._wanted = sample_index
        self._token: int | None = None

    def go_to(self, sample_index: int | None, position: int | None) -> None:
        """Begins on a sample and a token, e.g. of a verdict."""
        self._wanted, self._token = sample_index, position

    def compose_body(self) -> Iterator[Widget]:
        """Samples left, tokens right, facts below."""
        with Horizontal(id="columns"):
            samples = SamplesPane(number=1, name="samples", id="samples")
            samples.choice = self.console.choice
            yield samples
            yield TokensPane(number=2, name="tokens", id="tokens")
        yield AboutPane(number=3, name="sample", id="about")

    def choose_samples(self, choice: Choice) -> Sequence[object]:
        """Which samples the list shows."""
        samples = self.query_one(SamplesPane)
        samples.choose(choice)
        self.after_move()
        return samples.order

    def first_look(self) -> None:
        """The focus begins on the tokens."""
        self.focus_on(self.query_one(TokensPane))
        super().first_look()

    def _mark_focus(self) -> None:
        super()._mark_focus()
        columns = self.query_one("#columns")
        columns.set_class(self.current is not self.query_one(AboutPane), "-has-focus")

    def show(self, snapshot: RunSnapshot) -> None:
        """Draws a snapshot."""
        super().show(snapshot)
        tokens = self.query_one(TokensPane)
        tokens.snapshot, tokens.why_empty = snapshot, why_empty(snapshot)
        wanted, self._wanted = self._wanted, None
        self.query_one(SamplesPane).show_view(snapshot, wanted)
        self.after_move()
        if self._token is not None and snapshot.viewed is not None:
            tokens.move_to(self._token)
            self._token = None

    def after_move(self) -> None:
        """Tokens and facts follow the samples."""
        samples, tokens = self.query_one(SamplesPane), self.query_one(TokensPane)
        view, row = self.console.shown.viewed, samples.selected
        if row is None or view is None:
            tokens.show_sample(None, None)
            return
        if (row, view.version) != self._shown_sample:
            self._shown_sample = (row, view.version)
            store = view.tokens
            tokens.show_sample(row, store.sample(row.row) if store else None)
        about = self.query_one(AboutPane)
        about.facts = sample_facts(row, view, samples.place_of(row), tokens.look.glyphs)
        about.repaint()

    _shown_sample: tuple[SampleRow, int] | None = None

    def do_left(self) -> None:
        """The sample before."""
        self._sample(-1)

    def do_right(self) -> None:
        """The next sample."""
        self._sample(1)

    def do_open(self) -> None:
        """From the samples to the tokens."""
        self.focus_on(self.query_one(TokensPane))
        self.console.tell(line(Span(" tokens; h and l change the sample", "dim")))

    def _sample(self, step: int) -> None:
        moved = self.query_one(SamplesPane).move(step)
        self.after_move()
        row = self.query_one(SamplesPane).selected
        text = f" sample {row.index}" if row else " no sample"
        end = "" if moved else " is the last one this way"
        self.console.tell(line(Span(text + end, "dim")))

    def do_subtract(self) -> None:
        """Asks what to subtract from what."""
        options = [
            (str(n), pairing.label, f"{pairing.left} - {pairing.right}")
            for n, pairing in enumerate(PAIRINGS)
        ]

        def chosen(number: str | None) -> None:
            if number:
                pairing = PAIRINGS[int(number)]
                self.query_one(TokensPane).subtract(pairing)
                self.console.tell(line(Span(f" difference: {pairing.label}", "dim")))

        dialog = ChoiceDialog(title="subtract", options=options)
        self.console.open_screen(dialog, chosen)

    def do_next_unequal(self) -> None:
        """Next differing token."""
        self._jumped(self.query_one(TokensPane).next_unequal(1))

    def do_previous_unequal(self) -> None:
        """Differing token before."""
        self._jumped(self.query_one(TokensPane).next_unequal(-1))

    def do_worst(self) -> None:
        """The token that differs most."""
        self._jumped(self.query_one(TokensPane).go_to_worst())

    def _jumped(self, why: str) -> None:
        tokens = self.query_one(TokensPane)
        place = f"token t{tokens.cursor}"
        self.console.tell(line(Span(f" {visible(why) or place}", "dim")))

    def do_flow(self) -> None:
        """Table or running text."""
        tokens = self.query_one(TokensPane)
        tokens.toggle_flow()
        how = "running text, the difference below" if tokens.flow else "one row a token"
        self.console.tell(line(Span(f" {how}", "dim")))

    def do_bytes(self) -> None:
        """Text or bytes."""
        tokens = self.query_one(TokensPane)
        tokens.toggle_bytes()
        how = "bytes" if tokens.as_bytes else "text"
        self.console.tell(line(Span(f" tokens as {how}", "dim")))

    def copies(self) -> list[tuple[str, str, str]]:
        """Response, prompt, token ids."""
        offers = super().copies()
        tokens = self.query_one(TokensPane)
        if tokens.row is not None:
            offers.append(("response", "response", tokens.row.response))
            offers.append(("prompt", "prompt", tokens.row.prompt))
        if tokens.tokens is not None:
            offers.append(("ids", "token ids", repr(list(tokens.tokens.ids))))
        return offers
