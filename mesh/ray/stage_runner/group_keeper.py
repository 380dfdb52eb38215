"""Keeper of a mesh's placement groups: an actor, so that the groups outlive the process that requested them.

Ray removes a group together with the actor that made it, and with the group its workers. The host watches the keeper: when the keeper
dies, the stages in its groups end, and their unfinished tasks run again. Like a runner, the keeper is registered with the watchdog of
its node: when the mesh's leases are no longer renewed, the watchdog ends the keeper, and its groups are freed. The keeper also knows
the session whose leases were renewed last; a new process of the mesh must name this session to continue.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup

from mesh.core.ids import MeshId
from mesh.core.resources import ResourceSet
from mesh.ray.placement import PlacementPool
from mesh.ray.stage_runner.watch_folder import register


class Keeper:
    """Keeper of one mesh.

    Args:
        incarnation: The session whose leases pay for the groups.
        since: The first session that this one continues.
    """

    def __init__(self, mesh: MeshId, node_labels: Mapping[str, str], incarnation: int, since: int) -> None:
        register(mesh)
        self._pool = PlacementPool(node_labels)
        self._session = incarnation, since

    def settle(self, incarnation: int, since: int) -> None:
        """Set the session that pays from now on."""
        self._session = incarnation, since

    def session(self) -> tuple[int, int]:
        """Return the session that pays, and the first session that it continues."""
        return self._session

    def take(self, slot: ResourceSet, slots: int) -> PlacementGroup:
        return self._pool.take(slot, slots)

    def give_back(self, group: PlacementGroup, reuse: bool) -> None:
        self._pool.give_back(group, reuse=reuse)

    def keep_only(self, groups: frozenset[str]) -> None:
        """Remove all taken groups but these, by their ids: the process that took the others died before it returned them."""
        self._pool.keep_only(groups)


#: The actor class, typed as Any: Ray's types do not know the results of calls on an actor's handle.
GroupKeeper: Any = ray.remote(num_cpus=0, max_restarts=0)(Keeper)
