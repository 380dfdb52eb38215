"""Differences that `apply` would make; `test_cli.py` tests their output."""

from __future__ import annotations

from federation.quota.policies import QueueSettings, ResourceGroup, TenantPolicies
from federation.store.memory.store import MemoryStore
from mesh.core.clock import ManualClock
from serve_apps.configuration.config_diff import changes

OLD_FIRST, NEW_FIRST = ("old", "new"), ("new", "old")


def tried(**tenant_policies: tuple[str, ...]) -> TenantPolicies:
    """Return the flavor order of each tenant."""
    return TenantPolicies(
        settings={
            tenant: QueueSettings(groups=(ResourceGroup(resources=("cpu",), flavors=order),)) for tenant, order in tenant_policies.items()
        }
    )


def test_reordered_tenants_are_no_difference():
    """Also when equally many tenants use either order."""
    snapshot = MemoryStore(clock=ManualClock(1_000), ttl_ms=1_000, grace_ms=1_000).snapshot()
    reported = changes(snapshot, tried(a=OLD_FIRST, b=NEW_FIRST), snapshot.tree, tried(b=NEW_FIRST, a=OLD_FIRST))
    assert reported.settings == ()
