"""Choice of the running stages of a tenant that a mesh preempts for a more urgent queued stage of the same tenant.

A stage waits for room in a pool, for its tenant's lease, or for both. Less urgent stages of the tenant have both, since each holds in
its pool what its lease pays for. For each queued stage, the most urgent first, of equals the oldest, `PreemptionPlanner` looks at every
pool that refused the stage for lack of room or quota, and chooses the victims that do the least harm. Stages that are already stopping free
their room anyway, so `PreemptionPlanner` counts their room first.

Pure: `PreemptionPlanner` reads the state of the mesh, and the caller carries out the result.

Source: ADR 0025; `mesh.preemption.stage_preemption` chooses the victims.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from federation.child.lease_accounting import LeaseAccounting, LeaseKey, sum_of
from mesh.core.ids import PoolName, StageId, TenantPath
from mesh.core.pools import Pool, PoolSpec
from mesh.core.resources import ResourceSet
from mesh.preemption.stage_preemption import (
    NO_LIMITS,
    Occupant,
    PreemptionLimits,
    VictimScorer,
    harm_of,
    preemptor_of,
    select_victims,
    short_of,
)
from mesh.stages.admission import StageAdmission
from mesh.stages.admission_events import WorkloadOffered
from mesh.stages.waiting_kinds import LACK_OF_ROOM
from mesh.stages.workloads import Workload, WorkloadState

#: Asks the ledger: may the lease that pays in this pool grow by so much for the stage?
AskLedger = Callable[[Workload, PoolSpec, ResourceSet], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePreemption:
    """Decision to stop the victims and hold a slot of pool and lease for the stage."""

    stage: StageId
    pool: PoolName
    key: LeaseKey
    slot: ResourceSet
    victims: tuple[Occupant, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionPlanner:
    """Preemption over the state of one mesh at one moment.

    Args:
        occupants: Running stages that may be preempted, without `leaving`.
        leaving: Stages that are already stopping.
        now_ms: On the clock of `Occupant.started_ms`.
        headroom: Units of each resource by which a lease could still grow after the ledger refused to let it grow by more.
        limits: Rules of the mesh; the caller follows `per_minute_max`.
        scorer: Plugin's scorer of candidates.
    """

    admission: StageAdmission
    accounting: LeaseAccounting
    occupants: tuple[Occupant, ...]
    leaving: tuple[Occupant, ...]
    now_ms: int
    headroom: Mapping[LeaseKey, Mapping[str, int]] = field(default_factory=dict)
    limits: PreemptionLimits = NO_LIMITS
    scorer: VictimScorer | None = None

    def waiting(self) -> Iterator[Workload]:
        """Yield the queued stages that could preempt others, the most urgent first, of equals the oldest."""
        least: dict[TenantPath, tuple[int, int]] = {}  #: Priority and creation time of the stage that any other would preempt first.
        for occupant in self.occupants:
            rank = occupant.priority, -occupant.created_ms
            least[occupant.tenant] = min(least.get(occupant.tenant, rank), rank)
        found = (workload for workload in self.admission.workloads.values() if workload.state is WorkloadState.QUEUED)
        found = (workload for workload in found if not self.admission.is_behind(workload))
        offers = ((one, one.offer) for one in found if one.offer.preemption.takes and one.offer.slot)
        able = [one for one, offer in offers if offer.tenant in least and least[offer.tenant] < _rank(offer)]
        yield from sorted(able, key=lambda workload: (-workload.offer.priority, workload.offer.created_ms, workload.arrival))

    def preempt_for(self, workload: Workload, asks_ledger: AskLedger) -> StagePreemption | None:
        """Return the least harmful preemption for the stage; None: none is needed, or every candidate together frees too little."""
        refused = [pool for pool, (reason, _) in workload.refused_by.items() if reason in LACK_OF_ROOM]
        ways = [
            planned
            for pool in refused
            if (planned := self._preempt_in(workload, self.admission.ledger.pools[pool], asks_ledger)) is not None
        ]
        return min(ways, key=lambda planned: harm_of(planned.victims, self.now_ms), default=None)

    def after(self, planned: StagePreemption) -> PreemptionPlanner:
        """Return the state after the victims were asked to stop."""
        left = tuple(occupant for occupant in self.occupants if occupant not in planned.victims)
        return replace(self, occupants=left, leaving=(*self.leaving, *planned.victims))

    def _preempt_in(self, workload: Workload, pool: Pool, asks_ledger: AskLedger) -> StagePreemption | None:
        offer, name = workload.offer, pool.spec.pool
        key = (offer.tenant, pool.spec.flavor)
        if not offer.slot <= pool.spec.capacity:
            return None
        room, quota = self._room_short(offer.slot, pool), self._quota_short(offer.slot, key)
        if self._is_promised(key, quota):
            return None
        both = self._choose(workload, name, room, quota)
        for growth in self._growths(key, quota):
            fewer = self._choose(workload, name, room, {each: quota[each] - growth[each] for each in quota})
            if fewer and fewer != both and asks_ledger(workload, pool.spec, growth):
                both = fewer
                break
        if not both:
            return None
        return StagePreemption(
            stage=offer.workload,
            pool=name,
            key=key,
            slot=offer.slot,
            victims=both,
        )

    def _growths(self, key: LeaseKey, quota: dict[str, int]) -> Iterator[ResourceSet]:
        """Yield the amounts by which the lease may grow to spare victims: all that is missing, or what the ledger has left of it."""
        if quota:  # Without room, the ledger was not asked for quota.
            yield ResourceSet(quota)
        left = self.headroom.get(key, {})
        part = ResourceSet({each: min(units, max(0, left.get(each, 0))) for each, units in quota.items()})
        if part:
            yield part

    def _choose(self, workload: Workload, pool: PoolName, room: dict[str, int], quota: dict[str, int]) -> tuple[Occupant, ...]:
        offer, pools = workload.offer, self.admission.ledger.pools
        flavor = pools[pool].spec.flavor
        return select_victims(
            preemptor_of(offer.workload, offer.tenant, offer.priority, pool, offer.preemption.newer_than_ms(offer.created_ms)),
            [occupant for occupant in self.occupants if pools[occupant.pool].spec.flavor == flavor],
            room=room,
            quota=quota,
            min_run_ms=offer.preemption.min_run_ms,
            now_ms=self.now_ms,
            limits=self.limits,
            scorer=self.scorer,
        )

    def _room_short(self, slot: ResourceSet, pool: Pool) -> dict[str, int]:
        """Return what the pool lacks after all stopping stages have ended and all earlier preemptors have their room."""
        name = pool.spec.pool
        coming = pool.free + sum_of(one.amounts for one in self.leaving if one.pool == name)
        gathering = [one for one in self.admission.workloads.values() if one.state is WorkloadState.GATHERING and one.pool == name]
        owed = {each: sum(one.offer.slot[each] - pool.reservations[one.offer.workload][each] for one in gathering) for each in slot}
        return short_of(slot, {each: coming[each] - owed[each] for each in slot})

    def _quota_short(self, slot: ResourceSet, key: LeaseKey) -> dict[str, int]:
        """Return what the lease lacks after all stopping stages have ended; holds for others stay."""
        spare, pools = self.accounting.spare(key), self.admission.ledger.pools
        leaving = sum_of(self.accounting.spent_on(one.stage, key) for one in self.leaving if pools[one.pool].spec.flavor == key[1])
        return short_of(slot, {each: spare.get(each, 0) + leaving[each] for each in slot})

    def _is_promised(self, key: LeaseKey, short: dict[str, int]) -> bool:
        """Return whether a plan lets the lease grow by all that is missing, so that no victim is needed."""
        lease = self.accounting.lease(key)
        return bool(short) and lease is not None and all(lease.target[name] - lease.held[name] >= units for name, units in short.items())


def _rank(offer: WorkloadOffered) -> tuple[int, float]:
    """Return what the rank of a stage, (priority, negated creation time), must be below so that the offer may preempt it."""
    newer_than_ms = offer.preemption.newer_than_ms(offer.created_ms)
    return offer.priority, -math.inf if newer_than_ms is None else -newer_than_ms


def words_of(victims: Sequence[StageId]) -> str:
    """Name the victims in a sentence that explains why the preemptor waits."""
    return f"waits until preempted stages of its own tenant stop: {', '.join(victims[:5])}{', …' if len(victims) > 5 else ''}"  # noqa: PLR2004
