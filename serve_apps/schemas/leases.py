"""Leases that are held now."""

from __future__ import annotations

from pydantic import Field

from serve_apps.schemas.moments import LaterMoment, Moment
from serve_apps.schemas.quantities import Quantity
from serve_apps.schemas.view import View


class LeaseEntry(View):
    """A lease that is held now."""

    lease: str
    tenant: str
    mesh: str
    flavor: str
    amounts: dict[str, Quantity] = Field(description="Amounts held and charged to the tenant.")
    target: dict[str, Quantity] = Field(
        default={}, description="Amounts that the ledger aims at: less than held is being reclaimed, more is being granted."
    )
    priority: int = Field(default=0, description="Priority of the most urgent work that the lease was granted for.")
    granted_ms: LaterMoment = 0
    running_out: bool = Field(default=False, description="The lease belongs to an earlier session of the mesh and expires by itself.")
    token: int


class LeasesView(View):
    """Leases of the tenants that the key covers."""

    at_ms: Moment
    leases: list[LeaseEntry]
