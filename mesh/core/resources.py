"""Quantities: integers only, in one immutable value.

One unit is 1/10 000 of a CPU, a GPU or a custom resource (as in Ray) and one whole byte of memory. Users write
`0.5`, `"4GiB"` or `2`; a ledger never sees a float. Amounts stay under 2^53, the largest integer that Redis' Lua
numbers hold exactly, so that both sides of a script count alike.
"""

from __future__ import annotations

import re
from collections.abc import ItemsView, Iterator, Mapping
from decimal import Decimal, InvalidOperation, Overflow
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from mesh.errors import AmountError

UNITS_PER_WHOLE = 10_000
AMOUNT_MAX = 2**53 - 1
BYTE_RESOURCES = frozenset({"memory", "object_store_memory"})

N = TypeVar("N", int, Decimal)

_BYTE_FACTORS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_BYTES = re.compile(r"^\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<factor>[KMGT]i?)?B?\s*$")


def parse_bytes(text: str | int) -> int:
    """Convert `"4GiB"`, `"500MB"` or a whole number to bytes.

    Raises:
        AmountError: Not a size, negative, or a fraction of a byte.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        return _bounded(text, str(text))
    match = _BYTES.match(str(text))
    if match is None:
        raise AmountError(f"{text!r} is not a size; write a whole number of bytes, or a size such as 512MiB, 4GiB, 20GB")
    exact = Decimal(match["number"]) * _BYTE_FACTORS[match["factor"] or ""]
    return _whole(exact, str(text))


def to_units(name: str, amount: object) -> int:
    """Convert a user's amount of the resource `name` to ledger units.

    Raises:
        AmountError: Negative, not a finite number, too large, or finer than 1/10 000 (or than one byte).
    """
    if isinstance(amount, bool) or not isinstance(amount, (int, float, str, Decimal)):
        raise AmountError(f"{name}: {amount!r} is not an amount")
    if name in BYTE_RESOURCES:
        return parse_bytes(amount if isinstance(amount, int) else str(amount))
    try:
        exact = Decimal(str(amount)) * UNITS_PER_WHOLE
    except (InvalidOperation, Overflow):
        raise AmountError(f"{name}: {amount!r} is not a number") from None
    return _whole(exact, f"{name}: {amount}")


def from_units(name: str, units: int) -> int | float:
    """Convert ledger units to the numbers of Ray's options: CPUs or bytes."""
    if name in BYTE_RESOURCES:
        return units
    whole, rest = divmod(units, UNITS_PER_WHOLE)
    return whole if rest == 0 else units / UNITS_PER_WHOLE


@lru_cache(maxsize=4_096)
def format_units(name: str, units: int) -> str:
    """Format ledger units as `2`, `0.5` or `4GiB`."""
    if name not in BYTE_RESOURCES:
        return f"{Decimal(units).scaleb(-4).normalize():f}"
    for suffix in ("Ti", "Gi", "Mi", "Ki"):
        if units and units % _BYTE_FACTORS[suffix] == 0:
            return f"{units // _BYTE_FACTORS[suffix]}{suffix}B"
    return f"{units}B"


def _whole(exact: Decimal, written: str) -> int:
    if not exact.is_finite():
        raise AmountError(f"{written} is not a finite number")
    if exact != exact.to_integral_value():
        raise AmountError(f"{written} is finer than the ledger's unit (1/10 000, or one byte)")
    return int(_bounded(exact, written))  # Check the bound first: a written exponent can make an integer too large to build.


def _bounded(units: N, written: str) -> N:
    if units < 0:
        raise AmountError(f"{written} is below zero")
    if units > AMOUNT_MAX:
        raise AmountError(f"{written} is not between 0 and {AMOUNT_MAX} units")
    return units


