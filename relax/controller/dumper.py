"""Writes a run's dumps: those that flags ask for, and any kept rollout on request."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relax.arguments import Arguments
from relax.arguments.environment import recorded_environment
from relax.arguments.groups import DebugSettings
from relax.controller.announce import RunPlace
from relax.controller.provenance import git_state, versions
from relax.controller.rollout import RolloutInHand
from relax.controller.runlog import RunLog
from relax.dump.manifest import MicroBatch, WeightsNote
from relax.dump.paths import DumpPlaces, DumpTemplate
from relax.dump.write import (
    DumpDirectory,
    DumpedStep,
    ModelFiles,
    Retention,
    RunFacts,
    StepToDump,
    dump_step,
)
from relax.engine.rollout.sample import Sample
from relax.errors import DumpError
from relax.events.append import EventSink
from relax.events.types import DumpFailed, DumpWritten
from relax.measure.reduction import Metrics
from relax.observe.train_columns import unpacked
from relax.records.open import Vocabulary


@dataclass(kw_only=True)
class KeptRollout:
    """All columns of one rollout, owned by the driver.

    They outlive the workers that made them: a rollout can be dumped after the fact, and
    after a crash.

    Attributes:
        ranks: By global rank: the columns that it trained on.
        steps: Metrics of each optimizer step.
    """

    rollout_id: int
    weights: WeightsNote
    samples: Sequence[Sample]
    ranks: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    micro_batches: tuple[MicroBatch, ...] = ()
    steps: Sequence[Metrics] = ()
    num_bytes: int = 0


class Dumper:
    """Keeps the last rollouts, and writes dumps.

    Args:
        arguments: Of the run.
        place: Of the run.
        events: Told of every dump.
        log: The run's log.
        texts: Texts of tokens.
        layout: Parallel sizes; empty when nothing trains.
    """

    def __init__(
        self,
        arguments: Arguments,
        *,
        place: RunPlace,
        events: EventSink,
        log: RunLog,
        texts: Vocabulary,
        layout: Mapping[str, int],
    ) -> None:
        self._debug = arguments.debug
        self._texts = texts
        self._place = place
        self._events = events
        self._log = log
        self._kept: OrderedDict[int, KeptRollout] = OrderedDict()
        self._facts = run_facts(arguments, place, layout=layout)
        self._directory = _directory(arguments.debug, self._facts)

    @property
    def keeps(self) -> bool:
        """Whether complete columns of a rollout are wanted at all."""
        debug = self._debug
        wants_train = debug.save_debug_train_data is not None
        return wants_train or debug.keep_rollouts > 0 or bool(debug.dump_on)

    def kept(self) -> tuple[int, ...]:
        """Rollouts that can be dumped now, oldest first."""
        return tuple(self._kept)

    def get(self, rollout_id: int | None) -> KeptRollout:
        """A rollout that is kept; the newest for None.

        Raises:
            DumpError: It is not kept.
        """
        if rollout_id is None and self._kept:
            return next(reversed(self._kept.values()))
        kept = None if rollout_id is None else self._kept.get(rollout_id)
        if kept is not None:
            return kept
        there = ", ".join(map(str, self._kept)) or "none"
        wanted = (
            "no rollout is" if rollout_id is None else f"rollout {rollout_id} is not"
        )
        raise DumpError(
            f"{wanted} kept (kept: {there})",
            hint="raise --keep-rollouts, or dump a rollout in time",
        )

    async def take_samples(
        self, rollout: RolloutInHand, samples: Sequence[Sample]
    ) -> None:
        """Takes the samples of a rollout, and writes them where a flag says so."""
        weights = WeightsNote(
            version=rollout.weights_version, fingerprint=rollout.fingerprint
        )
        self._keep(
            KeptRollout(
                rollout_id=rollout.rollout_id,
                weights=weights,
                samples=samples,
                num_bytes=sum(_sample_bytes(sample) for sample in samples),
            )
        )
        if self._debug.save_debug_rollout_data is not None:
            await self._write_by_flag(
                StepToDump(
                    rollout_id=rollout.rollout_id,
                    weights=weights,
                    samples=self._rows(samples),
                )
            )

    async def take_ranks(
        self,
        rollout_id: int,
        *,
        columns: Mapping[int, Mapping[str, Any]],
        micro_batches: Sequence[MicroBatch],
        steps: Sequence[Metrics],
    ) -> None:
        """Takes what the ranks trained on, and writes it where a flag says so."""
        kept = self._kept.get(rollout_id)
        if kept is None:
            return
        kept.ranks, kept.micro_batches = columns, tuple(micro_batches)
        kept.steps = steps
        kept.num_bytes += sum(_rank_bytes(rank) for rank in columns.values())
        self._forget_old()
        if self._debug.save_debug_train_data is not None:
            await self._write_by_flag(
                StepToDump(
                    rollout_id=rollout_id,
                    weights=kept.weights,
                    ranks={rank: unpacked(of) for rank, of in columns.items()},
                    micro_batches=kept.micro_batches,
                )
            )

    def target(self, folder: Path | None) -> Path:
        """Where a dump goes: the folder, or the run's own ``dumps/`` for None."""
        return folder or self._place.run_dir / "dumps"

    async def dump(
        self, rollout_id: int, folder: Path | None, *, weights: Path | None = None
    ) -> DumpedStep:
        """Writes a kept rollout, whole.

        Args:
            rollout_id: One of `kept`.
            folder: As for `target`.
            weights: Where its weights were saved; None when they were not.

        Raises:
            DumpError: It is not kept any more, or the disk refused; nothing half
                written is left.
        """
        kept = self.get(rollout_id)
        noted = kept.weights
        if weights is not None:
            noted = dataclasses.replace(noted, folder=str(weights))
        step = StepToDump(
            rollout_id=rollout_id,
            weights=noted,
            samples=self._rows(kept.samples),
            ranks={rank: unpacked(of) for rank, of in kept.ranks.items()},
            micro_batches=kept.micro_batches,
        )
        target = self.target(folder)
        dumped = await asyncio.to_thread(
            dump_step,
            target,
            step,
            facts=self._facts,
            overwrite=self._debug.overwrite_dumps,
        )
        self._announce(rollout_id, dumped, DumpPlaces.under(target))
        return dumped

    async def dump_by_itself(self, rollout_id: int, why: str) -> None:
        """Dumps a kept rollout into the run's folder, because ``--dump-on`` says so."""
        try:
            dumped = await self.dump(rollout_id, None)
        except DumpError as error:
            self._failed(rollout_id, error)
            return
        self._log.info(f"dumped rollout {rollout_id} ({why}): {dumped.manifest}")

    def _failed(self, rollout_id: int, error: DumpError) -> None:
        """A disk that refuses a dump does not end the run."""
        self._events.append(
            DumpFailed(rollout_id=rollout_id, what=error.what, path=error.where),
            sync=True,
        )
        self._log.warning(f"rollout {rollout_id} was not dumped: {error}")

    async def _write_by_flag(self, step: StepToDump) -> None:
        if self._directory is None:
            return
        try:
            dumped = await asyncio.to_thread(self._directory.dump, step)
        except DumpError as error:
            self._failed(step.rollout_id, error)
            return
        self._announce(step.rollout_id, dumped, self._directory.places)

    def _rows(self, samples: Sequence[Sample]) -> list[dict[str, Any]]:
        return [
            {
                **sample.to_dict(),
                "decoded_tokens": self._texts.text(sample.tokens),
            }
            for sample in samples
        ]

    def _announce(
        self, rollout_id: int, dumped: DumpedStep, places: DumpPlaces
    ) -> None:
        rollout = places.rollout and places.rollout.path(rollout_id=rollout_id)
        for file in dumped.files:
            kind = "rollout" if file.path == rollout else "train"
            kind = "manifest" if file.path == dumped.manifest else kind
            self._events.append(
                DumpWritten(
                    rollout_id=rollout_id,
                    kind=kind,
                    path=str(file.path),
                    num_bytes=file.bytes,
                ),
                sync=True,
            )
            if kind != "manifest":
                self._log.info(f"Save debug {kind} data to {file.path}")
        for pruned in dumped.pruned:
            self._log.info(f"removed an older dump: {pruned}")
        for note in dumped.notes:
            self._log.warning(note)

    def _keep(self, kept: KeptRollout) -> None:
        self._kept.pop(kept.rollout_id, None)
        self._kept[kept.rollout_id] = kept
        self._forget_old()

    def _forget_old(self) -> None:
        """The newest stays: a rollout is taken in two parts."""
        most = max(1, self._debug.keep_rollouts)
        limit = self._debug.keep_rollouts_bytes
        while len(self._kept) > 1 and (
            len(self._kept) > most
            or sum(kept.num_bytes for kept in self._kept.values()) > limit
        ):
            self._kept.popitem(last=False)


