"""Trust domains in routing: an unshared Ray cluster takes the work of one top-level tenant."""

from __future__ import annotations

import pytest

from federation.routing.domains import crowded
from federation.routing.route import Routed, RouteRefused, route
from federation.routing.routing_request import RoutingRequest
from federation.snapshot import FederationSnapshot, LeaseView, MeshRecord, MeshView, PoolRecord
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, MeshId, PoolName, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet

STANDARD = FlavorName("standard")
ONE_CPU = ResourceSet.of({"cpu": 1})
ALPHA, LAB, BETA = TenantPath("alpha"), TenantPath("alpha/lab"), TenantPath("beta")
BOTH = (ALPHA, BETA)


def a_mesh(name: str, *tenants: str, cluster: str = "one", shared: bool = False) -> MeshView:
    pool = PoolRecord(pool=PoolName("general"), flavor=STANDARD, capacity=ResourceSet.of({"cpu": 4}))
    record = MeshRecord(mesh=MeshId(name), labels={}, pools=(pool,), cluster=cluster, tenants=tenants or ("*",), shared=shared)
    return MeshView(record=record, incarnation=1, alive=True, heartbeat_age_ms=0)


def a_snapshot(
    *meshes: MeshView, tenants: tuple[TenantPath, ...] = (ALPHA, LAB, BETA), holder: TenantPath | None = None
) -> FederationSnapshot:
    quotas = {(STANDARD, "cpu"): Quota(nominal=40_000)}
    tree = TenantTree(Tenant(path=path, parent=ALPHA if path == LAB else None, quotas=quotas) for path in tenants)
    held = (
        LeaseView(lease="l", tenant=holder, mesh=MeshId("east"), flavor=STANDARD, amounts=ONE_CPU, token=1) if holder is not None else None
    )
    return FederationSnapshot(at_ms=0, tree=tree, meshes=meshes, leases=(held,) if held is not None else ())


CROWDED = {
    "a mesh for everybody, of two": (a_snapshot(a_mesh("east")), {"east": BOTH}),
    "a mesh for everybody, of one": (a_snapshot(a_mesh("east"), tenants=(ALPHA, LAB)), {}),
    "a mesh for tenants of one": (a_snapshot(a_mesh("east", "alpha", "alpha/lab")), {}),
    "a mesh for one that is not in the tree": (a_snapshot(a_mesh("east", "alpha", "gamma")), {}),
    "a shared cluster": (a_snapshot(a_mesh("east", shared=True)), {}),
    "a mesh for each, on one cluster": (a_snapshot(a_mesh("east", "alpha"), a_mesh("west", "beta")), {"east": BOTH, "west": BOTH}),
    "a mesh for each, on clusters of their own": (a_snapshot(a_mesh("east", "alpha"), a_mesh("west", "beta", cluster="two")), {}),
    "a mesh for each, on clusters that nobody knows": (
        a_snapshot(a_mesh("east", "alpha", cluster=""), a_mesh("west", "beta", cluster="")),
        {},
    ),
    "a cluster that one of its meshes calls shared": (
        a_snapshot(a_mesh("east", "alpha", shared=True), a_mesh("west", "beta")),
        {"east": BOTH, "west": BOTH},
    ),
    "a tenant that is gone, and whose work still runs": (a_snapshot(a_mesh("east"), tenants=(BETA,), holder=LAB), {"east": BOTH}),
    "a tenant that is gone, with all of its work": (a_snapshot(a_mesh("east"), tenants=(BETA,)), {}),
    "one that is crowded beside one that is not": (
        a_snapshot(a_mesh("east"), a_mesh("west", "beta", cluster="two")),
        {"east": BOTH},
    ),
}


@pytest.mark.parametrize(("snapshot", "found"), CROWDED.values(), ids=CROWDED)
def test_crowded_domains_are(snapshot: FederationSnapshot, found: dict[str, tuple[TenantPath, ...]]):
    assert crowded(snapshot) == found


@pytest.mark.parametrize("tenant", [LAB, BETA])
def test_a_crowded_cluster_takes_nothing_from_anybody(tenant: TenantPath):
    answer = route(RoutingRequest(tenant=tenant, slot=ONE_CPU), a_snapshot(a_mesh("east")))
    assert isinstance(answer, RouteRefused)
    assert answer.reason is Reason.CLUSTER_NOT_SHARED
    assert answer.detail == "east: its Ray cluster admits 2 top-level tenants, and is not `shared`: it admits nothing new"


def test_work_goes_to_the_cluster_of_its_own_tenant_instead():
    snapshot = a_snapshot(a_mesh("east"), a_mesh("west", "beta", cluster="two"))
    answer = route(RoutingRequest(tenant=BETA, slot=ONE_CPU), snapshot)
    assert isinstance(answer, Routed)
    assert answer.mesh == "west"
    refused = route(RoutingRequest(tenant=LAB, slot=ONE_CPU), snapshot)
    assert [verdict.reason for verdict in refused.verdicts] == [Reason.CLUSTER_NOT_SHARED, Reason.TENANT_NOT_ALLOWED]
