"""The keeper of a mesh's placement groups: an actor, so that they outlive the process that has asked for them, and nothing else.

A group that an actor has made goes with it (Ray's own rule), and with the group the workers in it. The host watches the keeper: when
it dies, the stages in its groups end, and what they have not finished runs again. The keeper is registered with the watchdog of its
node as runners are: when nobody proves the mesh's leases any more it is ended, and whatever it held is free. It also knows whose
leases were proved last, which is what a new process of the mesh has to name to go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup

from mesh.ids import MeshId
from mesh.resources import ResourceSet
from mesh.runtime.placement import PlacementPool
from mesh.runtime.watch_folder import register


class Keeper:
    """One per mesh.

    Args:
        incarnation: Of the session whose leases pay for what it holds.
        since: The first session of its line.
    """

    def __init__(self, mesh: MeshId, node_labels: Mapping[str, str], incarnation: int, since: int) -> None:
        register(mesh)
        self._pool = PlacementPool(node_labels)
        self._session = incarnation, since

    def settle(self, incarnation: int, since: int) -> None:
        """Another session pays from now on."""
        self._session = incarnation, since

    def session(self) -> tuple[int, int]:
        """The session that pays, and the first of its line."""
        return self._session

    def take(self, slot: ResourceSet, slots: int) -> PlacementGroup:
        """See `PlacementPool.take`."""
        return self._pool.take(slot, slots)

    def give_back(self, group: PlacementGroup, reuse: bool) -> None:
        """See `PlacementPool.give_back`."""
        self._pool.give_back(group, reuse=reuse)

    def keep_only(self, groups: frozenset[str]) -> None:
        """Remove what was taken, but for these groups, by their ids: whoever took it did not live to give it back."""
        self._pool.keep_only(groups)


#: The actor class, typed as Any: Ray's types do not know what an actor's handle answers.
GroupKeeper: Any = ray.remote(num_cpus=0, max_restarts=0)(Keeper)