class NoDumps:
    """In the place of a `Dumper` where nothing is kept: excursions and replays."""

    keeps = False

    async def take_samples(
        self, rollout: RolloutInHand, samples: Sequence[Sample]
    ) -> None:
        """Nothing is kept."""

    async def take_ranks(self, rollout_id: int, **_: Any) -> None:
        """Nothing is kept."""


def run_facts(
    arguments: Arguments, place: RunPlace, *, layout: Mapping[str, int]
) -> RunFacts:
    """What every manifest of this run says alike."""
    checkpoint = arguments.checkpoint.hf_checkpoint
    return RunFacts(
        run_id=place.run_id,
        attempt=place.attempt,
        arguments=arguments.to_json(),
        environment=recorded_environment(),
        versions=versions(),
        git=git_state(),
        layout=layout,
        world_size=arguments.cluster.world_size if layout else 0,
        model=None if checkpoint is None else ModelFiles.of(Path(checkpoint)),
    )


def dump_places(debug: DebugSettings) -> DumpPlaces:
    """Where the flags say that dumps go."""
    rollout, train = debug.save_debug_rollout_data, debug.save_debug_train_data
    details = debug.dump_details
    return DumpPlaces(
        rollout=None if rollout is None else DumpTemplate(rollout),
        train=None if train is None else DumpTemplate(train),
        tokenizer=None if details is None else Path(details) / "tokenizer",
    )


def _directory(debug: DebugSettings, facts: RunFacts) -> DumpDirectory | None:
    places = dump_places(debug)
    if places.rollout is None and places.train is None:
        return None
    return DumpDirectory(
        places=places,
        facts=facts,
        retention=Retention(
            keep_last=debug.dump_keep_last, max_bytes=debug.dump_max_bytes
        ),
        overwrite=debug.overwrite_dumps,
    )


def _sample_bytes(sample: Sample) -> int:
    # Python lists of numbers: about 32 bytes an entry, pointer and object.
    return 32 * (len(sample.tokens) + 2 * sample.response_length)


def _rank_bytes(columns: Mapping[str, Any]) -> int:
    packed = (column for column in columns.values() if hasattr(column, "values"))
    return sum(int(column.values.nbytes) for column in packed)
