"""What `d`, `r` and `m` offer: orders, each with its effect and its command line."""

from __future__ import annotations

from dataclasses import dataclass

from relax.control.orders import (
    DumpOrder,
    ModeOrder,
    Order,
    ReplayKind,
    ReplayOrder,
)
from relax.events.types import CommandKind, Mode
from relax_tui.printing import quoted
from relax_tui.sources.base import RunSnapshot


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One order that a person can choose.

    Attributes:
        id: Stable.
        label: A few words.
        effect: What will happen, whole sentences.
        command: The same for a shell.
    """

    id: str
    label: str
    effect: str
    command: str
    kind: CommandKind
    order: Order


def dump_offers(snapshot: RunSnapshot) -> list[Offer]:
    """Dumps of the rollout on screen."""
    rollout = _rollout(snapshot)
    run = quoted(snapshot.header.run_dir)
    which = "" if rollout is None else f" --rollout {rollout}"
    named = "the newest rollout" if rollout is None else f"rollout {rollout}"
    plain = (
        f"Samples, and what each rank trained on, of {named} are written to the run's"
        " dumps/ at the next safe point. The run goes on. It works as long as the"
        " rollout is kept (--keep-rollouts)."
    )
    return [
        Offer(
            id="dump",
            label=f"dump {named}",
            effect=plain,
            command=f"relax-tui dump {run}{which}",
            kind=CommandKind.DUMP,
            order=DumpOrder(rollout_id=rollout),
        ),
        Offer(
            id="dump-with-weights",
            label="… with the weights",
            effect=f"{plain} The weights that it ran on are written beside it.",
            command=f"relax-tui dump {run}{which} --with-weights",
            kind=CommandKind.DUMP,
            order=DumpOrder(rollout_id=rollout, with_weights=True),
        ),
    ]


_REPLAYS = (
    (
        ReplayKind.PROBE,
        "probe",
        "All passes of a train stage run again on exactly these samples, without an"
        " optimizer step; every tensor is put back. Says which numbers are equal bit"
        " for bit.",
    ),
    (
        ReplayKind.REWARD,
        "reward",
        "The recorded responses are scored again, outside the run; differences are"
        " shown for each sample.",
    ),
    (
        ReplayKind.TRAIN,
        "train",
        "One rollout trains on these samples as an excursion; then weights, optimizer"
        " and data are brought back bit for bit.",
    ),
    (
        ReplayKind.FORGE,
        "forge",
        "One whole rollout runs with these samples in the place of generated ones, as"
        " an excursion; then all is brought back bit for bit.",
    ),
)


def replay_offers(snapshot: RunSnapshot) -> list[Offer]:
    """Replays of the rollout on screen."""
    rollout = _rollout(snapshot)
    run = quoted(snapshot.header.run_dir)
    which = "" if rollout is None else f" --rollout {rollout}"
    offers = [
        Offer(
            id=f"replay-{name}",
            label=name,
            effect=effect,
            command=f"relax-tui replay {run}{which} --kind {name}",
            kind=CommandKind.REPLAY,
            order=ReplayOrder(kind=kind, rollout_id=rollout),
        )
        for kind, name, effect in _REPLAYS
    ]
    repeated = Offer(
        id="replay-probe-3",
        label="probe, three times",
        effect="The probe runs three times: tells kernels that do not give the same"
        " bits twice from weights that differ.",
        command=f"relax-tui replay {run}{which} --kind probe --repeat 3",
        kind=CommandKind.REPLAY,
        order=ReplayOrder(rollout_id=rollout, repeat=3),
    )
    return [offers[0], repeated, *offers[1:]]


def mode_offers(snapshot: RunSnapshot) -> list[Offer]:
    """Other modes, and the way back."""
    run = quoted(snapshot.header.run_dir)
    away = "An excursion: its steps are recorded apart, and coming back brings weights,"
    away += " optimizer, random states and data back bit for bit."

    def offer(id_: str, label: str, effect: str, order: ModeOrder) -> Offer:
        keep = " --keep" if order.keep else ""
        return Offer(
            id=id_,
            label=label,
            effect=effect,
            command=f"relax-tui mode {run} {order.mode}{keep}",
            kind=CommandKind.MODE,
            order=order,
        )

    return [
        offer(
            "mode-rollout-only",
            "rollout-only",
            f"The run generates only; the trainer is parked. {away}",
            ModeOrder(mode=Mode.ROLLOUT_ONLY),
        ),
        offer(
            "mode-train-only",
            "train-only",
            f"The run trains only, on the newest kept rollout. {away}",
            ModeOrder(mode=Mode.TRAIN_ONLY),
        ),
        offer(
            "mode-back",
            "full: back",
            "The excursion ends and the run is what it was before it.",
            ModeOrder(mode=Mode.FULL),
        ),
        offer(
            "mode-keep",
            "full: keep",
            "The excursion ends and the weights that it trained become the run's own.",
            ModeOrder(mode=Mode.FULL, keep=True),
        ),
    ]


def _rollout(snapshot: RunSnapshot) -> int | None:
    """The rollout on screen; None while the view follows the run."""
    viewed = snapshot.viewed
    if viewed is None or snapshot.following:
        return None
    return viewed.rollout_id
