"""Replacement of the tenant tree, which revokes the keys of removed tenants.

A key names a tenant by its path. If a later file has a tenant of the same path, the key of the old tenant must not reach it. So keys are
revoked after the tree is replaced, and before it is replaced again: a replacement that was interrupted between its two steps is completed
by the next one, before any tenant can come back.
"""

from __future__ import annotations

from federation.api_keys import KeyRing, orphans_of, revoke_orphans
from federation.leases import LeaseLedger
from federation.tenants import TenantTree


def replace_tenants(ledger: LeaseLedger, ring: KeyRing, tree: TenantTree, *, known: TenantTree) -> tuple[str, ...]:
    """Put the tree into force, and return the ids of the keys that were revoked.

    Args:
        known: The tree in force; without tenants on a new ledger.

    Raises:
        StoreUnavailable: The store does not answer. Safe to repeat.
    """
    orphans = revoke_orphans(ring, tuple(known.tenants)) if known.tenants else ()
    ledger.configure(tree)
    return (*orphans, *revoke_orphans(ring, tuple(tree.tenants)))


def keys_to_revoke(ring: KeyRing, tree: TenantTree, *, known: TenantTree) -> tuple[str, ...]:
    """Return the ids of the keys that `replace_tenants` would revoke; change nothing. Raises as `replace_tenants`."""
    orphans = orphans_of(ring, tuple(known.tenants)) if known.tenants else ()
    return tuple(dict.fromkeys((*orphans, *orphans_of(ring, tuple(tree.tenants)))))
