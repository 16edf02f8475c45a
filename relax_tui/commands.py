"""Commands for the run: what each does, how it is asked for, and what became of it.

Pressing a key says "sent" at once; the answer says accepted or refused and for which
safe point it waits; the run's own event says done, and after how long. The same command
can be given from a shell, and the dialog shows how.
"""

from __future__ import annotations

import asyncio
import importlib
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relax.errors import RelaxError
from relax_tui.lines import Line, Span, line
from relax_tui.printing import quoted
from relax_tui.sources.base import CommandLine, Liveness, RunSnapshot
from relax_tui.text import visible

if TYPE_CHECKING:
    from relax.control.client import RunClient
    from relax.control.orders import Order
    from relax.control.protocol import CommandAnswer, Seen, Stacks


@dataclass(frozen=True, kw_only=True)
class RunCommand:
    """A command of the key table.

    Attributes:
        kind: `relax.control.protocol.CommandKind` value.
        effect: What will happen, in one sentence, for the dialog.
        asks: States in which it is confirmed first. A paused run is held already: going
            on, by one stage or for good, is what a debugger's keys do without asking.
        at_safe_point: Whether it is judged by the rollout and stage that were seen.
    """

    kind: str
    effect: str
    asks: frozenset[Liveness]
    at_safe_point: bool = False


_ALWAYS = frozenset(Liveness)
_RUNNING = frozenset({Liveness.RUNNING, Liveness.STARTING})
_NEVER: frozenset[Liveness] = frozenset()

COMMANDS: dict[str, RunCommand] = {
    "pause": RunCommand(
        kind="pause",
        effect="The run stops at the next safe point, between two stages, and waits"
        " there until somebody lets it go on. Nothing is lost.",
        asks=_RUNNING,
    ),
    "continue": RunCommand(
        kind="continue", effect="The run goes on.", asks=_NEVER, at_safe_point=True
    ),
    "step_stage": RunCommand(
        kind="step-stage",
        effect="The run does one stage and then pauses.",
        asks=_NEVER,
        at_safe_point=True,
    ),
    "step_rollout": RunCommand(
        kind="step-rollout",
        effect="The run goes on for one whole rollout and then pauses.",
        asks=_NEVER,
        at_safe_point=True,
    ),
    "stop_when": RunCommand(
        kind="set-stops",
        effect="The run pauses when one of these holds.",
        asks=_NEVER,
    ),
    "withdraw": RunCommand(
        kind="withdraw", effect="The command that waits is taken back.", asks=_NEVER
    ),
    "dump": RunCommand(
        kind="dump", effect="The rollout on screen is dumped.", asks=_ALWAYS
    ),
    "replay": RunCommand(
        kind="replay", effect="The rollout on screen is replayed.", asks=_ALWAYS
    ),
    "mode": RunCommand(
        kind="mode", effect="The run goes to another mode.", asks=_ALWAYS
    ),
    "verify": RunCommand(
        kind="verify",
        effect="At the next safe point the weights on disk, in the trainer and in the"
        " engines are compared bit for bit. Nothing changes.",
        asks=_ALWAYS,
    ),
    "restart_engine": RunCommand(
        kind="restart-engine",
        effect="At the next safe point the rollout engines that are gone start again,"
        " or all of them when none is, and get the trainer's weights.",
        asks=_ALWAYS,
    ),
    "abort_generation": RunCommand(
        kind="abort-generation",
        effect="Generation ends now. Finished and partial samples are kept; the run"
        " goes on with them.",
        asks=_ALWAYS,
    ),
    "stop_run": RunCommand(
        kind="stop",
        effect="The run ends at the next safe point. Its records stay; to go on later"
        " it has to be started again.",
        asks=_ALWAYS,
    ),
    "kill_run": RunCommand(
        kind="kill",
        effect="All processes of the run are killed now. What the current stage was"
        " doing is lost; records already written stay.",
        asks=_ALWAYS,
    ),
}


def impossible(key_id: str, snapshot: RunSnapshot) -> str:
    """Why a command cannot be given, as far as the screen knows; '' when it can."""
    now = snapshot.now
    if snapshot.header.read_only:
        return f"read-only: {snapshot.header.read_only}"
    if now.liveness.ended:
        return f"the run is {now.liveness}"
    if now.liveness.ending and key_id not in ("kill_run", "stacks"):
        return f"the run is {now.liveness}; K kills it"
    command = COMMANDS.get(key_id)
    if command and command.at_safe_point and now.liveness is not Liveness.PAUSED:
        return f"the run is {now.liveness}; p pauses it first"
    if key_id == "pause" and now.liveness is Liveness.PAUSED:
        return "the run is paused already; c lets it go on"
    if key_id == "abort_generation" and now.stage != "generate":
        return "no generation is running"
    if key_id == "withdraw" and not waiting(snapshot):
        return "no command is waiting"
    return ""


def waiting(snapshot: RunSnapshot) -> str:
    """Id of the newest command that was accepted and is not done; '' if none."""
    return next(
        (c.id for c in reversed(snapshot.commands) if c.phase == "accepted"), ""
    )


def command_line(key_id: str, run_dir: str, conditions: tuple[str, ...] = ()) -> str:
    """The same command for a shell."""
    kind = COMMANDS[key_id].kind
    if kind == "stop":
        return f"relax-tui stop {quoted(run_dir)}"
    when = "".join(f" --when {quoted(text)}" for text in conditions)
    return f"relax-tui tell {quoted(run_dir)} {kind}{when}"


