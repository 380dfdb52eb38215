"""Quota cases as values of a federation: tree, meshes, policies and stages.

- Each node of the tree is a tenant. Running work came in under a tree in which each queue owns what its work uses; then the case's
  tree replaces that one, as a root's file would. So work may run beyond the case's quota, as in Kueue after a change of quota.
- Each flavor is a mesh with one pool of that flavor, with more room than any case needs: only quota is short.
- A workload is a stage of one slot, since quota is granted to all its replicas or to none. A replica set that may shrink has slots
  of its least count each. Running work with several flavors is one stage per flavor.
- Running work starts in the order of `reserved_at`; of equal times the greatest `uid` starts first, since Kueue prefers the least as
  victim, and the planner and the meshes prefer the youngest.
- Pending work is submitted at once, the most urgent first in time of creation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from federation.conformance.deployed_federation import CaseStage
from federation.conformance.quota_cases import QuotaCase
from federation.quota.forest import ForestNode
from federation.quota.policies import TenantPolicies
from federation.quota.workloads import ReplicaSet, Running, Workload
from federation.snapshot import MeshRecord, PoolRecord
from federation.tenants import FlavorResource, Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, MeshId, PoolName, StageId, TenantPath
from mesh.core.resources import AMOUNT_MAX, ResourceSet

#: A larger quota counts as this much: more than any work of a case, and few enough for a ledger to add up.
QUOTA_MAX = AMOUNT_MAX // 1_000
ROOM = AMOUNT_MAX // 2
#: Longer than a case: a preemptor's freed room is held until its victims have stopped.
HOLD_MS = 3_600_000


class NotExpressible(Exception):
    """The case asks for something that a federation cannot express."""


class DeployedCase:
    """Input of a case, as values of a federation.

    Raises:
        CaseError: The case cannot be read.
        NotExpressible: A federation cannot express what the case says.
    """

    def __init__(self, kind: str, case: QuotaCase) -> None:
        self.kind, self.case = kind, case
        self.tree = TenantTree(_tenant(node, {key: _held(quota) for key, quota in node.quotas.items()}) for node in case.nodes)
        names = case.forest.names
        settings = {names[node]: known for node, known in case.settings.items()}
        self.tenant_policies = TenantPolicies(
            rules=replace(case.rules, min_run_ms=0, reservation_timeout_ms=HOLD_MS),
            weights={node.name: node.weight for node in case.nodes if node.weight != 1},
            settings=settings if kind in ("preempt", "admit") else {},
        )
        self.names: dict[StageId, str] = {}  #: Stage to its workload's name in the case.
        if any(running.is_leaving for running in case.admitted):
            raise NotExpressible("running work was asked to stop before the case begins")

    @property
    def has_history(self) -> bool:
        """Whether running work starts and ends before the case begins."""
        return bool(self.case.fields.inner("history").keys)

    def history_stages(self) -> dict[str, list[CaseStage]]:
        """Return the stages of the work in the case's history, by name."""
        return {name: self.running_stages(running) for name, running in self.case.works_of_history().items()}

    def records(self) -> tuple[MeshRecord, ...]:
        """Return one mesh per flavor. The tree says which flavors a queue may use."""
        keys = self.tree.flavor_resources() | {key for running in self._all_running() for key in running.amounts}
        room = ResourceSet(dict.fromkeys({resource for _, resource in keys}, ROOM))
        return tuple(
            MeshRecord(
                mesh=mesh_of(flavor),
                labels={},
                pools=(PoolRecord(pool=PoolName("all"), flavor=flavor, capacity=room),),
                cluster=flavor,
                shared=True,
            )
            for flavor in sorted({flavor for flavor, _ in keys})
        )

    def _all_running(self) -> tuple[Running, ...]:
        return tuple(self.case.works_of_history().values()) if self.has_history else self.case.admitted

    def roomy_tree(self) -> TenantTree:
        """Return the case's tree with quotas that cover exactly what each queue's running work uses."""
        used: dict[str, dict[FlavorResource, int]] = defaultdict(lambda: defaultdict(int))
        for running in self._all_running():
            for key, units in running.amounts.items():
                used[running.workload.queue][key] += units
        owned = {queue: {key: Quota(nominal=units) for key, units in of_queue.items()} for queue, of_queue in used.items()}
        return TenantTree(_tenant(node, owned.get(node.name, {})) for node in self.case.nodes)

    def in_order_of_start(self) -> list[Running]:
        """Return the running work in the order in which it is started."""
        by_name = sorted(self.case.admitted, key=lambda running: running.workload.workload, reverse=True)
        return sorted(by_name, key=lambda running: running.since_ms)

    def running_stages(self, running: Running) -> list[CaseStage]:
        """Return the stages of running work, one per flavor."""
        by_flavor: dict[FlavorName, dict[str, int]] = defaultdict(dict)
        for (flavor, resource), units in running.amounts.items():
            by_flavor[flavor][resource] = units
        return [
            self._stage(running.workload, f"running:{running.workload.workload}:{flavor}", amounts, mesh=mesh_of(flavor))
            for flavor, amounts in sorted(by_flavor.items())
            if any(amounts.values())
        ]

    def pending_on(self, workload: Workload, amounts: Mapping[FlavorResource, int]) -> CaseStage:
        """Return the stage of a waiting workload whose flavor the case has chosen.

        Raises:
            NotExpressible: It has several flavors.
        """
        flavors = {flavor for flavor, _ in amounts}
        if len(flavors) != 1:
            raise NotExpressible(f"one stage is paid from the lease of one flavor, and {workload.workload!r} takes {len(flavors)}")
        (flavor,) = flavors
        units = {resource: units for (_, resource), units in amounts.items()}
        return self._stage(workload, f"pending:{workload.workload}", units, mesh=mesh_of(flavor))

    def pending(self, workload: Workload) -> CaseStage:
        """Return the stage of a waiting workload that takes whatever flavor routing finds.

        Raises:
            NotExpressible: Its resources are in several groups, or one of several replica sets may shrink.
        """
        settings = self.case.settings[self.case.forest.index[workload.queue]]
        listed = {name for group in settings.groups for name in group.resources}
        needed = {name for one in workload.replica_sets for name, units in one.amounts.items() if units and name in listed}
        if needed and not any(needed <= {*group.resources} for group in settings.groups):
            raise NotExpressible(f"one stage is paid from the lease of one flavor, and {workload.workload!r} needs several groups of them")
        shrinking = [one for one in workload.replica_sets if replicas_per_slot(one) != one.count]
        if shrinking and (len(workload.replica_sets) > 1 or shrinking[0].count % replicas_per_slot(shrinking[0])):
            raise NotExpressible(f"the slots of a stage are alike, and {workload.workload!r} cannot shrink in steps of its least count")
        units: dict[str, int] = defaultdict(int)
        for one in workload.replica_sets:
            for name, amount in one.amounts.items():
                units[name] += amount * replicas_per_slot(one)
        width = shrinking[0].count // replicas_per_slot(shrinking[0]) if shrinking else 1
        return self._stage(workload, f"pending:{workload.workload}", units, width=width)

    def _stage(self, workload: Workload, stage: str, units: Mapping[str, int], *, mesh: MeshId | None = None, width: int = 1) -> CaseStage:
        name = StageId(stage)
        self.names[name] = self.case.names[workload.workload]
        return CaseStage(
            stage=name,
            tenant=TenantPath(workload.queue),
            slot=ResourceSet({resource: min(AMOUNT_MAX, amount) for resource, amount in units.items()}),
            width=width,
            priority=workload.priority,
            created_ms=workload.created_ms,
            mesh=mesh,
        )


def _tenant(node: ForestNode, quotas: Mapping[FlavorResource, Quota]) -> Tenant:
    return Tenant(path=TenantPath(node.name), parent=None if node.parent is None else TenantPath(node.parent), quotas=quotas)


def _held(quota: Quota) -> Quota:
    """Return the quota with amounts that a ledger can hold."""
    most = QUOTA_MAX
    return Quota(
        nominal=min(most, quota.nominal),
        borrowing_limit=None if quota.borrowing_limit is None else min(most, quota.borrowing_limit),
        lending_limit=None if quota.lending_limit is None else min(most, quota.lending_limit),
    )


def mesh_of(flavor: str) -> MeshId:
    """Return the mesh that has the flavor."""
    return MeshId(f"mesh-{flavor}")


def replicas_per_slot(one: ReplicaSet) -> int:
    """Return how many replicas of a set one slot holds: all of them, or the least count of a set that may shrink."""
    return one.count if one.count_min is None else max(1, one.count_min)
