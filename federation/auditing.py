"""Audit of a ledger: compare its sums of use with the leases that it holds.

`mismatches` compares all tenants at once. `LedgerAudit` compares some tenants per call, beside other work. A tenant uses what its own
leases hold, and what each child uses beyond the quota that the child never lends. If this is true at each tenant, all sums are right. So
tenants can be checked one by one at different times. A wrong sum may show at the parent too, because the parent's sum depends on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import islice

from federation.snapshot import FederationSnapshot
from mesh.core.ids import FlavorName, TenantPath

#: Tenants that are counted per call. Each call walks all use, so a lower number would hardly cost less.
TENANTS_AT_ONCE = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """Node whose sum differs from the sum of its leases."""

    tenant: TenantPath
    flavor: FlavorName
    resource: str
    kept: int  #: The ledger's sum, in units.
    counted: int  #: The sum of the leases.


def mismatches(snapshot: FederationSnapshot) -> tuple[Mismatch, ...]:
    """Return the nodes whose use is not the sum of the leases below them. `TenantTree` counts, so the ledger does not check itself."""
    counted = snapshot.tree.recompute(snapshot.leases)
    return tuple(
        Mismatch(tenant=key[0], flavor=key[1], resource=key[2], kept=snapshot.usage.get(key, 0), counted=counted.get(key, 0))
        for key in sorted({*counted, *snapshot.usage})
        if snapshot.usage.get(key, 0) != counted.get(key, 0)
    )


class LedgerAudit:
    """Audit of a ledger in rounds: each call checks the next tenants, and the first follows the last.

    Args:
        at_once: Tenants that are counted per call.
    """

    def __init__(self, at_once: int = TENANTS_AT_ONCE) -> None:
        self._at_once = at_once
        self._place = 0  #: Index of the next tenant to check.
        self._wrong: dict[TenantPath, frozenset[Mismatch]] = {}  #: Mismatches that the last check of each tenant found.

    def look(self, snapshot: FederationSnapshot) -> tuple[Mismatch, ...]:
        """Check the next tenants and return new mismatches. A mismatch that stays is returned once."""
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


def _wrong_at(snapshot: FederationSnapshot, turn: AbstractSet[TenantPath]) -> dict[TenantPath, list[Mismatch]]:
    """Return mismatches of these tenants: their own leases and their children's sums against the ledger's sum."""
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
