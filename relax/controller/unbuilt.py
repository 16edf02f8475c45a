"""What the flags promise and this version does not keep yet, refused in one sentence.

A flag that would be read and then ignored is worse than one that is refused: the run
would not be the run that was asked for.
"""

from __future__ import annotations

from relax.arguments import Arguments
from relax.controller.announce import num_rollout
from relax.errors import ArgumentError
from relax.faults.drills import Drill

_DEBUG = ("offload_train", "offload_rollout")


def refuse_unbuilt(arguments: Arguments) -> None:
    """Refuses what is not built yet.

    Raises:
        ArgumentError: Names the flag.
    """
    for name in _DEBUG:
        if arguments.was_given(name) and arguments.values()[name] not in (None, False):
            raise _not_yet(f"--{name.replace('_', '-')}")
    address = arguments.cluster.ray_address
    if address is not None and address.startswith("ray://"):
        raise _not_yet(
            f"--ray-address {address}: Ray Client",
            hint="start the run on a node of the cluster and give HOST:PORT, or auto",
        )
    nodes = arguments.cluster.actor_num_nodes
    if nodes > 1 and address is None:
        raise ArgumentError(
            f"--actor-num-nodes {nodes}: a private Ray has one node",
            hint="name the cluster by --ray-address HOST:PORT, or auto",
        )
    if arguments.layout.context_parallel_size != 1:
        raise _not_yet(
            f"--context-parallel-size {arguments.layout.context_parallel_size}"
        )
    num_rollout(arguments)
    Drill(arguments.debug.inject_fault)


def _not_yet(what: str, *, hint: str = "leave it away") -> ArgumentError:
    return ArgumentError(f"{what} is not available in this version yet", hint=hint)
