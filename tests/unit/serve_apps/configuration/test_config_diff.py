"""Differences that `apply` would make; `test_cli.py` tests their output."""

from __future__ import annotations

from dataclasses import replace

from federation.manual_mesh import ManualMesh
from federation.quota.policies import QueueSettings, ResourceGroup, TenantPolicies
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.memory.store import MemoryStore
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.clock import ManualClock
from mesh.core.resources import ResourceSet
from serve_apps.configuration.config_diff import Difference, changes

OLD_FIRST, NEW_FIRST = ("old", "new"), ("new", "old")


def tried(**flavors_of: tuple[str, ...]) -> TenantPolicies:
    """Return the flavor order of each tenant."""
    return TenantPolicies(
        settings={tenant: QueueSettings(groups=(ResourceGroup(resources=("cpu",), flavors=order),)) for tenant, order in flavors_of.items()}
    )


def test_reordered_tenants_are_no_difference():
    """Also when equally many tenants use either order."""
    snapshot = MemoryStore(clock=ManualClock(1_000), ttl_ms=1_000, grace_ms=1_000).snapshot()
    diff = changes(snapshot, tried(a=OLD_FIRST, b=NEW_FIRST), snapshot.tree, tried(b=NEW_FIRST, a=OLD_FIRST))
    assert diff.settings == ()


def test_a_new_priority_bound_is_a_difference():
    snapshot = MemoryStore(clock=ManualClock(1_000), ttl_ms=1_000, grace_ms=1_000).snapshot()
    before, after = (TenantPolicies(settings={"a": QueueSettings(priority_max=bound)}) for bound in (None, 5))
    (found,) = changes(snapshot, before, snapshot.tree, after).settings
    assert found == Difference(tenant="a", what="limits.priority_max", before="not set", after="5")


def test_work_of_a_flavor_that_closes_is_over_its_limits():
    store = MemoryStore(clock=ManualClock(1_000), ttl_ms=1_000, grace_ms=1_000)
    cpu = ("std", "cpu")
    acme, lab, ops = (Tenant(path=path, parent=path.rpartition("/")[0] or None) for path in ("acme", "acme/lab", "acme/ops"))
    owner = replace(ops, quotas={cpu: Quota(nominal=40_000)})
    store.configure(TenantTree([acme, replace(lab, quotas={cpu: Quota()}), owner]))
    pool = PoolRecord(pool="p", flavor="std", capacity=ResourceSet.of({"cpu": 4}))
    mesh = ManualMesh(store, MeshRecord(mesh="east", labels={}, pools=(pool,), cluster="c"))
    mesh.acquire(lab.path, "std", ResourceSet.of({"cpu": 1}), 1)
    diff = changes(store.snapshot(), TenantPolicies(), TenantTree([acme, lab, owner]), TenantPolicies())
    assert diff.over == ("acme/lab|std|cpu",)
