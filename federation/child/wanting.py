"""What a mesh could use at once, for the ledger: of each lease a want for every size of slot and every priority that stages wait with.

Stages that are alike are one want with the slots of all of them: who gives way for one of them gives way for all at once. Stages that
differ are wants beside each other: what nobody gives way to hides nothing else. No want is for more slots than the mesh could hold at
once with nothing else on it; what waits beyond is counted for people. What of it has room now the planner knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from federation.child.balance import LeaseBalance, LeaseKey
from federation.leases import TOLD_MAX, Want
from mesh.admission import StageAdmission, Workload, WorkloadState
from mesh.ids import FlavorName, TenantPath
from mesh.reasons import Reason
from mesh.resources import ResourceSet

#: Refusals that more quota may lift, and in which order they are looked for. The mesh has no room: who holds it may have borrowed what is
#: the tenant's, and only the root can tell.
_MAY_LIFT = (Reason.QUOTA_EXHAUSTED, Reason.CAPACITY_BUSY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A want, and since when it stands: two of them are the same as long as the ledger need not hear of it again."""

    want: Want  #: Without what is different at each moment.
    since_ms: int  #: When the oldest work behind it began to wait, on the mesh's own clock.
    beyond: int = field(default=0, compare=False)  #: A long queue is no news as long as there is more than the mesh could hold.

    def told(self, now_ms: int) -> Want:
        """As the ledger hears it now."""
        return replace(self.want, waited_ms=max(0, now_ms - self.since_ms), beyond=self.beyond)


@dataclass(slots=True)
class _Alike:
    """Stages of one tenant, slot and priority: the same pools refuse them for the same reasons."""

    first: Workload  #: Whichever was found first.
    slots: int = 0
    since_ms: int = 2**63

    def add(self, workload: Workload) -> None:
        """One more."""
        self.slots += workload.offer.width
        self.since_ms = min(self.since_ms, workload.offer.since_ms)


def wanted(admission: StageAdmission, balance: LeaseBalance) -> tuple[Demand, ...]:
    """As much as one heartbeat may tell: where there is more, the most urgent of every lease goes before the next of any."""
    found: dict[tuple[TenantPath, ResourceSet, int], _Alike] = {}
    for workload in admission.workloads.values():
        if _is_next(workload, admission):
            offer = workload.offer
            found.setdefault((offer.tenant, offer.slot, offer.priority), _Alike(workload)).add(workload)
    by_lease: dict[LeaseKey, list[Demand]] = {}
    for _, alike in sorted(found.items(), key=lambda each: (-each[0][2], each[1].since_ms, each[0][0], str(each[0][1]))):
        lacks = _waits_for(alike.first, admission)
        if lacks is not None:
            by_lease.setdefault(lacks[0], []).extend(_demands(alike, *lacks, admission, balance))
    return tuple(_as_many_as_may_be_told(by_lease))


def _as_many_as_may_be_told(by_lease: dict[LeaseKey, list[Demand]]) -> Iterable[Demand]:
    """In the order of the leases; of each its most urgent first."""
    placed = [(place, -one.want.priority, key) for key, some in sorted(by_lease.items()) for place, one in enumerate(some)]
    told = placed if len(placed) <= TOLD_MAX else sorted(placed)[:TOLD_MAX]
    return (by_lease[key][place] for key, place in sorted((key, place) for place, _, key in told))


def _is_next(workload: Workload, admission: StageAdmission) -> bool:
    """What may not start before others of its tenant have has no use for quota yet."""
    return workload.state is WorkloadState.QUEUED and bool(workload.offer.slot) and not admission.is_behind(workload)


def _demands(alike: _Alike, key: LeaseKey, reason: Reason, admission: StageAdmission, balance: LeaseBalance) -> Iterator[Demand]:
    """Of quota no more than is missing: a part of the first slot may lie idle. Where the mesh has no room, whole slots, since that is
    what the root looks for room for."""
    offer = alike.first.offer
    slots = min(alike.slots, _slots_of(admission, key[1], offer.slot))
    missing = balance.missing(key, offer.slot, offer.workload) if reason is Reason.QUOTA_EXHAUSTED else offer.slot
    parts = ((offer.slot, slots),) if missing == offer.slot else ((missing, min(1, slots)), (offer.slot, slots - 1))
    beyond = alike.slots - slots
    for slot, some in parts:
        if some > 0:
            want = Want(tenant=key[0], flavor=key[1], slot=slot, slots=some, priority=offer.priority)
            yield Demand(want=want, since_ms=alike.since_ms, beyond=beyond)
            beyond = 0


def _slots_of(admission: StageAdmission, flavor: FlavorName, slot: ResourceSet) -> int:
    """So many the pools of the flavor could hold with nothing else in them."""
    pools = [pool.capacity for pool in admission.ledger.pools.values() if pool.spec.flavor == flavor]
    return sum(min(capacity[name] // units for name, units in slot.items()) for capacity in pools)


def _waits_for(workload: Workload, admission: StageAdmission) -> tuple[LeaseKey, Reason] | None:
    for sought in _MAY_LIFT:
        for pool, (reason, _) in workload.refused_by.items():
            if reason is sought:
                return (workload.offer.tenant, admission.ledger.pools[pool].spec.flavor), reason
    return None
