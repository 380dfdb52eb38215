"""Two teams under one company, their GPU quota, and operations on it for tests."""

from federation.leases import LeaseTerms, TargetUpdate
from federation.snapshot import MeshRecord, PoolRecord
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, MeshId, PoolName, TenantPath
from mesh.core.resources import ResourceSet

A100 = FlavorName("a100")
ACME, LAB, SHOP = TenantPath("acme"), TenantPath("acme/lab"), TenantPath("acme/shop")
ONE_GPU = ResourceSet.of({"gpu": 1})
TERMS = LeaseTerms(ttl_ms=60_000, grace_ms=1)


def tree(*, lab=4, shop=4, own=0, lab_borrows=None, shop_lends=None) -> TenantTree:
    """Return a tree of two teams with GPUs under one company."""

    def quota(gpus, **limits):
        return {(A100, "gpu"): Quota(nominal=gpus * 10_000, **{name: units and units * 10_000 for name, units in limits.items()})}

    return TenantTree(
        [
            Tenant(path=ACME, parent=None, quotas=quota(own)),
            Tenant(path=LAB, parent=ACME, quotas=quota(lab, borrowing_limit=lab_borrows), functions=("lab:*",)),
            Tenant(path=SHOP, parent=ACME, quotas=quota(shop, lending_limit=shop_lends), pickled_code=True),
        ]
    )


def record(mesh="west") -> MeshRecord:
    pool = PoolRecord(pool=PoolName("p"), flavor=A100, capacity=ResourceSet.of({"gpu": 8, "memory": "4GiB"}))
    return MeshRecord(mesh=MeshId(mesh), labels={"zone": mesh}, pools=(pool,), cluster="c" * 8)


def gpu(count) -> ResourceSet:
    return ResourceSet.of({"gpu": count})


def ask(mesh, demand=1, tenant=LAB, *, slot=ONE_GPU, flavor=A100, priority=0):
    return mesh.acquire(tenant, flavor, slot, demand, priority)


def gpus(ledger, tenant) -> int:
    """Return the whole GPUs charged to the node."""
    return ledger.snapshot().usage.get((tenant, A100, "gpu"), 0) // 10_000


def target_update(ledger, *target_updates, wait_ms=None, victims=()):
    """Apply a plan of (mesh, tenant, whole GPUs[, GPUs the plan saw]), which stops these victims."""
    planner = ledger.elect("planner", 10**9)
    version = ledger.snapshot().version
    return ledger.plan_apply(
        planner,
        version,
        tuple(
            TargetUpdate(
                mesh=MeshId(mesh),
                tenant=tenant,
                flavor=A100,
                target=gpu(count),
                before=gpu(seen[0]) if seen else None,
                wait_ms=wait_ms,
                victims=victims,
            )
            for mesh, tenant, count, *seen in target_updates
        ),
    )
