"""Given values become all values: what was not given is derived, or is the default.

Each function derives one thing and writes down from what. Contradictions between values
that determine each other are found here, because one of them could not be kept;
everything else is `relax.arguments.validate`'s.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from relax.arguments.arguments import DEFAULT, Arguments, build
from relax.arguments.dump_template import as_template
from relax.arguments.flags import FlagTable, own_flags
from relax.arguments.parse import RawArguments
from relax.arguments.passthrough import UPSTREAM_DEFAULTS
from relax.arguments.refusal import dashed, refuse
from relax.errors import ArgumentError


@dataclass(slots=True)
class Draft:
    """Values on their way, with origins.

    Attributes:
        has_gpu: Whether the run has GPUs.
        values: By flag name; None is not given, not yet derived, or absent.
        origins: By flag name.
    """

    has_gpu: bool
    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def given(self, name: str) -> bool:
        """Whether the user set it."""
        return name in self.origins and not self.origins[name].startswith(
            (DEFAULT, "derived")
        )

    def derive(self, name: str, *, value: Any, source: str) -> None:
        """Fills a value in, if neither the user nor an earlier derivation did."""
        if self.origins[name] == DEFAULT and value is not None:
            self.force(name, value=value, source=source)

    def force(self, name: str, *, value: Any, source: str) -> None:
        """Sets a value whatever the user set."""
        self.values[name] = value
        self.origins[name] = f"derived from {source}"

    def refuse(self, name: str, problem: str, *, fix: str) -> ArgumentError:
        """The error for a value that cannot be kept."""
        return refuse(
            name,
            self.values[name],
            problem,
            fix=fix,
            origin=self.origins.get(name, ""),
        )

    @property
    def machine(self) -> str:
        """What derivations from the hardware name as their source."""
        return "a machine with GPUs" if self.has_gpu else "a machine without GPUs"


def resolve(raw: RawArguments, *, table: FlagTable, has_gpu: bool) -> Arguments:
    """All values of a run.

    Args:
        raw: What was given.
        table: All flags there are.
        has_gpu: Whether the run has GPUs; without, GPU counts are slots.

    Raises:
        ArgumentError: A value is missing, or two that determine each other differ.
    """
    draft = Draft(has_gpu)
    for flag in own_flags().values():
        draft.values[flag.name] = flag.default
        draft.origins[flag.name] = DEFAULT
    configs: dict[str, tuple[str, ...]] = {}
    for name, (config, default) in UPSTREAM_DEFAULTS.items():
        configs[name] = (config,)
        draft.values[name] = default
        draft.origins[name] = DEFAULT
    for name, given in raw.values.items():
        found = table.find(name)
        if found is not None and found[0].configs:
            configs[name] = found[0].configs
        elif given.value is None and own_flags()[name].derived:
            continue
        draft.values[name] = given.value
        draft.origins[name] = given.origin
    for read in (_resource, _offload):
        read(draft, raw)
    for derivation in DERIVATIONS:
        derivation(draft)
    return build(draft.values, configs=configs, origins=draft.origins)


def _resource(draft: Draft, raw: RawArguments) -> None:
    if "resource" not in raw.read_only:
        return
    text = raw.read_only["resource"].value
    origin = raw.read_only["resource"].origin

    def wrong(problem: str) -> ArgumentError:
        fix = 'write {"actor": [1, GPUS], "rollout": [1, GPUS]}'
        return refuse("resource", text, problem, fix=fix, origin=origin)

    try:
        roles = json.loads(text)
    except ValueError as error:
        raise wrong("is not JSON") from error
    if not isinstance(roles, dict):
        raise wrong("is not a mapping of roles")
    for role, share in roles.items():
        if role not in ("actor", "rollout"):
            raise wrong(f"the role {role!r} is not built")
        match share:
            case [1, int(gpus)] if gpus > 0 and not isinstance(gpus, bool):
                _give_role(draft, role, gpus)
            case _:
                raise wrong(f"the role {role!r} is not [1, GPUS]")


def _give_role(draft: Draft, role: str, gpus: int) -> None:
    if role == "rollout":
        _agree(draft, "rollout_num_gpus", value=gpus, source="--resource")
        return
    per_node = min(gpus, draft["num_gpus_per_node"])
    if gpus % per_node:
        raise draft.refuse(
            "num_gpus_per_node",
            f"{gpus} GPUs of --resource's actor do not fill whole nodes",
            fix=f"give a multiple of {per_node}",
        )
    _agree(draft, "actor_num_gpus_per_node", value=per_node, source="--resource")
    _agree(draft, "actor_num_nodes", value=gpus // per_node, source="--resource")


def _agree(draft: Draft, name: str, *, value: Any, source: str) -> None:
    """Derives a value; one that the user set must be the same."""
    if draft.given(name) and draft[name] != value:
        raise draft.refuse(
            name,
            f"{source} makes it {value}",
            fix=f"leave one of the two away, or write {dashed(name)} {value}",
        )
    draft.derive(name, value=value, source=source)


def _offload(draft: Draft, raw: RawArguments) -> None:
    if "offload" in raw.read_only:
        for name in ("offload_train", "offload_rollout"):
            draft.derive(name, value=raw.read_only["offload"].value, source="--offload")


def _checkpoint(draft: Draft) -> None:
    if draft["hf_checkpoint"] is None:
        raise refuse(
            "hf_checkpoint",
            None,
            "is required",
            fix="give the folder of a Hugging Face checkpoint",
        )
    name = Path(draft["hf_checkpoint"]).name or "run"
    draft.derive("run_name", value=name, source="--hf-checkpoint")


def _mode(draft: Draft) -> None:
    loads = draft["load_debug_rollout_data"] is not None
    if not loads:
        draft.values["debug_train_only"] = bool(draft["debug_train_only"])
        return
    _agree(draft, "debug_train_only", value=True, source="--load-debug-rollout-data")


def _dumps(draft: Draft) -> None:
    folder = draft["dump_details"]
    if folder is None:
        return
    text = as_template(folder)
    places = {
        "save_debug_rollout_data": f"{text}/rollout_data/{{rollout_id}}.pt",
        "save_debug_train_data": f"{text}/train_data/{{rollout_id}}_{{rank}}.pt",
    }
    for name, place in places.items():
        _agree(draft, name, value=place, source="--dump-details")


def _engine(draft: Draft) -> None:
    backend = "sglang" if draft.has_gpu else "embedded"
    draft.derive("rollout_backend", value=backend, source=draft.machine)
    draft.derive(
        "eval_function_path",
        value=draft["rollout_function_path"],
        source="--rollout-function-path",
    )
    draft.derive(
        "rollout_max_response_len",
        value=draft["rollout_max_context_len"],
        source="--rollout-max-context-len",
    )


def _trainer(draft: Draft) -> None:
    gpu = draft.has_gpu
    draft.derive("ref_mode", value="swap" if gpu else "resident", source=draft.machine)
    layers = "transformer_engine" if gpu else "local"
    draft.derive("transformer_impl", value=layers, source=draft.machine)
    draft.derive("reward_num_workers", value=16 if gpu else 1, source=draft.machine)
    if draft["sequence_parallel"] and draft["tensor_model_parallel_size"] == 1:
        # Launch scripts leave it on; megatron-core refuses it without TP.
        draft.force(
            "sequence_parallel", value=False, source="--tensor-model-parallel-size 1"
        )


def _actor_slots(draft: Draft) -> None:
    if draft.has_gpu:
        draft.derive("actor_num_gpus_per_node", value=8, source=draft.machine)
        return
    tensor = draft["tensor_model_parallel_size"]
    slots = draft["pipeline_model_parallel_size"] * math.lcm(
        tensor * draft["context_parallel_size"],
        tensor * draft["expert_model_parallel_size"],
    )
    nodes = draft["actor_num_nodes"]
    draft.derive(
        "actor_num_gpus_per_node",
        value=-(-slots // nodes),
        source="the parallel layout",
    )


def _rollout_slots(draft: Draft) -> None:
    actors = draft["actor_num_nodes"] * draft["actor_num_gpus_per_node"]
    per_engine = draft["rollout_num_gpus_per_engine"]
    if draft["debug_train_only"]:
        draft.derive("rollout_num_gpus", value=0, source="--debug-train-only")
    elif draft["colocate"]:
        draft.derive("rollout_num_gpus", value=actors, source="--colocate")
    elif not draft.has_gpu:
        draft.derive("rollout_num_gpus", value=per_engine, source=draft.machine)
    elif not draft.given("rollout_num_gpus") and draft["rollout_num_gpus"] is None:
        raise refuse(
            "rollout_num_gpus",
            None,
            "is not given, and the trainer's GPUs are not shared",
            fix="give it, or share the trainer's by --colocate",
        )


def _sharing(draft: Draft) -> None:
    if draft["debug_rollout_only"]:
        for name in ("colocate", "offload_train", "offload_rollout"):
            draft.force(name, value=False, source="--debug-rollout-only")
        return
    # Without an engine beside it, the trainer keeps its memory.
    alone = draft["debug_train_only"]
    shares = bool(draft["colocate"] and draft.has_gpu and not alone)
    for name in ("offload_train", "offload_rollout"):
        if draft["colocate"]:
            draft.derive(name, value=shares, source="--colocate")
        elif draft[name] is None:
            draft.values[name] = False


def _batch(draft: Draft) -> None:
    group = draft["n_samples_per_prompt"]
    prompts = draft["rollout_batch_size"]
    if prompts is None:
        prompts = _prompts_of(draft, group)
    samples = prompts * group
    step = draft["global_batch_size"]
    steps = draft["num_steps_per_rollout"]
    if steps is None and step is None:
        draft.derive("num_steps_per_rollout", value=1, source="no --global-batch-size")
        draft.derive(
            "global_batch_size", value=samples, source="the samples of a rollout"
        )
        return
    name = "global_batch_size" if steps is None else "num_steps_per_rollout"
    if samples % draft[name]:
        raise draft.refuse(
            name,
            f"the {samples} samples of a rollout ({prompts} prompts x {group}) cannot"
            " be divided by it",
            fix="choose one that divides them",
        )
    if steps is None:
        draft.derive(
            "num_steps_per_rollout", value=samples // step, source="--global-batch-size"
        )
        return
    _agree(
        draft,
        "global_batch_size",
        value=samples // steps,
        source="--num-steps-per-rollout",
    )


def _prompts_of(draft: Draft, group: int) -> int:
    if draft["global_batch_size"] is None:
        raise refuse(
            "rollout_batch_size",
            None,
            "is not given, and nothing that it follows from",
            fix="give it, or --global-batch-size",
        )
    steps: int = draft["num_steps_per_rollout"] or 1
    samples: int = draft["global_batch_size"] * steps
    if samples % group:
        raise draft.refuse(
            "global_batch_size",
            f"it holds no whole number of groups of {group}",
            fix=f"choose a multiple of {group}, or give --rollout-batch-size",
        )
    draft.derive(
        "rollout_batch_size", value=samples // group, source="--global-batch-size"
    )
    return samples // group


def _followers(draft: Draft) -> None:
    draft.derive(
        "over_sampling_batch_size",
        value=draft["rollout_batch_size"],
        source="--rollout-batch-size",
    )
    draft.derive(
        "log_probs_max_tokens_per_gpu",
        value=draft["max_tokens_per_gpu"],
        source="--max-tokens-per-gpu",
    )
    draft.derive("eps_clip_high", value=draft["eps_clip"], source="--eps-clip")
    if draft["n_samples_per_prompt"] == 1:
        # One sample has no standard deviation; upstream switches it off as well.
        draft.force(
            "grpo_std_normalization", value=False, source="--n-samples-per-prompt 1"
        )


DERIVATIONS: Final[tuple[Callable[[Draft], None], ...]] = (
    _checkpoint,
    _mode,
    _dumps,
    _engine,
    _trainer,
    _actor_slots,
    _rollout_slots,
    _sharing,
    _batch,
    _followers,
)
"""In the order in which they rest on each other."""
