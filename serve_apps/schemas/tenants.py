"""Tenants and their quota by flavor."""

from __future__ import annotations

from datetime import date

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


class UsageRowView(View):
    """Use of one resource. A column that the report does not tell apart is null. Each row counts what no other row counts."""

    day: date | None = Field(default=None, description="Day in UTC.")
    tenant: str | None = Field(default=None, description="The tenant itself, without the tenants below it.")
    user: str | None = None
    flavor: str | None = None
    resource: str
    unit: str = Field(description="`h`: CPUs, GPUs or custom resources times hours; `GiB h`: memory times hours.")
    used: float = Field(description="Amounts that stages held, from their start to their end.")
    borrowed: float = Field(description="The part of it beyond the own quota of the tenant and the tenants below it.")
    lost: float = Field(description="Run time of attempts since their last checkpoint that a preemption ended.")


class UsageView(View):
    """Use in a range of days, with what runs now up to `at`."""

    at_ms: Moment
    first: date = Field(description="First day, in UTC.")
    last: date = Field(description="Last day.")
    rows: list[UsageRowView]
    total: list[UsageRowView] = Field(description="The sum of all rows, for each resource.")
    left_out: int = Field(
        default=0, description="Reports of all tenants that found no room while no coordinator ran, ever; their use is in no row."
    )


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
