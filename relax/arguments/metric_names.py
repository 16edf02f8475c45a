"""The metrics that a run with these arguments will measure, before it has begun.

The one list by which a stop condition on a metric that never comes is refused; a real
run is held against it in ``tests/process``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final

from relax.arguments.arguments import Arguments
from relax.arguments.groups import RolloutSettings
from relax.arguments.pause import OnMetric, StopCondition
from relax.arguments.refusal import refuse
from relax.events.types import Stage

_GENERATED: Final = ("num_samples", "num_failed", "num_aborted")
_OF_SAMPLES: Final = (
    *(f"response_len/{name}" for name in ("mean", "median", "max", "min")),
    "reward_missing", "reward_nonfinite", "raw_reward", "zero_std/count_*",
    "zero_std/frac", "truncated_ratio", "repetition_frac", "stop_reason/*/count",
    "stop_reason/*/ratio", "samples", "samples_not_trained",
)  # fmt: skip
_DIFFERENCE: Final = (
    "tokens", "unequal", "abs_diff", "max_abs", "ulp_max", "p50", "p95", "p99",
)  # fmt: skip
_OF_A_STEP: Final = (
    "step", "global_batch_size", "loss", "pg_loss", "entropy_loss", "ppo_kl",
    "pg_clipfrac", "train_rollout_logprob_abs_diff", "train_rollout_prob_abs_diff",
    "grad_norm", "lr-pg_*",
    *(f"grad_norm/{part}" for part in (
        "embedding", "attention", "mlp", "router", "experts", "norm", "output",
    )),
)  # fmt: skip
_OF_TIS: Final = ("tis", "tis_clipfrac", "tis_abs")
_OF_AN_UPDATE: Final = (
    "perf/update_weights_bytes", "weights/tensors", "weights/engines_unequal",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MetricNames:
    """Names of metrics, with their prefixes; ``*`` stands for anything.

    Attributes:
        names: Those of this configuration, and those that were measured.
        complete: No other can come; else a hook of the user's may still add some.
    """

    names: frozenset[str]
    complete: bool

    def with_measured(self, names: Iterable[str]) -> MetricNames:
        """Also knows what was measured."""
        new = self.names.union(names)
        return self if len(new) == len(self.names) else replace(self, names=new)

    def know(self, condition: OnMetric) -> bool:
        """Whether the condition's metric is one of them."""
        wanted = condition.metric
        return not self.complete or any(_means(wanted, name) for name in self.names)

    def check(self, conditions: Iterable[StopCondition]) -> None:
        """Refuses a condition that can never hold.

        Raises:
            ArgumentError: It is on a metric that does not exist; names the nearest.
        """
        for condition in conditions:
            if isinstance(condition, OnMetric) and not self.know(condition):
                raise refuse(
                    "pause_at",
                    str(condition),
                    f"this run measures no {condition.metric!r}",
                    fix=self._nearest(condition.metric),
                )

    def _nearest(self, wanted: str) -> str:
        plain = [name for name in self.names if "*" not in name]
        # The last part alone is enough to name a metric, and is what people write.
        by_form = {name.rpartition("/")[2]: name for name in plain}
        by_form |= {name: name for name in plain}
        near = difflib.get_close_matches(wanted, by_form, n=3, cutoff=0.6)
        found = list(dict.fromkeys(by_form[form] for form in near))
        if not found:
            return "relax-tui show RUN prints the metrics of a run"
        return f"did you mean {' or '.join(found)}?"


def declared_metrics(arguments: Arguments) -> MetricNames:
    """The metrics of a run with these arguments."""
    debug, own = arguments.debug, RolloutSettings()
    names = set(_rollout_names(arguments))
    if not debug.debug_rollout_only:
        names.update(_trainer_names(arguments))
    if not (debug.debug_rollout_only or debug.debug_train_only):
        names.update(_OF_AN_UPDATE)
    names.update(f"perf/{stage}_time" for stage in Stage)
    names.update(("perf/step_time", "perf/eval_time", "perf/tokens_per_s"))
    hooked = arguments.rollout.rollout_function_path != own.rollout_function_path
    return MetricNames(names=frozenset(names), complete=not hooked)


def _rollout_names(arguments: Arguments) -> Iterator[str]:
    for name in (*_GENERATED, *_OF_SAMPLES):
        yield f"rollout/{name}"
    for name in arguments.run.eval_prompt_data[::2]:
        yield from (f"eval/{name}", f"eval/{name}/*", f"eval/{name}-truncated_ratio")


def _trainer_names(arguments: Arguments) -> Iterator[str]:
    algorithm = arguments.algorithm
    reference = arguments.checkpoint.ref_load is not None
    yield from (f"train/{name}" for name in _OF_A_STEP)
    yield "train/grad_norm_layer/*"
    if algorithm.use_kl_loss:
        yield "train/kl_loss"
    if algorithm.use_tis:
        yield from (f"train/{name}" for name in _OF_TIS)
    columns = ["log_probs", "rollout_log_probs", "entropy", "advantages", "returns"]
    columns += ["ref_log_probs"] if reference else []
    yield from (f"rollout/{column}" for column in columns)
    if not arguments.run.observe:
        return
    yield from ("rollout/tokens_unmasked", "rollout/tokens_masked")
    yield from ("logprob_entropy/gap", "logprob_entropy/gap_square")
    for column in columns:
        yield from (f"nonfinite/{column}", f"nonfinite_masked/{column}")
    pairs = ["logprob_rollout"] + (["logprob_ref"] if reference else [])
    yield from (f"{pair}/{name}" for pair in pairs for name in _DIFFERENCE)
    yield from ("logprob_rollout/slope", "logprob_rollout/correlation")
    if reference:
        yield from ("rollout/kl", "rollout/kl_k3")
        yield from ("logprob_repeat/unequal", "logprob_repeat/tokens")


def _means(wanted: str, name: str) -> bool:
    parts = name.split("/")
    endings = ("/".join(parts[start:]) for start in range(len(parts)))
    return any(end != "*" and fnmatchcase(wanted, end) for end in endings)
