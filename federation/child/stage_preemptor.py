"""Preemption of running stages: what leases do not pay for any more, and less urgent stages for more urgent ones of the tenant.

When a lease shrinks, stages stop until it covers the rest: first the victims that the plan names. A lease that need not shrink may name
victims, too: they stop for more urgent work of the tenant, as soon as they have run for their minimum time.

Within a tenant on this mesh, `preemption_planner` chooses the victims from the state of the mesh. This module first asks the ledger for
more quota, then stops the victims, holds the freed room for the more urgent stage, and ends holds that have run out. The mesh may limit
these preemptions per minute.

Source: ADR 0025, 0044.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import structlog

from federation.child.child_session import ChildSession
from federation.child.child_state import ChildState
from federation.child.deadlines import Permission
from federation.child.decision_queue import DecisionQueue
from federation.child.lease_accounting import LeaseKey
from federation.child.lease_client import LeaseClient
from federation.child.preemption_planner import PreemptionPlanner, StagePreemption, words_of
from federation.child.running_stage import RunningStage, beyond_limit
from mesh.core.clock import Clock, clock_time
from mesh.core.counting import counted
from mesh.core.ids import PoolName, StageId
from mesh.core.reasons import Reason
from mesh.preemption.rules import MINUTE_MS
from mesh.preemption.stage_preemption import PreemptionLimits
from mesh.stages import admission_events as events
from mesh.stages.admission_kinds import KindKey
from mesh.stages.hosting import StageHost
from mesh.stages.waiting_kinds import LACK_OF_QUOTA
from mesh.stages.workloads import WorkloadState

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
    recent_ms: deque[int] = field(default_factory=deque)  #: Times of the mesh's own preemptions in the last minute, one per victim.

    def obey_leases(self) -> None:
        """Preempt the stages that leases do not pay for any more; stages within their minimum run time stop when it ends."""
        accounting, now_ms = self.child_state.accounting, self.clock.monotonic_ms()
        for over in accounting.overdrawn():
            young = self.child_state.young(over.spent, now_ms) if now_ms < over.patient_ms else {}
            latest = {stage: min(of_age_ms, over.patient_ms) for stage, of_age_ms in young.items()}
            found = beyond_limit(over.limit, over.spent, self.child_state.running, young=young, victims=over.victims)
            for running, slots in found:
                if slots:
                    self._shrink(running, slots, latest)
                else:
                    self._preempt((running,), latest, Reason.QUOTA_RECLAIMED)
        for key, victims in accounting.displaced().items():
            paid = (self.child_state.running[stage] for stage in accounting.paid(key) if stage in self.child_state.running)
            named = [running for running in paid if running.claim.token in victims]
            if not named or not self.child_state.is_waited_for(key):
                accounting.settle_displaced(key)
                continue
            named = [running for running in named if not running.stops]
            young = self.child_state.young((running.claim.stage for running in named), now_ms)
            self._preempt(named, young, Reason.PREEMPTED_WITHIN_TENANT)

    def _shrink(self, running: RunningStage, slots: int, young: Mapping[StageId, int]) -> None:
        """Take slots back, and leave the stage the others. Tasks of a stage in `young` are not interrupted before its moment."""
        due_ms = young.get(running.claim.stage)
        if due_ms is not None:
            self.child_session.hurry(due_ms)
        if slots < running.kept:
            log.warning("a stage gives slots back", mesh=self.child_state.record.mesh, stage=running.claim.stage, left=slots)
        running.shrink(self.host, slots, at_once=due_ms is None)

    def _hold_for_next(self) -> None:
        """Hold what the victims of a plan free for the stage that goes first of those that wait for their lease."""
        child_state = self.child_state
        displaced = child_state.accounting.displaced()
        if not displaced:
            return
        known = child_state.admission.workloads.values()
        held = {victim for one in known if one.state is WorkloadState.GATHERING for victim in one.victims}
        for key, victims in displaced.items():
            paid = [child_state.running[stage] for stage in child_state.accounting.paid(key) if stage in child_state.running]
            stopping = [each.claim.stage for each in paid if each.stops and each.claim.token in victims]
            if stopping and held.isdisjoint(stopping):
                self._hold_for_first(key, tuple(stopping))

    def _hold_for_first(self, key: LeaseKey, victims: tuple[StageId, ...]) -> None:
        waiting = [
            (workload, pool)
            for workload in self.child_state.admission.workloads.values()
            if workload.state is WorkloadState.QUEUED and workload.offer.tenant == key[0]
            for pool, (reason, _) in workload.refused_by.items()
            if reason in LACK_OF_QUOTA and self.child_state.admission.ledger.pools[pool].spec.flavor == key[1]
        ]
        first = min(waiting, key=lambda one: one[0].turn, default=None)
        if first is not None and first[0].offer.preemption.reservation_timeout_ms > 0:
            self._hold(first[0].offer, first[1], key, victims)

    def _preempt(self, found: Iterable[RunningStage], young: Mapping[StageId, int], because: Reason) -> None:
        """Stop the stages; those in `young` not before their moment. Each heartbeat checks the leases again."""
        for running in found:
            if (due_ms := young.get(running.claim.stage)) is not None:
                self.child_session.hurry(due_ms)
                continue
            log.warning("a stage is preempted", mesh=self.child_state.record.mesh, stage=running.claim.stage, reason=because.value)
            running.preempted_because = because
            running.preempt(self.host)

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
        self._hold_for_next()
        delayed: set[StageId] = set()
        if self._preempt_for_waiting(delayed):
            known = self.child_state.admission.workloads.items()
            for stage in [stage for stage, one in known if one.delayed and stage not in delayed]:
                self.decision_queue.take(events.PreemptionDelayed(workload=stage, detail=""))

    def _preempt_for_waiting(self, delayed: set[StageId]) -> bool:
        """Preempt as `make`; put the stages that only the limit per minute delays into `delayed`. Return whether all were considered."""
        known = self.child_state.admission.workloads.values()
        is_wanted = any(one.state is WorkloadState.QUEUED and one.offer.preemption.takes for one in known)
        if not is_wanted or self.child_session.permission(self.clock.monotonic_ms()) is not Permission.PROVED:
            return not is_wanted
        preemption_planner = self._preemption_planner()
        #: A stage of the same kind that is less urgent, or newer, has only fewer candidates.
        in_vain: set[tuple[KindKey, bool]] = set()
        ways = tried = 0
        for workload in tuple(preemption_planner.waiting()):
            if ways == WAYS_PER_LOOK or self.decision_queue.guard.has_to_stop(tried):
                return False
            need = workload.key, workload.offer.preemption.takes_newer
            if need in in_vain or workload.state is not WorkloadState.QUEUED:
                continue
            tried += 1
            planned = preemption_planner.preempt_for(workload, self.lease_client.grow)
            if planned is None or any(victim.stage not in self.child_state.running for victim in planned.victims):
                in_vain.add(need)
            elif (lifted_ms := self._limit_lifted_ms(len(planned.victims))) is not None:
                delayed.add(planned.stage)
                self._delay(planned.stage, lifted_ms)
            else:
                ways += 1
                self._promise(planned)
                preemption_planner = preemption_planner.after(planned)
        return True

    def _preemption_planner(self) -> PreemptionPlanner:
        return PreemptionPlanner(
            admission=self.child_state.admission,
            accounting=self.child_state.accounting,
            occupants=tuple(self.child_state.occupants()),
            leaving=tuple(self.child_state.leaving()),
            now_ms=self.clock.monotonic_ms(),
            headroom=self.lease_client.headroom,
            limits=self._limits,
            scorer=self.child_state.plugins.victim_scorer,
        )

    @property
    def _limits(self) -> PreemptionLimits:
        return self.child_state.record.settings.preemption

    def _limit_lifted_ms(self, victims: int) -> int | None:
        """Return when the mesh may preempt so many stages, on its own clock; None: now.

        A preemptor that needs more victims than the limit waits until the mesh has preempted nothing for a minute.
        """
        most, now_ms, recent = self._limits.per_minute_max, self.clock.monotonic_ms(), self.recent_ms
        while recent and recent[0] <= now_ms - MINUTE_MS:
            recent.popleft()
        if most is None or not recent or len(recent) + victims <= most:
            return None
        too_many = min(len(recent), len(recent) + victims - most)
        return recent[too_many - 1] + MINUTE_MS

    def _delay(self, stage: StageId, lifted_ms: int) -> None:
        """Report until when the limit delays the stage; the mesh then tries again."""
        until_ms = self.clock.wall_ms() + lifted_ms - self.clock.monotonic_ms()
        until = clock_time(until_ms + 999)  # Rounded up.
        most = counted(self._limits.per_minute_max or 0, "stage")
        detail = f"the mesh preempts at most {most} a minute (per_minute_max), so nothing for this stage before {until}"
        self.decision_queue.take(events.PreemptionDelayed(workload=stage, detail=detail))
        self.child_session.hurry(lifted_ms)

    def _promise(self, planned: StagePreemption) -> None:
        for victim in planned.victims:
            self.recent_ms.append(self.clock.monotonic_ms())
            log.info("a stage is preempted by a more urgent one", mesh=self.child_state.record.mesh, stage=victim.stage, to=planned.stage)
            running = self.child_state.running[victim.stage]
            running.preempted_because = Reason.PREEMPTED_WITHIN_TENANT
            running.preempt(self.host)
        offer = self.child_state.admission.workloads[planned.stage].offer
        self._hold(offer, planned.pool, planned.key, tuple(victim.stage for victim in planned.victims))

    def _hold(self, offer: events.WorkloadOffered, pool: PoolName, key: LeaseKey, victims: tuple[StageId, ...]) -> None:
        """Hold a slot of pool and lease for the stage until the victims have ended."""
        self.child_state.accounting.hold(offer.workload, key, offer.slot)
        promised = events.RoomPromised(
            workload=offer.workload,
            pool=pool,
            victims=frozenset(victims),
            until_ms=self.clock.monotonic_ms() + offer.preemption.reservation_timeout_ms,
            detail=words_of(victims),
        )
        self.decision_queue.take(promised)
