"""What-if scheduler: a private copy of the quota scheduler, with every stage that a lease pays for running and every pending stage waiting.

The rest of a lease counts as one workload of its tenant, which began when the youngest stage of its mesh did. Running work ends one
mean run time of its mesh after its start. The mesh's further demand is not part of the copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from federation.explaining.flavor_reach import FlavorReach
from federation.explaining.pending_stages import PendingStage
from federation.explaining.run_times import RunTimes
from federation.planning.planner_inputs import holdings_of
from federation.planning.values import Holding
from federation.quota.explain import WorkloadExplanation, dry_run, explain
from federation.quota.flavors import Mode
from federation.quota.forest import QuotaForest
from federation.quota.policies import UNNAMED, PreemptionMode, QueueSettings, ResourceGroup, TenantPolicies
from federation.quota.scheduler import QuotaScheduler
from federation.quota.workloads import ReplicaSet, Running, Workload
from federation.routing.flavor_choice import in_order
from federation.snapshot import FederationSnapshot
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet

_SLOT = "slot"  #: The one replica set of a stage: the slot that it needs to start.


class WhatIfScheduler:
    """What-if scheduler on one snapshot. Questions change nothing.

    Args:
        all_pending: Waiting stages; those of removed tenants are left out, and cannot be explained.
    """

    def __init__(
        self,
        snapshot: FederationSnapshot,
        forest: QuotaForest,
        tenant_policies: TenantPolicies,
        all_pending: Iterable[PendingStage],
        reach: FlavorReach,
        times: RunTimes,
    ) -> None:
        self._at_ms = snapshot.at_ms
        self._reach = reach
        self._times = times
        self._scheduler = QuotaScheduler(forest, _settings(forest, tenant_policies), tenant_policies.rules)
        self._scheduler.snapshot.now_ms = snapshot.at_ms
        for holding in holdings_of(snapshot):
            if holding.tenant in snapshot.tree.tenants:
                self._restore(holding)
        for pending in all_pending:
            if pending.tenant in snapshot.tree.tenants:
                self._scheduler.submit(self._workload(pending))

    def about(self, pending: PendingStage, line: Sequence[PendingStage]) -> WorkloadExplanation:
        """Explain a waiting stage.

        Args:
            line: Stages that start before it on its mesh because the tenant's stages start in order.

        Raises:
            LedgerError: It does not wait, or its tenant was removed.
        """
        return _shown_in_line(explain(self._scheduler, pending.stage, _names(line)), line)

    def would_be(self, pending: PendingStage, line: Sequence[PendingStage], before: Sequence[PendingStage] = ()) -> WorkloadExplanation:
        """Explain a stage as if it were sent now; `line` as in `about`.

        Args:
            before: Stages that would be sent with it, before it.

        Raises:
            UnknownTenant: There is no such tenant.
        """
        for other in before:
            self._scheduler.submit(self._workload(other))
        try:
            return _shown_in_line(dry_run(self._scheduler, self._workload(pending), _names(line)), line)
        finally:
            for other in before:
                self._scheduler.end(other.stage, self._at_ms)

    def _restore(self, holding: Holding) -> None:
        left = dict(holding.target)
        for view in holding.running:
            if all(units <= left.get(name, 0) for name, units in view.amounts.items()):
                left = {name: units - view.amounts[name] for name, units in left.items()}
                self._run(view.stage, holding, view.amounts, priority=view.priority, since_ms=view.since_ms, created_ms=view.created_ms)
        rest = ResourceSet({name: units for name, units in left.items() if units > 0})
        if rest:
            age_ms = max(0, self._at_ms - holding.since_ms - self._times.age_ms(holding.mesh))
            name = f"{holding.mesh}:{holding.tenant}:{holding.flavor}#{holding.token}"
            since_ms = holding.since_ms
            self._run(name, holding, rest, priority=holding.priority, since_ms=since_ms, created_ms=since_ms, age_ms=age_ms)

    def _run(
        self, name: str, holding: Holding, amounts: ResourceSet, *, priority: int, since_ms: int, created_ms: int, age_ms: int = 0
    ) -> None:
        since_ms = min(since_ms, self._at_ms)
        work = Workload(
            workload=name,
            queue=holding.tenant,
            created_ms=created_ms,
            priority=priority,
            expected_run_ms=age_ms + self._times.run_ms(holding.mesh),
        )
        keyed = {(holding.flavor, name): units for name, units in amounts.items()}
        granted_ms = min(holding.since_ms, self._at_ms)
        self._scheduler.restore(Running(workload=work, amounts=keyed, since_ms=since_ms, granted_ms=granted_ms))

    def _workload(self, pending: PendingStage) -> Workload:
        return Workload(
            workload=pending.stage,
            queue=pending.tenant,
            created_ms=pending.arrival,
            replica_sets=(ReplicaSet(name=_SLOT, count=1, amounts=dict(pending.slot.items())),),
            priority=pending.priority,
            user=pending.user,
            flavors=self._reach.at_mesh(pending),
            expected_run_ms=self._times.run_ms(pending.mesh),
        )


def _settings(forest: QuotaForest, tenant_policies: TenantPolicies) -> dict[int, QueueSettings]:
    """Return the tenants' settings, without limits on running work: senders count stages, and a lease is not one workload.

    Every flavor is tried, in the tenant's order. Waiting work has places in a queue here and no time of submission, so equals never preempt
    each other; planner and mesh say which newer ones they preempt.
    """
    flavors, resources = sorted({flavor for flavor, _ in forest.keys}), sorted({resource for _, resource in forest.keys})
    groups: dict[tuple[str, ...], ResourceGroup] = {}
    settings = {}
    for node in range(len(forest.names)):
        known = tenant_policies.settings.get(forest.tenant_of(node), UNNAMED)
        if known.flavors not in groups:
            groups[known.flavors] = ResourceGroup(resources=tuple(resources), flavors=tuple(in_order(flavors, known)))
        group, policies = groups[known.flavors], known.policies
        if policies.within_queue is PreemptionMode.LOWER_OR_NEWER:
            policies = replace(policies, within_queue=PreemptionMode.LOWER_PRIORITY)
        settings[node] = replace(known, policies=policies, groups=(group,), running_max=None, running_max_per_user=None)
    return settings


def _names(line: Iterable[PendingStage]) -> frozenset[str]:
    return frozenset(one.stage for one in line)


def _shown_in_line(explanation: WorkloadExplanation, line: Sequence[PendingStage]) -> WorkloadExplanation:
    """Adjust the explanation to the order on the mesh.

    If a tenant's stages start in order, a mesh tries none of them before the first has started, whatever the quota tree says. Stages on
    other meshes block none there.
    """
    if explanation.gate is not None:
        return explanation
    if line:
        return replace(explanation, reason=Reason.BEHIND_HEAD, changes=())
    return _honest(replace(explanation, reason=None) if explanation.reason is Reason.BEHIND_HEAD else explanation)


def _honest(explanation: WorkloadExplanation) -> WorkloadExplanation:
    """Replace "starts at once" by a wait for victims, if the start needs a preemption."""
    waits = explanation.reason is None and explanation.assignment is not None and explanation.assignment.mode is not Mode.FIT
    return replace(explanation, reason=Reason.WAITING_FOR_VICTIMS) if waits else explanation
