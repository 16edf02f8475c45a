"""What a run is put together from, once its workers are up."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from relax.arguments import Arguments
from relax.controller.announce import RunPlace, first_rollout
from relax.controller.chronicle import Chronicle
from relax.controller.dumper import Dumper
from relax.controller.excursions import Excursions
from relax.controller.judge import Judge
from relax.controller.modes import StagePlan, mode_of, stages_of
from relax.controller.recorder import Recorder
from relax.controller.replays import Replays
from relax.controller.run_hands import RunHands
from relax.controller.runlog import RunLog
from relax.controller.triggers import DumpTriggers
from relax.controller.verdicts import Verdicts
from relax.controller.workers import Workers
from relax.engine.rollout.replayed import load_for_training
from relax.engine.rollout.vocabulary import TokenTable
from relax.events.append import EventWriter
from relax.events.types import Mode
from relax.records.schema import TOKEN_COLUMNS, StageFile


@dataclass(frozen=True, kw_only=True)
class RunParts:
    """What a driver has when the workers of its run are up.

    Attributes:
        vocab: Name of the vocabulary file in the run folder.
    """

    arguments: Arguments
    place: RunPlace
    workers: Workers
    events: EventWriter
    log: RunLog
    vocabulary: TokenTable
    vocab: str

    @property
    def plan(self) -> StagePlan:
        """Mode and stages of the run."""
        mode = mode_of(self.arguments)
        return StagePlan(
            mode=mode,
            stages=stages_of(mode, has_reference=self.has_reference),
            can_wait=self.place.socket is not None,
        )

    @property
    def has_reference(self) -> bool:
        """Whether there is a reference model to score with."""
        opened = self.workers.trainer_opened
        return opened is not None and opened.has_reference

    @property
    def layout(self) -> Mapping[str, int]:
        """Parallel sizes; empty when nothing trains."""
        opened = self.workers.trainer_opened
        return opened.layout if opened else {}


def build_hands(parts: RunParts, judge: Judge) -> RunHands:
    """Puts together what carries out stages and errands.

    Args:
        parts: What there is.
        judge: Gives verdicts.
    """
    arguments = parts.arguments
    dumper = Dumper(
        arguments,
        place=parts.place,
        events=parts.events,
        log=parts.log,
        texts=parts.vocabulary.texts(),
        layout=parts.layout,
    )
    chronicle = Chronicle(
        events=parts.events,
        log=parts.log,
        recorder=_recorder(parts),
        verdicts=_verdicts(parts, judge),
        dumper=dumper,
    )
    loads = parts.plan.mode is Mode.TRAIN_ONLY and not lacks_data(arguments)
    excursions = Excursions(
        arguments,
        workers=parts.workers,
        chronicle=chronicle,
        plan=parts.plan,
        load=partial(load_for_training, arguments) if loads else None,
    )
    replays = Replays(
        arguments,
        excursions=excursions,
        chronicle=chronicle,
        dumper=dumper,
        run_id=parts.place.run_id,
    )
    return RunHands(
        excursions,
        replays=replays,
        dumper=dumper,
        triggers=DumpTriggers(arguments.debug.dump_on),
    )


def lacks_data(arguments: Arguments) -> bool:
    """Whether the run trains only, and no flag says on what."""
    debug = arguments.debug
    return debug.debug_train_only and debug.load_debug_rollout_data is None


def _recorder(parts: RunParts) -> Recorder:
    return Recorder(
        run_dir=parts.place.run_dir,
        run_id=parts.place.run_id,
        attempt=parts.place.attempt,
        first_rollout=first_rollout(parts.arguments),
        arguments_digest=parts.arguments.digest(),
        layout=parts.layout,
        num_ranks=len(parts.workers.trainers),
        vocab=parts.vocab,
        absent=_absent_columns(parts),
    )


def _verdicts(parts: RunParts, judge: Judge) -> Verdicts:
    return Verdicts(
        judge,
        events=parts.events,
        log=parts.log,
        arguments=parts.arguments,
        vocab_size=len(parts.vocabulary.rows),
        run=shlex.quote(str(parts.place.run_dir)),
    )


def _absent_columns(parts: RunParts) -> dict[str, str]:
    if parts.workers.trainer_opened is None:
        why = "nothing trains in rollout-only mode"
        return dict.fromkeys(TOKEN_COLUMNS[StageFile.LOGPROBS], why)
    if not parts.has_reference:
        return {"ref_log_probs": "the run has no reference model (--ref-load)"}
    return {}
