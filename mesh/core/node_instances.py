"""Instances of one node's unit-instance resources, by holder: which GPU, or which part of one, each task has.

A run gets whole instances, or a part of one (`mesh.core.instances`); it waits rather than gets one instance in two parts. Ray reports the
use of others as a total only. Whole instances are assumed for a total first, then the part by best fit, which is Ray's own rule. If
the others' work came in another order, Ray may hold the same total on more instances than assumed here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from mesh.core.amounts import Amount
from mesh.core.instance_sets import ResourceIdSet, TakenResources
from mesh.core.instances import ResourceIds
from mesh.core.resources import NOTHING, UNITS_PER_WHOLE, ResourceSet
from mesh.errors import AmountError, LedgerError

#: Resources that Ray 2.60 counts by instance: its `predefined_unit_instance_resources` and `custom_unit_instance_resources`.
UNIT_INSTANCE_RESOURCES = frozenset({"gpu", "neuron_cores", "TPU", "NPU", "HPU", "RBLN", "FURIOSA", "TTNPU", "MBLT"})

_FOREIGN = "foreign"  #: Holder of what others use.
_NOTHING_TAKEN = TakenResources()


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceHolding:
    """Instances of one holder on a node, as saved in a snapshot."""

    holder: str
    wanted: ResourceSet
    parts: tuple[tuple[str, int, int], ...]  #: Resource, instance, units.
    in_parts: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class _Held:
    wanted: ResourceSet
    taken: TakenResources
    in_parts: bool  #: A total for several runs, so that it may be taken from several parts.

    @property
    def lacks(self) -> ResourceSet:
        return self.wanted - _total(self.taken) if self.taken.ids else self.wanted


class NodeInstances:
    """Invariant: what a holder wants is taken, or is lacking while it does not fit; each lacking amount is taken as soon as it fits."""

    def __init__(self) -> None:
        self._ids = ResourceIdSet(bulk=())
        self._totals: dict[str, int] = {}
        self._held: dict[str, list[_Held]] = {}
        self._lacking: list[_Held] = []  #: Held, but not taken completely; oldest first.
        self._remembered: list[InstanceHolding] = []  #: Holdings of a snapshot that are not held again yet.

    # -- questions -----------------------------------------------------------------------------------------------------

    def fits(self, wanted: ResourceSet) -> bool:
        """Return whether a run can get the amounts now: a part on one instance, or whole instances."""
        return self._ids.contains(wanted)

    def fits_without(self, wanted: ResourceSet, gone: Collection[str]) -> bool:
        """Return whether a run could get the amounts if these holders released theirs."""
        freed = _plus_all(held.taken for holder in gone for held in self._held.get(holder, ()))
        for name, units in wanted.items():
            free, amount = self._ids.free_ids(name).plus(freed.ids.get(name, ResourceIds())), Amount(units)
            if not free.contains(amount) or free.total.units - self._ids.backlog(name) < units:
                return False
        return True

    def whole(self, name: str) -> int:
        """Return the units of a resource on instances that are free entirely."""
        return self.whole_and_largest(name)[0]

    def largest(self, name: str) -> int:
        """Return the largest free part of one instance of a resource, in units."""
        return self.whole_and_largest(name)[1]

    def whole_and_largest(self, name: str) -> tuple[int, int]:
        """Return `whole` and `largest`."""
        pool = self._ids.pools.get(name)
        return (0, 0) if pool is None else pool.whole_and_largest()

    def usable(self, name: str, units: int) -> int:
        """Return how many units of a resource runs of this size can get together."""
        if units >= UNITS_PER_WHOLE:
            return self.whole(name)
        free = self._ids.free_ids(name).amounts().values()
        return min(sum(amount.units // units * units for amount in free), self._available(name)) if units else self._available(name)

    def partly_free(self, name: str) -> int:
        """Return the number of instances of a resource that are free in part."""
        return len(self._ids.free_ids(name).parts)

    def holdings(self) -> tuple[InstanceHolding, ...]:
        """Return who holds what, by holder, for a snapshot."""
        found = [
            InstanceHolding(holder=holder, wanted=held.wanted, parts=tuple(_parts_of(held.taken)), in_parts=held.in_parts)
            for holder, several in self._held.items()
            for held in several
        ]
        return tuple(sorted(found, key=lambda each: (each.holder, each.parts, str(each.wanted))))

    # -- changes -------------------------------------------------------------------------------------------------------

    def set_total(self, name: str, units: int) -> None:
        """Set the node's total of a resource. Above one unit only whole instances count."""
        whole = units // UNITS_PER_WHOLE * UNITS_PER_WHOLE or units
        if self._totals.get(name, 0) == whole:
            return
        self._totals[name] = whole
        try:
            self._ids.add_or_update(name, whole)
        except AmountError:  # A part of an instance came or went: number the instances anew.
            self._ids = ResourceIdSet(ResourceSet(self._totals), bulk=())
            self._lacking = [*self._all()]
            for held in self._lacking:
                held.taken = _NOTHING_TAKEN
        self._serve_lacking()

    def hold(self, holder: str, wanted: ResourceSet, *, in_parts: bool = False) -> None:
        """Take instances for the holder; what does not fit is lacking until it does.

        Args:
            in_parts: The amounts are a total for several runs, so that they need not fit on whole instances. So are amounts
            above one that are not whole.
        """
        held = _Held(wanted=wanted, taken=_NOTHING_TAKEN, in_parts=in_parts)
        self._held.setdefault(holder, []).append(held)
        if self._remembered and self._take_remembered(holder, held):
            return
        taken = self._ids.acquire(wanted)
        if taken is not None:
            held.taken = taken
            return
        held.in_parts = in_parts or not all(is_possible(units) for units in wanted.values())
        self._take(held)

    def release(self, holder: str, wanted: ResourceSet) -> None:
        """Release amounts of the holder.

        Raises:
            LedgerError: It does not hold that much.
        """
        several = self._held.get(holder, [])
        held = several[-1] if several and several[-1].wanted is wanted else None
        held = held or next((held for held in reversed(several) if held.wanted == wanted), None)
        if held is None:
            self._release_some(holder, wanted)
        else:
            several.remove(held)
            self._let_go(held)
        if not several:
            self._held.pop(holder, None)
        if self._lacking:
            self._serve_lacking()

    def move(self, holder: str, to: str) -> None:
        """Give another holder all that this one has."""
        self._held.setdefault(to, []).extend(self._held.pop(holder, []))

    def set_foreign(self, wanted: ResourceSet) -> None:
        """Set what others use: whole instances first, then a part by best fit."""
        before = self._held.pop(_FOREIGN, ())
        for held in before:
            self._let_go(held)
        if wanted:
            self.hold(_FOREIGN, wanted, in_parts=True)
        self._serve_lacking()

    def remember(self, holdings: Iterable[InstanceHolding]) -> None:
        """Let holders of a snapshot get the same instances when they hold the same amounts again."""
        self._remembered = list(holdings)

    def forget_remembered(self) -> None:
        """End the restoration of a snapshot."""
        self._remembered = []

    def check(self) -> Iterator[str]:
        """Yield a message per broken invariant: sums by instance and by holder agree, and no run has one instance in two parts."""
        yield from self._ids.check()
        for name, units in self._totals.items():
            held = [held.taken.ids[name] for held in self._all() if name in held.taken.ids]
            taken, free = sum(ids.total.units for ids in held), self._ids.free_ids(name).total.units
            if free + taken != units + self._ids.backlog(name):
                yield f"{name}: {free} units free and {taken} held are not the total {units}"
        for holder, several in self._held.items():
            for each in several:
                glued = [name for name, ids in each.taken.ids.items() if not each.in_parts and len(ids.parts) + (len(ids.whole) > 0) > 1]
                if glued:
                    yield f"{holder} has {glued[0]} in parts of several instances"
                if not each.in_parts and each.lacks and self.fits(each.wanted):
                    yield f"{holder} lacks {each.lacks}, which fits"

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _available(self, name: str) -> int:
        return max(self._ids.free_ids(name).total.units - self._ids.backlog(name), 0)

    def _all(self) -> Iterator[_Held]:
        for several in self._held.values():
            yield from several

    def _take(self, held: _Held) -> None:
        """Take what the holding lacks: all of it, or in parts as much as there is."""
        taken = self._ids.acquire(held.lacks)
        if taken is not None:
            held.taken = held.taken.plus(taken)
            return
        if held.in_parts:
            for name, units in held.lacks.items():
                lacking = units
                while lacking and (part := min(lacking, self.largest(name))):
                    held.taken = held.taken.plus(self._ids.acquire(ResourceSet({name: part})) or _NOTHING_TAKEN)
                    lacking -= part
        if held.lacks:
            self._lacking.append(held)

    def _let_go(self, held: _Held) -> None:
        self._ids.release(held.taken)
        if self._lacking and held in self._lacking:
            self._lacking.remove(held)

    def _take_remembered(self, holder: str, held: _Held) -> bool:
        found = next((each for each in self._remembered if each.holder == holder and each.wanted == held.wanted), None)
        if found is None:
            return False
        self._remembered.remove(found)
        try:
            held.taken = self._ids.take(_taken_of(found.parts))
        except LedgerError:  # The node has changed since.
            return False
        held.in_parts = found.in_parts
        return True

    def _release_some(self, holder: str, wanted: ResourceSet) -> None:
        """Release a part of what the holder has, lacking amounts first, then whole instances."""
        several = self._held.get(holder, [])
        total = sum((held.wanted for held in several), start=NOTHING)
        if not wanted <= total:
            raise LedgerError(f"{holder or 'the node'} holds {total} and cannot release {wanted}")
        both = _Held(wanted=total, taken=_plus_all(held.taken for held in several), in_parts=True)
        lacking = both.lacks
        both.wanted = total - wanted
        surplus = ResourceSet({name: max(0, units - lacking[name]) for name, units in wanted.items()})
        gone = _cut(both.taken, surplus)
        self._ids.release(gone)
        both.taken = _minus(both.taken, gone)
        self._lacking = [held for held in self._lacking if held not in several]
        several[:] = [both] if both.wanted else []
        if both.lacks:
            self._lacking.append(both)

    def _serve_lacking(self) -> None:
        if not self._lacking:
            return
        lacking, self._lacking = self._lacking, []
        for held in lacking:
            self._take(held)