class RunSession:
    """Talks to one run; made when a run is opened, closed with it.

    Args:
        run_dir: The run folder.
    """

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._client: RunClient | None = None
        self.sent: dict[str, str] = {}

    async def send(
        self,
        key_id: str,
        snapshot: RunSnapshot,
        *,
        conditions: tuple[str, ...] = (),
        order: Order | None = None,
        command_id: str,
    ) -> CommandAnswer:
        """Sends a command with what the screen showed when it was given.

        Raises:
            RelaxError: The run cannot be reached.
        """
        client = await self._open()
        protocol = await _protocol()
        command = COMMANDS[key_id]
        self.sent[command_id] = command.kind
        return await client.command(
            protocol.CommandKind(command.kind),
            seen=_seen(command, snapshot, protocol),
            conditions=conditions,
            target=waiting(snapshot) if key_id == "withdraw" else "",
            command_id=command_id,
            order=order,
        )

    async def stacks(self) -> Stacks:
        """Stacks of all processes.

        Raises:
            RelaxError: The run cannot be reached.
        """
        client = await self._open()
        return await client.stacks()

    async def close(self) -> None:
        """Closes the connection; the run goes on."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _open(self) -> RunClient:
        if self._client is None:
            # aiohttp takes a third of a second to import: never on the screen's thread.
            module = await asyncio.to_thread(
                importlib.import_module, "relax.control.client"
            )
            self._client = module.RunClient(self.run_dir)
        return self._client


async def _protocol() -> Any:
    return await asyncio.to_thread(importlib.import_module, "relax.control.protocol")


def _seen(command: RunCommand, snapshot: RunSnapshot, protocol: Any) -> Seen:
    now, header = snapshot.now, snapshot.header
    seen: Any = protocol.Seen
    place = command.at_safe_point and now.liveness is Liveness.PAUSED
    built: Seen = seen(
        attempt=header.attempt,
        mode=header.mode,
        rollout_id=now.rollout_id if place else None,
        stage=now.stage if place else None,
    )
    return built


def new_command_id() -> str:
    """An id of our own, so that the answer's event can be recognised."""
    return uuid.uuid4().hex[:12]


def sent_words(kind: str) -> Line:
    """What stands on the screen the moment a key is pressed."""
    return line(Span(f" {kind}: ", "title"), Span("sent", "running"))


def answer_words(kind: str, answer: CommandAnswer) -> Line:
    """Accepted or refused, and what is waited for."""
    if not answer.accepted:
        return refused_words(kind, answer.reason)
    text = "accepted"
    if answer.waits_for:
        about = f", about {answer.seconds:.0f} s" if answer.seconds is not None else ""
        text += f", waits for the safe point {answer.waits_for}{about}; W takes it back"
    return line(Span(f" {kind}: ", "title"), Span(visible(text), "running"))


def refused_words(kind: str, reason: str) -> Line:
    """Why not."""
    return line(
        Span(f" {kind}: ", "title"),
        Span("refused ", "warn"),
        Span(visible(reason)),
    )


def outcome_words(snapshot: RunSnapshot, sent: dict[str, str]) -> Line | None:
    """What became of the newest of our commands; None while nothing did."""
    for command in reversed(snapshot.commands):
        if command.id not in sent:
            continue
        if command.phase == "refused":
            return refused_words(command.kind, command.reason)
        if command.kind in _ENDING and not snapshot.now.liveness.ended:
            return ending_words(command.kind, snapshot)
        if command.kind in _ENDING:
            return ended_words(command, snapshot)
        if command.phase == "failed":
            return line(
                Span(f" {command.kind}: ", "title"),
                Span("failed ", "bad"),
                Span(visible(command.reason)),
            )
        if command.phase in ("done", "withdrawn"):
            seconds = f" in {command.seconds:.1f} s" if command.seconds else ""
            reason = f": {visible(command.reason)}" if command.reason else ""
            word = command.phase
            return line(
                Span(f" {command.kind}: ", "title"),
                Span(f"{word}{seconds}", "good"),
                Span(reason),
            )
        return None
    return None


_ENDING = {"stop": "stopping", "kill": "killing"}


def ending_words(kind: str, snapshot: RunSnapshot) -> Line:
    """A run that was told to end is still there; the command is not done before."""
    effect = "its processes are ended now"
    if kind == "stop":
        now = snapshot.now
        effect = f"{now.stage} ends first" if now.stage else "its processes end now"
        effect += "; K kills it"
    return line(
        Span(f" {kind}: ", "title"), Span(_ENDING[kind], "running"), Span(f": {effect}")
    )


def ended_words(command: CommandLine, snapshot: RunSnapshot) -> Line:
    """It is over."""
    now = snapshot.now
    seconds = f" in {command.seconds:.1f} s" if command.seconds else ""
    detail = f" {visible(now.detail)}" if now.detail else ""
    text = f": the run is {now.liveness}{detail}"
    return line(
        Span(f" {command.kind}: ", "title"), Span(f"done{seconds}", "good"), Span(text)
    )


def failed_words(kind: str, error: RelaxError) -> Line:
    """A command that did not reach the run."""
    return line(
        Span(f" {kind}: ", "title"),
        Span("not sent ", "bad"),
        Span(visible(str(error))),
    )
