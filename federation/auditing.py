"""Does what a ledger has counted agree with the leases that it holds?"""

from dataclasses import dataclass

from federation.snapshot import Snapshot
from mesh.ids import FlavorName, TenantPath


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
