"""History of leases."""

from __future__ import annotations

from pydantic import Field

from serve_apps.schemas.moments import Moment
from serve_apps.schemas.quantities import Quantity
from serve_apps.schemas.view import View


class LeaseEventView(View):
    """One change of a lease."""

    at_ms: Moment
    verb: str = Field(description="`grant`, `release`, `plan`, `shrink`, `grow`, `cut`, `revoke`, `expire`, `restore`, `epoch`, …")
    why: str = ""
    lease: str | None = Field(description="Null: the event is not about one lease.")
    tenant: str | None = None
    mesh: str | None = None
    flavor: str | None = None
    held: dict[str, Quantity] = Field(default={}, description="Amounts held after the change.")
    target: dict[str, Quantity] = Field(default={})


class HistoryView(View):
    """Changes of leases, oldest first."""

    lease_events: list[LeaseEventView]
