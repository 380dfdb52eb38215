"""Lists the log of changes within what a key covers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from federation.api_keys import EVERYBODY, covers
from federation.change_log import ChangeLog, NumberedChange, log_of
from federation.tenants import TenantTree
from mesh.core.ids import TenantPath
from serve_apps.requests.auth import Principal
from serve_apps.schemas.history import RecordedChangesView, RecordedChangeView
from serve_apps.services.stopping import check_covered, check_reach, paths_in

#: Entries of one log that one call looks at.
LOOKED_AT_MAX = 5_000
#: Entries of one read.
_READ = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFilter:
    """Filter of changes."""

    top: TenantPath  #: About this tenant and those below it; `*`: all.
    user: str | None = None
    since_ms: int = 0

    def matches(self, entry: NumberedChange) -> bool:
        change = entry.change
        return covers(self.top, change.tenant) and self.user in (None, change.user) and change.at_ms >= self.since_ms


def list_changes(
    log: ChangeLog,
    tree: Callable[[], TenantTree],
    principal: Principal,
    *,
    tenant: str | None = None,
    user: str | None = None,
    since_ms: int = 0,
    after: int | None = None,
    limit: int,
) -> RecordedChangesView:
    """Return changes that the caller may see, oldest first: the newest, or those with a number greater than `after`.

    Args:
        tree: Reads the tenants; called only if there are no changes of the tenant.
        tenant: Only changes about this tenant and those below it; None: all that the key covers.

    Raises:
        OutOfReach: The key does not cover the tenant, or there is none.
        StoreUnavailable: The store does not answer.
    """
    top = TenantPath(tenant) if tenant is not None else principal.tenant
    check_covered(principal, top)
    wanted = ChangeFilter(top=top, user=user, since_ms=since_ms)
    found, last = newest_changes(log, wanted, limit) if after is None else changes_after(log, wanted, after, limit)
    if tenant is not None and after is None and not found:
        check_reach(principal, top, {EVERYBODY, *paths_in(tree()), *map(TenantPath, log.logs())})
    return RecordedChangesView(changes=[_view(entry) for entry in found], next=last)


def _view(entry: NumberedChange) -> RecordedChangeView:
    change = entry.change
    return RecordedChangeView(
        number=entry.number,
        at_ms=change.at_ms,
        operation=change.operation,
        tenant=change.tenant,
        target=change.target,
        details=dict(change.details),
        key=change.key,
        user=change.user,
        source=change.source,
        request_id=change.request_id,
        outcome=change.outcome,
        code=change.code,
    )


def newest_changes(log: ChangeLog, wanted: ChangeFilter, limit: int) -> tuple[tuple[NumberedChange, ...], int]:
    """Return the newest matching changes, oldest first, and the number after which later ones come."""
    last = log.last()
    found = [entry for name in _logs(log, wanted.top) for entry in _newest(log, name, wanted, last, limit)]
    return tuple(sorted(found)[-limit:]), last


def _newest(log: ChangeLog, name: str, wanted: ChangeFilter, last: int, limit: int) -> Iterator[NumberedChange]:
    below = last + 1  # Entries that came meanwhile are for the next read, which goes on after `last`.
    found = 0
    for _ in range(LOOKED_AT_MAX // _READ):
        entries = log.newest(name, below, _READ)
        for entry in entries:
            if entry.change.at_ms < wanted.since_ms or found == limit:
                return
            if wanted.matches(entry):
                found += 1
                yield entry
        if len(entries) < _READ:
            return
        below = entries[-1].number


def changes_after(log: ChangeLog, wanted: ChangeFilter, after: int, limit: int) -> tuple[tuple[NumberedChange, ...], int]:
    """Return the matching changes after a number, oldest first, and the number after which the next ones come."""
    last = log.last()
    upto, seen = last, list[NumberedChange]()
    for name in _logs(log, wanted.top):
        entries = log.following(name, min(after, last), LOOKED_AT_MAX)
        if len(entries) == LOOKED_AT_MAX:
            upto = min(upto, entries[-1].number)
        seen += entries
    found = sorted(entry for entry in seen if entry.number <= upto and wanted.matches(entry))
    if len(found) > limit:
        found = found[:limit]
        upto = found[-1].number
    return tuple(found), upto


def _logs(log: ChangeLog, top: TenantPath) -> tuple[str, ...]:
    return log.logs() if top == EVERYBODY else (log_of(top),)
