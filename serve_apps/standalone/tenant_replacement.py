"""Replacement of the tenant tree, which revokes the keys and pauses the schedules of removed tenants.

Keys and schedules name a tenant by its path. If a later file has a tenant of the same path, neither the key nor the schedule of the old
tenant must reach it. So both are stopped after the tree is replaced, and before it is replaced again: a replacement that was interrupted
between its steps is completed by the next one, before any tenant can come back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from dag.schedules.firing import paused
from dag.schedules.schedule import Schedule, ScheduleStore, place_of
from federation.api_keys import KeyRing, orphans_of, revoke_orphans
from federation.leases import LeaseLedger
from federation.tenants import TenantTree
from mesh.core.ids import TenantPath

#: Schedules that one call reads.
PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Orphans:
    """Keys and schedules whose tenant was removed."""

    keys: tuple[str, ...] = ()  #: Ids of keys.
    schedules: tuple[tuple[TenantPath, str], ...] = ()  #: Tenant and name of each.

    def __or__(self, others: Orphans) -> Orphans:
        """Return these and the others, each once."""
        keys, schedules = dict.fromkeys((*self.keys, *others.keys)), dict.fromkeys((*self.schedules, *others.schedules))
        return Orphans(tuple(keys), tuple(schedules))


def replace_tenants(ledger: LeaseLedger, ring: KeyRing, schedules: ScheduleStore, tree: TenantTree, *, known: TenantTree) -> Orphans:
    """Put the tree into force, and return what was revoked and paused.

    Args:
        known: The tree in force; without tenants on a new ledger.

    Raises:
        StoreUnavailable: The store does not answer. Safe to repeat.
    """
    before = _stop(ring, schedules, tuple(known.tenants)) if known.tenants else Orphans()
    ledger.configure(tree)
    return before | _stop(ring, schedules, tuple(tree.tenants))


def orphans_after(ring: KeyRing, schedules: ScheduleStore, tree: TenantTree, *, known: TenantTree) -> Orphans:
    """Return what `replace_tenants` would revoke and pause; change nothing. Raises as `replace_tenants`."""
    before = _found(ring, schedules, tuple(known.tenants)) if known.tenants else Orphans()
    return before | _found(ring, schedules, tuple(tree.tenants))


def _found(ring: KeyRing, schedules: ScheduleStore, tenants: Collection[TenantPath]) -> Orphans:
    left = tuple((schedule.tenant, schedule.name) for schedule in _orphaned(schedules, tenants))
    return Orphans(orphans_of(ring, tenants), left)


def _stop(ring: KeyRing, schedules: ScheduleStore, tenants: Collection[TenantPath]) -> Orphans:
    stopped: list[tuple[TenantPath, str]] = []
    for schedule in _orphaned(schedules, tenants):
        known: Schedule | None = schedule
        while known is not None and not known.is_paused and schedules.put(paused(known)) is None:
            known = schedules.load(schedule.tenant, schedule.name)  # Somebody changed or deleted it meanwhile.
        stopped.append((schedule.tenant, schedule.name))
    return Orphans(revoke_orphans(ring, tenants), tuple(stopped))


def _orphaned(schedules: ScheduleStore, tenants: Collection[TenantPath]) -> Iterator[Schedule]:
    """Yield the schedules of other tenants that are not paused."""
    configured, after = frozenset(tenants), ""
    while page := schedules.list(None, after, PAGE):
        yield from (schedule for schedule in page if schedule.tenant not in configured and not schedule.is_paused)
        after = place_of(page[-1].tenant, page[-1].name)
