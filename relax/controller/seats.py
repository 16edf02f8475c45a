"""Ray's options and the node of each actor of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from relax.arguments.groups import ClusterSettings
from relax.controller.cluster import ClusterNode, cluster_nodes, on_node
from relax.controller.placement import Slot, bundle_nodes, options
from relax.errors import ClusterError

HERE: Final = ""
"""The node of a private Ray: there is no other."""


@dataclass(frozen=True, kw_only=True)
class Seat:
    """Where one actor is put.

    Attributes:
        node: Ray's id of its node; `HERE` in a private Ray.
        options: For Ray.
    """

    node: str
    options: Mapping[str, Any]


class Seats:
    """Where the actors of a run are put.

    Args:
        nodes: The nodes of a joined cluster that the run uses, the driver's first; none
            in a private Ray.
        group: Ray's placement group; None without GPUs.
        environment: Variables of actors in a joined cluster; in a private Ray they
            inherit the driver's.
    """

    def __init__(
        self,
        nodes: Sequence[ClusterNode],
        *,
        group: Any,
        environment: Mapping[str, str],
    ) -> None:
        self._nodes = nodes
        self._group = group
        self._bundle_nodes = {} if group is None else bundle_nodes(group)
        self._common: dict[str, Any] = {"num_cpus": 0, "max_restarts": 0}
        if nodes:
            self._common["runtime_env"] = {"env_vars": dict(environment)}

    @property
    def others(self) -> Sequence[ClusterNode]:
        """All nodes but the driver's."""
        return self._nodes[1:]

    def of(self, slot: Slot) -> Seat:
        """The seat of a trainer or an engine."""
        if self._group is None:
            return self.spread(slot.node)
        node = self._bundle_nodes[slot.bundle] if self._nodes else HERE
        return Seat(node=node, options={**self._common, **options(slot, self._group)})

    def spread(self, number: int) -> Seat:
        """The seat of one of many that go round the nodes."""
        if not self._nodes:
            return Seat(node=HERE, options=self._common)
        node = self._nodes[number % len(self._nodes)].id
        return Seat(node=node, options={**self._common, **on_node(node)})


def choose_seats(
    settings: ClusterSettings, group: Any, *, environment: Mapping[str, str]
) -> Seats:
    """Looks which nodes the run will use.

    Args:
        settings: Whether a cluster was joined, and how many nodes train.
        group: Ray's placement group; None without GPUs.
        environment: Variables of actors in a joined cluster.

    Raises:
        ClusterError: The cluster has too few nodes; says which it has.
    """
    if settings.ray_address is None:
        return Seats([], group=group, environment=environment)
    found, wanted = cluster_nodes(), settings.actor_num_nodes
    if group is not None:
        used = set(bundle_nodes(group).values())
        nodes = [found[0], *(node for node in found[1:] if node.id in used)]
    elif len(found) < wanted:
        raise ClusterError(
            f"the run needs {wanted} nodes and the cluster has {len(found)}: "
            f"{', '.join(map(str, found))}",
            where=f"--actor-num-nodes {wanted}",
            hint="`ray start --address=…` on another node, or set it lower",
        )
    else:
        nodes = found[:wanted]
    return Seats(nodes, group=group, environment=environment)
