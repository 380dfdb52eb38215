"""Calls about pools and their placement groups (seed §5 ④ ⑤)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from mesh.ids import PoolName, TaskId
from mesh.pools import PoolSpec
from mesh.runtime.supervision.answers import (
    GroupGiven,
    GroupStatus,
    PoolStatus,
    Refused,
    SlotReserved,
)
from mesh.runtime.supervision.checked_calls import Count, Seconds, checked
from mesh.runtime.supervision.mesh_calls import MeshCalls
from mesh.runtime.supervision.supervision_errors import SubmissionError
from mesh.runtime.supervision.user_words import Amounts, Bundles, read_amounts, read_bundles, read_task_id, required
from mesh.scheduling.shapes import GroupPoolSpec, GroupShape
from mesh.scheduling.tasks import DEFAULT_PRIORITY, TaskRequest

#: How Ray spreads the bundles of a placement group over nodes.
Strategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]


@checked()
class PoolCalls(MeshCalls):
    """Pools of quota, slots in them, placement groups."""

    def create_pool(
        self,
        name: str,
        *,
        capacity: Amounts,
        labels: Mapping[str, str] | None = None,
        policy: str = "weighted",
        groups: GroupPoolSpec | None = None,
        target_agents: Count = 0,
        is_protected: bool = False,
    ) -> PoolStatus:
        """A pool of quota. One that exists with this very configuration is left as it is; another one is an error.

        Raises:
            SubmissionError: There is a pool of this name that is configured otherwise; see `ensure_pool`.
        """
        spec = _pool_spec(name, capacity, labels, policy, groups, target_agents, is_protected=is_protected)
        known: PoolSpec | None = self._link.ask("pool_spec", spec.pool)
        if known is not None and known != spec:
            raise SubmissionError(f"there is a pool {name} that is configured otherwise; use ensure_pool or resize_pool to change it")
        return self._configure(spec)

    def ensure_pool(
        self,
        name: str,
        *,
        capacity: Amounts,
        labels: Mapping[str, str] | None = None,
        policy: str = "weighted",
        groups: GroupPoolSpec | None = None,
        target_agents: Count = 0,
        is_protected: bool = False,
    ) -> PoolStatus:
        """A pool as described, whether it was there, was otherwise, or was not."""
        return self._configure(_pool_spec(name, capacity, labels, policy, groups, target_agents, is_protected=is_protected))

    def resize_pool(self, name: str, capacity: Amounts, *, target_agents: Count | None = None) -> PoolStatus:
        """Another capacity. Below what is held nothing is killed: nothing new goes in until it has shrunk."""
        spec = self._pool_spec(name)
        wanted = target_agents if target_agents is not None else spec.target_agents
        return self._configure(replace(spec, capacity=read_amounts(capacity), target_agents=wanted))

    def configure_pool(
        self,
        name: str,
        *,
        high_priority_pg_specs: Sequence[Bundles] = (),
        max_dynamic_pgs: Count = 4,
        enable_pg_reuse: bool = True,
        min_idle_pgs: Count = 0,
        idle_ms: Count = 60_000,
        reserved_priority: float = 8.0,
        strategy: Strategy = "PACK",
    ) -> PoolStatus:
        """The placement groups of a pool (seed §6.4): a reserved layer, made now, and a dynamic one.

        Args:
            name: Of the pool.
            high_priority_pg_specs: One per reserved group: its amounts, or a list of bundles.
            max_dynamic_pgs: How many groups may be made on demand, in use or kept.
            enable_pg_reuse: Keep a group for the next task of its shape.
            min_idle_pgs: Kept idle groups that no age removes.
            idle_ms: How long any other idle group is kept.
            reserved_priority: From this priority on a task may take a reserved group.
            strategy: Ray's, of the reserved groups: `PACK`, `SPREAD`, `STRICT_PACK`, `STRICT_SPREAD`.
        Raises:
            PoolUnknown: No such pool.
            SubmissionError: An argument that cannot be.
        """
        groups = GroupPoolSpec(
            reserved=tuple(GroupShape(read_bundles(shape), strategy) for shape in high_priority_pg_specs),
            max_dynamic=max_dynamic_pgs,
            reuse=enable_pg_reuse,
            min_idle=min_idle_pgs,
            idle_ms=idle_ms,
            reserved_priority=reserved_priority,
        )
        return self._configure(replace(self._pool_spec(name), groups=groups))

    def delete_pool(self, name: str) -> None:
        """Cancel what is in it, take its groups down, and forget it; once it is empty, its name is free. Raises `PoolUnknown`."""
        self._link.ask("delete_pool", self._pool_spec(name).pool)

    def list_pools(self) -> list[PoolStatus]:
        """All pools: capacity, used, reserved, target agents."""
        pools: list[PoolStatus] = self._link.ask("pools")
        return pools

    def reserve_agent_slot(self, pool: str, resources: Amounts, *, slot: str | None = None) -> SlotReserved | Refused:
        """Set quota aside for an agent of your own. Again under the same name: the same answer. Raises `PoolUnknown`."""
        name = required("slot", slot) if slot is not None else f"slot-{uuid.uuid4().hex[:12]}"
        answer: SlotReserved | Refused = self._link.ask("reserve_slot", name, PoolName(pool), read_amounts(resources))
        return answer

    def commit_agent_slot(self, slot: str) -> Refused | None:
        """What was set aside is in use now; None: so it is."""
        refused: Refused | None = self._link.ask("commit_slot", slot)
        return refused

    def release_agent_slot(self, slot: str) -> Refused | None:
        """Give the quota back, whether it was set aside or in use; None: so it is. Harmless to repeat: then nothing is held any more."""
        refused: Refused | None = self._link.ask("release_slot", slot)
        return refused

    def allocate_pg(
        self,
        pool: str,
        resources: Bundles,
        *,
        priority: float = DEFAULT_PRIORITY,
        holder: str | None = None,
        timeout_s: Seconds = 10.0,
    ) -> GroupGiven | Refused:
        """A placement group of the pool, for use of your own: reserved if urgent, reused if one is idle, else made.

        `ray.util.get_placement_group(given.name)` gives the group itself. Raises `PoolUnknown`.
        """
        bundles = read_bundles(resources)
        request = TaskRequest(
            task=read_task_id(holder or f"pg-{uuid.uuid4().hex[:12]}", "holder"),
            pool=PoolName(pool),
            resources=bundles[0],
            bundles=bundles,
            priority=priority,
            has_agent=False,
            preemptible=False,
        )
        answer: GroupGiven | Refused = self._link.ask("give_group", request, timeout_s)
        return answer

    def release_pg(self, given: GroupGiven | str, *, destroy: bool = False) -> None:
        """Give it back; it is kept for the next task of its shape, unless `destroy`. Harmless to repeat."""
        holder = given if isinstance(given, str) else given.holder
        self._link.ask("cancel", TaskId(holder), keep_state=False, destroy_group=destroy, requeue=False)

    def list_groups(self) -> list[GroupStatus]:
        """All placement groups of the mesh, with layer, holder and how often each was reused."""
        groups: list[GroupStatus] = self._link.ask("groups")
        return groups


def _pool_spec(
    name: str,
    capacity: Amounts,
    labels: Mapping[str, str] | None,
    policy: str,
    groups: GroupPoolSpec | None,
    target_agents: int,
    *,
    is_protected: bool,
) -> PoolSpec:
    return PoolSpec(
        pool=PoolName(required("name", name)),
        capacity=read_amounts(capacity),
        selector=dict(labels or {}),
        policy=policy,
        groups=groups,
        target_agents=target_agents,
        is_protected=is_protected,
    )
