"""Does what a ledger has counted agree with the leases that it holds?

All at once, from the leases alone (`mismatches`); or a few tenants at each look, in turn (`Audit`), as one does beside other work.
A tenant's use is what its own leases hold and what its children use beyond what they keep; where that is so at every tenant, all sums
are those of the leases below. So each tenant can be looked at for itself, at another moment than the others. Where a sum is wrong the
parent may be named beside it, as it was counted from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import islice

from federation.snapshot import Snapshot
from mesh.ids import FlavorName, TenantPath

#: How many tenants are counted at one look. All that is in use is gone through for it, so fewer would hardly cost less.
TENANTS_AT_ONCE = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """A node whose sum is not that of the leases below it."""

    tenant: TenantPath
    flavor: FlavorName
    resource: str
    kept: int  #: What the ledger has counted, in units.
    counted: int  #: What the leases add up to.


def mismatches(snapshot: Snapshot) -> tuple[Mismatch, ...]:
    """Nodes whose use is not the sum of the leases below them, counted by `TenantTree`: a ledger is not checked by itself."""
    counted = snapshot.tree.recompute(snapshot.leases)
    return tuple(
        Mismatch(tenant=key[0], flavor=key[1], resource=key[2], kept=snapshot.usage.get(key, 0), counted=counted.get(key, 0))
        for key in sorted({*counted, *snapshot.usage})
        if snapshot.usage.get(key, 0) != counted.get(key, 0)
    )


class Audit:
    """Goes through the tenants of a ledger, some at each look, and begins anew after the last.

    Args:
        at_once: Tenants that are counted at one look.
    """

    def __init__(self, at_once: int = TENANTS_AT_ONCE) -> None:
        self._at_once = at_once
        self._place = 0  #: Of the first tenant that has not had its turn.
        self._wrong: dict[TenantPath, frozenset[Mismatch]] = {}  #: What was found when it was looked at last.

    def look(self, snapshot: Snapshot) -> tuple[Mismatch, ...]:
        """Count the next tenants. What does not agree and was not told before; what stays wrong is told once."""
        tenants = snapshot.tree.tenants
        if self._place >= len(tenants):
            self._place = 0
            self._wrong = {tenant: found for tenant, found in self._wrong.items() if tenant in tenants}
        turn = frozenset(islice(tenants, self._place, self._place + self._at_once))
        self._place += self._at_once
        fresh: list[Mismatch] = []
        found = _wrong_at(snapshot, turn)
        for tenant in turn & (found.keys() | self._wrong.keys()):
            now = frozenset(found.get(tenant, ()))
            fresh += now - self._wrong.get(tenant, frozenset())
            self._wrong[tenant] = now
        return tuple(sorted(fresh, key=lambda wrong: (wrong.tenant, wrong.flavor, wrong.resource)))


def _wrong_at(snapshot: Snapshot, turn: AbstractSet[TenantPath]) -> dict[TenantPath, list[Mismatch]]:
    """What does not agree at these tenants, each by its own leases and by what the ledger has counted for its children."""
    tree = snapshot.tree
    counted: Counter[tuple[TenantPath, FlavorName, str]] = Counter()
    kept: dict[tuple[TenantPath, FlavorName, str], int] = {}
    for lease in snapshot.leases:
        if lease.tenant in turn:
            for resource, units in lease.amounts.items():
                counted[lease.tenant, lease.flavor, resource] += units
    for (path, flavor, resource), used in snapshot.usage.items():
        if path in turn:
            kept[path, flavor, resource] = used
        tenant = tree.tenants.get(path)
        if tenant is not None and tenant.parent is not None and tenant.parent in turn:
            counted[tenant.parent, flavor, resource] += max(0, used - tree.kept(path, (flavor, resource)))
    found: dict[TenantPath, list[Mismatch]] = {}
    for key in counted.keys() | kept.keys():
        if counted[key] != kept.get(key, 0):
            wrong = Mismatch(tenant=key[0], flavor=key[1], resource=key[2], kept=kept.get(key, 0), counted=counted[key])
            found.setdefault(key[0], []).append(wrong)
    return found