class ResourceSet(Mapping[str, int]):
    """Immutable amounts by resource, in units; an absent resource counts as zero, and zeros are not kept."""

    __slots__ = ("_hash", "_units", "_words")

    def __init__(self, units: Mapping[str, int] | None = None) -> None:
        kept: dict[str, int] = {}
        for name, amount in sorted((units or {}).items()):
            if isinstance(amount, bool) or not isinstance(amount, int):
                raise AmountError(f"{name}: {amount!r} is not a whole number of units")
            if _bounded(amount, f"{name}: {amount}"):
                kept[name] = amount
        self._units = kept
        self._hash = hash(tuple(kept.items()))
        self._words = ""  #: Text form, cached on first use: shapes are sorted and shown by it.

    @classmethod
    def of(cls, amounts: Mapping[str, object]) -> ResourceSet:
        """Parse a user's amounts: `ResourceSet.of({"cpu": 0.5, "memory": "4GiB"})`."""
        return cls({name: to_units(name, amount) for name, amount in amounts.items()})

    def __getitem__(self, name: str) -> int:
        return self._units.get(name, 0)

    def items(self) -> ItemsView[str, int]:
        """Return names and amounts, straight from the dict: ledgers iterate over sets all the time."""
        return self._units.items()

    def __iter__(self) -> Iterator[str]:
        return iter(self._units)

    def __len__(self) -> int:
        return len(self._units)

    def __contains__(self, name: object) -> bool:
        return name in self._units

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[ResourceSet], tuple[dict[str, int]]]:
        """Rebuild the set in the other process: the same names have other hashes there."""
        return type(self), (self._units,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ResourceSet) and self._units == other._units

    def __le__(self, other: ResourceSet) -> bool:
        """Return whether `other` holds at least this much of everything."""
        return all(amount <= other[name] for name, amount in self._units.items())

    def is_subset_of(self, other: ResourceSet) -> bool:
        """Return `self <= other`."""
        return self <= other

    def is_superset_of(self, other: ResourceSet) -> bool:
        """Return `other <= self`."""
        return other <= self

    def with_amount(self, name: str, units: int) -> ResourceSet:
        """Return this set with the amount of one resource replaced; zero removes the resource."""
        return ResourceSet({**self._units, name: units})

    def without(self, name: str) -> ResourceSet:
        """Return this set without one resource."""
        return ResourceSet({kept: amount for kept, amount in self._units.items() if kept != name})

    def add_bounded(self, other: ResourceSet, total: ResourceSet) -> ResourceSet:
        """Return the sum, at most `total` of each resource: a resource deleted from a node's total does not come back."""
        return ResourceSet({name: min(self[name] + other[name], total[name]) for name in {*self._units, *other._units}})

    def __add__(self, other: ResourceSet) -> ResourceSet:
        return ResourceSet({name: self[name] + other[name] for name in {*self._units, *other._units}})

    def __sub__(self, other: ResourceSet) -> ResourceSet:
        """Subtract strictly: a negative result raises `AmountError`."""
        return ResourceSet({name: self[name] - other[name] for name in {*self._units, *other._units}})

    def times(self, count: int) -> ResourceSet:
        """Return `count` copies of this set as one."""
        return ResourceSet({name: amount * count for name, amount in self._units.items()})

    def join(self, other: ResourceSet) -> ResourceSet:
        """Return the least set that covers both: the larger amount of each resource."""
        return ResourceSet({name: max(self[name], other[name]) for name in {*self._units, *other._units}})

    def copies_in(self, room: ResourceSet) -> int | None:
        """Return how many copies of this set fit into `room`; None when this set is empty (any number fits)."""
        if not self._units:
            return None
        return min(room[name] // amount for name, amount in self._units.items())

    def in_ray_units(self) -> dict[str, int | float]:
        """Return numbers of CPUs and GPUs, and bytes, as Ray's options take them."""
        return {name: from_units(name, amount) for name, amount in self._units.items()}

    def __repr__(self) -> str:
        if not self._words:
            self._words = "{" + ", ".join(f"{name}: {format_units(name, amount)}" for name, amount in self._units.items()) + "}"
        return self._words

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the wire schema: a JSON object of whole units."""
        units = core_schema.dict_schema(core_schema.str_schema(), core_schema.int_schema(ge=0, le=AMOUNT_MAX))
        return core_schema.no_info_after_validator_function(
            cls,
            core_schema.union_schema([core_schema.is_instance_schema(cls), units]),
            serialization=core_schema.plain_serializer_function_ser_schema(lambda amounts: dict(amounts.items())),
        )


#: No amount of anything.
NOTHING = ResourceSet()
