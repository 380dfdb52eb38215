"""Explanation of a stage that waits at a mesh, or would wait: place, reason, needed changes, estimated start, possible victims.

Nothing here decides. The values are the deciders' own, computed on a snapshot: `quota.explain` for places, changes and the start by running
work; `preemption_preview` for stages that the mesh would preempt for one of the same tenant; `planning.plan` for leases that would be
reclaimed; lease targets for leases that are being reclaimed; `estimates` for the queue of the mesh.

The remaining run time of stages is unknown, so a start is an estimate. There is no estimate before any stage has ended, nor if work that
has to end first runs longer than stages do: then the result says by how much it is overdue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from federation.dispatch import QueuedStage, StageAges
from federation.estimates import CostRules, overdue_ms, wait_ms
from federation.explaining.flavor_reach import FlavorReach
from federation.explaining.forecast import Forecast, WaitReason
from federation.explaining.pending_stages import PendingStage, pending_stages_in
from federation.explaining.planned_grants import PlannedGrant, PlannedGrants
from federation.explaining.planner_preview import PlannerPreview
from federation.explaining.precedence import Precedence
from federation.explaining.preemption_preview import StartedStage
from federation.explaining.run_times import RunTimes
from federation.explaining.tenant_preemption import TenantPreemption
from federation.explaining.what_if_scheduler import WhatIfScheduler
from federation.planning.values import Unmet
from federation.quota.explain import WorkloadExplanation
from federation.quota.forest import QuotaForest
from federation.quota.limits import Gate
from federation.quota.tenant_policies import PoliciesInForce
from federation.snapshot import FederationSnapshot, MeshView
from mesh.core.ids import MeshId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet

_QUOTA_LACKS = frozenset({Reason.QUOTA_EXHAUSTED, Reason.QUOTA_TOO_SMALL, Reason.FLAVOR_CLOSED})
#: Reasons that only a planned grant may replace: the quota tree knows no more.
_BELOW_GRANTS = frozenset({Reason.QUOTA_EXHAUSTED, Reason.QUOTA_CONTESTED, Reason.PREEMPTION_LIMIT})
#: Reasons of a mesh that knows only its own part: its room, its leases, its limits, or not even that. The quota tree and the plans may
#: know more.
PARTIAL_REASONS = _BELOW_GRANTS | {Reason.POOL_BUSY, Reason.WAITING_IN_QUEUE}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshWait:
    """Wait for room; no wait for an empty request, and no known wait at an absent mesh."""

    is_wait: bool = False
    wait_ms: int = 0
    overdue_ms: int = 0  #: All stages there are overdue by so much, so the wait is unknown.


class MeshWaits:
    """Waits at the meshes of one snapshot."""

    def __init__(self, meshes: Mapping[MeshId, MeshView], reach: FlavorReach, times: RunTimes) -> None:
        self._meshes = meshes
        self._reach = reach
        self._times = times

    def of(self, pending: PendingStage, ahead: int) -> MeshWait:
        """Return the wait, by the pools that the stage could take: stages in other pools make no room for it, nor for those before it.

        The number of stages in a pool is unknown here. So the used part of the pool counts in slots of the stage, up to the number of
        stages that run on the mesh.

        Args:
            ahead: Stages before it in the queue.
        """
        view = self._meshes.get(pending.mesh)
        if view is None or not pending.slot:
            return MeshWait()
        pools = [pool for pool in view.record.pools if pool.flavor in self._reach.of(pending)]
        free = [
            min(pool.free(name, pending.priority, is_gang=pending.is_gang) // units for name, units in pending.slot.items())
            for pool in pools
        ]
        taken = sum(min(pool.capacity[name] // units for name, units in pending.slot.items()) for pool in pools) - sum(free)
        room, run_ms, age_ms = max(free, default=0), self._times.run_ms(pending.mesh), self._times.age_ms(pending.mesh)
        return MeshWait(
            is_wait=ahead + 1 > room,
            wait_ms=wait_ms(waiting=ahead, room=room, running=min(taken, view.claimed), run_ms=run_ms, age_ms=age_ms),
            overdue_ms=overdue_ms(waiting=ahead, room=room, run_ms=run_ms, age_ms=age_ms),
        )


class Forecasts:
    """Explanations on one snapshot of the federation. They change nothing.

    Args:
        queues: Waiting stages of each mesh, the next one first.
        rules: Assumed run time of a stage while none has ended.
        ages: Ages of the running stages at each mesh.
        running: Return a tenant's running stages on any mesh; called only if a more urgent stage of the tenant might preempt some.
    """

    def __init__(
        self,
        snapshot: FederationSnapshot,
        tenant_policies: PoliciesInForce,
        queues: Mapping[MeshId, Sequence[QueuedStage]],
        rules: CostRules,
        ages: Mapping[MeshId, StageAges],
        running: Callable[[TenantPath], Sequence[StartedStage]] = lambda _tenant: (),
    ) -> None:
        self._snapshot = snapshot
        self._pending = {pending.stage: pending for pending in pending_stages_in(queues)}
        self._reported: dict[str, Reason] = {stage.stage: stage.reason for queued in queues.values() for stage in queued}
        meshes = {view.record.mesh: view for view in snapshot.meshes}
        in_force = tenant_policies.merged()
        forest = QuotaForest.of_tenants(snapshot.tree, in_force.weights)
        reach = FlavorReach(snapshot.tree, meshes)
        self._times = RunTimes(meshes, ages, rules)
        self._waits = MeshWaits(meshes, reach, self._times)
        settings = {mesh: view.record.settings for mesh, view in meshes.items()}
        self._precedence = Precedence(self._pending, self._reported, reach, in_force, settings, snapshot.at_ms)
        self._scheduler = WhatIfScheduler(snapshot, forest, in_force, self._pending.values(), reach, self._times)
        self._tenant_preemption = TenantPreemption(snapshot, meshes, in_force, self._precedence, running)
        self._planner = PlannerPreview(snapshot, forest, in_force, reach)
        self._planned_grants = PlannedGrants(snapshot, forest, in_force, self._pending.values(), reach)
        self._by_quota: dict[tuple[MeshId, TenantPath, ResourceSet, int, bool], WorkloadExplanation] = {}

    def of(self, stage: str, *, asks_planner: bool = True) -> Forecast | None:
        """Explain a waiting stage; None: it waits at no mesh, or its tenant was removed.

        Args:
            asks_planner: Find possible victims, which is most of the work.
        """
        pending = self._find(stage)
        if pending is None:
            return None
        line = self._precedence.line_before(pending)
        explanation = self._scheduler.about(pending, line)
        forecast = self._forecast(pending, explanation, self._precedence.places[stage], line)
        grant = self._grant_for(pending, explanation, line)
        if grant is not None:
            return self._with_grant(forecast, grant)
        if asks_planner:
            forecast = replace(
                forecast, victims=self._tenant_preemption.of(pending, explanation, line) or self._planner.for_waiting(pending, explanation)
            )
        return replace(forecast, reason=self._reason(stage, explanation))

    def why(self, stage: str) -> WaitReason | None:
        """Return the reason that `of` returns, with one computation for all stages that are alike.

        None: it waits at no mesh, or its tenant was removed.
        """
        pending = self._find(stage)
        if pending is None:
            return None
        reported = self._reported[stage]
        if reported not in PARTIAL_REASONS or (reported in _BELOW_GRANTS and self._planned_grants.to(pending) is None):
            return WaitReason(reason=reported)
        line = self._precedence.line_before(pending)
        alike = (pending.mesh, pending.tenant, pending.slot, pending.priority, bool(line))
        explanation = self._by_quota.get(alike)
        if explanation is None:
            self._by_quota[alike] = explanation = self._scheduler.about(pending, line)
        if self._grant_for(pending, explanation, line) is not None:
            return WaitReason(reason=Reason.WAITING_FOR_VICTIMS)
        reason = self._reason(stage, explanation)
        return WaitReason(reason=reason, changes=explanation.changes if reason is not reported else ())

    def place(self, stage: str) -> int:
        """Return how many stages before it in the queue of its mesh compete with it.

        Raises:
            KeyError: It waits at no mesh.
        """
        return self._precedence.places[stage]

    def would_be(self, pending: PendingStage, before: Sequence[PendingStage] = ()) -> Forecast:
        """Explain work as if it were sent to its mesh now.

        Args:
            before: Work that would be sent with it, before it.

        Raises:
            UnknownTenant: There is no such tenant.
        """
        line = self._precedence.line_before(pending, before)
        explanation = self._scheduler.would_be(pending, line, before)
        mesh_ahead = self._precedence.place_behind(pending, before)
        forecast = self._forecast(pending, explanation, mesh_ahead, line, before)
        stops = self._tenant_preemption.of(pending, explanation, line)
        if stops:
            return replace(forecast, reason=Reason.WAITING_FOR_VICTIMS, victims=stops)
        is_full = explanation.reason is None and self._waits.of(pending, mesh_ahead).is_wait
        reason = Reason.POOL_BUSY if is_full else forecast.reason
        return replace(forecast, reason=reason, victims=self._planner.for_sent(pending, explanation, before))

    def unmet(self) -> tuple[Unmet, ...]:
        """Return the demands that the planner would not fulfil now, each with its reason."""
        return self._planner.unmet()

    def _find(self, stage: str) -> PendingStage | None:
        pending = self._pending.get(stage)
        return pending if pending is not None and pending.tenant in self._snapshot.tree.tenants else None

    def _grant_for(self, pending: PendingStage, explanation: WorkloadExplanation, line: Sequence[PendingStage]) -> PlannedGrant | None:
        """Return the grant that a plan has for a stage that waits for nothing else."""
        if self._reported[pending.stage] not in PARTIAL_REASONS or explanation.gate is not None or line:
            return None
        return self._planned_grants.to(pending)

    def _with_grant(self, forecast: Forecast, grant: PlannedGrant) -> Forecast:
        """Return the forecast with the grant: no change is needed, and the start is the end of the victims' minimum run time, or sooner."""
        start_ms = self._snapshot.at_ms + grant.wait_ms
        if forecast.start_ms is not None:
            start_ms = min(start_ms, forecast.start_ms)
        return replace(
            forecast,
            reason=Reason.WAITING_FOR_VICTIMS,
            changes=(),
            start_ms=max(start_ms, self._snapshot.at_ms + self._snapshot.recovery_ms),
            overdue_ms=0,
            victims=grant.victims,
        )

    def _reason(self, stage: str, explanation: WorkloadExplanation) -> Reason:
        """Return the mesh's reason; before the mesh has tried the stage, the quota tree's.

        If room and quota are both missing, quota comes first: more room alone would not help.
        """
        reported = self._reported[stage]
        if reported is Reason.POOL_BUSY and explanation.reason is Reason.WAITING_FOR_VICTIMS:
            return Reason.QUOTA_EXHAUSTED  # Others would have to return quota, and no plan demands that.
        if reported is Reason.POOL_BUSY and explanation.reason in _QUOTA_LACKS:
            return explanation.reason
        return explanation.reason or reported if reported is Reason.WAITING_IN_QUEUE else reported

    def _forecast(
        self,
        pending: PendingStage,
        explanation: WorkloadExplanation,
        mesh_ahead: int,
        line: Sequence[PendingStage],
        before: Sequence[PendingStage] = (),
    ) -> Forecast:
        start_ms, overdue_ms = self._start(pending, explanation, mesh_ahead, line)
        return Forecast(
            pending=pending,
            reason=explanation.reason or (Reason.LEDGER_RECOVERING if self._snapshot.recovery_ms else None),
            ahead=self._precedence.ahead(pending, explanation.ahead, before),
            mesh_ahead=mesh_ahead,
            gate=explanation.gate,
            changes=explanation.changes,
            start_ms=start_ms,
            overdue_ms=overdue_ms,
        )

    def _start(
        self, pending: PendingStage, explanation: WorkloadExplanation, mesh_ahead: int, line: Sequence[PendingStage]
    ) -> tuple[int | None, int]:
        """Return the estimated start, or by how much work that has to end first is overdue; not before the stages of its line start."""
        if explanation.start_ms is None:
            return None, 0
        places = self._precedence.places
        waits = [self._waits.of(pending, mesh_ahead), *(self._waits.of(one, places.get(one.stage, mesh_ahead)) for one in line)]
        start_ms = max(explanation.start_ms, self._snapshot.at_ms + max(wait.wait_ms for wait in waits))
        overdue_ms = max(explanation.overdue_ms, *(wait.overdue_ms for wait in waits)) if explanation.gate is None else 0
        if overdue_ms or not self._is_reckoned(start_ms, explanation.gate):
            return None, overdue_ms if self._times.is_measured else 0
        if self._snapshot.recovery_ms:
            start_ms = max(start_ms, self._snapshot.at_ms + self._snapshot.recovery_ms)  # Until then the ledger grants nothing new.
        return start_ms, 0

    def _is_reckoned(self, start_ms: int, gate: Gate | None) -> bool:
        """Return whether the start is known: from measured run times, or since it is now or at a window's opening."""
        return self._times.is_measured or start_ms <= self._snapshot.at_ms or (gate is not None and start_ms == gate.opens_ms)
