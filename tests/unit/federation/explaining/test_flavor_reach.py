"""Flavors that a stage could use."""

from outlook_bed import CPU, EAST, ONE, TREE, VISION, WEST, forecasts, pending, queued

from federation.explaining.flavor_reach import FlavorReach
from federation.manual_mesh import ManualMesh
from federation.snapshot import MeshRecord, PoolRecord
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, PoolName, TenantPath


def test_flavor_beyond_the_tenants_limit_is_unreachable(store):
    rich = Tenant(path=TenantPath("rich"), parent=None, quotas={(FlavorName("spot"), "cpu"): Quota(nominal=9 * ONE)})
    store.configure(TenantTree([*TREE.tenants.values(), rich]))
    pools = tuple(PoolRecord(pool=PoolName(flavor), flavor=FlavorName(flavor), capacity=CPU.times(8)) for flavor in ("std", "spot"))
    ManualMesh(store, MeshRecord(mesh=EAST, labels={}, pools=pools, cluster="c"))
    about = forecasts(store, east=[queued("r.1", TenantPath("rich")), queued("r.2", VISION)])
    assert (about.of("r.2").mesh_ahead, about.of("r.2").ahead) == (0, 0)


def test_reach_counts_large_enough_pools_or_else_all(store):
    pools = tuple(
        PoolRecord(pool=PoolName(flavor), flavor=FlavorName(flavor), capacity=CPU.times(cpus)) for flavor, cpus in (("std", 8), ("spot", 2))
    )
    ManualMesh(store, MeshRecord(mesh=EAST, labels={}, pools=pools, cluster="c"))
    snapshot = store.snapshot()
    reach = FlavorReach(snapshot.tree, {view.record.mesh: view for view in snapshot.meshes})
    assert [reach.at_mesh(pending(cpus=cpus)) for cpus in (1, 4, 9)] == [("spot", "std"), ("std",), ("spot", "std")]
    assert (reach.at_mesh(pending(mesh=WEST)), reach.of(pending(mesh=WEST))) == ((), frozenset())
