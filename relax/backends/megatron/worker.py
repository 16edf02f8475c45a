"""The training worker: one rank of Megatron as a Ray actor.

A plain class; `relax.controller.workers` makes it an actor. It keeps the rollout it was
given until the next one comes, so that each stage is one short call. Methods run in the
process's main thread, one at a time, so a stack names the very line a rank stands at.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ray.util import get_node_ip_address

from relax.arguments import Arguments
from relax.backends.checkpoint_meta import RunProgress
from relax.backends.megatron.mark import WorkerMark
from relax.backends.megatron.parallel import MeetingPoint, gathered
from relax.backends.megatron.probe import run_probe
from relax.backends.megatron.step.advantage import baselined_rewards
from relax.backends.megatron.step.batch import Placement, TrainSample
from relax.backends.megatron.sync.send import put_weights
from relax.backends.megatron.trainer import MegatronTrainer, StepResult, TrainerSettings
from relax.backends.probing import ProbeReport, ProbeRequest
from relax.backends.training import (
    AdvantageReport,
    ExportReport,
    PackedColumn,
    PassReport,
    RolloutInput,
    StepReport,
    TrainerOpened,
)
from relax.errors import InternalError
from relax.faults.drills import Drill
from relax.measure.logprob_metrics import logprob_metrics, sample_mean
from relax.measure.reduction import Metrics, Sum
from relax.observe.logprob_rows import SampleLogProbs, logprob_rows
from relax.observe.train_columns import train_columns
from relax.observe.worker_process import prepare_worker
from relax.records.schema import TOKEN_COLUMNS, StageFile

Place = tuple[int, int, int, int, int]
_COUNTED = ("rollout", "nonfinite", "nonfinite_masked")


class TrainWorker:
    """One rank of the trainer.

    Args:
        arguments: Of the run; only the trainer's groups are looked at.
        run_dir: The run folder, for the worker's own log.
        rank: Global rank.
        world_size: Training workers of the run.
    """

    def __init__(
        self,
        arguments: Arguments,
        *,
        run_dir: Path,
        rank: int,
        world_size: int,
    ) -> None:
        self._pid = prepare_worker(run_dir, f"train-{rank}")
        torch.set_num_threads(arguments.cluster.threads_per_actor)
        self._drill = Drill(arguments.debug.inject_fault)
        self._settings = TrainerSettings(
            checkpoint=arguments.checkpoint,
            batch=arguments.batch,
            algorithm=arguments.algorithm,
            layout=arguments.layout,
            megatron=arguments.megatron,
            rollout_temperature=arguments.rollout.rollout_temperature
            * self._drill.trainer_temperature_ratio,
            rank=rank,
            world_size=world_size,
            init_method="",
            keep_weights=arguments.run.keep_weights,
            keep_weights_bytes=arguments.run.keep_weights_bytes,
        )
        self._trainer = MegatronTrainer(self._settings)
        self._meeting: MeetingPoint | None = None
        self._marks: dict[str, WorkerMark] = {}
        self._input: RolloutInput | None = None
        self._samples: list[TrainSample] = []
        self._entropy: list[np.ndarray[Any, Any]] | None = None

    def host_meeting(self) -> str:
        """Opens a port where ranks of several nodes meet; gives its ``tcp://…``."""
        self._meeting = MeetingPoint(get_node_ip_address())
        return self._meeting.place

    def open(self, meeting: str) -> TrainerOpened:
        """Meets the other ranks at ``file://…`` or ``tcp://…``; loads the weights."""
        self._settings = dataclasses.replace(self._settings, init_method=meeting)
        self._trainer = MegatronTrainer(self._settings)
        self._trainer.open()
        return TrainerOpened(
            pid=self._pid,
            weights_version=self._trainer.weights_version,
            has_reference=self.has_reference,
            layout={
                **self._settings.layout.sizes,
                "dp": self._trainer.layout.data_size,
                "world": self._settings.world_size,
            },
            data_rank=self._trainer.layout.data_rank,
        )

    def receive(self, rollout: RolloutInput) -> None:
        """Takes its replica's samples, their rewards less the baseline of the group."""
        self._input = rollout
        self._entropy = None
        rewards = self.baselined(rollout.all_rewards, rollout.all_groups)
        self._samples = [
            TrainSample(
                sample_index=rollout.sample_index[row],
                group_index=rollout.group_index[row],
                tokens=rollout.tokens[row],
                response_length=rollout.response_length[row],
                loss_mask=rollout.loss_mask[row],
                rollout_log_probs=rollout.rollout_log_probs[row],
                reward=rewards[place],
            )
            for row, place in enumerate(rollout.places)
        ]

    def ref_log_probs(self) -> PassReport:
        """The reference's log-probs, by a forward pass of their own."""
        output = self._trainer.log_probs(
            self._samples, weights="ref", step_sizes=self._current().step_sizes
        )
        self._fill(
            "ref_log_probs", self._drill.scored("ref_log_probs", output.log_probs)
        )
        return PassReport(
            pass_id=output.pass_id, metrics=self._measure("ref_log_probs")
        )

    def log_probs(self, *, entropy: bool) -> PassReport:
        """The actor's log-probs, and the entropy on request, by a pass of their own."""
        output = self._trainer.log_probs(
            self._samples,
            weights="actor",
            entropy=entropy,
            step_sizes=self._current().step_sizes,
        )
        self._fill("log_probs", self._drill.scored("log_probs", output.log_probs))
        self._entropy = output.entropy
        names = ("log_probs", "rollout_log_probs", "entropy")
        metrics = self._measure(*names, against=("ref_log_probs",))
        return PassReport(pass_id=output.pass_id, metrics=metrics)

    def repeated(self) -> Metrics:
        """Makes both passes again, and counts the tokens whose bits differ then."""
        unequal = tokens = 0
        for column, weights in (("ref_log_probs", "ref"), ("log_probs", "actor")):
            output = self._trainer.log_probs(
                self._samples,
                weights=weights,
                entropy=weights == "actor" and self._entropy is not None,
                step_sizes=self._current().step_sizes,
            )
            again = self._drill.scored(column, output.log_probs)
            first = self._columns(column)[column]
            for before, after in zip(first, again, strict=True):
                tokens += after.size
                unequal += int((before.view(np.int32) != after.view(np.int32)).sum())
        counted = {
            "logprob_repeat/unequal": Sum(unequal),
            "logprob_repeat/tokens": Sum(tokens),
        }
        return counted if self._speaks else {}

    def advantages(self) -> AdvantageReport:
        """Advantages and returns; hands out the rows of the record."""
        pairs = self._trainer.advantages(self._samples)
        advantages = self._drill.advantages(
            [column for column, _ in pairs], rollout_id=self._current().rollout_id
        )
        self._fill("advantages", advantages)
        self._fill("returns", [returns for _, returns in pairs])
        metrics = self._measure("advantages", "returns")
        rollout = self._current()
        if not (rollout.observed and self._speaks and self._samples):
            return AdvantageReport(metrics=metrics, rows={}, token_rows={})
        rows = logprob_rows(
            self._sample_log_probs(), rollout_id=rollout.rollout_id, kept=rollout.kept
        )
        names = TOKEN_COLUMNS[StageFile.LOGPROBS]
        return AdvantageReport(
            metrics=metrics,
            rows={name: rows[name] for name in rows.keys() - set(names)},
            token_rows={
                name: PackedColumn.pack(rows[name]) for name in names if name in rows
            },
        )

    def train(self) -> list[StepReport]:
        """All optimizer steps of the rollout."""
        rollout_id = self._current().rollout_id
        self._drill.before_train_step(rank=self._settings.rank, rollout_id=rollout_id)
        steps = self._trainer.train(
            self._samples,
            rollout_id=rollout_id,
            step_sizes=self._current().step_sizes,
        )
        return self._reports(steps)

    def gradients(self) -> list[StepReport]:
        """Loss and gradients of all steps of the rollout, without a step; a probe's."""
        rollout = self._current()
        steps = self._trainer.gradients(
            self._samples,
            rollout_id=rollout.rollout_id,
            step_sizes=rollout.step_sizes,
        )
        return self._reports(steps)

    def probe(self, request: ProbeRequest) -> ProbeReport:
        """Scores samples again, on named weights; leaves everything as it was."""
        report = run_probe(self, request)
        return report if self._speaks else dataclasses.replace(report, columns={})

    def mark(self, name: str) -> int:
        """Notes all that training can change; gives the bytes that this takes."""
        self._marks[name] = self.marked()
        return self._marks[name].trainer.num_bytes

    def return_to(self, name: str) -> None:
        """Comes back to a mark, bit for bit."""
        self.back_to(self._marks[name])

    def forget(self, name: str) -> None:
        """Lets go of a mark."""
        self._marks.pop(name, None)

    def weights_versions(self) -> tuple[int, ...]:
        """The version of now, and then the earlier ones that are kept."""
        return self._trainer.weights_version, *self._trainer.kept_versions

    def fingerprint(self) -> str:
        """Of the weights of now, under their Hugging Face names; all ranks call it."""
        return self._trainer.fingerprint()

    def weights_digests(self) -> dict[str, str]:
        """sha256 of each tensor of now, by Hugging Face name; all ranks call it."""
        return self._trainer.weights_digests()

    def digests(self) -> dict[str, str]:
        """``{path: sha256}`` of every tensor that this rank holds."""
        return self._trainer.digests()

    def marked(self) -> WorkerMark:
        """The worker as it is now."""
        return WorkerMark(
            trainer=self._trainer.mark(),
            input=self._input,
            samples=self._samples,
            entropy=self._entropy,
            drill=copy.deepcopy(self._drill),
        )

    def back_to(self, mark: WorkerMark) -> None:
        """The worker as it was."""
        self._trainer.return_to(mark.trainer)
        self._input, self._samples = mark.input, mark.samples
        self._entropy = mark.entropy
        self._drill = copy.deepcopy(mark.drill)

    def train_columns(self) -> dict[str, Any]:
        """What this rank trained on, as the columns of a train dump."""
        rollout = self._current()
        return train_columns(
            self._samples,
            raw_rewards=[rollout.all_rewards[place] for place in rollout.places],
            entropy=self._entropy,
        )

    def export(self, *, bucket_bytes: int) -> ExportReport | None:
        """Puts the weights, under their Hugging Face names, into the object store.

        Rank 0 does; the others only take part in gathering them.
        """
        if self._settings.rank:
            self._trainer.join_export()
            return None
        return put_weights(
            self._trainer.export_weights(bucket_bytes=bucket_bytes),
            version=self._trainer.weights_version,
            drill=self._drill,
        )

    def save(self, path: Path, progress: RunProgress) -> None:
        """Writes a checkpoint folder."""
        self._trainer.save(path, progress)

    def save_hf(self, path: Path, version: int | None = None) -> None:
        """Writes weights as a Hugging Face folder: those of now, or kept ones."""
        with self._trainer.weights("actor" if version is None else version):
            self._trainer.save_hf(path)

    def close(self) -> None:
        """Leaves the process groups."""
        self._trainer.close()
        self._meeting = None

    def _reports(self, steps: Sequence[StepResult]) -> list[StepReport]:
        return [
            StepReport(
                step_id=number,
                metrics=step.metrics,
                vacuous=tuple(step.vacuous),
                skipped=step.skipped,
                placements=self._told(step.placements),
            )
            for number, step in enumerate(steps)
        ]

    def baselined(self, rewards: Sequence[float], groups: Sequence[int]) -> list[float]:
        """Rewards less the baseline of their group, as the estimator asks for it."""
        return baselined_rewards(
            self._drill.rewards(rewards), groups, settings=self._settings.algorithm
        )

    def _fill(self, column: str, values: Sequence[np.ndarray[Any, Any]]) -> None:
        self._samples = [
            dataclasses.replace(sample, **{column: value})
            for sample, value in zip(self._samples, values, strict=True)
        ]

    def _columns(self, *names: str) -> dict[str, list[np.ndarray[Any, Any] | None]]:
        known: dict[str, list[np.ndarray[Any, Any] | None]] = {
            name: [getattr(sample, name) for sample in self._samples]
            for name in names
            if name != "entropy"
        }
        if "entropy" in names and self._entropy is not None:
            known["entropy"] = list(self._entropy)
        return known

    def _measure(self, *names: str, against: Sequence[str] = ()) -> Metrics:
        """What a stage measures of the columns it just filled.

        Args:
            names: Those columns.
            against: Columns of earlier stages to compare with. They were measured
                there: a count that came twice would be doubled when stages merge.
        """
        if not self._speaks:
            return {}
        masks = [np.asarray(sample.loss_mask) for sample in self._samples]
        if not self._current().observed:
            columns = self._columns(*names)
            return {f"rollout/{n}": sample_mean(c, masks) for n, c in columns.items()}
        metrics = logprob_metrics(
            self._columns(*names, *against),
            masks,
            everywhere=lambda pair: gathered(pair, self._trainer.layout),
        )
        known = {f"{kind}/{name}" for kind in _COUNTED for name in against}
        if "log_probs" not in names:
            known |= {"rollout/tokens_unmasked", "rollout/tokens_masked"}
        return {key: value for key, value in metrics.items() if key not in known}

    def _sample_log_probs(self) -> list[SampleLogProbs]:
        entropy = self._entropy or [None] * len(self._samples)
        return [
            SampleLogProbs.of(sample, entropy=values)
            for sample, values in zip(self._samples, entropy, strict=True)
        ]

    def _told(self, placements: Sequence[Placement]) -> list[Place]:
        return [dataclasses.astuple(p) for p in placements] if self._speaks else []

    @property
    def trainer(self) -> MegatronTrainer:
        """The trainer of this rank."""
        return self._trainer

    @property
    def has_reference(self) -> bool:
        """Whether there are reference weights."""
        return self._settings.checkpoint.ref_load is not None

    @property
    def _speaks(self) -> bool:
        """Whether this rank reports what its whole replica knows."""
        return self._trainer.layout.speaks_for_replica

    def _current(self) -> RolloutInput:
        if self._input is None:
            raise InternalError("a stage ran before its rollout was received")
        return self._input
