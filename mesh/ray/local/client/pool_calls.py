"""Calls about pools and their placement groups."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from mesh.core.ids import PoolName, TaskId
from mesh.core.pools import PoolSpec
from mesh.core.shapes import GroupPoolSpec, GroupShape
from mesh.core.task_spec import DEFAULT_PRIORITY, TaskRequest
from mesh.ray.local.client.checked_calls import Count, Seconds, checked
from mesh.ray.local.client.parsing import Amounts, Bundles, read_amounts, read_bundles, read_task_id, required
from mesh.ray.local.client.supervisor_link import SupervisorLink
from mesh.ray.local.status_values import (
    GroupGiven,
    GroupStatus,
    PoolStatus,
    RequestRefused,
    SlotReserved,
)
from mesh.ray.local.supervision_errors import PoolUnknown, SubmissionError
from mesh.ray.local.verbs import GroupVerbs, PoolVerbs, TaskVerbs

#: How Ray spreads the bundles of a placement group over nodes.
Strategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]


def pool_spec(link: SupervisorLink, name: str) -> PoolSpec:
    """Return the pool's configuration. Raises `PoolUnknown`."""
    spec = link.ask(PoolVerbs.pool_spec, PoolName(name))
    if spec is None:
        raise PoolUnknown(name, tuple(pool.pool for pool in link.ask(PoolVerbs.pools)))
    return spec


@checked()
class PoolCalls:
    """Calls about pools of quota, their slots and placement groups."""

    def __init__(self, link: SupervisorLink) -> None:
        self._link = link

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
        """Create a pool of quota. Idempotent for the same configuration.

        Raises:
            SubmissionError: A pool of this name has another configuration; see `ensure_pool`.
        """
        spec = _new_spec(name, capacity, labels, policy, groups, target_agents, is_protected=is_protected)
        known = self._link.ask(PoolVerbs.pool_spec, spec.pool)
        if known is not None and known != spec:
            raise SubmissionError(f"pool {name} exists with another configuration; change it with ensure_pool or resize_pool")
        return self._link.ask(PoolVerbs.configure_pool, spec)

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
        """Create the pool, or change it to this configuration."""
        return self._link.ask(
            PoolVerbs.configure_pool, _new_spec(name, capacity, labels, policy, groups, target_agents, is_protected=is_protected)
        )

    def resize_pool(self, name: str, capacity: Amounts, *, target_agents: Count | None = None) -> PoolStatus:
        """Change the capacity. A capacity below the quota in use kills nothing: no task starts until use has shrunk."""
        spec = pool_spec(self._link, name)
        wanted = target_agents if target_agents is not None else spec.target_agents
        return self._link.ask(PoolVerbs.configure_pool, replace(spec, capacity=read_amounts(capacity), target_agents=wanted))

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
        """Configure the placement groups of a pool: a reserved layer, created now, and a dynamic one.

        Args:
            name: Name of the pool.
            high_priority_pg_specs: One per reserved group: its amounts, or a list of bundles.
            max_dynamic_pgs: Limit of groups created on demand, in use or idle.
            enable_pg_reuse: Keep a group for the next task of its shape.
            min_idle_pgs: Number of idle groups that are kept whatever their age.
            idle_ms: Time that any other idle group is kept.
            reserved_priority: Lowest priority of tasks that may take a reserved group.
            strategy: Ray's strategy of the reserved groups: `PACK`, `SPREAD`, `STRICT_PACK`, `STRICT_SPREAD`.
        Raises:
            PoolUnknown: The pool does not exist.
            SubmissionError: An argument is invalid.
        """
        groups = GroupPoolSpec(
            reserved=tuple(GroupShape(read_bundles(shape), strategy) for shape in high_priority_pg_specs),
            max_dynamic=max_dynamic_pgs,
            reuse=enable_pg_reuse,
            min_idle=min_idle_pgs,
            idle_ms=idle_ms,
            reserved_priority=reserved_priority,
        )
        return self._link.ask(PoolVerbs.configure_pool, replace(pool_spec(self._link, name), groups=groups))

    def delete_pool(self, name: str) -> None:
        """Delete a pool: cancel its tasks and remove its groups. Its name is free once it is empty. Raises `PoolUnknown`."""
        self._link.ask(PoolVerbs.delete_pool, pool_spec(self._link, name).pool)

    def list_pools(self) -> list[PoolStatus]:
        """Return all pools: capacity, used, reserved, target agents."""
        return self._link.ask(PoolVerbs.pools)

    def reserve_agent_slot(self, pool: str, resources: Amounts, *, slot: str | None = None) -> SlotReserved | RequestRefused:
        """Reserve quota for an agent of your own. Idempotent under the same name. Raises `PoolUnknown`."""
        name = required("slot", slot) if slot is not None else f"slot-{uuid.uuid4().hex[:12]}"
        return self._link.ask(PoolVerbs.reserve_slot, name, PoolName(pool), read_amounts(resources))

    def commit_agent_slot(self, slot: str) -> RequestRefused | None:
        """Turn reserved quota into used quota. Returns None, or the refusal."""
        return self._link.ask(PoolVerbs.commit_slot, slot)

    def release_agent_slot(self, slot: str) -> RequestRefused | None:
        """Release quota, whether reserved or used. Idempotent. Returns None, or the refusal."""
        return self._link.ask(PoolVerbs.release_slot, slot)

    def allocate_pg(
        self,
        pool: str,
        resources: Bundles,
        *,
        priority: float = DEFAULT_PRIORITY,
        holder: str | None = None,
        timeout_s: Seconds = 10.0,
    ) -> GroupGiven | RequestRefused:
        """Allocate a placement group of the pool to the caller: reserved if urgent, an idle one if possible, else a new one.

        `ray.util.get_placement_group(given.name)` returns the group itself. Raises `PoolUnknown`.
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
        return self._link.ask(GroupVerbs.allocate_group, request, timeout_s)

    def release_pg(self, given: GroupGiven | str, *, destroy: bool = False) -> None:
        """Release an allocated group; it is kept for the next task of its shape, unless `destroy`. Idempotent."""
        holder = given if isinstance(given, str) else given.holder
        self._link.ask(TaskVerbs.cancel, TaskId(holder), keep_state=False, destroy_group=destroy, requeue=False)

    def list_groups(self) -> list[GroupStatus]:
        """Return all placement groups of the mesh, with layer, holder and number of reuses."""
        return self._link.ask(GroupVerbs.groups)


def _new_spec(
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
