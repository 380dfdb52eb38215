"""Less urgent stages of the own tenant that a mesh would preempt for a pending stage, without the planner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from federation.explaining.forecast import LeaseVictim
from federation.explaining.pending_stages import PendingStage
from federation.explaining.precedence import Precedence
from federation.explaining.preemption_preview import PreviewedPreemption, StartedStage, preview_preemption
from federation.quota.explain import WorkloadExplanation
from federation.quota.policies import TenantPolicies
from federation.snapshot import FederationSnapshot, MeshView
from mesh.core.ids import MeshId, TenantPath
from mesh.core.reasons import Reason


class TenantPreemption:
    """Preemptions within tenants, on one snapshot.

    Args:
        running: Return a tenant's running stages on any mesh; called only if some might be preempted.
    """

    def __init__(
        self,
        snapshot: FederationSnapshot,
        meshes: Mapping[MeshId, MeshView],
        tenant_policies: TenantPolicies,
        precedence: Precedence,
        running: Callable[[TenantPath], Sequence[StartedStage]],
    ) -> None:
        self._snapshot = snapshot
        self._meshes = meshes
        self._tenant_policies = tenant_policies
        self._precedence = precedence
        self._running_of = running

    def of(self, pending: PendingStage, explanation: WorkloadExplanation, line: Sequence[PendingStage]) -> tuple[LeaseVictim, ...]:
        """Return the stages that would be preempted; none for a stage that may not start yet.

        Args:
            explanation: The quota scheduler's explanation of it.
            line: Stages that start before it on its mesh because the tenant's stages start in order.
        """
        view, rules = self._meshes.get(pending.mesh), self._tenant_policies.preemption(pending.tenant)
        if view is None or explanation.gate is not None or line or not rules.takes or not pending.slot:
            return ()
        where = (pending.mesh, pending.tenant)
        held = {lease.flavor: lease.amounts for lease in self._snapshot.leases if (lease.mesh, lease.tenant) == where}
        running = [one for one in self._running_of(pending.tenant) if (one.mesh, one.tenant) == where]
        stop: PreviewedPreemption | None = None
        before = () if rules.in_order else self._precedence.own_before(pending)
        for one in (*before, pending):  # A victim for an earlier stage frees nothing for this one.
            running = [other for other in running if stop is None or other.stage not in stop.stages]
            stop = preview_preemption(
                one, view, held, running, is_quota_free=explanation.reason is None, rules=rules, now_ms=self._snapshot.at_ms
            )
        if stop is None:
            return ()
        reason = Reason.PREEMPTED_WITHIN_TENANT
        stages = () if view.record.has_hook("preemption_policy") else stop.stages  # Only the mesh can ask its plugin.
        return (
            LeaseVictim(mesh=pending.mesh, tenant=pending.tenant, flavor=stop.flavor, amounts=stop.amounts, reason=reason, stages=stages),
        )
