"""View of use by day, tenant, user and flavor, and its form for spreadsheets. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date

from federation.usage.accounting import as_of
from federation.usage.records import RowKey, Sums, UsageReading
from federation.usage.report import UsageBy, UsageRow, day_number, grouped
from mesh.core.ids import TenantPath
from mesh.core.resources import BYTE_RESOURCES, UNITS_PER_WHOLE
from serve_apps.schemas.tenants import UsageRowView, UsageView

_HOUR_MS = 3_600_000
_GIB = 2**30


def usage_view(
    reading: UsageReading, first: date, last: date, by: Sequence[UsageBy], within: Callable[[TenantPath], bool], now_ms: int
) -> UsageView:
    """Return the use of the tenants within reach on the days from `first` to `last`, by these columns."""
    days = range(day_number(first), day_number(last) + 1)
    counted = as_of(reading.state, reading.rows, now_ms)
    rows = {key: sums for key, sums in counted.items() if key.day in days and within(key.tenant)}
    return UsageView(at_ms=now_ms, first=first, last=last, rows=_views(rows, by), total=_views(rows, ()), left_out=reading.left_out)


def _views(rows: Mapping[RowKey, Sums], by: Iterable[UsageBy]) -> list[UsageRowView]:
    return [_view(row) for row in grouped(rows, by)]


def _view(row: UsageRow) -> UsageRowView:
    is_bytes = row.resource in BYTE_RESOURCES
    used, borrowed, lost = (units_ms / (_HOUR_MS * (_GIB if is_bytes else UNITS_PER_WHOLE)) for units_ms in row.sums)
    return UsageRowView(
        day=row.day,
        tenant=row.tenant,
        user=row.user,
        flavor=row.flavor,
        resource=row.resource,
        unit="GiB h" if is_bytes else "h",
        used=used,
        borrowed=borrowed,
        lost=lost,
    )
