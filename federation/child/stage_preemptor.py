"""Preemption within a tenant: stop less urgent stages on a mesh, and hold the freed room for the more urgent stage.

`preemption_planner` chooses the victims from the state of the mesh. This module first asks the ledger for more quota, then stops the
victims,
and ends holds that have run out.

Source: ADR 0025.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import structlog

from federation.child.child_session import ChildSession
from federation.child.child_state import ChildState
from federation.child.deadlines import Permission
from federation.child.decision_queue import DecisionQueue
from federation.child.lease_client import LeaseClient
from federation.child.preemption_planner import PreemptionPlanner, StagePreemption, words_of
from mesh.core.clock import Clock
from mesh.core.ids import StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.stages import admission_events as events
from mesh.stages.admission import WorkloadState
from mesh.stages.hosting import StageHost

log = structlog.get_logger(__name__)

#: Preemptions per pass; the next pass continues with the rest.
WAYS_PER_LOOK = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePreemptor:
    """Preemptor of one mesh."""

    child_state: ChildState
    lease_client: LeaseClient
    decision_queue: DecisionQueue
    child_session: ChildSession
    host: StageHost
    clock: Clock

    def end_holds(self, gone: AbstractSet[StageId]) -> None:
        """End the holds whose room did not come free in time, and the holds of stages that have gone."""
        now_ms = self.clock.monotonic_ms()
        late = [stage for stage, until_ms in self.child_state.gathering().items() if until_ms <= now_ms]
        if late:
            log.warning("freed room was not available in time", mesh=self.child_state.record.mesh, stages=sorted(late))
            self.decision_queue.take(*(events.PromiseEnded(workload=stage) for stage in late))
        self.child_state.accounting.drop_holds(self.child_state.gathering().keys() - gone)

    def make(self) -> None:
        """Preempt stages for more urgent queued stages of the same tenant, and hold the freed room for these.

        Raises:
            SessionLost: `LeaseClient.grow` found the session lost.
        """
        known = self.child_state.admission.workloads.values()
        is_wanted = any(one.state is WorkloadState.QUEUED and one.offer.preemption.takes for one in known)
        if not is_wanted or self.child_session.permission(self.clock.monotonic_ms()) is not Permission.PROVED:
            return
        preemption_planner = self._preemption_planner()
        in_vain: set[tuple[TenantPath, ResourceSet]] = set()  #: A less urgent stage with the same need has only fewer candidates.
        ways = tried = 0
        for workload in tuple(preemption_planner.waiting()):
            if ways == WAYS_PER_LOOK or self.decision_queue.guard.has_to_stop(tried):
                return
            need = (workload.offer.tenant, workload.offer.slot)
            if need in in_vain or workload.state is not WorkloadState.QUEUED:
                continue
            tried += 1
            planned = preemption_planner.preempt_for(workload, self.lease_client.grow)
            if planned is None or any(victim.stage not in self.child_state.running for victim in planned.victims):
                in_vain.add(need)
            else:
                ways += 1
                self._promise(planned)
                preemption_planner = preemption_planner.after(planned)

    def _preemption_planner(self) -> PreemptionPlanner:
        return PreemptionPlanner(
            admission=self.child_state.admission,
            accounting=self.child_state.accounting,
            occupants=tuple(self.child_state.occupants()),
            leaving=tuple(self.child_state.leaving()),
            now_ms=self.clock.monotonic_ms(),
            headroom=self.lease_client.headroom,
        )

    def _promise(self, planned: StagePreemption) -> None:
        until_ms = self.clock.monotonic_ms() + planned.reservation_timeout_ms
        self.child_state.accounting.hold(planned.stage, planned.key, planned.slot)
        for victim in planned.victims:
            log.info("a stage is preempted by a more urgent one", mesh=self.child_state.record.mesh, stage=victim.stage, to=planned.stage)
            running = self.child_state.running[victim.stage]
            running.preempted_because = Reason.PREEMPTED_WITHIN_TENANT
            running.preempt(self.host)
        promised = events.RoomPromised(
            workload=planned.stage,
            pool=planned.pool,
            victims=frozenset(victim.stage for victim in planned.victims),
            until_ms=until_ms,
            detail=words_of(planned.victims),
        )
        self.decision_queue.take(promised)
