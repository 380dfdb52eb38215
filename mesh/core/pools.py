"""Quota ledger of one mesh: the capacity of each pool, and its holders.

`reserve` sets room aside while the lease that pays for it is requested, or the placement group is created. `commit` turns a
reservation into use; `release` returns either. Each holder (a stage, a task, a job: any name) has one entry per pool.

Amounts are whole units, so releases in any order leave exactly zero; floats here once lost one slot in four. The sums are
kept with the entries, so a check for room costs the same with ten entries and with a hundred thousand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mesh.core.ids import FlavorName, PoolName
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.shapes import GroupPoolSpec
from mesh.errors import LedgerError

NO_FLAVOR = FlavorName("")
#: Node policy of a pool that names none.
DEFAULT_POLICY = "weighted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """Configuration of a pool."""

    pool: PoolName
    capacity: ResourceSet
    flavor: FlavorName = NO_FLAVOR  #: Flavor of the federation's leases; empty on a standalone mesh.
    selector: Mapping[str, str] = field(default_factory=dict)  #: Label selector of its nodes.
    policy: str = DEFAULT_POLICY  #: Node policy of tasks that name none.
    target_agents: int = 0  #: Number of agents that the pool keeps up; `scale_agents` changes it.
    groups: GroupPoolSpec | None = None  #: None: agents run on nodes without placement groups.
    is_protected: bool = False  #: No task here is preempted for a task of another pool.


class Pool:
    """A pool and its entries; only its ledger writes them.

    Invariant: reserved + used <= capacity, unless the capacity was lowered while more was held. Then `excess` is the
    difference, nothing is free of the scarce resources, and releases reduce the excess first.
    """

    __slots__ = ("_free", "_room", "_used", "is_closing", "reservations", "spec", "uses")

    def __init__(self, spec: PoolSpec) -> None:
        self.spec = spec
        self.is_closing = False  #: Accepts no new holders, and can be deleted once it is empty.
        self.reservations: dict[str, ResourceSet] = {}  #: Reserved amounts by holder, not in use yet.
        self.uses: dict[str, ResourceSet] = {}  #: Amounts in use by holder.
        self._used: dict[str, int] = {}
        self._room = dict(spec.capacity.items())  #: Capacity less what is held, the only sum that each task changes; may be below zero.
        self._free: ResourceSet | None = None  #: Cache of `free` until the next change.

    @property
    def capacity(self) -> ResourceSet:
        return self.spec.capacity

    @property
    def target_agents(self) -> int:
        return self.spec.target_agents

    @property
    def reserved(self) -> ResourceSet:
        """Sum of all reservations."""
        return ResourceSet(self._reserved())

    @property
    def used(self) -> ResourceSet:
        """Sum of all uses."""
        return ResourceSet(self._used)

    @property
    def in_use(self) -> ResourceSet:
        """The same as `used`, under the name of the federation's records."""
        return self.used

    @property
    def free(self) -> ResourceSet:
        """Capacity that nobody holds; never below zero."""
        if self._free is None:
            self._free = ResourceSet({name: left for name in self.capacity if (left := self._left(name)) > 0})
        return self._free

    @property
    def excess(self) -> ResourceSet:
        """Amount held beyond a capacity that was lowered."""
        return ResourceSet({name: -left for name, left in self._room.items() if left < 0})

    @property
    def is_empty(self) -> bool:
        """Whether the pool has no entries."""
        return not self.reservations and not self.uses

    def fits(self, amounts: ResourceSet) -> bool:
        """Return whether there is room for this much more. No set is built: each task that is considered asks this."""
        if self.is_closing:
            return False
        room = self._room
        for name, amount in amounts.items():  # noqa: SIM110  a generator under `all` takes twice as long
            if amount > room.get(name, 0):
                return False
        return True

    def short_of(self, amounts: ResourceSet) -> ResourceSet:
        """Return what must be released so that `amounts` fit; empty when they fit."""
        return ResourceSet({name: lack for name in amounts if (lack := amounts[name] - self._left(name)) > 0})

    def held_by(self, holder: str) -> ResourceSet | None:
        """Return the holder's entry, reserved or in use; None when there is none."""
        found = self.reservations.get(holder)
        return self.uses.get(holder) if found is None else found

    def check(self) -> list[str]:
        """Return every broken invariant as text."""
        found = [f"{holder} has two entries in pool {self.spec.pool}" for holder in self.reservations.keys() & self.uses.keys()]
        for word, entries, total in (("reserved", self.reservations, self._reserved()), ("used", self.uses, self._used)):
            counted: dict[str, int] = {}
            for amounts in entries.values():
                _change(counted, amounts, 1)
            if counted != total:
                found.append(f"pool {self.spec.pool}: {word} is {total}, but its entries sum to {counted}")
        return found

    def _left(self, name: str) -> int:
        return self._room.get(name, 0)

    def _reserved(self) -> dict[str, int]:
        """Derive the reserved amount: capacity less room and use. A sum of its own would have to change with each task."""
        reserved = dict(self.spec.capacity.items())
        for others in (self._room, self._used):
            _change(reserved, others, -1)
        return reserved

    def _configure(self, spec: PoolSpec) -> None:
        _change(self._room, self.spec.capacity, -1)
        _change(self._room, spec.capacity, 1)
        self.spec, self.is_closing, self._free = spec, False, None

    def _reserve(self, holder: str, amounts: ResourceSet) -> bool:
        """Reserve the amounts; return False, with nothing changed, when there is no room."""
        room = self._room
        left = {name: room.get(name, 0) - amount for name, amount in amounts.items()}
        if left and min(left.values()) <= 0:
            if min(left.values()) < 0:
                return False
            _change(room, amounts, -1)  # Drops what is used up.
        else:
            room.update(left)
        self.reservations[holder] = amounts
        self._free = None
        return True

    def _commit(self, holder: str, amounts: ResourceSet) -> None:
        reserved = self.reservations.pop(holder)
        self.uses[holder] = amounts
        _change(self._used, amounts, 1)
        if amounts != reserved:
            _change(self._room, reserved, 1)
            _change(self._room, amounts, -1)
            self._free = None

    def _release(self, holder: str) -> None:
        reserved, used = self.reservations.pop(holder, NOTHING), self.uses.pop(holder, NOTHING)
        _change(self._used, used, -1)
        for amounts in (reserved, used):
            _change(self._room, amounts, 1)
        self._free = None

    def _move(self, old_holder: str, new_holder: str) -> None:
        for entries in (self.reservations, self.uses):
            if old_holder in entries:
                entries[new_holder] = entries.pop(old_holder)


