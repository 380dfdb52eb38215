"""All resources of one node by instance: what a node agent lends, and to which instance a program is bound.

Bulk resources have no instances and are only counted: bytes, and other resources that the node calls bulk (Ray does so with CPUs).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from mesh.core.amounts import Amount
from mesh.core.instance_pools import InstancePool
from mesh.core.instances import ResourceIds
from mesh.core.resources import BYTE_RESOURCES, NOTHING, ResourceSet
from mesh.errors import LedgerError

_NO_IDS = ResourceIds()


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenResources:
    """Resources that one holder has on a node: instances by resource, and amounts of bulk resources."""

    ids: Mapping[str, ResourceIds] = field(default_factory=dict)
    bulk: ResourceSet = NOTHING

    def plus(self, other: TakenResources) -> TakenResources:
        """Return both together. Raises `LedgerError` when an instance would exceed 1."""
        if not self.ids and not self.bulk:
            return other
        names = sorted({*self.ids, *other.ids})
        both = {name: self.ids.get(name, _NO_IDS).plus(other.ids.get(name, _NO_IDS)) for name in names}
        return TakenResources(ids=both, bulk=self.bulk + other.bulk)

    def __add__(self, other: TakenResources) -> TakenResources:
        return self.plus(other)


class ResourceIdSet:
    """Instances by resource name. Changes in place; a request that does not fit whole changes nothing."""

    def __init__(self, total: ResourceSet = NOTHING, *, bulk: Iterable[str] = BYTE_RESOURCES) -> None:
        """Make a node with all of `total` free. Raises `AmountError` for an instance count above one that is not whole."""
        self._bulk_names = frozenset(bulk)
        self._bulk_total = NOTHING
        self._bulk_held = NOTHING
        self.pools: dict[str, InstancePool] = {}  #: By resource; callers only read them.
        for name, units in total.items():
            self.add_or_update(name, units)

    @property
    def total(self) -> ResourceSet:
        """Total resources of the node."""
        return self._bulk_total + ResourceSet({name: pool.capacity.units for name, pool in self.pools.items()})

    def to_set(self) -> ResourceSet:
        """Return the available amount of each resource."""
        bulk = ResourceSet({name: max(units - self._bulk_held[name], 0) for name, units in self._bulk_total.items()})
        return bulk + ResourceSet({name: pool.available.units for name, pool in self.pools.items()})

    def free_ids(self, name: str) -> ResourceIds:
        """Return the free instances of a resource."""
        pool = self.pools.get(name)
        return _NO_IDS if pool is None else pool.free

    def backlog(self, name: str) -> int:
        """Return the units of a resource that leave the node when their holders release them."""
        pool = self.pools.get(name)
        return max(self._bulk_held[name] - self._bulk_total[name], 0) if pool is None else pool.backlog.units

    def contains(self, wanted: ResourceSet) -> bool:
        """Return whether all of `wanted` can be acquired now: amounts below 1 on one instance each, others as whole instances."""
        return all(self._contains(name, units) for name, units in wanted.items())

    def acquire(self, wanted: ResourceSet) -> TakenResources | None:
        """Acquire all of `wanted`; None, with nothing acquired, when it does not fit."""
        if not self._bulk_names:
            return self._acquire_ids(wanted)
        if not self.contains(wanted):
            return None
        bulk = ResourceSet({name: units for name, units in wanted.items() if name in self._bulk_names})
        taken = self._acquire_ids({name: units for name, units in wanted.items() if name not in bulk})
        self._bulk_held = self._bulk_held + bulk
        return taken and replace(taken, bulk=bulk)

    def _acquire_ids(self, wanted: Mapping[str, int]) -> TakenResources | None:
        ids: dict[str, ResourceIds] = {}
        for name, units in wanted.items():
            pool = self.pools.get(name)
            taken = None if pool is None else pool.acquire_units(units)
            if taken is None:
                for other, some in ids.items():
                    self.pools[other].release(some)
                return None
            ids[name] = taken
        return TakenResources(ids=ids)

    def take(self, taken: TakenResources) -> TakenResources:
        """Acquire these very instances and return them.

        Raises:
            LedgerError: Some are not free; then nothing is acquired.
        """
        for name, ids in taken.ids.items():
            self.free_ids(name).minus(ids)
        for name, ids in taken.ids.items():
            self.pools[name].take(ids)
        return taken

    def release(self, taken: TakenResources) -> None:
        """Release acquired resources.

        Raises:
            LedgerError: A part of `taken` is not held; then nothing is released.
        """
        if len(taken.ids) > 1 or taken.bulk:  # A single release checks that itself.
            for name, ids in taken.ids.items():
                self._held(name).minus(ids)
        if taken.bulk and not taken.bulk <= self._bulk_held:
            raise LedgerError(f"cannot release {taken.bulk}: only {self._bulk_held} is held")
        for name, ids in taken.ids.items():
            pool = self.pools.get(name)
            if pool is None:
                raise LedgerError(f"cannot release {ids} of {name}: none is held")
            pool.release(ids)
            if not pool.capacity.units:
                self._forget_if_gone(name)
        self._bulk_held = self._bulk_held - taken.bulk if taken.bulk else self._bulk_held

    def release_constrained(self, taken: TakenResources, total: ResourceSet) -> None:
        """Release acquired resources, but delete those that `total` no longer has: they were deleted from the node meanwhile.

        Raises:
            LedgerError: A part of `taken` is not held.
        """
        for name in {*taken.ids, *taken.bulk} - {*total}:
            self.delete(name)
        self.release(taken)

    def add_or_update(self, name: str, units: int) -> None:
        """Set the node's total of a resource. A total below what is held takes effect as holders release.

        Raises:
            AmountError: The change is a part of an instance.
        """
        if name in self._bulk_names:
            self._bulk_total = self._bulk_total.with_amount(name, units)
        elif name in self.pools:
            self.pools[name].update_capacity(Amount(units))
        else:
            self.pools[name] = InstancePool(Amount(units))
        self._forget_if_gone(name)

    def delete(self, name: str) -> None:
        """Set the node's total of a resource to zero; holders release it as before."""
        if name in self._bulk_names or name in self.pools:
            self.add_or_update(name, 0)

    def clear(self) -> None:
        for name in list(self.total):
            self.delete(name)

    def check(self) -> list[str]:
        """Return every broken invariant as text; empty when all hold."""
        return [f"{name}: {wrong}" for name, pool in self.pools.items() for wrong in pool.check()]

    def _contains(self, name: str, units: int) -> bool:
        if name in self._bulk_names:
            return units <= self._bulk_total[name] - self._bulk_held[name]
        return name in self.pools and self.pools[name].contains(Amount(units))

    def _held(self, name: str) -> ResourceIds:
        return self.pools[name].held if name in self.pools else _NO_IDS

    def _forget_if_gone(self, name: str) -> None:
        pool = self.pools.get(name)
        if pool is not None and not pool.capacity and not pool.held.total:
            del self.pools[name]
