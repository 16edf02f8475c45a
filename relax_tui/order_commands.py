"""``relax-tui dump``, ``replay`` and ``mode``: orders to a live run, without a console.

Each waits until the run has carried it out at a safe point, and prints what came of it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relax.errors import ArgumentError
from relax_tui.text import visible

if TYPE_CHECKING:
    from relax.control.orders import Order
    from relax.events.types import CommandKind, ReplayFinished
    from relax_tui.ordering import Outcome

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A folder, an id or a name.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document.")]
DIFFERENT = 1
"""Exit code when a replay gave something else than was recorded."""


def register(app: typer.Typer) -> None:
    """Adds the commands.

    Args:
        app: The command line.
    """
    _register_dump(app)
    _register_replay(app)
    _register_mode(app)


def _register_dump(app: typer.Typer) -> None:
    @app.command()
    def dump(
        wanted: RunArgument,
        rollout: Annotated[
            int | None, typer.Option(help="Which kept rollout; else the newest.")
        ] = None,
        to: Annotated[
            Path | None, typer.Option(help="Folder; else the run's dumps/.")
        ] = None,
        with_weights: Annotated[
            bool, typer.Option("--with-weights", help="And what it ran on.")
        ] = False,
        as_json: JsonOption = False,
    ) -> None:
        """Dump a rollout of a live run, also after the fact."""
        from relax.control.orders import DumpOrder
        from relax.events.types import CommandKind, DumpWritten

        folder = "" if to is None else str(to.absolute())
        order = DumpOrder(rollout_id=rollout, folder=folder, with_weights=with_weights)
        outcome = give_order(wanted, CommandKind.DUMP, order)
        files = [e for e in outcome.events if isinstance(e, DumpWritten)]
        if as_json:
            _print_json({"did": outcome.did, "files": [vars(file) for file in files]})
            return
        for file in files:
            print(f"{file.num_bytes:>12}  {file.kind:<8}  {visible(file.path)}")


def _register_replay(app: typer.Typer) -> None:
    @app.command()
    def replay(  # noqa: PLR0913, PLR0917 - one parameter an option is how Typer works
        wanted: RunArgument,
        dump: Annotated[
            str, typer.Argument(metavar="[DUMP]", help="A dump; else a kept rollout.")
        ] = "",
        kind: Annotated[
            str, typer.Option(help="probe, reward, train or forge.")
        ] = "probe",
        rollout: Annotated[
            int | None, typer.Option(help="Which kept rollout; else the newest.")
        ] = None,
        weights: Annotated[str, typer.Option(help="auto, record or now.")] = "auto",
        repeat: Annotated[int, typer.Option(help="Rounds of a probe.")] = 1,
        sample: Annotated[
            list[int] | None, typer.Option(help="Only this sample (repeatable).")
        ] = None,
        alone: Annotated[
            bool, typer.Option("--alone", help="Without its micro-batch.")
        ] = False,
        reward: Annotated[
            str, typer.Option(help="Reward to score with: a name or a path.")
        ] = "",
        as_json: JsonOption = False,
    ) -> None:
        """Replay recorded samples in a live run; exit code 1 when they differ."""
        from relax.control.orders import ReplayKind, ReplayOrder, ReplayWeights
        from relax.events.types import CommandKind, ReplayFinished

        order = ReplayOrder(
            kind=ReplayKind(_one_of(kind, list(ReplayKind), "--kind")),
            source=str(Path(dump).absolute()) if dump else "",
            rollout_id=rollout,
            weights=ReplayWeights(_one_of(weights, list(ReplayWeights), "--weights")),
            repeat=repeat,
            samples=tuple(sample or ()),
            alone=alone,
            reward=reward,
        )
        outcome = give_order(wanted, CommandKind.REPLAY, order)
        found = [e for e in outcome.events if isinstance(e, ReplayFinished)]
        if as_json:
            _print_json({"did": outcome.did, "replays": [_plain(f) for f in found]})
        else:
            print(visible(outcome.did))
            for finished in found:
                _print_replay(finished)
        if not all(finished.equal for finished in found):
            raise typer.Exit(DIFFERENT)


def _register_mode(app: typer.Typer) -> None:
    @app.command()
    def mode(
        wanted: RunArgument,
        to: Annotated[
            str,
            typer.Argument(
                metavar="MODE", help="rollout-only, train-only, forge, or full: back."
            ),
        ],
        dump: Annotated[
            str,
            typer.Option(help="Dumps for train-only and forge; else a kept rollout."),
        ] = "",
        keep: Annotated[
            bool, typer.Option("--keep", help="Going back, keep what was trained.")
        ] = False,
    ) -> None:
        """Take a live run on an excursion to another mode, or bring it back."""
        from relax.control.orders import ModeOrder
        from relax.events.types import CommandKind, Mode

        chosen = Mode(_one_of(to, list(Mode), "MODE"))
        source = str(Path(dump).absolute()) if dump else ""
        order = ModeOrder(mode=chosen, keep=keep, source=source)
        print(visible(give_order(wanted, CommandKind.MODE, order).did))


def plain_order(kind: CommandKind) -> Order | None:
    """The order of a command that leaves nothing to choose; None for others."""
    from relax.control.orders import RestartOrder, VerifyOrder
    from relax.events.types import CommandKind

    plain: dict[CommandKind, Order] = {
        CommandKind.RESTART_ENGINE: RestartOrder(),
        CommandKind.VERIFY: VerifyOrder(),
    }
    return plain.get(kind)


def give_order(wanted: str, kind: CommandKind, order: Order) -> Outcome:
    """Gives a run an order and waits until it is carried out.

    Args:
        wanted: The run, as a person names it.
        kind: The order's.
        order: What to do.

    Raises:
        ControlError: It was refused, failed or withdrawn, or the run ended first.
    """
    import asyncio

    from relax_tui.ordering import give
    from relax_tui.runs import find_run

    def waits(place: str) -> None:
        print(f"{kind}: waits for the safe point {place}", file=sys.stderr)

    return asyncio.run(give(find_run(wanted), kind, order, on_wait=waits))


def _one_of(word: str, known: Sequence[str], what: str) -> str:
    if word not in known:
        raise ArgumentError(
            f"{what} {word!r} is not known", hint=f"one of {', '.join(known)}"
        )
    return word


def _print_replay(finished: ReplayFinished) -> None:
    version = finished.weights_version
    on = f" on weights {version} ({finished.weights})" if version >= 0 else ""
    print(f"  {finished.samples} samples{on}, {finished.seconds:.1f} s")
    for one in finished.comparisons:
        place = (
            "" if one["sample_index"] is None else f" at sample {one['sample_index']}"
        )
        largest = "" if one["max_abs"] is None else f", max |d| {one['max_abs']:.3g}"
        word = "as recorded" if one["equal"] else "DIFFERS"
        print(
            f"  {word:<12} {one['name']:<28} unequal {one['unequal']} of "
            f"{one['compared']}{largest}{place if one['unequal'] else ''}"
        )
    for note in finished.notes:
        print(f"  {visible(note)}")
    if finished.changed:
        print(f"  {len(finished.changed)} tensors are not as before: a defect")
    elif finished.tensors:
        print(f"  {finished.tensors} tensors are as before")


def _plain(finished: ReplayFinished) -> dict[str, Any]:
    values = {name: metric.value for name, metric in finished.metrics.items()}
    return {**vars(finished), "metrics": values, "equal": finished.equal}


def _print_json(document: dict[str, Any]) -> None:
    print(json.dumps(document, indent=2, default=str))