def is_possible(units: int) -> bool:
    """Return whether one run may ask for this much of a unit-instance resource: a part of one instance, or whole ones."""
    return units < UNITS_PER_WHOLE or units % UNITS_PER_WHOLE == 0


def copies_on_node(slot: ResourceSet, total: ResourceSet) -> int:
    """Return how many runs of this size an empty node holds, by amounts and by instances; 0: it asks for nothing, or no run may ask so."""
    if not all(is_possible(units) for name, units in slot.items() if name in UNIT_INSTANCE_RESOURCES):
        return 0
    by_amount, by_instance = slot.copies_in(total) or 0, copies_on_instances(slot, total)
    return by_amount if by_instance is None else min(by_amount, by_instance)


def copies_on_instances(slot: Mapping[str, int], total: Mapping[str, int]) -> int | None:
    """Return how many runs of this size the instances of an empty node hold; None: it asks for none."""
    counts = [
        (UNITS_PER_WHOLE // units) * (total[name] // UNITS_PER_WHOLE) if units < UNITS_PER_WHOLE <= total[name] else total[name] // units
        for name, units in slot.items()
        if name in UNIT_INSTANCE_RESOURCES
    ]
    return min(counts, default=None)


def _total(taken: TakenResources) -> ResourceSet:
    return ResourceSet({name: ids.total.units for name, ids in taken.ids.items()})


def _plus_all(several: Iterable[TakenResources]) -> TakenResources:
    return sum(several, start=_NOTHING_TAKEN)


def _minus(taken: TakenResources, gone: TakenResources) -> TakenResources:
    return TakenResources(ids={name: ids.minus(gone.ids.get(name, ResourceIds())) for name, ids in taken.ids.items()})


def _cut(taken: TakenResources, amounts: ResourceSet) -> TakenResources:
    """Return a part of `taken` with these amounts: whole instances first."""
    parts = []
    for name, amount in amounts.items():
        units = amount
        for number, has in sorted(taken.ids[name].amounts().items(), key=lambda each: (-each[1].units, each[0])):
            part = min(has.units, units)
            units -= part
            if part:
                parts.append((name, number, part))
    return _taken_of(parts)


def _parts_of(taken: TakenResources) -> Iterator[tuple[str, int, int]]:
    for name, ids in taken.ids.items():
        yield from ((name, number, amount.units) for number, amount in sorted(ids.amounts().items()))


def _taken_of(parts: Iterable[tuple[str, int, int]]) -> TakenResources:
    ids: dict[str, ResourceIds] = {}
    for name, number, units in parts:
        one = ResourceIds(whole=(number,)) if units == UNITS_PER_WHOLE else ResourceIds(parts=((number, Amount(units)),))
        ids[name] = ids.get(name, ResourceIds()).plus(one)
    return TakenResources(ids=ids)
