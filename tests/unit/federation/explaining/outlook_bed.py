"""Waiting and hypothetical stages on a ledger in memory: two tenants below one, and meshes of one or two flavors."""

from dataclasses import replace

from federation.dispatch import QueuedStage, StageAges
from federation.estimates import CostRules, Pace
from federation.explaining.forecasts import Forecasts
from federation.explaining.pending_stages import PendingStage
from federation.explaining.preemption_preview import StartedStage
from federation.manual_mesh import ManualMesh
from federation.mesh_conditions import MeshCondition
from federation.quota.policies import Policies, PreemptionMode, QueueSettings, Rules, TenantPolicies
from federation.quota.tenant_policies import PoliciesInForce
from federation.snapshot import MeshRecord, PoolRecord, RunningView
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, MeshId, PoolName, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet

STD, EAST, WEST = FlavorName("std"), MeshId("east"), MeshId("west")
GPU_FLAVOR = FlavorName("a100")
ACME, VISION, BATCH = TenantPath("acme"), TenantPath("acme/vision"), TenantPath("acme/batch")
CPU, GPU = ResourceSet.of({"cpu": 1}), ResourceSet.of({"gpu": 1})
ONE = CPU["cpu"]
RUN_MS = 4_000
NO_AGES: dict[MeshId, StageAges] = {}
ORDERS = PoliciesInForce(filed=TenantPolicies(rules=Rules(min_run_ms=0)))
IN_ORDER = PoliciesInForce(
    filed=replace(
        ORDERS.filed, settings={VISION: QueueSettings(is_strict=True, policies=Policies(within_queue=PreemptionMode.LOWER_PRIORITY))}
    )
)
TREE = TenantTree(
    [
        Tenant(path=ACME, parent=None, quotas={(STD, "cpu"): Quota()}),
        Tenant(path=VISION, parent=ACME, quotas={(STD, "cpu"): Quota(nominal=4 * ONE)}),
        Tenant(path=BATCH, parent=ACME),
    ]
)


def joined(store, name, cpus=8):
    pool = PoolRecord(pool=PoolName("p"), flavor=STD, capacity=CPU.times(cpus))
    return ManualMesh(store, MeshRecord(mesh=name, labels={}, pools=(pool,), cluster="c"))


def joined_with_two_flavors(store, name):
    store.configure(
        TenantTree(
            [
                *(tenant for path, tenant in TREE.tenants.items() if path != BATCH),
                Tenant(path=BATCH, parent=ACME, quotas={(GPU_FLAVOR, "gpu"): Quota(nominal=2 * ONE)}),
            ]
        )
    )
    plain = PoolRecord(pool=PoolName("p"), flavor=STD, capacity=CPU.times(8))
    gpus = PoolRecord(pool=PoolName("g"), flavor=GPU_FLAVOR, capacity=GPU.times(2))
    return ManualMesh(store, MeshRecord(mesh=name, labels={}, pools=(plain, gpus), cluster="c"))


def queued(name, tenant, cpus=1, priority=0, reason=Reason.QUOTA_EXHAUSTED):
    return QueuedStage(
        stage=StageId(name), run=RunId("r"), tenant=tenant, slot=ResourceSet({"cpu": cpus * ONE}), width=1, priority=priority, reason=reason
    )


def on_gpu(name, tenant, reason=Reason.QUOTA_EXHAUSTED):
    return replace(queued(name, tenant, reason=reason), slot=GPU)


def _row(one, number):
    about = {"flavor": STD, "amounts": one.slot.times(one.slots), "priority": one.priority, "slots": one.slots}
    times = {"since_ms": one.started_ms, "created_ms": one.started_ms}
    return RunningView(stage=one.stage, mesh=one.mesh, tenant=one.tenant, token=number, **about, **times)


def forecasts(store, tenant_policies=ORDERS, running=(), ages=NO_AGES, **queues):
    snapshot = store.snapshot()
    paced = tuple(replace(view, condition=MeshCondition(pace=Pace(run_ms=RUN_MS))) for view in snapshot.meshes)
    waiting = {MeshId(mesh): tuple(stages) for mesh, stages in queues.items()}
    rows = tuple(_row(one, number) for number, one in enumerate(running, start=1))
    return Forecasts(replace(snapshot, meshes=paced, running=rows), tenant_policies, waiting, CostRules(), ages, lambda _tenant: running)


def pending(tenant=VISION, cpus=1, mesh=EAST, name="new", priority=0, created_ms=0):
    slot = CPU.times(cpus)
    return PendingStage(stage=name, tenant=tenant, mesh=mesh, slot=slot, priority=priority, arrival=10_000, created_ms=created_ms)


def begun(name, priority=0, mesh=EAST, tenant=VISION, created_ms=0):
    return StartedStage(
        stage=StageId(name), tenant=tenant, mesh=mesh, slot=CPU, slots=1, priority=priority, started_ms=0, created_ms=created_ms
    )
