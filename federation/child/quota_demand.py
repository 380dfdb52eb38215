"""Quota demand of a mesh for the ledger: per lease, one demand for each slot size and priority of the queued stages.

Stages that are alike share one demand with the slots of all, so one planner round can preempt for all of them. Stages that differ have
separate demands, so an unsatisfiable demand never blocks another. No demand asks for more slots than the empty mesh could hold; slots
beyond that are counted for people only. The planner knows which part of a demand has room now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from federation.child.lease_accounting import LeaseAccounting, LeaseKey
from federation.leases import ROWS_SENT_MAX, QuotaDemand
from mesh.core.ids import FlavorName
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.shapes import gang_size
from mesh.stages.admission import StageAdmission
from mesh.stages.workloads import Workload, WorkloadState

#: Refusals for which the pool lacks room. Work there may have borrowed the tenant's quota, and only the root can see that; if it stops, the
#: stage has room, whether the rest of the pool is in use or reserved.
_LACKS_ROOM = (Reason.POOL_BUSY, Reason.CAPACITY_RESERVED)
#: Refusals that more quota may lift, in the order of the search.
_MAY_LIFT = (Reason.QUOTA_CONTESTED, Reason.QUOTA_EXHAUSTED, *_LACKS_ROOM)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDemand:
    """A demand and its start of waiting. Two demands are equal if the ledger need not receive the second."""

    demand: QuotaDemand  #: Without the fields that change at each moment.
    since_ms: int  #: When the oldest stage behind it began to wait, on the mesh's own clock.
    beyond: int = field(default=0, compare=False)  #: Not compared: a longer queue changes nothing while it exceeds the mesh.

    def as_row(self, now_ms: int) -> QuotaDemand:
        """Return the demand as the ledger receives it now."""
        return replace(self.demand, waited_ms=max(0, now_ms - self.since_ms), beyond=self.beyond)


@dataclass(slots=True)
class _Alike:
    """Stages of one tenant, slot, gang size and priority that wait for the same lease: one row in the ledger."""

    first: Workload  #: The first found; it stands for all.
    reason: Reason  #: Refusal of the first.
    slots: int = 0
    since_ms: int = 2**63
    created_ms: int = 2**63

    def add(self, workload: Workload) -> None:
        self.slots += workload.offer.width
        self.since_ms = min(self.since_ms, workload.offer.since_ms)
        self.created_ms = min(self.created_ms, workload.offer.created_ms)


def wanted(admission: StageAdmission, accounting: LeaseAccounting) -> tuple[OpenDemand, ...]:
    """Return the demands that one heartbeat may carry: first each lease's most urgent one, then each lease's next."""
    found: dict[tuple[LeaseKey, ResourceSet, int, int], _Alike] = {}
    waits: dict[int, tuple[LeaseKey, Reason] | None] = {}  #: By `id` of the kind.
    for workload in admission.workloads.values():
        if not _is_next(workload, admission):
            continue
        kind, offer = id(workload.kind), workload.offer
        if kind not in waits:
            waits[kind] = _waits_for(workload, admission)
        lacks = waits[kind]
        if lacks is not None:
            alike_by = lacks[0], offer.slot, offer.priority, gang_size(offer.gang)
            found.setdefault(alike_by, _Alike(workload, lacks[1])).add(workload)
    by_lease: dict[LeaseKey, list[OpenDemand]] = {}
    for (key, *_), alike in sorted(
        found.items(), key=lambda each: (-each[0][2], each[1].since_ms, each[0][0], str(each[0][1]), each[0][3])
    ):
        by_lease.setdefault(key, []).extend(_demands(alike, key, admission, accounting))
    return tuple(_within_row_limit(by_lease))


def _within_row_limit(by_lease: dict[LeaseKey, list[OpenDemand]]) -> Iterable[OpenDemand]:
    """Return at most `ROWS_SENT_MAX` demands, in the order of the leases, the most urgent of each first."""
    ranked = [(place, -one.demand.priority, key) for key, some in sorted(by_lease.items()) for place, one in enumerate(some)]
    sent = ranked if len(ranked) <= ROWS_SENT_MAX else sorted(ranked)[:ROWS_SENT_MAX]
    return (by_lease[key][place] for key, place in sorted((key, place) for place, _, key in sent))


def _is_next(workload: Workload, admission: StageAdmission) -> bool:
    """Return whether the stage could use quota. A stage behind others of its tenant cannot yet."""
    return workload.state is WorkloadState.QUEUED and bool(workload.offer.slot) and not admission.is_behind(workload)


def _demands(alike: _Alike, key: LeaseKey, admission: StageAdmission, accounting: LeaseAccounting) -> Iterator[OpenDemand]:
    """Yield the demand for one group of stages.

    Without quota the demand is only what is missing, since a part of the first slot may be idle. On a full mesh the demand is whole
    slots, since the root looks for room for whole slots.
    """
    offer = alike.first.offer
    slots = min(alike.slots, _slots_of(admission, key[1], offer.slot))
    missing = offer.slot if alike.reason in _LACKS_ROOM else accounting.missing(key, offer.slot, offer.workload)
    parts = ((offer.slot, slots),) if missing == offer.slot else ((missing, min(1, slots)), (offer.slot, slots - 1))
    beyond = alike.slots - slots
    for slot, some in parts:
        if some > 0:
            whole = offer.slot if slot != offer.slot else NOTHING
            demand = QuotaDemand(
                tenant=key[0],
                flavor=key[1],
                slot=slot,
                whole=whole,
                gang_size=gang_size(offer.gang),
                slots=some,
                priority=offer.priority,
                created_ms=alike.created_ms,
            )
            yield OpenDemand(demand=demand, since_ms=alike.since_ms, beyond=beyond)
            beyond = 0


def _slots_of(admission: StageAdmission, flavor: FlavorName, slot: ResourceSet) -> int:
    """Return the number of slots that the empty pools of the flavor could hold."""
    pools = [pool.capacity for pool in admission.ledger.pools.values() if pool.spec.flavor == flavor]
    return sum(min(capacity[name] // units for name, units in slot.items()) for capacity in pools)


def _waits_for(workload: Workload, admission: StageAdmission) -> tuple[LeaseKey, Reason] | None:
    for sought in _MAY_LIFT:
        for pool, (reason, _) in workload.refused_by.items():
            if reason is sought:
                return (workload.offer.tenant, admission.ledger.pools[pool].spec.flavor), reason
    return None
