"""One counted quantity: exact, immutable, in 1/10 000 of a unit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import total_ordering

from mesh.core.resources import AMOUNT_MAX, UNITS_PER_WHOLE, format_units, to_units
from mesh.errors import AmountError

_COUNTED = "amount"  #: No byte resource has this name, so text is read and written as a count.


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Amount:
    """Quantity that is never below zero. `==` and `<` are written out; the other four comparisons follow from these two.

    Raises:
        AmountError: The value, or a result, is below zero or above `AMOUNT_MAX` units.

    Source:
        ADR 0003.
    """

    units: int  #: In 1/10 000.

    def __post_init__(self) -> None:
        if isinstance(self.units, bool) or not isinstance(self.units, int):
            raise AmountError(f"{self.units!r} is not a whole number of units")
        if not 0 <= self.units <= AMOUNT_MAX:
            raise AmountError(f"{self.units} is not between 0 and {AMOUNT_MAX} units")

    @classmethod
    def of(cls, written: object) -> Amount:
        """Parse a user's amount: `Amount.of(0.5)`, `Amount.of("2")`.

        Raises:
            AmountError: Negative, not a number, or finer than 1/10 000.
        """
        return cls(to_units(_COUNTED, written))

    @property
    def is_whole(self) -> bool:
        return self.units % UNITS_PER_WHOLE == 0

    @property
    def wholes(self) -> int:
        """Number of whole units, rounded down."""
        return self.units // UNITS_PER_WHOLE

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Amount) and self.units == other.units

    def __lt__(self, other: Amount) -> bool:
        return self.units < other.units

    def __hash__(self) -> int:
        return hash(self.units)

    def __bool__(self) -> bool:
        return self.units > 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.units + other.units)

    def __sub__(self, other: Amount) -> Amount:
        """Subtract strictly: a negative result raises `AmountError`."""
        return Amount(self.units - other.units)

    def __str__(self) -> str:
        return format_units(_COUNTED, self.units)


ZERO = Amount(0)
ONE = Amount(UNITS_PER_WHOLE)
