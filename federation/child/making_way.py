"""Which running stages of a tenant a mesh stops for a more urgent one of the same tenant that waits there.

A stage waits for room in a pool, or for its tenant's lease, or for both: less urgent stages of the tenant have both, since each
holds of its pool what its lease pays for. For each waiting stage, the most urgent first, every pool that refused it for
want of one of the two is looked at; where stages can make good what is missing, those are taken that do least harm. What is
leaving already comes free by itself, and nobody is asked for what comes free.

Pure: `MakingWay` reads the books of the mesh, and whoever asks carries out.

Source: ADR 0025; victims are chosen by `mesh.giving_way`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from federation.child.balance import LeaseBalance, LeaseKey, sum_of
from mesh.admission import WANT_OF_ROOM, StageAdmission, Workload, WorkloadState
from mesh.giving_way import Claimant, Occupant, harm_of, short_of, who_gives_way
from mesh.ids import PoolName, StageId, TenantPath
from mesh.pools import Pool, PoolSpec
from mesh.reasons import Reason
from mesh.resources import ResourceSet

_MAY_TAKE = WANT_OF_ROOM | {Reason.QUOTA_EXHAUSTED}
#: Does the ledger let the lease that pays in this pool grow by so much for the stage?
AskLedger = Callable[[Workload, PoolSpec, ResourceSet], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """A stage that was asked to stop and has not stopped yet."""

    stage: StageId
    pool: PoolName
    amounts: ResourceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class WayMade:
    """Stop the victims, and keep a slot of pool and lease for the stage."""

    stage: StageId
    pool: PoolName
    key: LeaseKey
    slot: ResourceSet
    victims: tuple[Occupant, ...]
    hold_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MakingWay:
    """Over the books of one mesh at one moment.

    Args:
        occupants: What runs and may be asked; not what is leaving.
        leaving: What has been asked already.
        now_ms: On the clock of `Occupant.started_ms`.
        headroom: By how many units of a resource the ledger would let a lease grow that it refused to let grow by more.
    """

    admission: StageAdmission
    balance: LeaseBalance
    occupants: tuple[Occupant, ...]
    leaving: tuple[Leaving, ...]
    now_ms: int
    headroom: Mapping[LeaseKey, Mapping[str, int]] = field(default_factory=dict)

    def waiting(self) -> Iterator[Workload]:
        """Stages that others could stop for, the most urgent first."""
        least: dict[TenantPath, int] = {}
        for occupant in self.occupants:
            least[occupant.tenant] = min(least.get(occupant.tenant, occupant.priority), occupant.priority)
        found = (workload for workload in self.admission.workloads.values() if workload.state is WorkloadState.QUEUED)
        found = (workload for workload in found if not self.admission.is_behind(workload))
        offers = ((one, one.offer) for one in found if one.offer.yielding.takes and one.offer.slot)
        able = [one for one, offer in offers if least.get(offer.tenant, offer.priority) < offer.priority]
        yield from sorted(able, key=lambda workload: (-workload.offer.priority, workload.arrival))

    def way_for(self, workload: Workload, asks_ledger: AskLedger) -> WayMade | None:
        """Who stops for the stage, and where it goes then; None: nobody has to, or all that may be asked are not enough."""
        refused = [pool for pool, (reason, _) in workload.refused_by.items() if reason in _MAY_TAKE]
        ways = [way for pool in refused if (way := self._way_in(workload, self.admission.ledger.pools[pool], asks_ledger)) is not None]
        return min(ways, key=lambda way: harm_of(way.victims, self.now_ms), default=None)

    def after(self, way: WayMade) -> MakingWay:
        """The same when the victims have been asked."""
        leaving = (Leaving(stage=victim.stage, pool=victim.pool, amounts=victim.amounts) for victim in way.victims)
        left = tuple(occupant for occupant in self.occupants if occupant not in way.victims)
        return replace(self, occupants=left, leaving=(*self.leaving, *leaving))

    def _way_in(self, workload: Workload, pool: Pool, asks_ledger: AskLedger) -> WayMade | None:
        offer, name = workload.offer, pool.spec.pool
        key = (offer.tenant, pool.spec.flavor)
        if not offer.slot <= pool.spec.capacity:
            return None
        room, quota = self._room_short(offer.slot, pool), self._quota_short(offer.slot, key)
        if self._is_promised(key, quota):
            return None
        both = self._choose(workload, name, room, quota)
        for growth in self._growths(workload, name, key, quota):
            fewer = self._choose(workload, name, room, {each: quota[each] - growth[each] for each in quota})
            if fewer and fewer != both and asks_ledger(workload, pool.spec, growth):
                both = fewer
                break
        if not both:
            return None
        return WayMade(stage=offer.workload, pool=name, key=key, slot=offer.slot, victims=both, hold_ms=offer.yielding.hold_ms)

    def _growths(self, workload: Workload, pool: PoolName, key: LeaseKey, quota: dict[str, int]) -> Iterator[ResourceSet]:
        """By how much the lease may grow, so that fewer have to stop: by all that is missing, or by what the ledger has left of it."""
        if quota and workload.refused_by[pool][0] in WANT_OF_ROOM:  # The ledger was not asked: there was no room to spend it on.
            yield ResourceSet(quota)
        left = self.headroom.get(key, {})
        part = ResourceSet({each: min(units, max(0, left.get(each, 0))) for each, units in quota.items()})
        if part:
            yield part

    def _choose(self, workload: Workload, pool: PoolName, room: dict[str, int], quota: dict[str, int]) -> tuple[Occupant, ...]:
        offer, pools = workload.offer, self.admission.ledger.pools
        flavor = pools[pool].spec.flavor
        return who_gives_way(
            Claimant(stage=offer.workload, tenant=offer.tenant, priority=offer.priority, pool=pool),
            [occupant for occupant in self.occupants if pools[occupant.pool].spec.flavor == flavor],
            room=room,
            quota=quota,
            min_run_ms=offer.yielding.min_run_ms,
            now_ms=self.now_ms,
        )

    def _room_short(self, slot: ResourceSet, pool: Pool) -> dict[str, int]:
        """What the pool lacks, when all has come free that is leaving, and those have got theirs who gather room there."""
        name = pool.spec.pool
        coming = pool.free + sum_of(one.amounts for one in self.leaving if one.pool == name)
        gathering = [one for one in self.admission.workloads.values() if one.state is WorkloadState.GATHERING and one.pool == name]
        owed = {each: sum(one.offer.slot[each] - pool.reservations[one.offer.workload][each] for one in gathering) for each in slot}
        return short_of(slot, {each: coming[each] - owed[each] for each in slot})

    def _quota_short(self, slot: ResourceSet, key: LeaseKey) -> dict[str, int]:
        """What the lease lacks in the same way; what it holds for others is theirs."""
        spare, pools = self.balance.spare(key), self.admission.ledger.pools
        leaving = sum_of(self.balance.spent_on(one.stage, key) for one in self.leaving if pools[one.pool].spec.flavor == key[1])
        return short_of(slot, {each: spare.get(each, 0) + leaving[each] for each in slot})

    def _is_promised(self, key: LeaseKey, short: dict[str, int]) -> bool:
        """A plan lets the lease grow by as much as is missing: it comes without anybody's stopping here."""
        lease = self.balance.lease(key)
        return bool(short) and lease is not None and all(lease.target[name] - lease.held[name] >= units for name, units in short.items())


def words_of(victims: Iterable[Occupant]) -> str:
    """Who stops, for whoever asks why the other waits."""
    names = [victim.stage for victim in victims]
    return f"less urgent work of its own tenant stops for it: {', '.join(names[:5])}{', …' if len(names) > 5 else ''}"  # noqa: PLR2004  as said
