"""Rows of use by day, tenant, user or flavor, for people and bills. Pure.

Each row counts what no other row counts: a tenant's row has the work of that tenant itself. So rows add up to the total, whatever they
are grouped by, and the rows of a tenant with all tenants below it add up to what its subtree used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from enum import Enum

from federation.usage.records import RowKey, Sums

_FIRST_DAY = date(1970, 1, 1)


class UsageBy(str, Enum):
    """Columns by which the rows of a report differ."""

    DAY = "day"
    TENANT = "tenant"
    USER = "user"
    FLAVOR = "flavor"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """Use of one resource; None: of all days, tenants, users or flavors."""

    day: date | None = None
    tenant: str | None = None
    user: str | None = None
    flavor: str | None = None
    resource: str
    sums: Sums


def grouped(rows: Mapping[RowKey, Sums], by: Iterable[UsageBy]) -> tuple[UsageRow, ...]:
    """Return the sums by these columns and the resource, in the order of the columns."""
    wanted = frozenset(by)
    found: dict[tuple[date | None, str | None, str | None, str | None, str], Sums] = {}
    for key, sums in rows.items():
        group = (
            date_of(key.day) if UsageBy.DAY in wanted else None,
            key.tenant if UsageBy.TENANT in wanted else None,
            key.user if UsageBy.USER in wanted else None,
            key.flavor if UsageBy.FLAVOR in wanted else None,
            key.resource,
        )
        found[group] = found.get(group, Sums()).plus(sums)
    ordered = sorted(found.items(), key=lambda item: [str(part or "") for part in item[0]])
    return tuple(
        UsageRow(day=day, tenant=tenant, user=user, flavor=flavor, resource=resource, sums=sums)
        for (day, tenant, user, flavor, resource), sums in ordered
    )


def date_of(day: int) -> date:
    """Return the date of a day since 1970-01-01."""
    return _FIRST_DAY + timedelta(days=day)


def day_number(day: date) -> int:
    """Return the days since 1970-01-01."""
    return (day - _FIRST_DAY).days
