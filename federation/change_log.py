"""Log of changes that people and programs make to the federation, through the root or at the terminal of its state folder: who, when, what,
and with which outcome. The port of its store.

An entry belongs to the tenant that the change was about, or to all tenants (`*`). Each top-level tenant has a log of its own, and so does
`*`: no tenant pushes the entries of another out of a bounded log. See ADR 0073.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from federation.tenants import top_level_of
from mesh.core.ids import TenantPath

#: Entries of one log that are kept, about.
KEPT_MAX = 20_000
#: In place of the id of a key: a command on the machine of the state folder.
TERMINAL = "terminal"


class Outcome(str, Enum):
    """Result of a change."""

    ALLOWED = "allowed"
    """The change was made, or nothing had to change."""
    REFUSED = "refused"
    """Nothing was changed; the code says why."""
    FAILED = "failed"
    """The root failed; the change may or may not have been made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One attempt to change something."""

    at_ms: int  #: Since the epoch.
    operation: str  #: Method and path of a route, as `POST /v1/runs/{run_id}/cancel`; of a command, its words.
    tenant: TenantPath  #: Tenant that the change was about; `*`: all tenants.
    target: str = ""  #: The run, mesh, schedule, key or tenant.
    details: Mapping[str, str] = field(default_factory=dict)  #: Fields of the request, without secrets.
    key: str  #: Id of the API key, or `TERMINAL`.
    user: str = ""  #: User of the key, or of the terminal.
    source: str = ""  #: Address of the caller, or name of the machine.
    request_id: str = ""
    outcome: Outcome
    code: str = ""  #: Code of the error.


class NumberedChange(NamedTuple):
    """Change with its number, which counts up over all logs."""

    number: int
    change: Change


class ChangeLog(Protocol):
    """Port of the store. All methods raise StoreUnavailable."""

    def append(self, change: Change) -> None:
        """Append an entry to the log of its tenant."""

    def last(self) -> int:
        """Return the number of the last entry of all logs; 0 without any."""

    def logs(self) -> tuple[str, ...]:
        """Return the names of the logs with entries: top-level tenants, and `*`."""

    def newest(self, log: str, below: int | None, limit: int) -> tuple[NumberedChange, ...]:
        """Return the entries of a log with a smaller number, newest first."""

    def following(self, log: str, after: int, limit: int) -> tuple[NumberedChange, ...]:
        """Return the entries of a log with a greater number, oldest first."""


def log_of(tenant: TenantPath) -> str:
    """Return the name of the log with the entries of a tenant."""
    return top_level_of(tenant)
