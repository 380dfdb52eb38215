"""Use of tenants and users, as the Python client returns it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Use of one resource in hours; of memory in GiB times hours. A column that the report does not tell apart is None."""

    day: date | None
    tenant: str | None
    user: str | None
    flavor: str | None
    resource: str
    used: float  #: Amounts that stages held, from their start to their end.
    borrowed: float  #: The part of it beyond the own quota of the tenant and the tenants below it.
    lost: float  #: Run time of attempts since their last checkpoint that a preemption ended.


def rows_of(answer: Mapping[str, Any]) -> Iterator[Usage]:
    """Yield the rows of a report of the root."""
    for row in answer["rows"]:
        yield Usage(
            day=date.fromisoformat(row["day"]) if row.get("day") else None,
            tenant=row.get("tenant"),
            user=row.get("user"),
            flavor=row.get("flavor"),
            resource=row["resource"],
            used=float(row["used"]),
            borrowed=float(row["borrowed"]),
            lost=float(row["lost"]),
        )