class PoolLedger:
    """All pools of a mesh, in the order in which they are tried."""

    def __init__(self, specs: Iterable[PoolSpec] = ()) -> None:
        self.pools: dict[PoolName, Pool] = {}
        self._pools_of: dict[str, tuple[PoolName, ...]] = {}  #: Pools in which each holder has an entry; never empty.
        for spec in specs:
            self.configure(spec)

    def pool(self, pool: PoolName) -> Pool:
        """Return the pool. Raises `LedgerError` when it is unknown."""
        found = self.pools.get(pool)
        if found is None:
            raise LedgerError(f"there is no pool {pool}; there are {', '.join(self.pools) or 'none'}")
        return found

    def configure(self, spec: PoolSpec) -> Pool:
        """Create the pool, or change it; a closing pool is open again. Holders keep all that they hold."""
        found = self.pools.get(spec.pool)
        if found is None:
            found = self.pools[spec.pool] = Pool(spec)
        found._configure(spec)  # noqa: SLF001  a pool's entries and the holders' index change together
        return found

    def delete(self, pool: PoolName) -> bool:
        """Remove the pool. False when it is not empty: it then accepts no new holders until it is configured again."""
        found = self.pools.get(pool)
        if found is None:
            return True
        if not found.is_empty:
            found.is_closing = True
            return False
        del self.pools[pool]
        return True

    def reserve(self, pool: PoolName, holder: str, amounts: ResourceSet) -> None:
        """Reserve `amounts` for the holder.

        Raises:
            LedgerError: No such room or pool, the pool is closing, or the holder has an entry already.
        """
        kept = self.pool(pool)
        if kept.held_by(holder) is not None:
            raise LedgerError(f"{holder} has an entry in pool {pool} already")
        if kept.is_closing:
            raise LedgerError(f"pool {pool} is being deleted and accepts no new work, {holder} wants {amounts}")
        if not kept._reserve(holder, amounts):  # noqa: SLF001  as above
            raise LedgerError(f"pool {pool} has {kept.free} free, {holder} wants {amounts}")
        self._pools_of[holder] = (*self._pools_of.get(holder, ()), pool)

    def commit(self, pool: PoolName, holder: str, amounts: ResourceSet | None = None) -> None:
        """Turn a reservation into use of `amounts` (None: of all of it); the rest of the reservation is free again.

        Raises:
            LedgerError: No such reservation, or one that is smaller.
        """
        kept = self.pool(pool)
        reserved = kept.reservations.get(holder)
        if reserved is None or not (amounts is None or amounts <= reserved):
            raise LedgerError(f"{holder} has reserved {reserved} in pool {pool}, and cannot commit {amounts}")
        kept._commit(holder, reserved if amounts is None else amounts)  # noqa: SLF001  as above

    def release(self, holder: str) -> bool:
        """Release all that the holder has, in every pool; False when it has nothing."""
        pools = self._pools_of.pop(holder, ())
        for pool in pools:
            self.pools[pool]._release(holder)  # noqa: SLF001  as above
        return bool(pools)

    def move(self, old_holder: str, new_holder: str) -> bool:
        """Move the old holder's entries to the new one unchanged; False when there are none.

        Raises:
            LedgerError: The new holder has an entry in one of these pools; nothing has moved.
        """
        pools = self._pools_of.get(old_holder, ())
        if old_holder == new_holder or not pools:
            return bool(pools)
        others = self._pools_of.get(new_holder, ())
        both = [pool for pool in pools if pool in others]
        if both:
            raise LedgerError(f"{new_holder} has an entry in pool {both[0]} already, and cannot take over that of {old_holder}")
        for pool in pools:
            self.pools[pool]._move(old_holder, new_holder)  # noqa: SLF001  as above
        del self._pools_of[old_holder]
        self._pools_of[new_holder] = (*others, *pools)
        return True

    def held_by(self, holder: str) -> ResourceSet:
        """Return all that the holder has, reserved and in use, in all pools together."""
        return sum((self.pools[pool].held_by(holder) or NOTHING for pool in self._pools_of.get(holder, ())), start=NOTHING)

    def pools_of(self, holder: str) -> tuple[PoolName, ...]:
        """Return the pools in which the holder has an entry."""
        return self._pools_of.get(holder, ())

    def check(self) -> list[str]:
        """Return every broken invariant as text; empty when all hold. Takes time in proportion to the entries."""
        found = [words for kept in self.pools.values() for words in kept.check()]
        entries = {(holder, name) for name, kept in self.pools.items() for holder in (*kept.reservations, *kept.uses)}
        indexed = {(holder, name) for holder, names in self._pools_of.items() for name in names}
        found.extend(f"{holder} and pool {name} disagree on whether the holder has an entry there" for holder, name in entries ^ indexed)
        return found


def _change(total: dict[str, int], amounts: Mapping[str, int], sign: int) -> None:
    """Add or subtract; zero sums are dropped, so a ledger does not grow with all names it has ever seen."""
    for name, amount in amounts.items():
        left = total.get(name, 0) + sign * amount
        if left:
            total[name] = left
        else:
            del total[name]
