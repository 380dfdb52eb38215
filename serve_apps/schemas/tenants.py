"""Tenants, and what each has of every flavor."""

from __future__ import annotations

from pydantic import Field

from serve_apps.schemas.quantities import Quantity
from serve_apps.schemas.view import View


class QuotaView(View):
    """What a tenant has of one resource of one flavor."""

    flavor: str
    resource: str
    nominal: Quantity
    used: Quantity
    borrowed: Quantity = Field(description="Used beyond its own and what is below it.")
    available: Quantity = Field(description="What it would be granted now; negative after a cut.")
    potential: Quantity = Field(description="What it could hold if nobody else held any.")
    borrowing_limit: Quantity | None
    lending_limit: Quantity | None


class WindowView(View):
    """A time in which work may start."""

    opens_ms: int = Field(description="From the beginning of each period.")
    lasts_ms: int
    every_ms: int


class TenantView(View):
    """A tenant; its parent comes before it."""

    tenant: str
    parent: str | None
    quotas: list[QuotaView]
    pickled_code: bool
    functions: list[str]
    stop: str = Field(default="none", description="`hold`: nothing new starts; `drain`: what runs stops as well. All below it too.")
    stop_reason: str = Field(default="", description="In the words of whoever stopped it; empty when the file says so.")
    stopped_ms: int = Field(default=0, description="Since when; 0 when the file says so.")
    weight: str = Field(default="1", description="Its part of what is borrowed, beside its siblings'.")
    running_max: int | None = Field(default=None, description="Stages that it and all below it may run at a time.")
    running_max_per_user: int | None = Field(default=None, description="The same for each user.")
    max_wait_ms: int | None = Field(default=None, description="How long work may wait to start.")
    on_max_wait: str = Field(default="refuse", description="What waited longer: `refuse` it, or let it go `first`.")
    windows: list[WindowView] = Field(default=[], description="New work starts only inside of one of these; none: always.")


class TenantsView(View):
    """The tenants that the key reaches."""

    at_ms: int
    tenants: list[TenantView]
