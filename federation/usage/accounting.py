"""Counts use over time: who held how much for how long, and how much of it was beyond the tenant's own quota.

A claim holds the same amount from one report to the next, so use is amount times time: exact, without samples. The claims of a tenant
and flavor are one account, because quota is compared with their sum. Each report on an account first counts the time since the last
one with the old amounts and the old quota.

Use beyond the quota belongs to no single claim. It is shared among the users by what each holds, in whole units and milliseconds, so that
the users' parts add up to the tenant's.

Pure: the same reports on the same state give the same sums.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from federation.usage.records import Account, Amounts, Holding, Reckoning, RowKey, Sums, UsageEntry, UsageState
from mesh.core.ids import StageId

DAY_MS = 86_400_000
#: Own quota of an account, by resource.
QuotaOf = Callable[[Account], Amounts]


def day_of(at_ms: int) -> int:
    """Return the day in UTC of a time since the epoch, as days since 1970-01-01."""
    return at_ms // DAY_MS


def by_days(since_ms: int, until_ms: int) -> Iterator[tuple[int, int]]:
    """Yield the days of an interval, each with its milliseconds; nothing of one that ends before it begins."""
    while since_ms < until_ms:
        day = day_of(since_ms)
        end_ms = min(until_ms, (day + 1) * DAY_MS)
        yield day, end_ms - since_ms
        since_ms = end_ms


def shared_out(whole: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Return the parts of an integer by weight, in whole numbers that add up to it; none without weights."""
    total, before, parts = sum(weights.values()), 0, {}
    upto = 0
    for name, weight in sorted(weights.items()):
        upto += weight
        reached = whole * upto // total if total else 0
        parts[name], before = reached - before, reached
    return parts


class UsageTotals:
    """Open claims and the sums that they have come to.

    Args:
        state: Where to go on.
        quota_of: Quotas in force now.
    """

    def __init__(self, state: UsageState, quota_of: QuotaOf) -> None:
        self._quota_of = quota_of
        self._holdings = dict(state.holdings)
        self._reckonings = dict(state.reckonings)
        self._held: defaultdict[Account, defaultdict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
        for holding in self._holdings.values():
            self._add(holding, 1)
        self._sums: dict[RowKey, Sums] = {}
        self._changed_stages: set[StageId] = set()
        self._changed_accounts: set[Account] = set()

    def take(self, entries: Iterable[UsageEntry]) -> None:
        """Count the entries, oldest first. A repeated one changes nothing but lost work."""
        for entry in entries:
            if entry.held is not None:
                self._hold(entry, entry.held)
            for resource, lost in entry.lost.items():
                key = RowKey(day_of(entry.at_ms), entry.tenant, entry.user, entry.flavor, resource)
                self._count(key, Sums(lost=lost))

    def _hold(self, entry: UsageEntry, held: Amounts) -> None:
        before = self._holdings.pop(entry.stage, None)
        after = Holding(tenant=entry.tenant, flavor=entry.flavor, user=entry.user, held=held) if held else None
        for holding, sign in ((before, -1), (after, 1)):
            if holding is not None:
                self._reckon(holding.account, entry.at_ms)
                self._add(holding, sign)
        if after is not None:
            self._holdings[entry.stage] = after
        for account in {holding.account for holding in (before, after) if holding is not None}:
            if not self._held[account]:  # No claim is left.
                del self._held[account]
                del self._reckonings[account]
        if before is not None or after is not None:
            self._changed_stages.add(entry.stage)

    def _add(self, holding: Holding, sign: int) -> None:
        of_users = self._held[holding.account]
        held = of_users[holding.user]
        for resource, units in holding.held.items():
            held[resource] += sign * units
            if not held[resource]:
                del held[resource]
        if not held:
            del of_users[holding.user]

    def settle(self, until_ms: int) -> None:
        """Count all open claims up to this time."""
        for account in tuple(self._reckonings):
            self._reckon(account, until_ms)

    def adopt(self, quota_of: QuotaOf, at_ms: int) -> None:
        """Use other quotas from this time on."""
        self._quota_of = quota_of
        for account, reckoning in tuple(self._reckonings.items()):
            if quota_of(account) != reckoning.quota:
                self._reckon(account, at_ms)

    def _reckon(self, account: Account, until_ms: int) -> None:
        """Count an account up to this time; a time before the last one counts nothing."""
        last = self._reckonings.get(account)
        if last is not None:
            for day, ms in by_days(last.until_ms, until_ms):
                self._count_day(account, last.quota, day, ms)
            until_ms = max(until_ms, last.until_ms)
        self._reckonings[account] = Reckoning(until_ms=until_ms, quota=self._quota_of(account))
        self._changed_accounts.add(account)

    def _count_day(self, account: Account, quota: Amounts, day: int, ms: int) -> None:
        by_resource: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for user, held in self._held[account].items():
            for resource, units in held.items():
                by_resource[resource][user] = units
        for resource, of_users in by_resource.items():
            beyond = max(0, sum(of_users.values()) - quota.get(resource, 0))
            borrowed = shared_out(beyond * ms, of_users)
            for user, units in of_users.items():
                key = RowKey(day, account.tenant, user, account.flavor, resource)
                self._count(key, Sums(used=units * ms, borrowed=borrowed[user]))

    def _count(self, key: RowKey, more: Sums) -> None:
        self._sums[key] = self._sums.get(key, Sums()).plus(more)

    @property
    def sums(self) -> Mapping[RowKey, Sums]:
        """Return the sums since the beginning."""
        return self._sums

    def changed_holdings(self) -> dict[StageId, Holding | None]:
        """Return the claims that changed since the beginning; None: ended."""
        return {stage: self._holdings.get(stage) for stage in self._changed_stages}

    def changed_reckonings(self) -> dict[Account, Reckoning | None]:
        """Return the accounts that changed since the beginning; None: no claim is left."""
        return {account: self._reckonings.get(account) for account in self._changed_accounts}

    def state(self, *, version: int, cursor: str) -> UsageState:
        """Return where the next totals go on."""
        return UsageState(version=version, cursor=cursor, holdings=self._holdings, reckonings=self._reckonings)


def as_of(state: UsageState, rows: Mapping[RowKey, Sums], now_ms: int) -> dict[RowKey, Sums]:
    """Return the rows with what open claims have used since their last report, on the days of any row or later."""
    totals = UsageTotals(state, lambda account: state.reckonings[account].quota)
    totals.settle(now_ms)
    merged = dict(rows)
    for key, more in totals.sums.items():
        merged[key] = merged.get(key, Sums()).plus(more)
    return merged
