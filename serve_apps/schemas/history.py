"""History of leases, and of changes that people made."""

from __future__ import annotations

from pydantic import Field

from federation.change_log import Outcome
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


class RecordedChangeView(View):
    """One attempt to change something."""

    number: int = Field(description="Counts up over all changes.")
    at_ms: Moment
    operation: str = Field(description="Method and path of the call, as `POST /v1/runs/{run_id}/cancel`; of a command, its words.")
    tenant: str = Field(description="Tenant that the change was about; `*`: all tenants.")
    target: str = Field(description="The run, mesh, schedule, key or tenant.")
    details: dict[str, str] = Field(default={}, description="Fields of the request, without secrets.")
    key: str = Field(description="Id of the API key; `terminal`: a command on the machine of the state folder.")
    user: str = Field(default="", description="User of the key, or of the terminal.")
    source: str = Field(default="", description="Address of the caller, or name of the machine.")
    request_id: str = ""
    outcome: Outcome = Field(description="`allowed`; `refused`: nothing was changed; `failed`: it may or may not have been changed.")
    code: str = Field(default="", description="Code of the error.")


class RecordedChangesView(View):
    """Changes, oldest first."""

    changes: list[RecordedChangeView]
    next: int = Field(description="`after` of a later call, which returns changes that have come since.")
