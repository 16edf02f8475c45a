"""`d`, `r` and `m`: what is chosen is shown whole, confirmed, and then ordered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from relax_tui.commands import impossible, refused_words
from relax_tui.lines import Span, line
from relax_tui.offers import Offer, dump_offers, mode_offers, replay_offers
from relax_tui.screens.dialogs import ChoiceDialog, ConfirmDialog
from relax_tui.text import visible

if TYPE_CHECKING:
    from relax_tui.app import ConsoleApp


class OrderActions:
    """Mixed into every screen."""

    console: ConsoleApp

    def do_dump(self) -> None:
        """Offers to dump the rollout on screen."""
        self._offer("dump", dump_offers(self.console.shown))

    def do_replay(self) -> None:
        """Offers the ways to replay it."""
        self._offer("replay", replay_offers(self.console.shown))

    def do_mode(self) -> None:
        """Offers the other modes, and the way back."""
        self._offer("mode", mode_offers(self.console.shown))

    def _offer(self, key_id: str, offers: Sequence[Offer]) -> None:
        reason = impossible(key_id, self.console.newest)
        if reason:
            self.console.tell(refused_words(key_id, reason))
            return
        by_id = {offer.id: offer for offer in offers}
        options = [(o.id, o.label, o.effect) for o in offers]

        def chosen(offer_id: str | None) -> None:
            if offer_id:
                self._confirm(key_id, by_id[offer_id])

        title = f"{key_id}: {visible(self.console.shown.header.name)}"
        self.console.open_screen(ChoiceDialog(title=title, options=options), chosen)

    def _confirm(self, key_id: str, offer: Offer) -> None:
        dialog = ConfirmDialog(
            title=f"{offer.label}?", effect=offer.effect, command=offer.command
        )

        def answered(yes: bool | None) -> None:  # noqa: FBT001 - Textual calls it
            if yes:
                self.console.send(key_id, order=offer.order)
            else:
                self.console.tell(line(Span(f" {key_id}: not sent", "dim")))

        self.console.open_screen(dialog, answered)
