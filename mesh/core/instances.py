"""Numbered instances of a resource: GPU 0, GPU 2, half of GPU 3.

An amount of one or more consists of whole instances. A smaller amount lies on one instance and is never split over two: half a
GPU here and a quarter there run no program. A small amount is taken from the partly used instance with the least left over
(best fit), so whole instances stay whole; a whole instance is split only when no part fits. Released parts merge, and a
complete instance is whole again.

Values are few and come again and again (nodes are alike), so results are cached.

Source:
    Ray's `resource_instance_set.cc` for best fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from mesh.core.amounts import ONE, ZERO, Amount
from mesh.errors import AmountError, LedgerError


@dataclass(frozen=True, slots=True)
class ResourceIds:
    """Instances of one resource, held or free, as a value. No instance is in both lists."""

    whole: tuple[int, ...] = ()  #: Ascending.
    parts: tuple[tuple[int, Amount], ...] = ()  #: Ascending by instance; each amount is between 0 and 1, exclusive.

    def __post_init__(self) -> None:
        ids = [*self.whole, *(number for number, _ in self.parts)]
        if len(set(ids)) < len(ids) or any(not ZERO < amount < ONE for _, amount in self.parts):
            raise AmountError(f"{self} names an instance twice, or a part that is not between 0 and 1")

    @classmethod
    def of(cls, amount: Amount) -> ResourceIds:
        """Return instances 0, 1, 2, … of `amount`.

        Raises:
            AmountError: The amount is above one, and not whole.
        """
        return _of(amount)

    @property
    def total(self) -> Amount:
        """Sum over all instances."""
        return _total(self)

    def contains(self, amount: Amount) -> bool:
        """Return whether the amount can be acquired: as whole instances from 1 on, else on one instance."""
        if amount < ONE:
            return not amount or bool(self.whole) or any(amount <= has for _, has in self.parts)
        return amount.is_whole and amount.wholes <= len(self.whole)

    def acquire(self, amount: Amount) -> tuple[ResourceIds, ResourceIds] | None:
        """Return the acquired and the remaining instances; None when `amount` is not available (see `contains`)."""
        return _acquire(self, amount)

    def plus(self, other: ResourceIds) -> ResourceIds:
        """Return both together; complete parts of one instance merge to a whole one.

        Raises:
            LedgerError: An instance would exceed 1.
        """
        return _plus(self, other)

    def minus(self, other: ResourceIds) -> ResourceIds:
        """Return the instances without `other`.

        Raises:
            LedgerError: A part of `other` is not here.
        """
        return _minus(self, other)

    def amounts(self) -> dict[int, Amount]:
        """Return the amount of each instance."""
        return {**dict.fromkeys(self.whole, ONE), **dict(self.parts)}


def without_ids(ids: ResourceIds, numbers: Iterable[int]) -> ResourceIds:
    """Return `ids` without any part of these instances."""
    gone = set(numbers)
    return _from_amounts({number: amount for number, amount in ids.amounts().items() if number not in gone})


_CACHED_MAX = 4_096


@lru_cache(_CACHED_MAX)
def _of(amount: Amount) -> ResourceIds:
    if amount < ONE:
        return ResourceIds(parts=((0, amount),) if amount else ())
    if not amount.is_whole:
        raise AmountError(f"{amount} instances are not possible; an amount of 1 or more must be whole")
    return ResourceIds(whole=tuple(range(amount.wholes)))


@lru_cache(_CACHED_MAX)
def _total(ids: ResourceIds) -> Amount:
    return sum((amount for _, amount in ids.parts), start=Amount(ONE.units * len(ids.whole)))


@lru_cache(_CACHED_MAX)
def _acquire(ids: ResourceIds, amount: Amount) -> tuple[ResourceIds, ResourceIds] | None:
    if not ids.contains(amount):
        return None
    if not amount:
        return ResourceIds(), ids
    count = amount.wholes
    if count:
        return ResourceIds(whole=ids.whole[:count]), ResourceIds(whole=ids.whole[count:], parts=ids.parts)
    fits = [(has, number) for number, has in ids.parts if amount <= has]
    number = min(fits)[1] if fits else ids.whole[0]
    taken = ResourceIds(parts=((number, amount),))
    return taken, ids.minus(taken)


@lru_cache(_CACHED_MAX)
def _plus(one: ResourceIds, other: ResourceIds) -> ResourceIds:
    amounts = one.amounts()
    for number, amount in other.amounts().items():
        both = amounts.get(number, ZERO) + amount
        if both > ONE:
            raise LedgerError(f"instance {number} would have {both} of 1")
        amounts[number] = both
    return _from_amounts(amounts)


@lru_cache(_CACHED_MAX)
def _minus(one: ResourceIds, other: ResourceIds) -> ResourceIds:
    amounts = one.amounts()
    for number, amount in other.amounts().items():
        has = amounts.get(number, ZERO)
        if has < amount:
            raise LedgerError(f"cannot take {amount} of instance {number}: only {has} is left")
        amounts[number] = has - amount
    return _from_amounts(amounts)


def _from_amounts(amounts: Mapping[int, Amount]) -> ResourceIds:
    ordered = sorted(amounts.items())
    return ResourceIds(
        whole=tuple(number for number, amount in ordered if amount == ONE),
        parts=tuple((number, amount) for number, amount in ordered if ZERO < amount < ONE),
    )
