"""Leases that the planner would reclaim if it planned now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from federation.child.lease_accounting import sum_of
from federation.explaining.flavor_reach import FlavorReach
from federation.explaining.forecast import LeaseVictim
from federation.explaining.pending_stages import PendingStage
from federation.planning.planner import plan
from federation.planning.planner_inputs import demands_of, free_room, has_room, holdings_of, left_over
from federation.planning.values import Plan, PlannerDemand, Target, Unmet
from federation.quota.explain import WorkloadExplanation
from federation.quota.forest import QuotaForest
from federation.quota.policies import TenantPolicies
from federation.snapshot import FederationSnapshot, LeaseView, RunningView
from mesh.core.ids import FlavorName, MeshId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet


class PlannerPreview:
    """Plans on one snapshot, computed on request."""

    def __init__(self, snapshot: FederationSnapshot, forest: QuotaForest, tenant_policies: TenantPolicies, reach: FlavorReach) -> None:
        self._snapshot = snapshot
        self._forest = forest
        self._tenant_policies = tenant_policies
        self._reach = reach
        self._demands = demands_of(snapshot)
        self._free = free_room(snapshot)
        self._running = {view.token: view for view in snapshot.running}

    def unmet(self) -> tuple[Unmet, ...]:
        """Return the demands that the planner would not fulfil now, each with its reason."""
        return self._plan(self._demands, with_young=True).unmet

    def for_waiting(self, pending: PendingStage, explanation: WorkloadExplanation) -> tuple[LeaseVictim, ...]:
        """Return the reclaims for a waiting stage; its mesh's equally or less urgent demand for the tenant is left out.

        Args:
            explanation: The quota scheduler's explanation of it.
        """
        others = [
            demand
            for demand in self._demands
            if (demand.mesh, demand.tenant) != (pending.mesh, pending.tenant) or demand.priority > pending.priority
        ]
        return self._victims_of(pending, explanation, others)

    def for_sent(self, pending: PendingStage, explanation: WorkloadExplanation, before: Iterable[PendingStage]) -> tuple[LeaseVictim, ...]:
        """Return the reclaims for a stage that would be sent; `explanation` as in `for_waiting`.

        Args:
            before: Stages that would be sent with it, before it.
        """
        return self._victims_of(
            pending, explanation, [*self._demands, *(self._demand(other) for other in before if self._reach.at_mesh(other))]
        )

    def _plan(self, demands: Iterable[PlannerDemand], *, with_young: bool = False) -> Plan:
        return plan(
            self._forest,
            holdings_of(self._snapshot),
            demands,
            now_ms=self._snapshot.at_ms,
            rules=self._tenant_policies.rules,
            settings=self._tenant_policies.settings,
            with_young=with_young,
        )

    def _victims_of(
        self, pending: PendingStage, explanation: WorkloadExplanation, others: Sequence[PlannerDemand]
    ) -> tuple[LeaseVictim, ...]:
        """Return the reclaims for this stage: the difference between the plans with and without it."""
        if explanation.reason in (None, Reason.BEHIND_HEAD) or explanation.gate is not None or not self._reach.at_mesh(pending):
            return ()
        usual = _victims_by_lease(self._plan(others))
        with_it = _victims_by_lease(self._plan((*others, self._demand(pending))))
        return tuple(self._difference(target, usual.get(key)) for key, target in with_it.items() if target != usual.get(key))

    def _demand(self, pending: PendingStage) -> PlannerDemand:
        flavor = self._reach.at_mesh(pending)[0]
        return PlannerDemand(
            mesh=pending.mesh,
            tenant=pending.tenant,
            flavor=flavor,
            slot=dict(pending.slot.items()),
            slots=1,
            priority=pending.priority,
            since_ms=self._snapshot.at_ms,
            created_ms=pending.created_ms,
            is_crowded=not has_room(self._free, pending.mesh, flavor, pending.need),
            is_limited=pending.mesh in self._free.limited,
            free=left_over(self._free, pending.mesh, flavor, pending.need),
        )

    def _difference(self, target: Target, usual: Target | None) -> LeaseVictim:
        current = (lease for lease in self._snapshot.leases if lease.incarnation is None and _key(lease) == _key(target))
        target_at = next(dict(lease.target.items()) for lease in current)
        before = usual.amounts if usual is not None else target_at
        stopped = [self._running[token] for token in target.victims if usual is None or token not in usual.victims]
        lost = {name: units - target.amounts.get(name, 0) for name, units in before.items()}
        shrinking = _shrinking(stopped, lost) if any(units > 0 for units in lost.values()) else []
        stopping = sum_of(view.amounts for view in stopped if view not in shrinking)
        part = {name: max(stopping[name], units) for name, units in lost.items()}
        return LeaseVictim(
            mesh=target.mesh,
            tenant=target.tenant,
            flavor=target.flavor,
            amounts=ResourceSet({name: units for name, units in part.items() if units > 0}),
            reason=target.reason,
            stages=tuple(view.stage for view in stopped if view not in shrinking),
            shrinking=tuple(view.stage for view in shrinking),
        )


def _shrinking(victims: Iterable[RunningView], lost: Mapping[str, int]) -> list[RunningView]:
    """Return the victims that go on with some slots if their lease loses these amounts, in the order in which their mesh takes them."""
    left, found = dict(lost), []
    for view in sorted(victims, key=lambda view: (view.priority, -view.token)):
        if view.slots > 1 and any(units > left.get(name, 0) for name, units in view.amounts.items()):
            found.append(view)
        for name, units in view.amounts.items():
            left[name] = left.get(name, 0) - units
    return found


def _victims_by_lease(plan: Plan) -> dict[tuple[MeshId, TenantPath, FlavorName], Target]:
    """Return the targets for which something stops, those included that grow by more than their own victims free."""
    return {_key(target): target for target in (*plan.lowered, *plan.raised) if target in plan.lowered or target.victims}


def _key(one: Target | LeaseView) -> tuple[MeshId, TenantPath, FlavorName]:
    return one.mesh, one.tenant, one.flavor
