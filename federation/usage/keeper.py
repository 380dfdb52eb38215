"""Carries the ledger's reports on use into rows by day. Only the elected coordinator calls it; two at once cost work, not safety."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from federation.tenants import TenantTree
from federation.usage.accounting import UsageTotals, day_of
from federation.usage.records import OTHER_USERS, Account, RowKey, Sums, UsageChange, UsageState, UsageStore
from mesh.core.clock import Clock

#: Days that rows are kept, if nothing else is configured.
USAGE_DAYS = 400
#: Entries of one write.
ENTRIES_MAX = 1_000
#: Time of one tick for entries, so that runs advance too; the next tick goes on.
KEEPING_MS_MAX = 500
#: Rows of one day; further users of it share rows.
ROWS_MAX = 20_000


class UsageKeeper:
    """Writer of the rows of use. It keeps nothing that the store does not have.

    Args:
        days_kept: Rows of earlier days are removed.
        rows_max: Rows of a day before further users share theirs.
    """

    def __init__(self, *, store: UsageStore, clock: Clock, days_kept: int = USAGE_DAYS, rows_max: int = ROWS_MAX) -> None:
        self._store = store
        self._clock = clock
        self._days_kept = days_kept
        self._rows_max = rows_max
        self._state: UsageState | None = None  #: As last written; None: to be read.
        self._tree: TenantTree | None = None  #: Tree of the quotas that the state has.
        self._day = 0  #: When old rows were removed last.

    def tick(self, tree: TenantTree) -> int:
        """Carry all new entries into the rows; return their number.

        Raises:
            StoreUnavailable: Nothing is lost; call again.
        """
        carried, until_ms = 0, self._clock.monotonic_ms() + KEEPING_MS_MAX
        while True:
            count = self._carry(tree)
            carried += count
            if count < ENTRIES_MAX or self._clock.monotonic_ms() >= until_ms:
                return carried

    def _carry(self, tree: TenantTree) -> int:
        state, self._state = self._state or self._store.read(0, -1).state, None  # After an error below, None: read again.
        now_ms = self._clock.wall_ms()
        entries, today = self._store.entries(state.cursor, ENTRIES_MAX), day_of(now_ms)
        if not entries and tree is self._tree and today == self._day:
            self._state = state
            return 0

        def quota_of(account: Account) -> Mapping[str, int]:
            return _own_quota(tree, account)

        totals = UsageTotals(state, quota_of)
        totals.adopt(quota_of, entries[0].at_ms if entries else now_ms)
        totals.take(entries)
        cursor = entries[-1].entry if entries else state.cursor
        change = UsageChange(
            version=state.version,
            cursor=cursor,
            entries=tuple(entry.entry for entry in entries),
            holdings=totals.changed_holdings(),
            reckonings=totals.changed_reckonings(),
            rows=self._added(totals.sums),
            drop_before=today - self._days_kept,
        )
        if not (entries or change.reckonings) and today == self._day:
            self._state, self._tree = state, tree
        elif self._store.write(change):
            self._state, self._tree, self._day = totals.state(version=state.version + 1, cursor=cursor), tree, today
        return len(entries)

    def _added(self, sums: Mapping[RowKey, Sums]) -> dict[RowKey, Sums]:
        """Return the stored rows with these sums added."""
        if not sums:
            return {}
        stored = self._store.rows({*sums, *map(_shared, sums)})
        rows, counts, changed = dict(stored.rows), Counter(stored.counts), {}
        for key, more in sorted(sums.items()):
            kept = key if key in rows or counts[key.day] < self._rows_max else _shared(key)
            counts[kept.day] += kept not in rows
            changed[kept] = rows[kept] = rows.get(kept, Sums()).plus(more)
        return changed


def _shared(key: RowKey) -> RowKey:
    """Return the row of all users that the day has no room for."""
    return key._replace(user=OTHER_USERS)


def _own_quota(tree: TenantTree, account: Account) -> dict[str, int]:
    """Return the own quota of a tenant, with all tenants below it, as the ledger compares use with it."""
    resources = {resource for flavor, resource in tree.flavor_resources() if flavor == account.flavor}
    if not tree.is_configured(account.tenant):
        return {}
    return {resource: own for resource in resources if (own := tree.own_quota(account.tenant, (account.flavor, resource)))}
