"""Values of the accounting of use, and the port of its store.

Scripts that begin, resize or end a claim also append a `UsageEntry`, in the same atomic step. So does the commit of a run, for work that a
preemption has lost. One writer carries the entries into rows by day, and removes them. While none does, the entries are bounded, and
those that are left out are counted. See ADR 0072.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from mesh.core.ids import FlavorName, StageId, TenantPath

#: Entries, about 30 MB, from which on the ledger leaves out beginnings and new sizes of claims, and lost work. Ends of counted claims come.
LOG_MAX = 200_000
#: User of the rows of a day that has no room for another user.
OTHER_USERS = "(others)"
#: Units of a resource, or their products with milliseconds, by resource.
Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageEntry:
    """Report of the ledger: what a stage holds from now on, or work of it that was lost."""

    entry: str  #: The store's id of the entry; ids grow.
    at_ms: int  #: Since the epoch.
    stage: StageId
    tenant: TenantPath
    flavor: FlavorName
    user: str
    held: Amounts | None = None  #: Units that the claim holds from now on, empty at its end; None: unchanged.
    lost: Amounts = field(default_factory=dict)  #: Units times milliseconds of attempts that a preemption ended.


class Account(NamedTuple):
    """Tenant and flavor of a quota."""

    tenant: TenantPath
    flavor: FlavorName


class RowKey(NamedTuple):
    """Day, tenant, user, flavor and resource of a row."""

    day: int  #: Days since 1970-01-01, in UTC.
    tenant: TenantPath
    user: str
    flavor: FlavorName
    resource: str


class Sums(NamedTuple):
    """Units of a resource times milliseconds."""

    used: int = 0  #: Held by claims.
    borrowed: int = 0  #: The part of it beyond the tenant's own quota.
    lost: int = 0  #: Run for nothing: attempts that a preemption ended.

    def plus(self, other: Sums) -> Sums:
        return Sums(self.used + other.used, self.borrowed + other.borrowed, self.lost + other.lost)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Amounts that the claim of a stage holds."""

    tenant: TenantPath
    flavor: FlavorName
    user: str
    held: Amounts

    @property
    def account(self) -> Account:
        return Account(self.tenant, self.flavor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reckoning:
    """Time until which the use of an account is counted."""

    until_ms: int
    quota: Amounts  #: The tenant's own quota from then on.


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageState:
    """State of the writer, with which another goes on."""

    version: int = 0  #: Number of writes so far.
    cursor: str = "0-0"  #: Last entry that was carried into the rows.
    holdings: Mapping[StageId, Holding] = field(default_factory=dict)
    reckonings: Mapping[Account, Reckoning] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageChange:
    """One write: atomic, and refused if another one came first."""

    version: int  #: Version of the state that it is based on.
    cursor: str
    entries: tuple[str, ...] = ()  #: Ids of the entries that are counted now, and removed.
    holdings: Mapping[StageId, Holding | None] = field(default_factory=dict)  #: Those that changed; None: ended.
    reckonings: Mapping[Account, Reckoning | None] = field(default_factory=dict)  #: The same.
    rows: Mapping[RowKey, Sums] = field(default_factory=dict)  #: Whole new sums.
    drop_before: int = 0  #: Rows of earlier days are removed.


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReading:
    """Rows of some days, and what has not been carried into them yet."""

    rows: Mapping[RowKey, Sums]
    state: UsageState
    left_out: int = 0  #: Entries that were left out, since the store began; their use is counted nowhere.


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRows:
    """Some rows, and how many rows their days have."""

    rows: Mapping[RowKey, Sums]
    counts: Mapping[int, int]


class UsageStore(Protocol):
    """Port of the store of use. All methods raise StoreUnavailable."""

    def entries(self, after: str, limit: int) -> tuple[UsageEntry, ...]:
        """Return the oldest entries after this one."""

    def read(self, first: int, last: int) -> UsageReading:
        """Return the rows of these days, both included, with the state, as of one moment. An empty range: the state alone."""

    def rows(self, keys: Collection[RowKey]) -> StoredRows:
        """Return those of these rows that exist."""

    def write(self, change: UsageChange) -> bool:
        """Write the change, and remove its entries. Return False, with no effect, if the version is another one."""
