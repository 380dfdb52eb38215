"""Wait for capacity at a mesh."""

from dataclasses import replace

from outlook_bed import CPU, EAST, GPU, GPU_FLAVOR, NO_AGES, ONE, ORDERS, RUN_MS, STD, TREE, on_gpu, pending

from federation.estimates import CostRules, Pace
from federation.explaining.forecasts import Forecasts
from federation.manual_mesh import ManualMesh
from federation.mesh_conditions import MeshCondition
from federation.snapshot import MeshRecord, PoolRecord
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import PoolName, TenantPath
from mesh.core.reasons import Reason


def test_capacity_forecast_counts_only_usable_flavors(store):
    rich = TenantPath("rich")
    plenty = {(STD, "cpu"): Quota(nominal=99 * ONE), (GPU_FLAVOR, "gpu"): Quota(nominal=99 * ONE)}
    store.configure(TenantTree([*TREE.tenants.values(), Tenant(path=rich, parent=None, quotas=plenty)]))
    plain = PoolRecord(pool=PoolName("p"), flavor=STD, capacity=CPU.times(51), used=CPU.times(50))
    gpus = PoolRecord(pool=PoolName("g"), flavor=GPU_FLAVOR, capacity=GPU.times(2), used=GPU.times(2))
    ManualMesh(store, MeshRecord(mesh=EAST, labels={}, pools=(plain, gpus), cluster="c"))
    snapshot = store.snapshot()
    busy = tuple(replace(view, condition=MeshCondition(pace=Pace(run_ms=RUN_MS)), claimed=52) for view in snapshot.meshes)
    queue = tuple(on_gpu(f"r.{number}", rich, reason=Reason.POOL_BUSY) for number in range(20))
    about = Forecasts(replace(snapshot, meshes=busy), ORDERS, {EAST: queue}, CostRules(), NO_AGES)
    behind_twenty = about.would_be(replace(pending(rich), slot=GPU))
    assert (behind_twenty.mesh_ahead, behind_twenty.start_ms) == (20, snapshot.at_ms + 21 * RUN_MS // 2)
    beside_them = about.would_be(pending(rich))
    assert (beside_them.reason, beside_them.start_ms) == (None, snapshot.at_ms)
