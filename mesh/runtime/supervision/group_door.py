"""The door to Ray's placement groups: make them where the scheduler said, take them away, and see which are there.

A group is detached and named after the mesh, so it outlives a supervisor and is found again by the next one. Ray resizes no
group, and puts a group whose node died somewhere else by itself; the scheduler has not decided about that place, so such a
group counts as lost and is removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group

from mesh.counting import counted
from mesh.ids import GroupId, NodeName
from mesh.runtime.placement import bundle_of
from mesh.runtime.supervision.ray_names import NODE_LABEL, group_name, group_prefix
from mesh.scheduling.shapes import GroupShape

#: How many groups are awaited at the same time, a thread each: Ray only offers a call that blocks.
_AWAITED_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSeen:
    """A placement group of the mesh as Ray has it."""

    group: GroupId
    state: str  #: Ray's word: PENDING, PREPARED, CREATED, REMOVED, RESCHEDULING.
    nodes: tuple[NodeName, ...]  #: One per bundle; empty names while it is not placed.


class GroupDoor:
    """The placement groups of one mesh. All methods belong to the supervisor's event loop; none blocks it."""

    def __init__(self, mesh: str) -> None:
        self._mesh = mesh
        self._handles: dict[GroupId, PlacementGroup] = {}
        self._threads = ThreadPoolExecutor(max_workers=_AWAITED_MAX, thread_name_prefix="groups")

    def handle(self, group: GroupId) -> PlacementGroup | None:
        """Ray's handle of a group that was made or found here."""
        return self._handles.get(group)

    async def create(self, group: GroupId, shape: GroupShape, nodes: Sequence[NodeName], timeout_s: float) -> tuple[NodeName, ...] | str:
        """Make the group, each bundle on its node.

        Returns:
            The node of each bundle; or, in words, why it is not there: then nothing of it is left.
        """
        try:
            # An order that comes again finds the group that the first one made.
            handle = self._handles.get(group) or await self._blocking(self._create, group, shape, nodes)
            self._handles[group] = handle
            if await self._blocking(handle.wait, timeout_s):
                seen = await self._blocking(_look, handle)
                if seen["state"] == "CREATED":
                    return _nodes(seen)
                words = f"Ray says that the placement group is {seen['state']}"
            else:
                words = f"Ray has not made the placement group within {timeout_s:g} s: {await self._blocking(_why, handle)}"
        except Exception as error:  # noqa: BLE001 - Ray refuses groups with many classes of errors; each of them is an answer here
            words = f"Ray refuses the placement group: {error}"
        await self.remove(group)
        return words

    async def remove(self, group: GroupId) -> None:
        """Give its room back to Ray. Harmless when it is gone. Restartable actors in it must have been killed before."""
        handle = self._handles.pop(group, None)
        if handle is not None:
            await self._blocking(_remove, handle)

    async def seen(self) -> dict[GroupId, GroupSeen]:
        """All groups of this mesh that Ray knows and has not removed; their handles can be asked for from now on."""
        seen: dict[GroupId, GroupSeen] = await self._blocking(self._look_for_all)
        return seen

    async def stands(self, group: GroupId) -> bool:
        """Does Ray have it where it was made? True when Ray cannot be asked."""
        handle = self._handles.get(group)
        if handle is None:
            return False
        try:
            return bool((await self._blocking(_look, handle))["state"] == "CREATED")
        except Exception:  # noqa: BLE001 - Ray's control process is starting anew; whoever looks at the groups will see
            return True

    def close(self) -> None:
        """Let the threads go."""
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
