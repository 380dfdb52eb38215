"""Tenants and their quota by flavor."""

from __future__ import annotations

from pydantic import Field

from serve_apps.schemas.moments import LaterMoment, Moment
from serve_apps.schemas.quantities import Quantity
from serve_apps.schemas.view import View


class QuotaView(View):
    """Quota and use of a tenant, for one resource of one flavor."""

    flavor: str
    resource: str
    nominal: Quantity
    used: Quantity
    borrowed: Quantity = Field(description="Use above the nominal quota of the tenant and the tenants below it.")
    available: Quantity = Field(description="Amount that the tenant would be granted now; negative after its quota was reduced.")
    potential: Quantity = Field(description="Amount that the tenant could hold if no other tenant held any.")
    borrowing_limit: Quantity | None
    lending_limit: Quantity | None


class WindowView(View):
    """A time window in which work may start."""

    opens_ms: int = Field(description="Offset from the beginning of each period.")
    lasts_ms: int
    every_ms: int


class TenantView(View):
    """A tenant; its parent precedes it in the list."""

    tenant: str
    parent: str | None
    quotas: list[QuotaView]
    pickled_code: bool
    functions: list[str]
    stop: str = Field(
        default="none", description="`hold`: no new work starts; `drain`: running work is preempted as well. Includes the tenants below."
    )
    stop_reason: str = Field(default="", description="Reason given with the command; empty if the file stops the tenant.")
    stopped_ms: LaterMoment = Field(default=0, description="Time of the command; null if the file stops the tenant.")
    weight: str = Field(default="1", description="Weight of the tenant among its siblings when they share borrowed quota.")
    priority_max: int | None = Field(default=None, description="Highest priority that users may ask for, own or inherited.")
    running_max: int | None = Field(default=None, description="Stages that the tenant and the tenants below it may run at once.")
    running_max_per_user: int | None = Field(default=None, description="Stages that each user may run at once.")
    max_wait_ms: int | None = Field(default=None, description="How long work may wait to start.")
    on_max_wait: str = Field(
        default="refuse",
        description="Treatment of work that waited longer: `refuse` fails it, `first` puts it at the head of the queue.",
    )
    windows: list[WindowView] = Field(default=[], description="New work starts only within one of these windows; none: always.")


class TenantsView(View):
    """Tenants that the key covers."""

    at_ms: Moment
    tenants: list[TenantView]
