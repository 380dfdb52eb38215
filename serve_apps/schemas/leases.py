"""Leases that are held now."""

from __future__ import annotations

from pydantic import Field

from serve_apps.schemas.quantities import Quantity
from serve_apps.schemas.view import View


class LeaseEntry(View):
    """A lease that is held now."""

    lease: str
    tenant: str
    mesh: str
    flavor: str
    amounts: dict[str, Quantity] = Field(description="What is held, and charged to the tenant.")
    target: dict[str, Quantity] = Field(
        default={}, description="What the ledger aims at: less than is held is being taken back, more is on its way."
    )
    priority: int = Field(default=0, description="Of the most urgent work that it was granted for.")
    granted_ms: int = 0
    running_out: bool = Field(default=False, description="Of an earlier session of the mesh: it runs out by itself.")
    token: int


class LeasesView(View):
    """Leases of the tenants that the key reaches."""

    at_ms: int
    leases: list[LeaseEntry]
