"""Formats of single values in a federation file: times, sizes, amounts, weights, points, words.

A quantity is text with its unit (`10s`, `64KiB`); its attribute names the unit (`lease_ttl_ms`). Amounts stay as written until their
resource is known.
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, PlainValidator, WithJsonSchema

from mesh.core.printable import check_printable
from mesh.core.resources import parse_bytes
from mesh.errors import AmountError

_DURATION = re.compile(r"^(?P<count>\d{1,12})\s*(?P<unit>ms|s|m|h|d)$")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_duration(text: object) -> int:
    """Parse `"500ms"`, `"10s"`, `"5m"`, `"2h"`, `"1d"` to milliseconds.

    Raises:
        ValueError: Another text; a number without a unit is refused.
    """
    match = _DURATION.match(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"must be a time like 500ms, 10s, 5m, 2h or 1d (got {text!r})")
    return int(match["count"]) * _UNIT_MS[match["unit"]]


def format_duration(duration_ms: int) -> str:
    """Return the shortest text that `parse_duration` reads back."""
    unit = next(unit for unit in ("d", "h", "m", "s", "ms") if duration_ms % _UNIT_MS[unit] == 0)
    return f"{duration_ms // _UNIT_MS[unit]}{unit}" if duration_ms else "0s"


def _size(text: object) -> int:
    if isinstance(text, bool) or not isinstance(text, (int, str)):
        raise ValueError(f"must be a size like 512KiB, 200MiB or 4GiB (got {text!r})")  # noqa: TRY004  pydantic collects ValueErrors only
    try:
        return parse_bytes(text)
    except AmountError as wrong:
        raise ValueError(str(wrong)) from None


def _amount(value: object) -> int | float | str:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"must be an amount like 2, 0.5 or 4GiB (got {value!r})")  # noqa: TRY004  pydantic collects ValueErrors only
    return value


WEIGHT_LEAST = Fraction(1, 10**9)  #: Smaller weights are mistakes; 0 has a meaning of its own.
WEIGHT_MOST = 1_000_000


def _weight(value: object) -> Fraction:
    try:
        weight = Fraction(str(value)) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else None
    except (ValueError, ZeroDivisionError):
        weight = None
    if weight is None or weight < 0 or 0 < weight <= WEIGHT_LEAST or weight > WEIGHT_MOST:
        raise ValueError(f"must be 0, or a number like 2, 0.5 or 1/3 up to {WEIGHT_MOST} (got {value!r})")
    return weight


#: Decimals of a number in points.
POINT_DECIMALS = 6
POINTS_MOST = 1_000_000


def micros_of(points: float) -> int:
    """Return a number of points in millionths."""
    return int(Decimal(str(points)).scaleb(POINT_DECIMALS))


def _points(value: object) -> float:
    number = Decimal(str(value)) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    if number is None or not number.is_finite() or abs(number) > POINTS_MOST or number != round(number, POINT_DECIMALS):
        raise ValueError(f"must be a number like 2 or 0.01, up to {POINTS_MOST} and with at most {POINT_DECIMALS} decimals (got {value!r})")
    return value  # type: ignore[return-value]  # an int or a float by the check above


def _points_from_0(value: object) -> float:
    points = _points(value)
    if points < 0:
        raise ValueError(f"must not be negative (got {value!r}); write 0 or more")
    return points


def one_of(*words: str) -> PlainValidator:
    """Return a validator for text that is one of the words."""

    def chosen(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"must be one of {', '.join(words)} (got {value!r})")
        return value

    return PlainValidator(chosen)


DurationMs = Annotated[int, BeforeValidator(parse_duration), WithJsonSchema({"type": "string", "format": "time"})]
SizeBytes = Annotated[int, BeforeValidator(_size), WithJsonSchema({"type": "string", "format": "size"})]
Amount = Annotated[int | float | str, PlainValidator(_amount), WithJsonSchema({"type": ["number", "string"], "format": "amount"})]
Weight = Annotated[Fraction, PlainValidator(_weight), WithJsonSchema({"type": "string"})]
Points = Annotated[float, PlainValidator(_points), WithJsonSchema({"type": "number"})]
PointsFrom0 = Annotated[float, PlainValidator(_points_from_0), WithJsonSchema({"type": "number", "minimum": 0})]
WORD = WithJsonSchema({"type": "string"})
_Printable = Annotated[str, AfterValidator(check_printable)]
Labels = dict[_Printable, _Printable]
