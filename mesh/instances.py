"""Which instances of a resource: GPU 0, GPU 2, half of GPU 3.

An amount of one or more is made of whole instances; a smaller one sits on one instance, and is never glued from two, as half a
GPU here and a quarter there run no program. A small amount is taken from the partly used instance with the least left over
(best fit), so that whole instances stay whole; only when none has room is a whole one split. Parts that come back merge, and
an instance that is complete again is whole again.

Source:
    Seed 001, `ResourceIds`; Ray's `resource_instance_set.cc` for best fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mesh.amounts import ONE, ZERO, Amount
from mesh.errors import AmountError, LedgerError


@dataclass(frozen=True, slots=True)
class ResourceIds:
    """Instances of one resource, as a value: what a task holds, or what is free. No instance is in both lists."""

    whole: tuple[int, ...] = ()  #: Ascending.
    parts: tuple[tuple[int, Amount], ...] = ()  #: Ascending by instance; each amount is more than zero and less than one.

    def __post_init__(self) -> None:
        ids = [*self.whole, *(number for number, _ in self.parts)]
        if len(set(ids)) < len(ids) or any(not ZERO < amount < ONE for _, amount in self.parts):
            raise AmountError(f"{self} names an instance twice, or a part that is not between 0 and 1")

    @classmethod
    def of(cls, amount: Amount) -> ResourceIds:
        """Instances 0, 1, 2, … of `amount`.

        Raises:
            AmountError: One or more, and not whole.
        """
        if amount < ONE:
            return cls(parts=((0, amount),) if amount else ())
        if not amount.is_whole:
            raise AmountError(f"{amount} instances cannot be; an amount of 1 and more must be whole")
        return cls(whole=tuple(range(amount.wholes)))

    @property
    def total(self) -> Amount:
        """Of all instances together."""
        return sum((amount for _, amount in self.parts), start=Amount(ONE.units * len(self.whole)))

    def contains(self, amount: Amount) -> bool:
        """So much can be taken: whole instances when it is 1 and more, else room on one instance."""
        if amount < ONE:
            return not amount or bool(self.whole) or any(amount <= has for _, has in self.parts)
        return amount.is_whole and amount.wholes <= len(self.whole)

    def acquire(self, amount: Amount) -> tuple[ResourceIds, ResourceIds] | None:
        """What is taken, and what is left; None when `amount` is not there (see `contains`)."""
        if not self.contains(amount):
            return None
        if amount < ONE:
            return self._acquire_part(amount)
        count = amount.wholes
        return ResourceIds(whole=self.whole[:count]), ResourceIds(whole=self.whole[count:], parts=self.parts)

    def plus(self, other: ResourceIds) -> ResourceIds:
        """Both together; parts of one instance merge, to a whole one when they are complete.

        Raises:
            LedgerError: More of an instance than there is.
        """
        amounts = self.amounts()
        for number, amount in other.amounts().items():
            both = amounts.get(number, ZERO) + amount
            if both > ONE:
                raise LedgerError(f"instance {number} would have {both} of 1")
            amounts[number] = both
        return _from_amounts(amounts)

    def minus(self, other: ResourceIds) -> ResourceIds:
        """What is left without `other`.

        Raises:
            LedgerError: Something of `other` is not here.
        """
        amounts = self.amounts()
        for number, amount in other.amounts().items():
            has = amounts.get(number, ZERO)
            if has < amount:
                raise LedgerError(f"{amount} of instance {number} is taken away, {has} is there")
            amounts[number] = has - amount
        return _from_amounts(amounts)

    def amounts(self) -> dict[int, Amount]:
        """Instance to how much of it is here."""
        return {**dict.fromkeys(self.whole, ONE), **dict(self.parts)}

    def _acquire_part(self, amount: Amount) -> tuple[ResourceIds, ResourceIds]:
        if not amount:
            return ResourceIds(), self
        fits = [(has, number) for number, has in self.parts if amount <= has]
        number = min(fits)[1] if fits else self.whole[0]
        taken = ResourceIds(parts=((number, amount),))
        return taken, self.minus(taken)


def without_ids(ids: ResourceIds, numbers: Iterable[int]) -> ResourceIds:
    """`ids` without these instances, however much of each is there."""
    gone = set(numbers)
    return _from_amounts({number: amount for number, amount in ids.amounts().items() if number not in gone})


def _from_amounts(amounts: Mapping[int, Amount]) -> ResourceIds:
    ordered = sorted(amounts.items())
    return ResourceIds(
        whole=tuple(number for number, amount in ordered if amount == ONE),
        parts=tuple((number, amount) for number, amount in ordered if ZERO < amount < ONE),
    )
