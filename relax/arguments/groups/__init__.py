"""The settings of a run, one frozen dataclass for each owner.

The field is the flag: ``n_samples_per_prompt`` is ``--n-samples-per-prompt``. Defaults
are upstream's where upstream has the flag. A field whose metadata says ``derived`` is
always filled in by `relax.arguments.resolve` when the flag is not given.
"""

from relax.arguments.groups.algorithm import AlgorithmSettings
from relax.arguments.groups.batch import BatchSettings
from relax.arguments.groups.checkpoint import CheckpointSettings
from relax.arguments.groups.cluster import ClusterSettings
from relax.arguments.groups.data import DataSettings
from relax.arguments.groups.debug import DebugSettings
from relax.arguments.groups.layout import LayoutSettings
from relax.arguments.groups.megatron import MegatronSettings
from relax.arguments.groups.reward import RewardSettings
from relax.arguments.groups.rollout import RolloutSettings
from relax.arguments.groups.run import RunSettings

__all__ = [
    "AlgorithmSettings",
    "BatchSettings",
    "CheckpointSettings",
    "ClusterSettings",
    "DataSettings",
    "DebugSettings",
    "LayoutSettings",
    "MegatronSettings",
    "RewardSettings",
    "RolloutSettings",
    "RunSettings",
]
