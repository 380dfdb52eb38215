"""Laws of strict order: root and mesh give the same reasons to a tenant's waiting stages."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from federation.dispatch import QueuedStage
from federation.estimates import CostRules, Pace
from federation.explaining.forecasts import Forecasts
from federation.manual_mesh import ManualMesh
from federation.mesh_conditions import MeshCondition
from federation.quota.policies import QueueSettings, TenantPolicies
from federation.quota.tenant_policies import PoliciesInForce
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.memory.store import MemoryStore
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.clock import ManualClock
from mesh.core.ids import FlavorName, MeshId, PoolName, RunId, StageId, TenantPath
from mesh.core.pools import PoolSpec
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.preemption.stage_preemption import PreemptionPolicy
from mesh.stages.admission import StageAdmission
from mesh.stages.admission_decisions import AcquireLease
from mesh.stages.admission_events import LeaseGranted, LeaseRefused, WorkloadOffered
from mesh.stages.workloads import WorkloadState

STD, POOL, LAB, EAST = FlavorName("std"), PoolName("p"), TenantPath("lab"), MeshId("east")
CPU = ResourceSet.of({"cpu": 1})
works = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=7)


def admitted(cpus: int, quota: int, work: list[tuple[int, int]]) -> tuple[StageAdmission, int]:
    """Return the mesh after it has tried all the work, and the number of CPUs in use."""
    admission, used = StageAdmission((PoolSpec(pool=POOL, flavor=STD, capacity=CPU.times(cpus)),)), 0
    offers = [
        WorkloadOffered(
            workload=StageId(f"s{number}"),
            tenant=LAB,
            slot=CPU.times(size),
            width=1,
            priority=priority,
            preemption=PreemptionPolicy(in_order=True),
        )
        for number, (size, priority) in enumerate(work)
    ]
    decisions = admission.handle(*offers)
    while asking := [each for each in decisions if isinstance(each, AcquireLease)]:
        decisions = []
        for each in asking:
            size = each.slot["cpu"] // CPU["cpu"]
            if used + size <= quota:
                used += size
                decisions += admission.handle(LeaseGranted(workload=each.workload, slots=1, token=1))
            else:
                decisions += admission.handle(LeaseRefused(workload=each.workload, reason=Reason.QUOTA_EXHAUSTED, detail="none left"))
    return admission, used


@settings(max_examples=60)
@given(cpus=st.integers(1, 6), quota=st.integers(1, 6), work=works)
def test_root_and_mesh_agree_on_who_is_behind_the_head(cpus, quota, work):
    admission, used = admitted(cpus, quota, work)
    waiting = sorted((one for one in admission.workloads.values() if one.state is WorkloadState.QUEUED), key=lambda one: one.turn)
    store = MemoryStore(clock=ManualClock(1_700_000_000_000), ttl_ms=30_000, grace_ms=10_000)
    store.configure(TenantTree([Tenant(path=LAB, parent=None, quotas={(STD, "cpu"): Quota(nominal=quota * CPU["cpu"])})]))
    pool = PoolRecord(pool=POOL, flavor=STD, capacity=CPU.times(cpus), used=CPU.times(used))
    mesh = ManualMesh(store, MeshRecord(mesh=EAST, labels={}, pools=(pool,), cluster="c"))
    if used:
        mesh.acquire(LAB, STD, CPU, used)
    snapshot = store.snapshot()
    snapshot = replace(snapshot, meshes=tuple(replace(view, condition=MeshCondition(pace=Pace(run_ms=4_000))) for view in snapshot.meshes))
    queue = tuple(
        QueuedStage(
            stage=one.offer.workload,
            run=RunId("r"),
            tenant=LAB,
            slot=one.offer.slot,
            width=1,
            priority=one.offer.priority,
            reason=Reason.WAITING_IN_QUEUE,
        )
        for one in waiting
    )
    orders = PoliciesInForce(filed=TenantPolicies(settings={LAB: QueueSettings(is_strict=True)}))
    about = Forecasts(snapshot, orders, {EAST: queue}, CostRules(), {})
    forecasts = {stage.stage: about.of(stage.stage) for stage in queue}
    behind = {one.offer.workload for one in waiting if one.reported is not None and one.reported[0] is Reason.BEHIND_HEAD}
    assert {stage for stage, forecast in forecasts.items() if forecast.reason is Reason.BEHIND_HEAD} == behind
    assert len(behind) == max(0, len(waiting) - 1)
    starts = [forecasts[stage.stage].start_ms for stage in queue]
    known = [start for start in starts if start is not None]
    assert known == sorted(starts[: len(known)], key=lambda start: start or 0), "none starts before one that comes first"
