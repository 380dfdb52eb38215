"""The quota ledger of one mesh: what each pool has, and who holds what of it.

`reserve` sets room aside while the lease that pays for it is asked for; `commit` turns it into use, `release` gives
either back. Each holder has one entry per pool; the sum of entries never exceeds the capacity.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mesh.errors import LedgerError
from mesh.ids import FlavorName, PoolName, StageId
from mesh.resources import NOTHING, ResourceSet
from mesh.scheduling.shapes import GroupPoolSpec

NO_FLAVOR = FlavorName("")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """A pool as configured."""

    pool: PoolName
    capacity: ResourceSet
    flavor: FlavorName = NO_FLAVOR  #: What the federation's leases are for; empty on a mesh of its own.
    selector: Mapping[str, str] = field(default_factory=dict)  #: What the labels of its nodes must say.
    policy: str = "hybrid"  #: Of the tasks that name none.
    target_agents: int = 0  #: How many agents its owner wants there; shown, and kept warm up to it.
    groups: GroupPoolSpec | None = None  #: None: agents stand on nodes without placement groups.
    is_protected: bool = False  #: Nobody is preempted here for a task of another pool.


@dataclass(slots=True, kw_only=True)
class Pool:
    """A pool and its entries. Invariant: reserved + used <= capacity."""

    spec: PoolSpec
    reserved: dict[StageId, ResourceSet] = field(default_factory=dict)  #: Set aside, not in use yet.
    used: dict[StageId, ResourceSet] = field(default_factory=dict)  #: In use.

    @property
    def free(self) -> ResourceSet:
        """What nobody holds."""
        return self.spec.capacity - _sum(self.reserved) - _sum(self.used)

    @property
    def in_use(self) -> ResourceSet:
        """What runs."""
        return _sum(self.used)


class PoolLedger:
    """All pools of a mesh, in the order in which they are tried."""

    def __init__(self, specs: tuple[PoolSpec, ...]) -> None:
        self.pools: dict[PoolName, Pool] = {spec.pool: Pool(spec=spec) for spec in specs}

    def reserve(self, pool: PoolName, holder: StageId, amounts: ResourceSet) -> None:
        """Set `amounts` aside.

        Raises:
            LedgerError: No such room, or the holder has an entry already.
        """
        kept = self.pools[pool]
        if holder in kept.reserved or holder in kept.used:
            raise LedgerError(f"{holder} has an entry in pool {pool} already")
        if not amounts <= kept.free:
            raise LedgerError(f"pool {pool} has {kept.free} free, {holder} wants {amounts}")
        kept.reserved[holder] = amounts

    def commit(self, pool: PoolName, holder: StageId, amounts: ResourceSet) -> None:
        """Turn a reservation into use of `amounts`; what it reserved beyond them is free again.

        Raises:
            LedgerError: No such reservation, or one that is smaller.
        """
        kept = self.pools[pool]
        reserved = kept.reserved.get(holder)
        if reserved is None or not amounts <= reserved:
            raise LedgerError(f"{holder} has reserved {reserved} in pool {pool} and commits {amounts}")
        del kept.reserved[holder]
        kept.used[holder] = amounts

    def release(self, holder: StageId) -> bool:
        """Give back whatever the holder has; False when that is nothing."""
        found = False
        for kept in self.pools.values():
            found = kept.reserved.pop(holder, None) is not None or found
            found = kept.used.pop(holder, None) is not None or found
        return found


def _sum(entries: Mapping[StageId, ResourceSet]) -> ResourceSet:
    total = NOTHING
    for amounts in entries.values():
        total = total + amounts
    return total
