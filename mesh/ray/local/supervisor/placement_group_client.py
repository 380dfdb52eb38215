"""Client for Ray's placement groups: create them where the scheduler decided, remove them, and list them.

A group is detached and named after the mesh, so it outlives a supervisor and the next one finds it. Ray cannot resize a group.
When a node dies, Ray moves its groups elsewhere by itself; the scheduler has not decided about that node, so a moved group
counts as lost and is removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group

from mesh.core.counting import counted
from mesh.core.ids import GroupId, NodeName
from mesh.core.shapes import GroupShape
from mesh.ray.local.ray_names import group_name, group_prefix
from mesh.ray.placement import NODE_LABEL, bundle_of

#: Number of groups awaited at the same time, a thread each: Ray only offers a blocking call.
_AWAITED_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSeen:
    """A placement group of the mesh as Ray has it."""

    group: GroupId
    state: str  #: Ray's state: PENDING, PREPARED, CREATED, REMOVED, RESCHEDULING.
    nodes: tuple[NodeName, ...]  #: One per bundle; empty names until it is placed.


class PlacementGroupClient:
    """The placement groups of one mesh. Call methods on the supervisor's event loop; none blocks it."""

    def __init__(self, mesh: str) -> None:
        self._mesh = mesh
        self._handles: dict[GroupId, PlacementGroup] = {}
        self._threads = ThreadPoolExecutor(max_workers=_AWAITED_MAX, thread_name_prefix="groups")

    def handle(self, group: GroupId) -> PlacementGroup | None:
        """Return Ray's handle of a group that was created or found here."""
        return self._handles.get(group)

    async def create(self, group: GroupId, shape: GroupShape, nodes: Sequence[NodeName], timeout_s: float) -> tuple[NodeName, ...] | str:
        """Create the group, each bundle on its node.

        Returns:
            The node of each bundle; or the failure as text, and then nothing of the group is left.
        """
        try:
            # A repeated order finds the group that the first one created.
            handle = self._handles.get(group) or await self._blocking(self._create, group, shape, nodes)
            self._handles[group] = handle
            if await self._blocking(handle.wait, timeout_s):
                seen = await self._blocking(_look, handle)
                if seen["state"] == "CREATED":
                    return _nodes(seen)
                words = f"Ray reports the placement group as {seen['state']}"
            else:
                words = f"Ray has not created the placement group within {timeout_s:g} s: {await self._blocking(_why, handle)}"
        except Exception as error:  # noqa: BLE001 - Ray refuses groups with many classes of errors; each becomes the returned text
            words = f"Ray refuses the placement group: {error}"
        await self.remove(group)
        return words

    async def remove(self, group: GroupId) -> None:
        """Remove the group and return its room to Ray. Idempotent. Kill restartable actors in it first."""
        handle = self._handles.pop(group, None)
        if handle is not None:
            await self._blocking(_remove, handle)

    async def seen(self) -> dict[GroupId, GroupSeen]:
        """Return all groups of this mesh that Ray has not removed; `handle` knows them from now on."""
        seen: dict[GroupId, GroupSeen] = await self._blocking(self._look_for_all)
        return seen

    async def stands(self, group: GroupId) -> bool:
        """Return whether the group still exists where it was created; True when Ray cannot be asked."""
        handle = self._handles.get(group)
        if handle is None:
            return False
        try:
            return bool((await self._blocking(_look, handle))["state"] == "CREATED")
        except Exception:  # noqa: BLE001 - Ray's control process is restarting; the next check of the groups shows the state
            return True

    def close(self) -> None:
        """Shut the threads down."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _create(self, group: GroupId, shape: GroupShape, nodes: Sequence[NodeName]) -> PlacementGroup:
        made: PlacementGroup = placement_group(
            [bundle_of(bundle) for bundle in shape.bundles],
            strategy=shape.strategy,
            name=group_name(self._mesh, group),
            lifetime="detached",
            bundle_label_selector=[{NODE_LABEL: node} for node in nodes],
        )
        return made

    def _look_for_all(self) -> dict[GroupId, GroupSeen]:
        prefix = group_prefix(self._mesh)
        found: dict[GroupId, GroupSeen] = {}
        for row in placement_group_table().values():
            if not row["name"].startswith(prefix) or row["state"] == "REMOVED":
                continue
            group = GroupId(row["name"].removeprefix(prefix))
            found[group] = GroupSeen(group=group, state=row["state"], nodes=_nodes(row))
            if group not in self._handles:
                self._handles[group] = PlacementGroup(ray.PlacementGroupID.from_hex(row["placement_group_id"]))
        return found

    async def _blocking(self, call: Any, *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *args)


def _look(handle: PlacementGroup) -> dict[str, Any]:
    row: dict[str, Any] = placement_group_table(handle)
    return row


def _nodes(row: dict[str, Any]) -> tuple[NodeName, ...]:
    nodes = row["bundles_to_node_id"]
    return tuple(NodeName(nodes[index]) for index in sorted(nodes))


def _why(handle: PlacementGroup) -> str:
    stats = _look(handle).get("stats", {})
    return f"{str(stats.get('scheduling_state', 'unknown')).lower()} after {counted(int(stats.get('scheduling_attempt', 0)), 'attempt')}"


def _remove(handle: PlacementGroup) -> None:
    remove_placement_group(handle)
